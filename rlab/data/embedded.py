"""Demo data without files or network: real digits, simulated heartbeats, and clips of moving digits; the last two with masks.

A simulated sample depends only on its row and the seed, whatever other samples you load.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.fields import DataFields, reads
from rlab.data.source import Decoded, Source, read_all
from rlab.data.take import Take
from rlab.errors import OptionError

DEMO = "demo:"  # a path that starts with it names embedded data
TEST_DIGITS = 500
DIGITS_ORDER = 7  # seed of the permutation that splits the digits; the shipped victim was trained on the rest
SIMULATED = {"test": (400, 1), "train": (2000, 2)}  # default number of samples and seed of each split
MOST_SIMULATED = {"ecg": 100_000, "clips": 10_000}  # samples
IDS = {"digits": "digit", "ecg": "simulated", "clips": "moving"}
RATE, LENGTH, QRS = 360, 288, 0.05  # of the beats: Hz, values, seconds on either side of R
BEATS = ("normal", "atrial premature", "ventricular premature", "ST elevation")
LEADS = ("II", "V1")
FRAMES, SIDE, FRAME_RATE = 16, 32, 25.0  # of the clips
MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}  # (rows, columns) per frame
CLASSES = len(BEATS)  # as many as MOVES; both draw the class first
INK = 0.4  # the mask of a clip holds the pixels with more ink
Wave = tuple[float, float, float]  # millivolts in the first lead, seconds after R, seconds of standard deviation
Floats = NDArray[np.float64]
_TIME = np.arange(LENGTH) / RATE


def embedded(name: str, *, split: str = "test", take: Take | None = None) -> Batch:
    """Load digits (real), ecg (simulated) or clips (real digits that move), from the train or the test split."""
    return read_all(embedded_source(name, split, take or Take()))


@reads("split")
def demo(source: DataFields) -> Source:
    """Embedded demo data, which are made when they are read."""
    return embedded_source(source.path.removeprefix(DEMO), source.split or "test", source.take)


def embedded_source(name: str, split: str, take: Take) -> Source:
    makers = {"digits": digits, "ecg": ecg, "clips": clips}
    if name not in makers:
        raise OptionError(f"unknown demo data {name!r}: expected one of {', '.join(makers)}")
    if split not in SIMULATED:
        raise OptionError(f"expected split train or test, got {split!r}")
    labels = _labels(name, split, take)
    chosen, make = take.rows(labels), makers[name]
    rows = np.array(_part(split)[chosen] if name == "digits" else chosen, np.int64)
    one = make(rows[:1], split)

    def read(wanted: Sequence[int]) -> Decoded:
        made = make(rows[list(wanted)], split)
        return Decoded(made.x, range(len(wanted)), more={"masks": made.masks, "r_peaks": made.r_peaks})

    return Source(
        read, one.shape, labels[chosen], _ids(name, rows), files=(), bounds=one.bounds, classes=one.classes, unit=one.unit,
        rate=one.rate, leads=one.leads, take=take,
    )  # fmt: skip


def _labels(name: str, split: str, take: Take) -> Tensor:
    """The class of each sample that there is (n,), with more simulated samples where the limit asks for them."""
    if name == "digits":
        return torch.from_numpy(_read_digits()[1][_part(split)])
    count, seed = SIMULATED[split]
    if take.limit is not None and not take.shuffle:
        if take.limit > MOST_SIMULATED[name]:
            raise OptionError(
                f"demo:{name} has at most {MOST_SIMULATED[name]:,} samples, got a limit of {take.limit:,}: pass a smaller one"
            )
        count = max(count, take.limit)
    return torch.tensor([_first_draw(seed, row) for row in range(count)])


def _ids(name: str, rows: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(f"{IDS[name]}-{row:04d}" for row in rows)


def _first_draw(seed: int, row: int) -> int:
    """The class of a simulated sample, which is its first random number."""
    return int(np.random.default_rng((seed, row)).integers(CLASSES))


def digits(rows: NDArray[np.int64], split: str) -> Batch:
    """Handwritten digits of scikit-learn, (b, 1, 8, 8) in [0, 1]: 500 for testing, 1,297 for training."""
    x, y = _read_digits()
    return Batch(
        torch.from_numpy(x[rows]), torch.from_numpy(y[rows]), _ids("digits", rows), classes=tuple("0123456789")
    )


@cache
def _read_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # the import takes a second, and only the digits need it

    data = load_digits()
    return (data.images / 16).astype(np.float32)[:, None], data.target.astype(np.int64)


def _part(split: str) -> NDArray[np.int64]:
    """The rows of scikit-learn's digits that belong to the split."""
    order = np.random.default_rng(DIGITS_ORDER).permutation(len(_read_digits()[1]))
    return order[:TEST_DIGITS] if split == "test" else order[TEST_DIGITS:]


