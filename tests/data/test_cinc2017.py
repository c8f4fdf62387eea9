"""The CinC 2017 folder, made small: .mat records as the challenge has them, and one in .dat."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import wfdb
from scipy.io import savemat

from rlab.data import load
from rlab.errors import InputError


def write_mat(folder, name, seconds, rate=300):
    """A MATLAB 4 file of 16-bit values behind a header of 24 bytes, as the challenge's are."""
    values = np.random.default_rng(int(name[1:])).integers(-900, 900, round(seconds * rate)).astype(np.int16)
    savemat(folder / f"{name}.mat", {"val": values[None]}, format="4")
    first = f"{name} 1 {rate} {len(values)} 05:05:15 1/05/2000"
    (folder / f"{name}.hea").write_text(f"{first}\n{name}.mat 16+24 1000/mV 16 0 {values[0]} 0 0 ECG \n")
    return torch.from_numpy(values.astype(np.float32) / 1000)


def make(folder):
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
    values = make(tmp_path)
    batch = load(tmp_path)
    assert batch.ids == ("A00001:000000", "A00001:003000", "A00003:000000", "A00004:000000")
    assert [batch.classes[i] for i in batch.y] == ["normal", "normal", "noisy", "other rhythm"]
    assert batch.classes == ("normal", "atrial fibrillation", "other rhythm", "noisy")
    assert (batch.unit, batch.rate, batch.leads, batch.r_peaks) == ("mV", 300, ("ECG",), None)
    assert torch.allclose(batch.x[1, 0], values["A00001"][3000:6000], atol=1e-6)
    assert ("A00002", "is shorter than a window of 10 s") in batch.left_out


def test_other_windows_rates_and_records(tmp_path):
    make(tmp_path)
    batch = load(tmp_path, window=3.0, rate=250.0, scaling="window", records=("A00002",))
    assert (batch.size, batch.rate, batch.unit, len(batch)) == ((750,), 250, "SD", 3)
    assert torch.allclose(batch.x.std(-1, correction=0), torch.ones(3, 1), atol=1e-3)
    assert [batch.classes[i] for i in batch.y] == ["atrial fibrillation"] * 3


def test_mended_labels_go_first(tmp_path):
    make(tmp_path)
    (tmp_path / "REFERENCE-v3.csv").write_text("A00001,A\nA00003,N\n")
    batch = load(tmp_path)
    assert [batch.classes[i] for i in batch.y] == ["atrial fibrillation"] * 2 + ["normal"]
    assert ("A00004", "has no line in REFERENCE-v3.csv") in batch.left_out


def test_bad_input(tmp_path):
    make(tmp_path)
    with pytest.raises(InputError, match=r"'REFERENCE.csv' has no line for 'A9'"):
        load(tmp_path, records=("A9",))
    with pytest.raises(InputError, match=r"no windows to use in .*: A00001 is shorter than a window of 60 s"):
        load(tmp_path, window=60.0)
    (tmp_path / "A00003.mat").unlink()
    batch = load(tmp_path)
    assert any(name == "A00003" and "cannot be read" in why for name, why in batch.left_out)
    assert len(batch) == 3
