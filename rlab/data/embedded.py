"""Demo data without files or network: real digits; simulated heartbeats and simulated clips with known truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from rlab.data.batch import Batch
from rlab.data.simulated_clips import clips
from rlab.data.simulated_ecg import ecg
from rlab.data.take import Take
from rlab.errors import InputError

TEST_DIGITS = 500
DIGITS_ORDER = 7  # seed of the permutation that splits the digits; the shipped victim was trained on the rest
SIMULATED_TEST = 400  # samples of a simulated test split where no limit is asked for
SIMULATED_TRAIN = 2000
TEST_SEED, TRAIN_SEED = 1, 2


def embedded(name: str, *, split: str = "test", take: Take | None = None) -> Batch:
    """digits (real), ecg or clips (both simulated), of the train or the test split."""
    if name not in SOURCES:
        raise InputError(f"unknown demo data {name!r}: expected one of {', '.join(SOURCES)}")
    if split not in ("train", "test"):
        raise InputError(f"expected split train or test, got {split!r}")
    return SOURCES[name](split, take or Take())


def digits(split: str = "test", take: Take | None = None) -> Batch:
    """scikit-learn's handwritten digits, real: (b, 1, 8, 8) in [0, 1]; 500 test, 1,297 train, ids by their place."""
    x, y = _read_digits()
    order = np.random.default_rng(DIGITS_ORDER).permutation(len(x))
    part = order[:TEST_DIGITS] if split == "test" else order[TEST_DIGITS:]
    rows = part[(take or Take()).order(len(part))]
    return Batch(
        x=torch.from_numpy(x[rows]),
        y=torch.from_numpy(y[rows]),
        ids=tuple(f"digit-{i:04d}" for i in rows),
        classes=tuple("0123456789"),
    )


@cache
def _read_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # takes a second, and only the digits need it

    found = load_digits()
    return (found.images / 16).astype(np.float32)[:, None], found.target.astype(np.int64)


def _simulated(make: Callable[[NDArray[np.int64], int], Batch]) -> Callable[[str, Take], Batch]:
    """Sample i of a split is the same whatever else is made: each has its own seed."""

    def source(split: str, take: Take) -> Batch:
        count, seed = (SIMULATED_TEST, TEST_SEED) if split == "test" else (SIMULATED_TRAIN, TRAIN_SEED)
        if take.limit is not None and not take.shuffle:
            count = max(count, take.limit)
        return make(np.array(take.order(count), np.int64), seed)

    return source


SOURCES: dict[str, Callable[[str, Take], Batch]] = {
    "digits": digits,
    "ecg": _simulated(ecg),
    "clips": _simulated(clips),
}
