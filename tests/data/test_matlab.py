"""CPSC 2018 as MATLAB files: as its authors published it, and with headers as in the challenge of 2020."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from rlab.data import wfdb_files
from rlab.data.load import load
from rlab.errors import InputError

LINES = (
    "Recording,First_label,Second_label,Third_label",
    "A0001,5,,",
    "A0002,1,,",
    "A0003,2,5,",
    "A0004,9,,",
    "A0005,,,",
)
X = np.random.default_rng(0).normal(0, 0.3, (12, 5600))


def write(folder: Path, name: str, data: Any = X, compress: bool = False, **fields: Any) -> None:
    folder.mkdir(exist_ok=True)
    ecg = {"sex": "Male", "age": 74, **({} if data is None else {"data": data}), **fields}
    savemat(folder / f"{name}.mat", {"ECG": ecg}, do_compression=compress)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, below in ((1, "set1"), (2, "set1"), (3, "set2"), (5, "set2")):
        write(tmp_path / below, f"A000{number}", compress=number == 3)
    (tmp_path / "REFERENCE.csv").write_text("\n".join(LINES))
    return tmp_path


def test_records_and_labels_as_published(folder: Path):
    batch = load(folder)
    assert batch.classes == ("atrial fibrillation", "right bundle branch block", "sinus rhythm")
    assert batch.y.tolist() == [[0, 1, 0], [0, 0, 1], [1, 1, 0]]
    assert (batch.rate, batch.unit, batch.shape, batch.leads[3]) == (500.0, "mV", (12, 5000), "aVR")
    assert torch.equal(batch.x[0], torch.from_numpy(X[:, :5000]).float())
    assert batch.left_out == (("A0005", "has none of the labels"),)
    assert torch.equal(load(folder).x, batch.x)  # from the cache
    slow = load(folder, rate=100, label_column="abbreviation", multilabel=False)
    assert (slow.shape, slow.classes, slow.y.tolist()) == ((12, 1000), ("NSR", "RBBB"), [1, 0])


def test_a_changed_file_is_read_again(folder: Path):
    before = load(folder).x
    write(folder / "set1", "A0001", 2 * X)
    after = load(folder).x
    assert torch.equal(after[0], 2 * before[0])
    assert torch.equal(after[1:], before[1:])


@pytest.mark.parametrize(
    ("data", "words"),
    [(None, "no structure ECG with data"), (X[:8], "12 rows"), (X.T, "12 rows"), (X[:, :0], "12 rows"), (X + 1j, "12 rows"),
     ("text", "12 rows"), (100 * X, "gain"), (np.zeros((12, 5600)), "flat")],
)  # fmt: skip
def test_a_bad_record_is_left_out_with_a_reason(folder: Path, data: Any, words: str):
    write(folder / "set1", "A0001", data)
    batch = load(folder)
    assert len(batch) == 2
    assert dict(batch.left_out)[next(name for name, _ in batch.left_out if name.startswith("A0001"))].count(words) == 1


def test_files_that_are_none_or_unpack_to_too_much_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "set1" / "A0002.mat").write_bytes(b"no file of MATLAB" * 20)
    monkeypatch.setattr(wfdb_files, "_LARGEST_MATLAB", 2**20)
    write(folder / "set1", "A0001", np.zeros((12, 200_000)), compress=True)  # 18 MiB, packed into a few KiB
    batch = load(folder)
    reasons = dict(batch.left_out)
    assert "unpacks to more than 1 MiB" in reasons["A0001"]
    assert "cannot be read" in reasons["A0002"]
    assert len(batch) == 1


def test_an_unknown_column_is_one_sentence(folder: Path):
    with pytest.raises(InputError, match="label_column"):
        load(folder, label_column="scp")


def test_the_form_of_2020_has_headers_beside_the_same_files(tmp_path: Path):
    values = np.rint(1000 * X).astype(np.int16)
    savemat(tmp_path / "A0001.mat", {"val": values}, format="4")
    lines = [
        f"A0001.mat 16+24 1000/mV 16 0 {row[0]} 0 0 {lead}" for row, lead in zip(values, wfdb_files.TWELVE, strict=True)
    ]
    (tmp_path / "A0001.hea").write_text("\n".join(["A0001 12 500 5600", *lines, "#Dx: 59118001"]) + "\n")
    batch = load(tmp_path)
    assert batch.classes == ("right bundle branch block",)
    assert torch.allclose(batch.x[0], torch.from_numpy(values[:, :5000] / 1000).float())
