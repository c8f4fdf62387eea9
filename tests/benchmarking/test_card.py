"""The code on a card reads the same samples as the benchmark itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlab.benchmarking import Benchmark
from tests.benchmarking.cases import PAIRS, made_once

_LIBRARIES = {"mp4": "av"}


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
    rows = benchmark.stored("exact")
    samples = run_snippet(benchmark)
    assert [label for _, label in samples] == [row["label"] for row in rows]
    for (x, _), stored in zip(samples, benchmark.read(rows), strict=True):
        assert np.allclose(values(x, form, stored.shape[0]), stored.numpy(), atol=1e-6)
