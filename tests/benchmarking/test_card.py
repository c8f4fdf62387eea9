"""The code on a card reads the same samples as the benchmark itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlab.benchmarking import Benchmark, verify_benchmark
from tests.benchmarking.cases import PAIRS, made_once

_LIBRARIES = {"parquet": "datasets", "wfdb": "wfdb", "mp4": "av"}


def run_snippet(benchmark: Benchmark) -> list[tuple[Any, int]]:
    """The Python block of the card, run in the folder."""
    found = re.search(r"```python\n(.*?)```", (benchmark.folder / "README.md").read_text(), re.S)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    return [(x, int(y)) for x, y in names["samples"]]


def values(x: Any, storage: str, channels: int) -> Any:
    """(c, *size), 8 bits as shares of 255, from what libraries give back."""
    x = np.asarray(x)
    if storage == "wfdb":
        return x.T
    if x.dtype != np.uint8:
        return x
    x = x[..., None] if channels == 1 and x.shape[-1] != 3 else x
    return np.moveaxis(x, -1, 0)[:channels] / 255


@pytest.mark.parametrize(("rank", "form"), PAIRS)
def test_the_snippet_of_the_card_reads_the_set(rank: int, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if form in _LIBRARIES:
        pytest.importorskip(_LIBRARIES[form])
    benchmark = made_once(tmp_path, rank, form)
    monkeypatch.chdir(benchmark.folder)
    if form == "parquet":
        import datasets

        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        whole = datasets.load_dataset(
            str(benchmark.folder), "exact-x1.5", split="test"
        )  # as the card's head declares it
        assert whole["id"] == [row["id"] for row in benchmark.stored("exact", "x1.5")]
    rows = benchmark.stored("exact")
    samples = run_snippet(benchmark)
    assert [label for _, label in samples] == [row["label"] for row in rows]
    for (x, _), stored in zip(samples, benchmark.read(rows), strict=True):
        assert np.allclose(values(x, form, stored.shape[0]), stored.numpy(), atol=1e-6)


@pytest.mark.parametrize("content", [b"", b"no such file", b"PAR1" + b"\0" * 600 + b"PAR1"])
def test_an_invalid_container_is_named(content: bytes, tmp_path: Path):
    benchmark = made_once(tmp_path, 2, "parquet")
    rows = benchmark.stored("exact")
    (benchmark.folder / rows[0]["file"]).write_bytes(content)
    mismatches = verify_benchmark(benchmark).mismatches
    assert {each.file for each in mismatches} == {f"{row['file']} row {row['row']}" for row in rows}
