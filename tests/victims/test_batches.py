"""Batches of fixed sizes: no row is lost or counted twice, and functions and graphs see few shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlab.errors import InputError
from rlab.victims import CallableVictim, QueryMeter
from rlab.victims.batches import SIZES, in_sizes, sizes_below
from tests.victims.makers import inputs, linear


@given(st.integers(1, 700), st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_every_row_is_answered_once_in_order_from_known_sizes(rows: int, sizes: list[int]) -> None:
    seen: list[int] = []

    def feed(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x * 2

    x = torch.arange(rows).float()[:, None]
    assert torch.equal(in_sizes(x, sizes, feed), 2 * x)
    assert set(seen) <= set(sizes)
    assert sum(seen) < 2 * rows + min(sizes)


def test_without_sizes_there_is_one_call() -> None:
    assert in_sizes(torch.zeros(5, 1), (), lambda x: x + len(x)).unique().tolist() == [5]


@pytest.mark.parametrize(("most", "sizes"), [(1, (1,)), (3, (1, 3)), (8, (1, 8)), (256, SIZES), (4096, SIZES)])
def test_no_size_is_above_the_chunk(most: int, sizes: tuple[int, ...]) -> None:
    assert sizes_below(most) == sizes


def test_a_padded_function_sees_few_sizes_and_repeated_rows_cost_nothing() -> None:
    model = linear()
    victim = CallableVictim(model.logits, pad=True)
    meter = QueryMeter(victim, samples=1, budget=300)
    for rows in (1, 5, 7, 33, 63):
        x = inputs(2, rows)
        scores = meter(x, torch.zeros(rows, dtype=torch.long), "search")
        assert torch.allclose(scores, model.scores(x), atol=1e-5)
    assert set(model.seen) <= set(SIZES)
    assert victim.rows.total() == int(meter.counts.sum()) == 1 + 5 + 7 + 33 + 63


LAYOUTS: dict[str, tuple[int, ...]] = {
    "channels_first": (2, 3, 4, 5, 6), "channels_last": (2, 4, 5, 6, 3), "frames_first": (2, 4, 3, 5, 6),
}  # fmt: skip


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS.items())
def test_a_function_gets_its_layout(layout: Any, shape: tuple[int, ...]) -> None:
    seen = []

    def model(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        seen.append(x.shape)
        return np.zeros((len(x), 2), dtype=np.float32)

    CallableVictim(model, layout=layout)(torch.rand(2, 3, 4, 5, 6))
    assert seen == [shape]


def test_data_of_one_channel_can_go_without_it() -> None:
    model = linear()
    wide = CallableVictim(lambda x: model.logits(x.reshape(len(x), 2, 6)), layout="no_channels")
    x = torch.rand(3, 1, 12)
    assert torch.allclose(wide(x), model.scores(x), atol=1e-5)
    with pytest.raises(InputError, match="1 channel"):
        wide(inputs(1))
