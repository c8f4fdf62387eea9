"""Records that were read once: the cache gives the same values, notices changes, and survives damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.data.load import load
from rlab.data.wfdb_cache import kept_file, read_ahead_of_time, read_recording
from rlab.data.wfdb_files import GAP, Recording, read_files
from tests.data.test_wfdb_records import write


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLAB_CACHE", str(tmp_path / "cache"))
    write(tmp_path, "100", gap=500)
    return tmp_path / "100"


def same(one: Recording, other: Recording) -> bool:
    arrays = all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("digital", "gain", "zero", "at", "at_ends", "at_one")
    )
    return arrays and all(
        getattr(one, name) == getattr(other, name) for name in ("leads", "units", "rate", "comments", "symbols")
    )


def file_of(record: Path) -> Path:
    file = kept_file(record)
    assert file is not None
    return Path(file)


def test_a_kept_record_is_the_record(record: Path):
    first = read_recording(record)
    assert file_of(record).is_file()
    second = read_recording(record)
    assert same(first, second)
    assert same(second, read_files(record))
    assert (second.digital == GAP).any()
    assert np.isnan(second.physical([0])).sum() == (second.digital[:, 0] == GAP).sum()


def test_a_kept_record_needs_no_wfdb(record: Path, monkeypatch: pytest.MonkeyPatch):
    first = read_recording(record)
    monkeypatch.setattr("rlab.data.wfdb_cache.read_files", lambda path: pytest.fail("read again"))
    assert np.array_equal(read_recording(record).digital, first.digital)


@pytest.mark.parametrize("ending", [".hea", ".dat", ".atr"])
def test_a_changed_file_is_read_again(record: Path, ending: str):
    read_recording(record)
    before = file_of(record).stat().st_mtime_ns
    os.utime(record.with_suffix(ending), ns=(1, 1))
    read_recording(record)
    assert file_of(record).stat().st_mtime_ns > before


def test_a_new_annotation_file_is_noticed(record: Path):
    notes = record.with_suffix(".atr").read_bytes()
    record.with_suffix(".atr").unlink()
    assert not read_recording(record).annotated
    record.with_suffix(".atr").write_bytes(notes)
    assert read_recording(record).annotated


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "of another record", "text"])
def test_a_damaged_file_is_read_again(record: Path, damage: str):
    right = read_recording(record)
    file = file_of(record)
    content = bytearray(file.read_bytes())
    if damage == "of another record":
        write(record.parent, "101", leads=("V1", "V2"))
        read_recording(record.with_name("101"))
        shutil.copy(file_of(record.with_name("101")), file)
    else:
        content[-20] ^= 1
        half = content[: len(content) // 2]
        file.write_bytes(bytes({"cut": half, "flipped": content, "empty": b"", "text": b"hello"}[damage]))
    assert same(read_recording(record), right)
    assert same(read_recording(record), right)


def test_without_a_cache_nothing_is_written(record: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RLAB_CACHE", "")
    assert kept_file(record) is None
    read_recording(record)
    assert not (record.parent / "cache").exists()


def test_a_cache_that_cannot_be_written_only_costs_time(record: Path):
    (record.parent / "cache").write_text("a file, not a folder")
    assert same(read_recording(record), read_files(record))


@pytest.mark.slow
def test_other_processes_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("rlab.data.wfdb_cache.FEW", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for name in ("100", "101", "102"):
        write(tmp_path, name)
    (tmp_path / "102.hea").write_text("not a header")
    paths = [tmp_path / name for name in ("100", "101", "102")]
    read_ahead_of_time(paths)
    assert [file_of(path).is_file() for path in paths] == [True, True, False]
    assert [loss[0] for loss in load(tmp_path).left_out if "cannot" in loss[1]] == ["102"]


def test_streamed_and_loaded_samples_are_equal(record: Path):
    whole, source = load(record.parent), load(record.parent, stream=True)
    assert torch.equal(whole.x, source[:].x)
    assert whole.ids == source[:].ids
