"""Words in one second of sound: a front end of 49 x 10 cepstral coefficients before the keyword network of MLPerf Tiny."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.data import real
from rlab.data.audio import BOUNDS, read_header, read_sound
from rlab.data.batch import UNBOUNDED, Batch
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.runtimes import TfliteVictim

Floats = NDArray[np.float32]
RATE, FRAME, STEP, POINTS = 16_000, 480, 320, 512
MELS, LOW, HIGH, KEPT = 40, 20.0, 4000.0, 10
WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown")


def _mel(hertz: Tensor) -> Tensor:
    return 1127.0 * torch.log1p(hertz / 700.0)


def mel_weights() -> Tensor:
    """(257, 40): triangles between equally spaced points on the mel scale; the lowest bin has no weight."""
    bins = _mel(torch.linspace(0, RATE / 2, POINTS // 2 + 1, dtype=torch.float64))
    low, high = _mel(torch.tensor([LOW, HIGH], dtype=torch.float64)).tolist()
    edges = torch.linspace(low, high, MELS + 2, dtype=torch.float64)
    rise = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    weights = torch.minimum(rise, fall).clamp(min=0)
    weights[0] = 0
    return weights.float()


def cepstrum(x: Tensor) -> Tensor:
    """Sound (n, 1, 16000) -> (n, 49, 10): each sound is divided by its highest value first."""
    sound = x[:, 0] / x[:, 0].amax(1, keepdim=True).clamp(min=1e-6)
    frames = sound.unfold(1, FRAME, STEP) * torch.hann_window(FRAME)
    spectrum: Tensor = torch.fft.rfft(frames, n=POINTS).abs()
    log_mel = (spectrum @ mel_weights() + 1e-6).log()
    at = torch.arange(MELS) + 0.5
    waves = torch.cos(math.pi / MELS * at[:, None] * torch.arange(KEPT)) * 2 / math.sqrt(2 * MELS)
    return log_mel @ waves


def keyword_victim() -> CallableVictim:
    """The published network on sounds (n, 1, 16000) in [-1, 1]: probabilities of twelve words."""
    net = TfliteVictim(real("audio/kws_ref_model_float32.tflite"), bounds=UNBOUNDED, outputs="probabilities")

    def hear(x: Floats) -> Tensor:
        return net(cepstrum(torch.from_numpy(x))[:, None]).exp()

    return CallableVictim(hear, bounds=(-1.0, 1.0), outputs="probabilities")


def keywords(rows: slice) -> tuple[Victim, Batch]:
    """Sounds of four of the words, three of each."""
    files = sorted(real("audio/speech_commands_wav").glob("*/*.wav"))[rows]
    sounds = []
    for file in files:
        header = read_header(file)
        sounds.append(torch.from_numpy(read_sound(file, header, RATE, RATE)))
    y = torch.tensor([WORDS.index(file.parent.name) for file in files])
    ids = tuple(f"{file.parent.name}/{file.stem}" for file in files)
    return keyword_victim(), Batch(torch.stack(sounds), y, ids, bounds=BOUNDS, classes=WORDS, rate=float(RATE))
