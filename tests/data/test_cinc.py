"""Folders in the layout of the CinC challenges 2020 and 2021: diagnoses as SNOMED codes in the headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import wfdb
from scipy.io import savemat

from rlab.data.load import load
from rlab.data.physionet import SNOMED
from rlab.errors import OptionError

TWELVE = ["I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6"]
DIAGNOSES = {
    "g1/A0001": "59118001",
    "g1/A0002": "426783006",
    "g2/A0003": "164889003,59118001",
    "g2/A0004": "99999999",
    "g2/A0005": "",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("training")
    draw = np.random.default_rng(0)
    for name, codes in DIAGNOSES.items():
        below = place / Path(name).parent
        below.mkdir(exist_ok=True)
        wfdb.wrsamp(
            Path(name).name, fs=500, units=["mV"] * 12, sig_name=TWELVE, p_signal=draw.normal(0, 0.3, (5600, 12)),
            write_dir=str(below), fmt=["16"] * 12, comments=["Age: 74", f"Dx: {codes}" if codes else "Sex: Male"],
        )  # fmt: skip
    return place


def test_several_labels_with_snomed_names(folder: Path):
    batch = load(folder)
    assert batch.classes == ("99999999", "atrial fibrillation", "right bundle branch block", "sinus rhythm")
    assert batch.y.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0]]
    assert (batch.rate, batch.unit, batch.shape, batch.leads) == (500.0, "mV", (12, 5000), tuple(TWELVE))
    assert batch.left_out == (("A0005", "has none of the labels"),)


@pytest.mark.parametrize(
    ("options", "classes", "ids"),
    [
        ({"label_column": "abbreviation"}, ("99999999", "AF", "NSR", "RBBB"), 4),
        ({"label_column": "code"}, ("164889003", "426783006", "59118001", "99999999"), 4),
        ({"classes": ("sinus rhythm", "atrial fibrillation")}, ("sinus rhythm", "atrial fibrillation"), 2),
        ({"records": ("A0001", "A0002")}, ("right bundle branch block", "sinus rhythm"), 2),
        (
            {"limit": 1, "order": "first"},
            ("99999999", "atrial fibrillation", "right bundle branch block", "sinus rhythm"),
            1,
        ),
    ],
)
def test_other_names_and_fewer_records(folder: Path, options: dict[str, Any], classes: tuple[str, ...], ids: int):
    batch = load(folder, **options)
    assert (batch.classes, len(batch)) == (classes, ids)


def test_one_label_per_record(folder: Path):
    batch = load(folder, multilabel=False)
    assert [batch.label_name(k) for k in batch.y.tolist()] == ["right bundle branch block", "sinus rhythm", "99999999"]
    assert ("A0003", "has several labels") in batch.left_out


def test_an_unknown_column(folder: Path):
    with pytest.raises(OptionError, match="name, abbreviation, code"):
        load(folder, label_column="icd10")


def test_codes_and_names_are_unique():
    assert len({name for name, _ in SNOMED.values()}) == len({short for _, short in SNOMED.values()}) == len(SNOMED)


def test_matlab_files_beside_headers(tmp_path: Path):
    values = np.rint(np.random.default_rng(0).normal(0, 300, (12, 5600))).astype(np.int16)
    savemat(tmp_path / "A0001.mat", {"val": values}, format="4")
    lines = [f"A0001.mat 16+24 1000/mV 16 0 {row[0]} 0 0 {lead}" for row, lead in zip(values, TWELVE, strict=True)]
    (tmp_path / "A0001.hea").write_text("\n".join(["A0001 12 500 5600", *lines, "#Dx: 59118001"]) + "\n")
    batch = load(tmp_path)
    assert batch.classes == ("right bundle branch block",)
    assert torch.allclose(batch.x[0], torch.from_numpy(values[:, :5000] / 1000).float())
