"""Labels alone: the cut Gaussian against its integral, and sets that are nearly as cheap as those found by scores."""

from __future__ import annotations

import math

import pytest
import torch

from rlab.errors import InputError
from rlab.policies.belief.signs import cut_gaussian
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from tests.policies.belief.planted import PALETTE, make_case


@pytest.mark.parametrize("won", [True, False])
@pytest.mark.parametrize(("mean", "variance"), [(0.2, 0.5), (1.0, 0.01), (2.5, 0.3), (-1.0, 0.4)])
def test_an_observation_makes_the_belief_that_of_the_side(mean: float, variance: float, won: bool) -> None:
    x = torch.linspace(mean - 12 * math.sqrt(variance), mean + 12 * math.sqrt(variance), 400_001, dtype=torch.float64)
    density = (-(x - mean).square() / (2 * variance)).exp() * ((x > 1) == won)
    density /= density.sum()
    cut = float((density * x).sum())
    spread = float((density * (x - cut).square()).sum())
    m, v = torch.tensor([mean], dtype=torch.float64), torch.tensor([variance], dtype=torch.float64)
    z = (m - 1 if won else 1 - m) / v.sqrt()
    drop, site = cut_gaussian(m, v, z, torch.tensor([won]))
    precision = 1 / v + 1 / site
    assert float((m / v + drop / site) / precision) == pytest.approx(cut, rel=1e-3, abs=1e-3)
    assert float(1 / precision) == pytest.approx(spread, rel=1e-2)


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_sets_found_by_labels_are_nearly_the_cheapest(rank: int) -> None:
    case = make_case(rank, budget=100, until="budget")
    case.victim.reading = case.victim.read_as(outputs="labels").reading
    result = case.run()
    assert result.succeeded.sum() >= 6  # of 8: where nothing flips, a label tells nothing
    best = case.optimum(result.seeds)
    assert float((result.final["l2"].double() / best)[result.succeeded].median()) < 1.2
    assert (result.before.amax(1) == 1).all()  # no probability is known


def test_what_is_told_beside_the_label_changes_nothing() -> None:
    sharp, plain = make_case(2, budget=40), make_case(2, budget=40)
    sharp.victim.weight *= 100
    for case in (sharp, plain):
        case.victim.reading = case.victim.read_as(outputs="labels").reading
    assert torch.equal(sharp.run().assignment, plain.run().assignment)


@pytest.mark.parametrize("policy", ["random", "square"])
def test_policies_that_go_by_scores_are_refused_before_their_first_step(policy: str) -> None:
    case = make_case(2, budget=40)
    case.victim.reading = case.victim.read_as(outputs="labels").reading
    attack = make_attack(case.batch, palette=PALETTE, patch=1, policy=policy, budget=40)
    with pytest.raises(InputError, match="only labels"):
        run_attack(attack, case.victim, case.batch)
    assert case.victim.rows["search"] == len(case.batch)  # the clean predictions
