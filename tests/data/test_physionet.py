"""Folders in the layout of PTB-XL and of the CinC 2017 challenge."""

from __future__ import annotations

import csv
import shutil
from typing import Any

import numpy as np
import pytest
import torch
import wfdb
from scipy.io import savemat

from rlab.data.load import load
from rlab.errors import DataError, InputError, OptionError

WRITTEN = ("I", "II", "III", "AVR", "AVL", "AVF", "V1", "V2", "V3", "V4", "V5", "V6")  # in the headers
LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
STATEMENTS = [
    # code, diagnostic, form, rhythm, diagnostic_class, diagnostic_subclass
    ("NORM", "1.0", "", "", "NORM", "NORM"),
    ("IMI", "1.0", "", "", "MI", "IMI"),
    ("ASMI", "1.0", "", "", "MI", "AMI"),
    ("LVH", "1.0", "", "", "HYP", "LVH"),
    ("NDT", "1.0", "1.0", "", "STTC", "STTC"),
    ("SR", "", "", "1.0", "", ""),
    ("AFIB", "", "", "1.0", "", ""),
]
RECORDS = [
    # fold, codes
    (1, "{'NORM': 100.0, 'SR': 0.0}"),
    (8, "{'IMI': 80.0, 'ASMI': 35.0, 'AFIB': 0.0}"),
    (3, "{'LVH': 100.0, 'NDT': 50.0, 'SR': 0.0}"),
    (9, "{'NORM': 80.0, 'SR': 0.0}"),
    (10, "{'IMI': 100.0, 'LVH': 50.0, 'AFIB': 0.0}"),
    (10, "{'SR': 0.0}"),
]


def make(folder, fast=True):
    """Six records of 10 s with 12 leads; value = record + lead / 100 + a slow wave. Returns what was written at 100 Hz."""
    rows, written = [], []
    for number, (fold, codes) in enumerate(RECORDS, 1):
        paths = {}
        for ending, rate in (("lr", 100), ("hr", 500))[: 2 if fast else 1]:
            place = folder / f"records{rate}" / "00000"
            place.mkdir(parents=True, exist_ok=True)
            time = np.arange(10 * rate) / rate
            values = np.stack([np.sin(2 * np.pi * time) + number + lead / 100 for lead in range(12)], 1)
            kinds = {"fmt": ["16"] * 12, "adc_gain": [1000.0] * 12, "baseline": [0] * 12}
            name = f"{number:05d}_{ending}"
            wfdb.wrsamp(
                name, fs=rate, units=["mV"] * 12, sig_name=list(WRITTEN), p_signal=values, write_dir=str(place), **kinds
            )
            paths[ending] = f"records{rate}/00000/{name}"
            if ending == "lr":
                written.append(values.T)
        report = 'sinus rhythm, "normal",\nsecond line'  # quotes, commas and line breaks occur in reports
        missing = f"records500/00000/{number:05d}_hr"
        rows.append([number, report, codes, fold, paths["lr"], paths.get("hr", missing)])
    with (folder / "ptbxl_database.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["ecg_id", "report", "scp_codes", "strat_fold", "filename_lr", "filename_hr"], *rows]
        )
    with (folder / "scp_statements.csv").open("w", newline="") as file:
        header = ["", "diagnostic", "form", "rhythm", "diagnostic_class", "diagnostic_subclass"]
        csv.writer(file).writerows([header, *STATEMENTS])
    return torch.from_numpy(np.stack(written).astype(np.float32))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder, and what was written there at 100 Hz."""
    place = tmp_path_factory.mktemp("ptbxl")
    return place, make(place)


@pytest.fixture(scope="module")
def folder(written):
    return written[0]


def copy_slow(folder, target):
    """The folder without its records at 500 Hz, to be spoilt."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("records500"), dirs_exist_ok=True)


def test_superclasses_of_every_record(folder, written):
    batch = load(folder)
    assert batch.x.shape == (5, 12, 1000)
    assert (batch.classes, batch.leads) == (("NORM", "MI", "STTC", "CD", "HYP"), LEADS)
    assert batch.y.tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 1]]
    assert (batch.unit, batch.rate, batch.r_peaks, batch.masks) == ("mV", 100, None, None)
    assert batch.left_out == (("00006", "has none of the labels"),)
    assert torch.allclose(batch.x, written[1][:5], atol=1e-3)


