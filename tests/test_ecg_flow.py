"""From a folder of ECG records to tables and pictures, as a team would run it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import wfdb
from torch import Tensor, nn

import rlab
from rlab.core.distances import snr_db
from rlab.errors import VictimError
from rlab.results.breakdown import by_class
from rlab.results.result import AttackResult, Status
from tests.command import rlab_command
from tests.data.test_physionet import make as make_ptbxl

RATE = 180
MODEL = """
import torch
from torch import nn

class Height(nn.Module):
    def forward(self, x):
        if x.shape[1] != 2:
            raise ValueError(f"expected 2 leads, got {x.shape[1]}")
        tall = x[:, 0].amax(1) - x[:, 0].median(1).values
        return torch.stack([1.5 - tall, torch.full_like(tall, -9.0), tall - 1.5], 1) * 4

def height():
    return Height()
"""


def write_records(folder: Path) -> None:
    """Two records: small beats called N, tall ones called V; the second has a saturated stretch."""
    for name in ("100", "101"):
        time = np.arange(40 * RATE) / RATE
        peaks = np.arange(1.0, 39.0, 1.0)
        x = 0.002 * np.random.default_rng(int(name)).standard_normal(len(time))
        for i, peak in enumerate(peaks):
            x += (1.8 if i % 3 == 2 else 1.25) * np.exp(-0.5 * ((time - peak) / 0.02) ** 2)
        if name == "101":
            x[5 * RATE : 5 * RATE + 20] = 5.0
        kinds = {"fmt": ["16"] * 2, "adc_gain": [1000.0] * 2, "baseline": [0] * 2}
        both = np.stack([x, 0.5 * x], 1)
        wfdb.wrsamp(
            name, fs=RATE, units=["mV"] * 2, sig_name=["MLII", "V5"], p_signal=both, write_dir=str(folder), **kinds
        )
        at = np.round(peaks * RATE).astype(int)
        wfdb.wrann(name, "atr", at, symbol=["NNV"[i % 3] for i in range(len(at))], write_dir=str(folder))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    return folder


def test_command_line(records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_ecg.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    palette = "muscle_noise@6,0dB powerline_hum60@0.5mV electrode_motion@1.5mV amplitude_scaling smoothing@16ms"
    asked = ["my_ecg:height", records, "--palette", palette, "--patch", 13, "-D", "records=[101]"]
    said = rlab_command("attack", *asked, "--budget", 300, "--pictures", 1, "--out", "run")
    assert said.code == 0, said.err
    assert "1 × lead MLII is saturated (first 101:000900)" in said.out
    result = AttackResult.load(tmp_path / "run")
    assert result.setting.palette[0] == "muscle_noise@6dB"
    assert (result.setting.leads, result.setting.unit, result.setting.rate) == (("MLII", "V5"), "mV", RATE)
    assert all(r_peaks == (65,) for r_peaks in result.r_peaks)
    assert result.succeeded.sum() >= 30
    assert len(list((tmp_path / "run" / "pictures").glob("sample-*.png"))) == 1
    shown = rlab_command("show", "run")
    assert "By class, easiest first" in shown.out
    assert {row["class"] for row in by_class(result)} == {"N", "V"}
    assert "muscle_noise" in shown.out


def test_leads_that_the_model_was_not_made_for(records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_ecg.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    said = rlab_command("attack", "my_ecg:height", records, "-D", "leads=[V5]", "--limit", 4, "--out", "run")
    assert said.code != 0
    assert "expected 2 leads, got 1 (the data have 1 leads, V5: if the model was made for others" in said.err
    assert not (tmp_path / "run").exists()
    batch = rlab.load(records, limit=4, leads=("V5",))
    with pytest.raises(VictimError, match="choose them with leads"):
        rlab.attack(rlab.TorchVictim(nn.Conv1d(2, 3, 3), bounds=batch.bounds), batch)


def test_hum_in_one_decibel_palette_is_heard_as_such(records: Path) -> None:
    batch = rlab.load(records, limit=6)
    palette = rlab.Palette.of(["powerline_hum50@10dB"], 1, 2, batch.rate, batch.unit)
    bank = palette.bank(batch.x, batch.bounds, range(6))
    assert snr_db(batch.x, bank[:, 1]).tolist() == pytest.approx([10.0] * 6, abs=0.01)
    change = (bank[:, 1] - batch.x).double()[..., :126]  # 0.7 s: whole cycles of 50 Hz
    hertz = np.fft.rfftfreq(126, 1 / RATE)
    assert (np.abs(hertz[np.abs(np.fft.rfft(change.numpy())).argmax(-1)] - 50) < 1.5).all()


class Levels(nn.Module):
    """Log-odds of five labels by the level of lead I: the record's number, as the made-up PTB-XL has it."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x[:, 0].mean(-1, keepdim=True)
        truth = torch.tensor([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 0, 0, 1.0]])
        near = (-5 * (middle - torch.arange(1, 6)) ** 2).softmax(1)
        return 10 * (near @ truth - 0.5)


def test_several_labels_at_once(tmp_path: Path) -> None:
    make_ptbxl(tmp_path, fast=False)
    batch = rlab.load(tmp_path)
    victim = rlab.TorchVictim(Levels(), bounds=batch.bounds, multilabel=True)
    result = rlab.attack(
        victim, batch, palette=["illuminate@0.5"], patch=250, goal="multilabel", budget=60, policy="random"
    )
    assert result.status.count(Status.SUCCEEDED) == 5
    assert sum(victim.rows.values()) == int(result.queries.sum())
    flipped = (result.before > 0.5) != (result.after > 0.5)
    rows = by_class(result)
    switched = [int(row[name].split()[0]) for row in rows for name in ("switched off", "switched on")]
    assert sum(switched) == int(flipped.sum())
    assert flipped.any(1).all()
    assert sum(row["samples"] for row in rows) == int(batch.y.sum())
