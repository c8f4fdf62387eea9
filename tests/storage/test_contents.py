"""What a mark covers: code, closures, weights and attributes, but not what changes while an object is used."""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlab.storage.contents import Contents

CALLS = [0]


class Counting:
    """Counts its calls and keeps its answers."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor, self.calls, self.cache = factor, 0, dict[int, Any]()
        self.lock, self.itself = threading.Lock(), self

    def __call__(self, x: int) -> float:
        self.calls += 1
        CALLS[0] += 1
        self.cache[x] = np.full(2, x)
        return x * self.factor


def test_what_changes_in_a_call_is_left_out_and_nothing_else() -> None:
    used, fresh = Counting(), Counting()
    contents = Contents(used)
    assert contents.mark() == Contents(fresh).mark()
    used(3)
    assert not Contents(used).fits(contents.mark())
    mark = contents.settled()
    used(4)
    assert all(Contents(each).fits(mark) for each in (used, Counting()))
    used.factor = 2.0
    assert not Contents(used).fits(mark)


def test_what_moves_to_another_attribute_still_counts() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.own, self.last = Counting(factor), None

    model, mark = Model(1.0), Contents(Model(1.0)).mark()
    contents = Contents(model)
    model.last = model.own  # type: ignore[assignment]
    settled = contents.settled()
    assert contents.mark() == mark
    assert not Contents(Model(2.0)).fits(settled)


def test_what_cannot_be_recognised_fits_no_mark() -> None:
    def make() -> Any:
        numbers = iter_of()
        return lambda x: next(numbers) + x

    function = make()
    contents = Contents(function)
    assert contents.lost() == ["numbers (generator)"]
    assert not contents.fits(contents.mark())
    assert contents.likeness == Contents(make()).likeness


def iter_of() -> Any:
    yield from range(3)


@functools.cache
def cached(x: int) -> int:
    return x


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"b", "a", ("c", 1)},
        lambda: deque([1, 2], maxlen=3),
        lambda: torch.Generator().manual_seed(2),
        lambda: np.random.default_rng(0),
        lambda: np.array([{"a": 1}, None], dtype=object),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Flatten(), nn.Softmax(1))),
        lambda: cached,
        lambda: functools.partial(Counting(), 2),
        lambda: nn.utils.parametrizations.weight_norm(nn.utils.skip_init(nn.Linear, 1, 1)) and len,
    ],
)
def test_equal_objects_have_equal_marks(make: Any) -> None:
    contents = Contents(make())
    assert not contents.lost()
    assert contents.mark() == Contents(make()).mark()


def test_cycles_and_long_chains_end() -> None:
    ring: list[Any] = []
    ring.append({"ring": ring})
    chain: Any = None
    for _ in range(5000):
        chain = [chain]
    assert not Contents([ring, chain]).lost()


def test_a_large_network_takes_a_moment() -> None:
    """25 million weights, as a ResNet-50 has, take at most a second of an idle processor."""
    layers = [nn.Sequential(nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(50)]
    net = nn.Sequential(*layers, nn.utils.skip_init(nn.Linear, 5000, 5000))
    import time

    began = time.process_time()
    Contents(net)
    assert time.process_time() - began < 3  # of a busy one