def test_the_recommended_folds(folder):
    def used(split):
        return [one.split("_")[0] for one in load(folder, split=split).ids]

    assert used("train") == ["00001", "00002", "00003"]
    assert used("val") == ["00004"]
    assert used("test") == ["00005"]


@pytest.mark.parametrize(
    ("column", "classes", "last"),
    [
        ("diagnostic_subclass", ("AMI", "IMI", "LVH", "NORM", "STTC"), ["IMI", "LVH"]),
        ("diagnostic", ("ASMI", "IMI", "LVH", "NDT", "NORM"), ["IMI", "LVH"]),
        ("rhythm", ("AFIB", "SR"), ["AFIB"]),
        ("scp", ("AFIB", "ASMI", "IMI", "LVH", "NDT", "NORM", "SR"), ["AFIB", "IMI", "LVH"]),
    ],
)
def test_other_labels(folder, column, classes, last):
    batch = load(folder, label_column=column)
    assert batch.classes == classes
    row = batch.y[batch.ids.index("00005_lr:000000")]
    assert [batch.classes[i] for i in row.nonzero().flatten()] == last


def test_single_labels_of_single_statements(folder):
    batch = load(folder, label_column="scp", classes=("SR", "AFIB"), multilabel=False)
    assert batch.y.tolist() == [0, 1, 0, 0, 1, 0]
    assert batch.classes == ("SR", "AFIB")
    one = load(folder, multilabel=False)
    assert one.y.tolist() == [0, 1, 0]
    assert ("00003", "has several labels") in one.left_out


def test_the_fast_records_resampled_windows_and_chosen_leads(folder):
    fast = load(folder, rate=500.0, limit=2, order="first")
    assert fast.x.shape == (2, 12, 5000)
    assert fast.ids[0] == "00001_hr:000000"
    middle = load(folder, rate=250.0, window=4.0, leads=("II", "V5"))
    assert middle.x.shape == (10, 2, 1000)
    expected = torch.sin(2 * torch.pi * torch.arange(1000, 2000) / 250) + 1.01
    assert torch.allclose(middle.x[1, 0], expected, atol=0.01)
    assert middle.y[0].tolist() == middle.y[1].tolist()


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_limit_takes_a_window_of_each_record_first(folder, shuffle):
    ids = load(folder, window=2.5, limit=5, shuffle=shuffle).ids
    assert len({name.split(":")[0] for name in ids}) == 5
    first = load(folder, window=2.5, limit=5, order="first").ids
    assert [name.split(":")[0] for name in first] == ["00001_lr"] * 4 + ["00002_lr"]


def test_slow_records_replace_missing_fast_ones(folder, tmp_path):
    copy_slow(folder, tmp_path)
    assert load(tmp_path, rate=200.0, limit=1, order="first").ids == ("00001_lr:000000",)


def test_a_missing_file_and_a_missing_lead_are_left_out(folder, tmp_path):
    copy_slow(folder, tmp_path)
    (tmp_path / "records100" / "00000" / "00002_lr.dat").unlink()
    (tmp_path / "records100" / "00000" / "00003_lr.hea").unlink()
    batch = load(tmp_path)
    assert [one[:5] for one in batch.ids] == ["00001", "00004", "00005"]
    reasons = dict(batch.left_out)
    assert "cannot be read" in reasons["00002_lr"]
    assert "cannot be read" in reasons["00003_lr"]


CODES = "{'NORM': 100.0, 'SR': 0.0}"


@pytest.mark.parametrize(
    ("options", "old", "new", "error", "sentence"),
    [
        ({"split": "dev"}, "", "", OptionError, "expected split train, val or test, got 'dev'"),
        ({"label_column": "label"}, "", "", OptionError, "expected label_column diagnostic_class, .*"),
        ({"classes": ("XYZ",)}, "", "", DataError, "no record of .* has a usable label: 00001 has none of the labels"),
        ({"beats": True}, "", "", OptionError, "the option 'beats' does not apply to"),
        ({"leads": ("MLII",)}, "", "", OptionError, "no record has the leads MLII: pass leads, some of I, II"),
        ({}, CODES, "__import__('os')", DataError, "expected scp_codes like .* for '00001'"),
        ({}, "strat_fold", "fold", DataError, "'ptbxl_database.csv' has no column 'strat_fold'"),
    ],
)
def test_errors_of_ptbxl(
    folder, tmp_path, options: dict[str, Any], old: str, new: str, error: type[InputError], sentence
):
    copy_slow(folder, tmp_path)
    if old:
        text = (tmp_path / "ptbxl_database.csv").read_text()
        (tmp_path / "ptbxl_database.csv").write_text(text.replace(old, new))
    with pytest.raises(error, match=sentence):
        load(tmp_path, **options)


