"""Demo data without files or network: real digits, simulated heartbeats, and clips of moving digits; the last two with masks.

A simulated sample depends only on its row and the seed, whatever other samples you load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.fields import Selection, Split
from rlab.data.source import Decoded, Source, read_all
from rlab.data.take import ALL, Take
from rlab.errors import OptionError

DEMO = "demo:"  # a path that starts with it names embedded data
TEST_DIGITS = 500
DIGITS_ORDER = 7  # seed of the permutation that splits the digits; the shipped victim was trained on the rest
SIMULATED = {"test": (400, 1), "train": (2000, 2)}  # default number of samples and seed of each split
RATE, LENGTH, QRS = 360, 288, 0.05  # of the beats: Hz, values, seconds on either side of R
BEATS = ("normal", "atrial premature", "ventricular premature", "ST elevation")
LEADS = ("II", "V1")
BEAT_FACTS: dict[str, Any] = {"bounds": UNBOUNDED, "classes": BEATS, "unit": "mV", "rate": float(RATE), "leads": LEADS}
FRAMES, SIDE, FRAME_RATE = 16, 32, 25.0  # of the clips
MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}  # (rows, columns) per frame
CLASSES = len(BEATS)  # as many as MOVES; both draw the class first
INK = 0.4  # the mask of a clip holds the pixels with more ink
Wave = tuple[float, float, float]  # millivolts in the first lead, seconds after R, seconds of standard deviation
Floats = NDArray[np.float64]
Make = Callable[[NDArray[np.int64], str], Decoded]  # the samples of some rows of a split
_TIME = np.arange(LENGTH) / RATE


def embedded(name: str, *, split: str = "test", take: Take = ALL) -> Batch:
    """Load digits (real), ecg (simulated) or clips (real digits that move), from the train or the test split."""
    return read_all(_source(name, split, take))


class DemoOptions(Selection):
    split: Split = None


def demo(source: DemoOptions) -> Source:
    """Embedded demo data, which are made when they are read."""
    return _source(source.path.removeprefix(DEMO), source.split or "test", source.take)


def _source(name: str, split: str, take: Take) -> Source:
    demos: dict[str, tuple[Make, str, tuple[int, ...], dict[str, Any], int]] = {
        "digits": (digits, "digit", (1, 8, 8), {"classes": tuple("0123456789")}, 0),
        "ecg": (ecg, "simulated", (len(LEADS), LENGTH), BEAT_FACTS, 100_000),
        "clips": (clips, "moving", (3, FRAMES, SIDE, SIDE), {"classes": tuple(MOVES), "rate": FRAME_RATE}, 10_000),
    }
    if name not in demos:
        raise OptionError(f"unknown demo data {name!r}: expected one of {', '.join(demos)}")
    if split not in SIMULATED:
        raise OptionError(f"expected split train or test, got {split!r}")
    make, word, shape, facts, most = demos[name]
    wanted = 0 if take.limit is None or take.shuffle else take.limit
    if most and wanted > most:
        limit = f"got a limit of {wanted:,}: pass a smaller one"
        raise OptionError(f"demo:{name} has at most {most:,} samples, {limit}")
    if most:  # more simulated samples where the limit asks for them
        count, seed = max(SIMULATED[split][0], wanted), SIMULATED[split][1]
        every = np.arange(count)
        labels = torch.tensor([int(np.random.default_rng((seed, row)).integers(CLASSES)) for row in range(count)])
    else:
        every = _part(split)
        labels = torch.from_numpy(_read_digits()[1][every])
    places = take.rows(labels)
    rows = every[places]
    ids = tuple(f"{word}-{row:04d}" for row in rows)
    return Source(lambda some: make(rows[list(some)], split), shape, labels[places], ids, take=take, **facts)


def digits(rows: NDArray[np.int64], split: str) -> Decoded:
    """Handwritten digits of scikit-learn, (b, 1, 8, 8) in [0, 1]: 500 for testing, 1,297 for training."""
    return Decoded(torch.from_numpy(_read_digits()[0][rows]), range(len(rows)))


@cache
def _read_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # the import takes a second, and only the digits need it

    data = load_digits()
    return (data.images / 16).astype(np.float32)[:, None], data.target.astype(np.int64)


def _part(split: str) -> NDArray[np.int64]:
    """The rows of scikit-learn's digits that belong to the split."""
    order = np.random.default_rng(DIGITS_ORDER).permutation(len(_read_digits()[1]))
    return order[:TEST_DIGITS] if split == "test" else order[TEST_DIGITS:]


def ecg(rows: NDArray[np.int64], split: str) -> Decoded:
    """Simulated beats (b, 2, 288) in mV at 360 Hz: P, Q, R, S and T as sums of Gaussians, after McSharry et al. 2003
    (https://doi.org/10.1109/TBME.2003.808805)."""
    draws = (np.random.default_rng((SIMULATED[split][1], int(row))) for row in rows)
    beats, peaks = zip(*map(_beat, draws), strict=True)
    masks = torch.from_numpy(np.stack([np.abs(_TIME - r) <= QRS for r in peaks]))
    more = {"masks": masks, "r_peaks": tuple((round(r * RATE),) for r in peaks)}
    return Decoded(torch.from_numpy(np.stack(beats).astype(np.float32)), range(len(rows)), more=more)


