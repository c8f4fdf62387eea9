"""Folders of sounds."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import rlab
from rlab.core.defaults import palette
from rlab.data.load import load
from rlab.data.wfdb import ratio_of, resample
from rlab.errors import DataError
from rlab.filters.palettes import AUDIO

soundfile = pytest.importorskip("soundfile")
RATE = 8000


def tone(seconds: float, hertz: float = 440.0, rate: int = RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write(path: Path, sound: np.ndarray, rate: int = RATE, subtype: str = "FLOAT") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound, rate, subtype=subtype)


def test_sounds_of_different_lengths_end_in_silence(tmp_path):
    write(tmp_path / "yes" / "a.wav", tone(0.1))
    write(tmp_path / "no" / "b.wav", np.stack([tone(0.05), np.zeros(400, np.float32)], 1))  # two channels
    (tmp_path / "no" / "c.wav").write_bytes(b"RIFF no sound")
    write(tmp_path / "no" / "d.wav", np.zeros(0, np.float32))
    batch = load(tmp_path)
    assert (batch.shape, batch.rate, batch.bounds, batch.classes) == ((1, 800), RATE, (-1.0, 1.0), ("no", "yes"))
    assert (batch.ids, batch.y.tolist()) == (("no/b.wav", "yes/a.wav"), [0, 1])
    assert torch.allclose(batch.x[1, 0], torch.from_numpy(tone(0.1)))
    assert torch.allclose(batch.x[0, 0, :400], torch.from_numpy(tone(0.05)) / 2)
    assert not batch.x[0, 0, 400:].any()
    assert {name for name, _ in batch.left_out} == {"no/c.wav", "no/d.wav"}
    assert load(tmp_path, window=0.05).shape == (1, 400)
    assert torch.equal(load(tmp_path, stream=True)[:].x, batch.x)


def test_sounds_are_resampled(tmp_path):
    write(tmp_path / "k" / "a.wav", tone(0.2))
    write(tmp_path / "k" / "b.wav", tone(0.2, rate=16_000), 16_000)
    with pytest.raises(DataError, match="expected sounds of one rate, got 8000 and 16000 Hz: pass rate"):
        load(tmp_path)
    batch = load(tmp_path, rate=16_000)
    assert batch.shape == (1, 3200)
    inner = slice(200, 3000)  # the filter rings at the ends
    assert torch.allclose(batch.x[0, 0, inner], batch.x[1, 0, inner], atol=0.01)


def test_resampling_keeps_a_tone():
    for after in (4000, 11_025, 44_100):
        again = resample(tone(1.0)[None], ratio_of(RATE, after))[0]
        spectrum = np.abs(np.fft.rfft(again))
        assert abs(spectrum.argmax() * after / len(again) - 440) < 2


def test_loud_floats_are_cut(tmp_path):
    write(tmp_path / "k" / "a.wav", 4 * tone(0.1))
    assert float(load(tmp_path).x.abs().max()) == 1.0


def test_the_default_palette_of_sounds(tmp_path):
    write(tmp_path / "k" / "a.wav", tone(0.25))
    write(tmp_path / "l" / "b.wav", tone(0.25, 880))
    batch = load(tmp_path)
    assert palette(batch) == AUDIO

    def pitch(x: np.ndarray) -> np.ndarray:
        """Which of two tones is louder, as logits."""
        power = np.abs(np.fft.rfft(x[:, 0])) ** 2
        return np.log1p(np.stack([power[:, 105:116].sum(1), power[:, 215:226].sum(1)], 1))

    result = rlab.attack(rlab.CallableVictim(pitch, bounds=(-1, 1)), batch, budget=30, progress=False)
    assert len(result) == 2


@pytest.mark.real
def test_real_words(tmp_path, real):
    for name in ("go", "no", "stop", "yes"):
        shutil.copytree(real / "audio" / "speech_commands_wav" / name, tmp_path / name)
    batch = load(tmp_path)
    assert (len(batch), batch.shape[0], batch.rate) == (12, 1, 16_000)
    assert set(batch.classes) == {"go", "no", "stop", "yes"}
