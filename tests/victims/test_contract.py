"""What every kind of victim keeps, for signals, images and clips."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from rlab.errors import BudgetError, InputError, VictimError
from rlab.victims import QueryMeter
from tests.victims.makers import ALL_VICTIMS, CHANNELS, CLASSES, RANKS, SIZES, Linear, Make, inputs, linear

CASES = [pytest.param((kind, rank), id=f"{kind}-{rank}d") for kind in ALL_VICTIMS for rank in RANKS]
Case = tuple[Make, Linear, int]


@pytest.fixture(scope="module", params=CASES)
def running(request: pytest.FixtureRequest) -> Iterator[Case]:
    kind, rank = request.param
    model = linear()
    with ALL_VICTIMS[kind](model, rank) as make:
        yield make, model, rank


@pytest.fixture
def case(running: Case) -> Case:
    running[1].seen.clear()
    return running


def test_scores_are_log_probabilities_of_the_model(case: Case) -> None:
    make, model, rank = case
    x = inputs(rank)
    scores = make()(x)
    assert scores.shape == (len(x), CLASSES)
    assert scores.dtype == torch.float32
    assert torch.allclose(scores, model.scores(x), atol=1e-5)


def test_rows_counted_are_rows_the_model_saw(case: Case) -> None:
    make, model, rank = case
    victim = make(chunk=3)
    victim(inputs(rank, 7), "search")
    victim(inputs(rank, 2), "verify")
    assert victim.rows == {"search": 7, "verify": 2}
    assert sum(model.seen) == 9


def test_chunks_do_not_change_the_answer(case: Case) -> None:
    make, model, rank = case
    x = inputs(rank)
    whole = make(chunk=100)(x)
    model.seen.clear()
    parts = make(chunk=2)(x)
    assert max(model.seen) <= 2
    assert torch.allclose(whole, parts, atol=1e-6)


def test_inputs_stay_untouched(case: Case) -> None:
    make, _, rank = case
    x = inputs(rank)
    before = x.clone()
    make()(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("scale", [255.0, -1.0, float("nan"), float("inf")])
def test_values_out_of_bounds_never_reach_the_model(case: Case, scale: float) -> None:
    make, model, rank = case
    victim = make()
    with pytest.raises(InputError, match=r"\[0.0, 1.0\]"):
        victim(inputs(rank) * scale)
    assert not model.seen
    assert not victim.rows


@pytest.mark.parametrize("shape", [(0, CHANNELS, 4), (CHANNELS, 6), (5,)])
def test_inputs_of_no_known_shape_are_refused(case: Case, shape: tuple[int, ...]) -> None:
    make, model, _ = case
    with pytest.raises(InputError, match=r"\(rows, channels, \*size\)"):
        make()(torch.zeros(shape))
    assert not model.seen


def test_a_wrong_size_is_a_short_error(case: Case) -> None:
    make, _, rank = case
    victim = make(chunk=4)
    with pytest.raises(VictimError) as caught:
        victim(torch.zeros(2, CHANNELS, *(side + 1 for side in SIZES[rank])))
    assert len(str(caught.value).splitlines()) <= 3
    assert victim.rows["search"] >= 2


def test_no_row_goes_beyond_the_budget(case: Case) -> None:
    make, model, rank = case
    meter = QueryMeter(make(chunk=2), samples=2, budget=3)
    samples = torch.tensor([0, 1, 0, 0])
    meter(inputs(rank, 4), samples, "search")
    with pytest.raises(BudgetError):
        meter(inputs(rank, 2), torch.tensor([1, 0]), "cleanup")
    meter(inputs(rank, 2), torch.tensor([1, 1]), "cleanup")
    assert meter.counts.sum(1).tolist() == [3, 3]
    assert sum(model.seen) == 6 == sum(meter.victim.rows.values())
    assert meter.left(torch.tensor([0, 1])).tolist() == [0, 0]


@pytest.mark.parametrize("kind", ALL_VICTIMS)
@pytest.mark.parametrize("rank", RANKS)
def test_nan_scores_come_out_as_nan_rows(kind: str, rank: int) -> None:
    with ALL_VICTIMS[kind](linear(broken=True), rank) as make:
        scores = make()(inputs(rank))
    assert scores.shape == (7, CLASSES)
    assert scores.isnan().all()