def test_a_missing_table(folder, tmp_path):
    copy_slow(folder, tmp_path)
    (tmp_path / "scp_statements.csv").unlink()
    with pytest.raises(InputError):
        load(tmp_path)


def write_mat(folder, name, seconds, rate=300):
    """A MATLAB 4 file of 16-bit values behind a header of 24 bytes, as the challenge's are."""
    values = np.random.default_rng(int(name[1:])).integers(-900, 900, round(seconds * rate)).astype(np.int16)
    savemat(folder / f"{name}.mat", {"val": values[None]}, format="4")
    first = f"{name} 1 {rate} {len(values)} 05:05:15 1/05/2000"
    (folder / f"{name}.hea").write_text(f"{first}\n{name}.mat 16+24 1000/mV 16 0 {values[0]} 0 0 ECG \n")
    return torch.from_numpy(values.astype(np.float32) / 1000)


def make_cinc(folder):
    """Four recordings of 9 to 25 s."""
    values = {
        name: write_mat(folder, name, seconds) for name, seconds in (("A00001", 25), ("A00002", 9), ("A00003", 10))
    }
    x = np.sin(np.arange(3000) / 20)[:, None]
    kinds = {"fmt": ["16"], "adc_gain": [1000.0], "baseline": [0]}
    wfdb.wrsamp("A00004", fs=300, units=["mV"], sig_name=["ECG"], p_signal=x, write_dir=str(folder), **kinds)
    (folder / "REFERENCE.csv").write_text("A00001,N\nA00002,A\nA00003,~\nA00004,O\n")
    return values


def test_windows_carry_their_recording_s_label(tmp_path):
    values = make_cinc(tmp_path)
    batch = load(tmp_path)
    assert batch.ids == ("A00001:000000", "A00001:003000", "A00003:000000", "A00004:000000")
    assert [batch.classes[i] for i in batch.y] == ["normal", "normal", "noisy", "other rhythm"]
    assert batch.classes == ("normal", "atrial fibrillation", "other rhythm", "noisy")
    assert (batch.unit, batch.rate, batch.leads, batch.r_peaks) == ("mV", 300, ("ECG",), None)
    assert torch.allclose(batch.x[1, 0], values["A00001"][3000:6000], atol=1e-6)
    assert ("A00002", "is shorter than a window of 10 s") in batch.left_out


def test_other_windows_rates_and_records(tmp_path):
    make_cinc(tmp_path)
    batch = load(tmp_path, window=3.0, rate=250.0, scaling="window", records=("A00002",))
    assert (batch.size, batch.rate, batch.unit, len(batch)) == ((750,), 250, "SD", 3)
    assert torch.allclose(batch.x.std(-1, correction=0), torch.ones(3, 1), atol=1e-3)
    assert [batch.classes[i] for i in batch.y] == ["atrial fibrillation"] * 3


def test_corrected_labels_take_precedence(tmp_path):
    make_cinc(tmp_path)
    (tmp_path / "REFERENCE-v3.csv").write_text("A00001,A\nA00003,N\n")
    batch = load(tmp_path)
    assert [batch.classes[i] for i in batch.y] == ["atrial fibrillation"] * 2 + ["normal"]
    assert ("A00004", "has no line in REFERENCE-v3.csv") in batch.left_out


def test_missing_records_and_long_windows(tmp_path):
    make_cinc(tmp_path)
    with pytest.raises(DataError):
        load(tmp_path, records=("A9",))
    with pytest.raises(DataError):
        load(tmp_path, window=60.0)
    (tmp_path / "A00003.mat").unlink()
    batch = load(tmp_path)
    assert any(name == "A00003" and "cannot be read" in reason for name, reason in batch.left_out)
    assert len(batch) == 3