def _beat(draw: np.random.Generator) -> tuple[Floats, float]:
    """One beat (2, 288), and the time of its R peak; the class is the first random number."""
    label = int(draw.integers(len(BEATS)))
    peak = 0.36 + draw.uniform(-0.04, 0.04)
    gain = draw.lognormal(0, 0.2)
    x = np.zeros((len(LEADS), LENGTH))
    for height, at, width in _waves(BEATS[label], draw):
        lead_two = draw.normal(0.45, 0.2)
        bump = height * np.exp(-0.5 * ((_TIME - peak - at) / width) ** 2)
        x += gain * np.array([[1.0], [lead_two]]) * bump
    return x + _noise(draw), peak


def _waves(name: str, draw: np.random.Generator) -> list[Wave]:
    """The waves of one beat and the T wave of the beat before it; the classes overlap."""
    normal = draw.normal
    premature = name in ("atrial premature", "ventricular premature")
    before = normal(0.54, 0.06) if premature else normal(0.84, 0.07)  # seconds since the last R
    past = (normal(0.28, 0.06), 0.27 - before + normal(0, 0.01), normal(0.05, 0.006))
    if name == "ventricular premature":
        wide = max(0.018, normal(0.034, 0.007))
        return [past, (normal(1.4, 0.3), 0.0, wide), (normal(-0.35, 0.15), 0.08, wide), (normal(-0.4, 0.15), 0.3, 0.06)]
    p_height = normal(0.0, 0.055) if name == "atrial premature" else normal(0.16, 0.035)
    waves = [past, (p_height, -0.16 + normal(0, 0.012), normal(0.022, 0.003))]
    waves += [(normal(-0.12, 0.05), -0.03, 0.009), (normal(1.1, 0.2), 0.0, normal(0.012, 0.002))]
    waves += [(normal(-0.25, 0.08), 0.032, 0.01), (normal(0.3, 0.07), normal(0.27, 0.015), normal(0.05, 0.006))]
    lift = normal(0.23, 0.055) if name == "ST elevation" else normal(0.0, 0.025)
    return [*waves, (lift, 0.1, 0.03), (lift, 0.17, 0.04)]


def _noise(draw: np.random.Generator) -> Floats:
    """Baseline wander, power-line hum and sensor noise, (2, 288) in mV."""
    each = (len(LEADS), 1)
    wander = draw.normal(0, 0.08, each) * np.sin(2 * np.pi * (draw.uniform(0.15, 0.5) * _TIME + draw.uniform()))
    hum = draw.normal(0, 0.012, each) * np.sin(2 * np.pi * (50 * _TIME + draw.uniform()))
    total: Floats = wander + hum + draw.normal(0, draw.uniform(0.01, 0.04), (len(LEADS), LENGTH))
    return total


def clips(rows: NDArray[np.int64], split: str) -> Decoded:
    """Clips (b, 3, 16, 32, 32) in [0, 1] of a handwritten digit of the same split that moves over a plain background,
    with its masks; the class is the direction of the motion."""
    draws = (np.random.default_rng((SIMULATED[split][1], int(row))) for row in rows)
    written = _read_digits()[0][_part(split), 0]
    values, masks = zip(*(_clip(draw, written) for draw in draws), strict=True)
    more = {"masks": torch.from_numpy(np.stack(masks))}
    return Decoded(torch.from_numpy(np.stack(values).astype(np.float32)), range(len(rows)), more=more)


def _clip(draw: np.random.Generator, written: NDArray[np.float32]) -> tuple[Floats, NDArray[np.bool_]]:
    """One clip (3, t, h, w) of one of the written digits (n, 8, 8), and its mask (t, h, w); the class is drawn first."""
    label = int(draw.integers(len(MOVES)))
    ink = _track(draw, written[draw.integers(len(written))], tuple(MOVES.values())[label])
    paper = draw.uniform(0.2, 0.4, (3, 1, 1, 1))
    x = paper + draw.uniform(0.2, 0.55, (3, 1, 1, 1)) * ink
    return np.clip(x + draw.normal(0, 0.01, x.shape), 0, 1), ink > INK


def _track(draw: np.random.Generator, digit: NDArray[np.float32], step: tuple[int, int]) -> Floats:
    """Ink (t, h, w) of the moving digit. It wraps around the borders, so that a single frame does not reveal its direction."""
    speed = draw.uniform(0.6, 1.6)
    drift = speed * draw.normal(0, 0.2)
    time = np.arange(FRAMES)[:, None]
    along, across = np.array([step]), np.array([step[::-1]])
    centre = draw.uniform(0, SIDE, (1, 2)) + time * (speed * along + drift * across)
    away = (np.arange(SIDE) - centre[:, :, None] + SIDE / 2) % SIDE - SIDE / 2  # (t, 2, side)
    zoom, middle = draw.uniform(1.8, 2.3), (len(digit) - 1) / 2
    near = np.clip(1 - abs(away[..., None] / zoom + middle - np.arange(len(digit))), 0, None)  # linear interpolation
    ink: Floats = near[:, 0] @ digit @ near[:, 1].swapaxes(1, 2)
    return ink
