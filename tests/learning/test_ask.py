"""What learning asks: every clean input first, then distorted ones, each input on its own."""

from __future__ import annotations

import torch

from rlab.core.rng import sample_seeds
from rlab.filters import Palette
from rlab.learning.answers import Plan, draw_assignments, shuffled
from tests.helpers import PALETTE, make_batch, make_grid


def make_plan(queries: int) -> Plan:
    batch = make_batch(2, 10)
    return Plan(batch, Palette.of(PALETTE, 2, 3), make_grid(2), queries, seed=0)


def test_clean_inputs_come_first_and_all_queries_are_used() -> None:
    plan = make_plan(37)
    parts = list(plan.parts(4))
    assert [row for part in parts for row in part] == list(range(37))
    clean = torch.cat([plan.inputs(part) for part in parts if part.start < 10])
    assert clean.equal(plan.batch.x)
    for part in parts:
        if part.start >= 10:
            changed = plan.inputs(part) != plan.batch.x[[row % 10 for row in part]]
            assert changed.flatten(1).any(1).all()


def test_fewer_queries_than_inputs() -> None:
    assert [list(part) for part in make_plan(5).parts(3)] == [[0, 1, 2], [3, 4]]


def test_an_input_does_not_depend_on_the_others() -> None:
    plan = make_plan(30)
    whole = plan.inputs(range(10, 20))
    assert torch.cat([plan.inputs(range(at, at + 1)) for at in range(10, 20)]).equal(whole)


def test_shares_of_distorted_patches_are_spread() -> None:
    drawn = draw_assignments(sample_seeds(0, 0, 400), patches=64, entries=3)
    share = (drawn > 0).float().mean(1)
    assert share.min() < 0.05
    assert share.max() > 0.9
    assert 0.08 < share.median() < 0.2  # the middle of one patch to all, on a log scale
    assert set(drawn.unique().tolist()) == {0, 1, 2, 3}


def test_samples_are_taken_in_a_random_order() -> None:
    batch = make_batch(1, 40)
    few = shuffled(batch, 10, seed=0)
    assert len(set(few.ids)) == 10
    assert few.ids != batch.ids[:10]
    assert few.ids == shuffled(batch, 10, seed=0).ids
    assert few.ids != shuffled(batch, 10, seed=1).ids
