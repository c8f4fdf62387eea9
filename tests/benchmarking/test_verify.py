"""What was edited is benchmark and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rlab.benchmarking import Benchmark, verify_benchmark
from rlab.benchmarking.folder import Edited
from rlab.errors import InputError
from rlab.storage import files
from tests.benchmarking.cases import PAIRS, Case, brightness, made_once, reached
from tests.helpers import exact_victim


@pytest.mark.parametrize(("rank", "form"), PAIRS)
def test_an_untouched_benchmark_holds(rank: int, form: str, tmp_path: Path):
    case, benchmark = Case(rank), made_once(tmp_path, rank, form)
    checked = verify_benchmark(tmp_path / "b", {"exact": case.victim})
    assert checked.holds
    assert checked.files == sum(bool(row["reached"]) for row in benchmark.rows)
    assert checked.asked == sum(case.victim.rows.values()) == checked.files - len(benchmark.originals())
    assert verify_benchmark(benchmark).unasked == ("exact",)


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
    told = {each.file: each.what for each in verify_benchmark(benchmark).mismatches}
    assert told[first.relative_to(benchmark.folder).as_posix()] == "its sha256 is not the one in the metadata"
    assert "is missing" in told[second.relative_to(benchmark.folder).as_posix()]


def test_an_edited_original_is_named(tmp_path: Path):
    benchmark = made_once(tmp_path)
    path = benchmark.folder / benchmark.originals()[0]["file"]
    path.write_bytes(b"no picture")
    assert [each.file for each in verify_benchmark(benchmark).mismatches] == [benchmark.originals()[0]["file"]]


def test_edited_labels_of_an_array_are_found(tmp_path: Path):
    benchmark = made_once(tmp_path, 2, "npz")
    path = benchmark.folder / "exact" / "flip.npz"
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["y"][0] += 1
    np.savez(path, **arrays)
    told = verify_benchmark(benchmark).mismatches
    assert [str(each) for each in told] == ["exact/flip.npz row 0: the id or label of row 0 differs"]


def test_edited_metadata_are_refused(tmp_path: Path):
    benchmark = made_once(tmp_path)
    rows = pq.read_table(benchmark.folder / "metadata.parquet").to_pylist()
    rows[-1]["label"] = 0 if rows[-1]["label"] else 1
    files.write_rows(benchmark.folder / "metadata.parquet", rows, "")
    with pytest.raises(Edited, match=r"metadata\.parquet was edited"):
        Benchmark.load(benchmark.folder)


def test_a_distance_that_is_not_the_metadatas_is_told(tmp_path: Path):
    benchmark = made_once(tmp_path)
    rows = [dict(row) for row in benchmark.rows]
    at = next(i for i, row in enumerate(rows) if row["reached"] and row["victim"])
    rows[at]["l2"] *= 1.01
    told = verify_benchmark(Benchmark(benchmark.folder, benchmark.manifest, tuple(rows)).with_hash()).mismatches
    assert [each.file for each in told] == [rows[at]["file"]]
    assert "its l2 is" in told[0].what


def test_a_model_that_does_not_err_is_told_with_every_file(tmp_path: Path):
    benchmark = made_once(tmp_path)
    told = verify_benchmark(benchmark, {"exact": exact_victim(2, seed=5)}).mismatches
    assert told
    assert all("its victim exact does not err on it" in each.what for each in told)


def test_models_that_cannot_be_the_victim_are_refused(tmp_path: Path):
    benchmark = made_once(tmp_path)
    with pytest.raises(InputError, match="was not made against 'other'"):
        verify_benchmark(benchmark, {"other": exact_victim(2)})
    with pytest.raises(InputError, match="answers with 7 classes, the benchmark b has 3"):
        verify_benchmark(benchmark, {"exact": brightness(classes=7)})


@pytest.mark.parametrize("content", ["{}", "not json", '{"rlab_benchmark": 99}'])
def test_a_damaged_manifest_is_one_sentence(content: str, tmp_path: Path):
    benchmark = made_once(tmp_path)
    (benchmark.folder / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"manifest\.json is damaged or of another version"):
        Benchmark.load(benchmark.folder)


def test_what_is_no_benchmark_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="is not a benchmark folder"):
        Benchmark.load(tmp_path)
    benchmark = made_once(tmp_path)
    with pytest.raises(InputError, match=r"has no level 'x9': it has flip, x1\.5, x2"):
        benchmark.of("exact", "x9")
    with pytest.raises(InputError, match="has no set against 'vgg'"):
        benchmark.of("vgg")