def ecg(rows: NDArray[np.int64], split: str) -> Batch:
    """Simulated beats (b, 2, 288) in mV at 360 Hz: P, Q, R, S and T as sums of Gaussians, after McSharry et al. 2003
    (https://doi.org/10.1109/TBME.2003.808805)."""
    seed = SIMULATED[split][1]
    beats, labels, peaks = zip(*(_beat(np.random.default_rng((seed, int(row)))) for row in rows), strict=True)
    return Batch(
        x=torch.from_numpy(np.stack(beats).astype(np.float32)),
        y=torch.tensor(labels),
        ids=_ids("ecg", rows),
        bounds=UNBOUNDED,
        classes=BEATS,
        masks=torch.from_numpy(np.stack([np.abs(_TIME - r) <= QRS for r in peaks])),
        unit="mV",
        rate=float(RATE),
        r_peaks=tuple((round(r * RATE),) for r in peaks),
        leads=LEADS,
    )


def _beat(draw: np.random.Generator) -> tuple[Floats, int, float]:
    """One beat (2, 288), its class, and the time of its R peak."""
    label = int(draw.integers(len(BEATS)))
    peak = 0.36 + draw.uniform(-0.04, 0.04)
    gain = draw.lognormal(0, 0.2)
    x = np.zeros((len(LEADS), LENGTH))
    for height, at, width in _waves(BEATS[label], draw):
        lead_two = draw.normal(0.45, 0.2)
        bump = height * np.exp(-0.5 * ((_TIME - peak - at) / width) ** 2)
        x += gain * np.array([[1.0], [lead_two]]) * bump
    return x + _noise(draw), label, peak


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


def clips(rows: NDArray[np.int64], split: str) -> Batch:
    """Clips (b, 3, 16, 32, 32) in [0, 1] of a handwritten digit of the same split that moves over a plain background,
    with its masks; the class is the direction of the motion."""
    seed, written = SIMULATED[split][1], _read_digits()[0][_part(split), 0]
    drawn = (_clip(np.random.default_rng((seed, int(row))), written) for row in rows)
    values, masks, labels = zip(*drawn, strict=True)
    return Batch(
        x=torch.from_numpy(np.stack(values).astype(np.float32)),
        y=torch.tensor(labels),
        ids=_ids("clips", rows),
        classes=tuple(MOVES),
        masks=torch.from_numpy(np.stack(masks)),
        rate=FRAME_RATE,
    )


def _clip(draw: np.random.Generator, written: NDArray[np.float32]) -> tuple[Floats, NDArray[np.bool_], int]:
    """One clip (3, t, h, w) of one of the written digits (n, 8, 8), its mask (t, h, w) and its class."""
    label = int(draw.integers(len(MOVES)))
    ink = _track(draw, written[draw.integers(len(written))], tuple(MOVES.values())[label])
    paper = draw.uniform(0.2, 0.4, (3, 1, 1, 1))
    x = paper + draw.uniform(0.2, 0.55, (3, 1, 1, 1)) * ink
    return np.clip(x + draw.normal(0, 0.01, x.shape), 0, 1), ink > INK, label


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
