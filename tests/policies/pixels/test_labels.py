"""Models that tell only labels: distances to planes that are known, exact counts, the same bits again, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import InputError
from rlab.policies.pixels import PixelPolicy
from rlab.priors.base import NoPrior
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims import TorchVictim
from tests.helpers import assert_same
from tests.policies.pixels.test_policy import Line, make_case, shape_of


def run(net: Line, batch: Batch, prior: bool = False, **options: Any) -> AttackResult:
    victim = TorchVictim(net, outputs="labels", bounds=batch.bounds)
    attack = make_attack(batch, **{"palette": "pixels", "until": "budget", **options})
    if not prior:
        assert isinstance(attack.policy, PixelPolicy)
        attack = replace(attack, policy=replace(attack.policy, opening=NoPrior()))
    return run_attack(attack, victim, batch)


@pytest.mark.parametrize(
    ("rank", "bounds"),
    [
        (1, UNBOUNDED),
        pytest.param(2, (0.0, 1.0), marks=pytest.mark.slow),
        pytest.param(3, (0.0, 1.0), marks=pytest.mark.slow),
    ],
)
def test_the_distance_to_a_plane_is_found_by_signs_alone(rank: int, bounds: tuple[float, float]) -> None:
    net, batch = make_case(rank, bounds=bounds)
    best, before = net.distance(batch), net.rows
    result = run(net, batch, budget=500)
    assert set(result.status) == {Status.SUCCEEDED}
    assert net.rows - before == int(result.queries.sum()) == 500 * len(batch)
    assert (result.final["l2"] >= best * (1 - 1e-4)).all()
    assert float((result.final["l2"] / best).median()) < 2.3  # 500 signs of up to 768 values
    assert float((result.best_within(100) / best).median()) < 7


def test_surrogates_lead_to_it_in_few_queries() -> None:
    net, batch = make_case(2)
    result = run(net, batch, budget=40, surrogate=net)
    assert (result.final["l2"] <= 1.1 * net.distance(batch)).all()


@pytest.mark.slow
def test_a_sample_is_attacked_alike_in_any_company_and_only_by_its_labels() -> None:
    net, batch = make_case(2)
    whole = run(net, batch, budget=80)
    assert_same(whole, run(net, batch, budget=80, chunk=1))

    class Told(Line):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(super().forward(x).argmax(1), 3).float()

    assert_same(whole, run(Told(shape_of(2)), batch, budget=80))


@pytest.mark.slow
def test_it_goes_on_until_steady_not_only_until_the_first_probes() -> None:
    net, batch = make_case(2)
    result = run(net, batch, budget=400, until="steady")
    assert (result.final["l2"] < 4 * net.distance(batch)).all()


def test_a_target_class_is_reached_by_labels() -> None:
    net, batch = make_case(2, n=6)
    result = run(net, batch, budget=400, goal="targeted:0")
    assert result.succeeded.any()
    with torch.no_grad():
        assert (net(result.perturbed[result.succeeded]).argmax(1) == 0).all()


def test_a_probability_cannot_be_a_goal_of_labels() -> None:
    net, batch = make_case(2)
    with pytest.raises(InputError, match="only labels"):
        run(net, batch, budget=40, goal="below:0.2")


def test_a_model_that_never_flips_is_spent_and_counted() -> None:
    net, batch = make_case(2, bounds=(0.0, 1.0))
    with torch.no_grad():
        net.weight.zero_()
    batch = replace(batch, y=torch.zeros_like(batch.y))
    result = run(net, batch, budget=60)
    assert set(result.status) == {Status.SPENT}
    assert result.queries.sum(1).tolist() == [59] * len(batch)


def test_the_trained_prior_opens_where_one_ships() -> None:
    batch = Batch(
        x=torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)), y=torch.zeros(2, dtype=torch.int64)
    )
    policy = make_attack(batch, palette="pixels").policy
    assert isinstance(policy, PixelPolicy)
    assert not isinstance(policy.opening, NoPrior)
