"""Verification names every file that was edited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rlab.benchmarking import Benchmark, verify_benchmark
from rlab.benchmarking.manifest import MANIFEST, Edited
from rlab.errors import FolderError, InputError, ModelError, OptionError
from rlab.storage import files
from tests.benchmarking.cases import PAIRS, Case, brightness, made_once, reached
from tests.helpers import exact_victim


@pytest.mark.parametrize(("rank", "form"), PAIRS)
def test_an_unchanged_benchmark_holds(rank: int, form: str, tmp_path: Path):
    case, benchmark = Case(rank), made_once(tmp_path, rank, form)
    checked = verify_benchmark(tmp_path / "b", {"exact": case.victim})
    assert checked.holds
    assert checked.files == sum(bool(row["reached"]) for row in benchmark.rows)
    assert checked.asked == sum(case.victim.rows.values()) == checked.files - len(benchmark.originals())
    assert (
        str(checked)
        == f"{checked.files} files checked with {checked.asked} queries to their victims: all checks passed"
    )
    assert verify_benchmark(benchmark).unasked == ("exact",)
    assert (
        str(verify_benchmark(benchmark))
        == f"{checked.files} files checked: all checks passed; without a query to exact"
    )


@pytest.mark.parametrize(("rank", "form"), PAIRS)
def test_a_flipped_bit_anywhere_names_the_file(rank: int, form: str, tmp_path: Path):
    benchmark = made_once(tmp_path, rank, form)
    row = reached(benchmark, "x1.5")[0]
    path = benchmark.folder / row["file"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    checked = verify_benchmark(benchmark)
    assert not checked.holds
    assert all(each.file.startswith(row["file"]) for each in checked.mismatches)
    with pytest.raises(Edited, match=path.name):
        benchmark.read(reached(benchmark, "x1.5"))


def test_a_changed_pixel_and_a_missing_file_are_named(tmp_path: Path):
    benchmark = made_once(tmp_path)
    first, second = (benchmark.folder / row["file"] for row in reached(benchmark, "flip")[:2])
    pixels = np.asarray(Image.open(first)).copy()
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(first)
    second.unlink()
    reasons = {each.file: each.what for each in verify_benchmark(benchmark).mismatches}
    assert reasons[first.relative_to(benchmark.folder).as_posix()] == "its sha256 is not the one in the metadata"
    assert "is missing" in reasons[second.relative_to(benchmark.folder).as_posix()]


def test_an_edited_original_is_named(tmp_path: Path):
    benchmark = made_once(tmp_path)
    path = benchmark.folder / benchmark.originals()[0]["file"]
    path.write_bytes(b"no picture")
    assert [each.file for each in verify_benchmark(benchmark).mismatches] == [benchmark.originals()[0]["file"]]


def test_edited_labels_of_an_array_are_named(tmp_path: Path):
    benchmark = made_once(tmp_path, 2, "npz")
    path = benchmark.folder / "exact" / "flip.npz"
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["y"][0] += 1
    np.savez(path, **arrays)
    mismatches = verify_benchmark(benchmark).mismatches
    assert [str(each) for each in mismatches] == ["exact/flip.npz row 0: the id or label of row 0 differs"]


def test_a_distance_that_differs_from_the_metadata_is_named(tmp_path: Path):
    benchmark = made_once(tmp_path)
    rows = [dict(row) for row in benchmark.rows]
    at = next(i for i, row in enumerate(rows) if row["reached"] and row["victim"])
    rows[at]["l2"] *= 1.01
    mismatches = verify_benchmark(Benchmark(benchmark.folder, benchmark.manifest, tuple(rows))).mismatches
    assert [each.file for each in mismatches] == [rows[at]["file"]]
    assert "its l2 is" in mismatches[0].what


def test_a_model_that_does_not_err_is_named_with_every_file(tmp_path: Path):
    benchmark = made_once(tmp_path)
    mismatches = verify_benchmark(benchmark, {"exact": exact_victim(2, seed=5)}).mismatches
    assert mismatches
    assert all("its victim exact does not err on it" in each.what for each in mismatches)


def edit_metadata(benchmark: Benchmark) -> None:
    rows = pq.read_table(benchmark.folder / "metadata.parquet").to_pylist()
    rows[-1]["label"] = 0 if rows[-1]["label"] else 1
    files.write_rows(benchmark.folder / "metadata.parquet", rows, "")
    Benchmark.load(benchmark.folder)


def load_with_manifest(content: str) -> Callable[[Benchmark], object]:
    def load(benchmark: Benchmark) -> Benchmark:
        (benchmark.folder / "manifest.json").write_text(content)
        return Benchmark.load(benchmark.folder)

    return load


REFUSED: list[tuple[Callable[[Benchmark], object], type[InputError], str]] = [
    (edit_metadata, Edited, r"metadata\.parquet was edited"),
    *((load_with_manifest(text), FolderError, r"manifest\.json is damaged or from") for text in ("{}", "no json")),
    (load_with_manifest('{"rlab_benchmark": 99}'), FolderError, r"manifest\.json is damaged or from another version"),
    (lambda b: Benchmark.load(b.folder.parent), FolderError, "is not a benchmark folder"),
    (lambda b: b.of("exact", "x9"), OptionError, r"has no level 'x9': it has flip, x1\.5, x2"),
    (lambda b: b.of("vgg"), OptionError, "has no set against 'vgg'"),
    (lambda b: verify_benchmark(b, {"other": exact_victim(2)}), OptionError, "was not made against 'other'"),
    (
        lambda b: verify_benchmark(b, {"exact": brightness(classes=7)}),
        ModelError,
        "the model 'exact' has 7 classes, but the benchmark b has 3",
    ),
]


@pytest.mark.parametrize(("use", "error", "sentence"), REFUSED)
def test_invalid_use_is_refused_in_one_sentence(
    use: Callable[[Benchmark], object], error: type[InputError], sentence: str, tmp_path: Path
):
    with pytest.raises(error, match=sentence):
        use(made_once(tmp_path))


@pytest.mark.parametrize(
    ("field", "value"), [("sets", "agreement"), ("ladder", "confidence:0.9,flip"), ("storage", "wfdb")]
)
def test_a_set_of_an_unknown_kind_is_refused_with_what_to_do(field: str, value: str, tmp_path: Path):
    path = made_once(tmp_path).folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(FolderError, match=rf"\({field} is '{value}'\): make the benchmark again, or read it with the"):
        Benchmark.load(tmp_path / "b")


def test_a_manifest_of_0_3_0_is_read(tmp_path: Path):
    path = made_once(tmp_path).folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"members": [], "reference": ""}))
    assert verify_benchmark(tmp_path / "b").holds
