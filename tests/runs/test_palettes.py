"""Palettes with a name in an attack: the default for ECG, whole records, and recorded noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import InputError, OptionError
from rlab.runs.options import make_attack
from tests.noise import write_noise

LEADS = ("I", "II", "III", "V1")
X = torch.randn(3, 4, 720, generator=torch.Generator().manual_seed(0))


def ecg(rate: float | None = 360.0, unit: str = "mV") -> Batch:
    return Batch(X, torch.tensor([0, 1, 0]), bounds=UNBOUNDED, unit=unit, rate=rate, leads=LEADS)


@pytest.mark.parametrize(
    ("rate", "unit", "first"),
    [
        (360.0, "mV", "baseline_wander@0.3mV"), (360.0, "uV", "baseline_wander@0.3mV"), (None, "mV", "gaussian_noise@0.1"),
        (360.0, "", "gaussian_noise@0.1"), (360.0, "SD", "gaussian_noise@0.1"),
    ],
)  # fmt: skip
def test_signals_in_volts_with_a_rate_are_an_ecg(rate: float | None, unit: str, first: str):
    assert make_attack(ecg(rate, unit)).palette.names[0] == first


def test_the_amplitude_is_in_millivolts_whatever_the_unit_of_the_data():
    banks = [
        make_attack(ecg(unit=unit), palette="powerline_hum50@0.1mV").palette.bank(X, UNBOUNDED, range(3))
        for unit in ("mV", "uV")
    ]
    heights = [float((bank[:, 1] - X).abs().max()) for bank in banks]
    assert heights == pytest.approx([0.1, 100.0], rel=0.01)


def test_what_happens_to_a_record_happens_to_all_of_it():
    attack = make_attack(ecg(), palette="recorder")
    assert attack.grid.patch == (720,)
    assert "limb_lead_reversal@1" in attack.palette.names
    with pytest.raises(OptionError, match="--patch 720"):
        make_attack(ecg(), palette="recorder", patch=100)


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    return write_noise(tmp_path)


def test_recorded_noise_comes_from_a_folder(noise: Path):
    names = make_attack(ecg(), palette=f"nstdb:{noise}").palette.names
    assert names == tuple(
        f"recorded_{kind}@{level}dB" for kind in ("baseline_wander", "electrode_motion") for level in (12, 6)
    )
    assert (
        make_attack(ecg(), palette=f"smoothing nstdb:{noise}@0.2mV").palette.names[1]
        == "recorded_baseline_wander@0.2mV"
    )


@pytest.mark.parametrize(
    ("spec", "rate", "words"),
    [
        ("nstdb:nowhere", 360.0, "holds no recorded noise"),
        ("nstdb:{}", None, "rate"),
        ("nstdb:{}", 4000.0, "record more of it"),
    ],
)
def test_noise_that_cannot_be_used(noise: Path, spec: str, rate: float | None, words: str):
    long = Batch(torch.randn(2, 1, 50_000), torch.tensor([0, 1]), bounds=UNBOUNDED, unit="mV", rate=rate)
    with pytest.raises(InputError, match=words):
        make_attack(long, palette=spec.format(noise), patch=1000).palette.bank(long.x, UNBOUNDED, [0, 1])
