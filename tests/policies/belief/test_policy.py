"""The belief search on models whose best assignments are known: what it finds, what it never does, what it bears."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from rlab.core.distances import MEASURES, Measure
from rlab.core.goals import Goal, parse_goal
from rlab.core.rng import normal, uniform
from rlab.data.batch import Batch
from rlab.errors import InputError, ModelError
from rlab.policies import parse_policy
from rlab.policies.belief import Belief
from rlab.policies.belief.answers import along
from rlab.priors.base import Prior
from rlab.priors.surrogates import SurrogatePrior
from rlab.priors.trained import DirectionPrior, TrainedPrior
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.verbs import attack
from rlab.victims import CallableVictim
from rlab.victims.account import PHASES
from rlab.victims.torch_module import TorchVictim
from tests.helpers import CHANNELS, PATCHES, RANKS, SIZES, labelled_by, make_batch
from tests.policies.belief.planted import PALETTE, LinearNet, LinearVictim, make_case, told_policy

QUERIES = 50


@pytest.fixture(scope="module", params=RANKS)
def case_and_result(request: pytest.FixtureRequest) -> tuple[Any, AttackResult]:
    case = make_case(request.param, budget=QUERIES)
    return case, case.run()


def test_flips_are_as_near_as_the_cheapest_sets_of_the_true_model(case_and_result: tuple[Any, AttackResult]) -> None:
    case, result = case_and_result
    assert set(result.status) == {Status.SUCCEEDED}
    ratio = result.best_within(QUERIES) / case.optimum(result.seeds)
    assert ratio.median() <= 1.01
    assert ratio.max() <= 1.1
    assert (result.best_within(20) / case.optimum(result.seeds)).median() <= 1.25


def test_what_is_stored_is_the_best_flip(case_and_result: tuple[Any, AttackResult]) -> None:
    _, result = case_and_result
    torch.testing.assert_close(result.final["l2"], result.best_within(QUERIES))
    assert (result.queries.sum(1) == QUERIES).all()
    assert (result.queries[:, PHASES.index("cleanup")] == 0).all()  # reducing is the same act
    for improvements in result.improvements:
        assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(improvements))


def test_hardly_anything_is_asked_twice() -> None:
    """A model that repeats itself would tell nothing new."""
    seen: list[Tensor] = []

    class Recording(LinearVictim):
        def _predict(self, x: Tensor) -> Tensor:
            seen.append(x.clone())
            return super()._predict(x)

    case = make_case(2, n=2, budget=20)
    run_attack(case.attack, Recording(2), case.batch)
    asked = torch.stack(
        [x for x in seen[1:] if len(x) == 2]
    )  # without the clean inputs and the verification, one by one
    for row in range(2):
        assert len(asked[:, row].unique(dim=0)) >= 0.75 * len(asked)


def test_a_prior_that_knows_the_model_is_there_in_a_few_queries() -> None:
    case = make_case(2, budget=8)
    plain = case.run().best_within(8)
    directed = make_case(2, budget=8, policy=Belief(prior=SurrogatePrior([TorchVictim(LinearNet(case.victim))])))
    result = directed.run()
    assert (result.best_within(8) / case.optimum(result.seeds)).median() <= 1.1
    assert result.best_within(5).median() < plain.median()
    assert case.victim.rows["search"] == 8 * 7  # gradients of surrogates are no queries


@pytest.mark.parametrize("policy", ["belief(temperature=0, warming=0)", "belief(rivals=1)", "belief(remember=5)"])
def test_options_of_the_search(policy: str) -> None:
    result = make_case(2, n=4, budget=30, policy=policy).run()
    assert result.succeeded.all()
    assert str(parse_policy(policy)) == "belief with prior none"


class Watching(Prior):
    """Directions that tell where they were asked for."""

    local = True

    def __init__(self) -> None:
        self.asked: list[Tensor] = []

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor:
        self.asked.append(x.clone())
        return x[:, None] - 0.5


def test_directions_of_a_local_prior_are_asked_for_again_at_much_nearer_flips() -> None:
    prior = Watching()
    case = make_case(2, n=4, budget=40, policy=Belief(prior=prior))
    result = case.run()
    assert torch.equal(prior.asked[0], case.batch.x)
    assert len(prior.asked) > 1
    assert all((again != case.batch.x[:1]).any() for again in prior.asked[1:])
    assert len(prior.asked) < 40  # and not at every query
    assert result.succeeded.all()


def test_queries_made_before_are_laid_along_new_directions() -> None:
    draw = torch.Generator().manual_seed(0)
    projection = torch.randn(2, 4, 3, 5, generator=draw)
    tried = torch.randint(4, (2, 6, 5), generator=draw)
    by_hand = torch.zeros(2, 6, 3)
    for n, t, k, p in product(range(2), range(6), range(3), range(5)):
        by_hand[n, t, k] += projection[n, tried[n, t, p], k, p]
    torch.testing.assert_close(along(projection, tried), by_hand)


@pytest.mark.parametrize("options", ["temperature=-1", "shrink=1.0", "bold=0", "rivals=0", "remember=0", "rivals=1.5"])
def test_options_that_are_not_valid_are_refused(options: str) -> None:
    with pytest.raises(InputError, match=f"{options.partition('=')[0]} of the policy 'belief'"):
        parse_policy(f"belief({options})")


@pytest.mark.parametrize("budget", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_queries_in_float32(budget: int) -> None:
    """A curved model, entries that do nearly the same, and the same region asked again and again."""
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(192, 8, generator=draw)
    out = torch.randn(8, 3, generator=draw)

    def function(x: Any) -> Any:
        return (torch.tanh((torch.from_numpy(x).flatten(1) - 0.5) @ weight) @ out).numpy()

    victim = CallableVictim(function, outputs="logits")
    batch = labelled_by(victim, make_batch(2, 2))
    palette = ["illuminate@0.05,0.1,0.2", "dead_pixel@1.0"]
    result = attack(victim, batch, palette=palette, patch=2, budget=budget, policy="belief", until="budget")
    assert set(result.status) == {Status.SUCCEEDED}
    assert (result.queries.sum(1) == budget).all()
    within = torch.stack([result.best_within(queries) for queries in range(2, budget + 1, 7)])
    falling = within[torch.isfinite(within).all(1)]
    assert (falling.diff(dim=0) <= 0).all()
    assert torch.isfinite(result.final["l2"]).all()
    assert within[-1].mean() < falling[0].mean()


class NanAfter(LinearVictim):
    """Answers NaN to every question from the one numbered `first` on, but for verifications."""

    def __init__(self, rank: int, first: int) -> None:
        super().__init__(rank)
        self.first, self.asked = first, 0

    def _predict(self, x: Tensor) -> Tensor:
        self.asked += 1
        scores = super()._predict(x)
        return torch.full_like(scores, math.nan) if self.asked == self.first else scores


def test_nan_before_the_flip_fails_and_after_it_keeps_the_flip() -> None:
    case = make_case(2, budget=30)
    plain = case.run()
    flips = [improvements[0][0] for improvements in plain.improvements]
    at = sorted(flips)[len(flips) // 2]  # the question, counted from 1, that got the median flip
    victim = NanAfter(2, at)
    result = run_attack(case.attack, victim, case.batch)
    for i, flip in enumerate(flips):
        if flip < at:
            assert result.status[i] is Status.SUCCEEDED
            assert result.final["l2"][i] == pytest.approx(float(plain.best_within(at - 1)[i]))
        else:
            assert result.status[i] is Status.FAILED
            assert math.isinf(result.best_within(30)[i])
        assert result.queries[i, 0] == at  # nothing is asked after it
    assert len(set(result.status)) == 2


def for_some(x: Tensor, severity: float, generator: torch.Generator) -> Tensor:
    """Does nothing to a sample whose first value is small."""
    return torch.where(x[:, :1, :1, :1] > 0.5, (x + 0.3 * severity).clamp(0, 1), x)


def test_a_palette_entry_that_changes_nothing_is_never_proposed() -> None:
    case = make_case(2, n=6, budget=25, palette=[for_some, *PALETTE])
    result = case.run()
    assert result.succeeded.all()
    idle = case.batch.x[:, 0, 0, 0] <= 0.5
    assert 0 < idle.sum() < 6
    assert not (result.assignment[idle] == 1).any()


def test_a_palette_that_changes_nothing_at_all_spends_the_budget() -> None:
    case = make_case(2, n=6, budget=9, palette=[for_some])
    result = case.run()
    idle = case.batch.x[:, 0, 0, 0] <= 0.5
    assert {status for status, never in zip(result.status, idle.tolist(), strict=True) if never} == {Status.SPENT}


@pytest.mark.parametrize(
    ("goal", "rank"), [("untargeted", 1), ("targeted:1", 2), ("below:0.2", 3), ("multilabel", 1), ("multilabel:2", 2)]
)
def test_every_goal(goal: str, rank: int) -> None:
    multilabel = goal.startswith("multilabel")
    victim = LinearVictim(rank, classes=4, multilabel=multilabel)
    batch = labelled_by(victim, make_batch(rank, 8))
    if multilabel:
        batch = Batch(x=batch.x, y=(victim(batch.x) > 0).long())
    options: dict[str, Any] = {"palette": PALETTE, "patch": PATCHES[rank], "budget": 30, "policy": "belief"}
    result = attack(victim, batch, goal=goal, **options)
    won = result.succeeded
    assert won.sum() >= 0.8 * result.attacked.sum() > 0
    assert parse_goal(goal).reached(victim(result.perturbed), batch.y)[won].all()


EVEN = Belief(central=0.0)  # the planted model has no middle


@pytest.fixture(scope="module")
def by_l2() -> AttackResult:
    return make_case(2, n=16, budget=30, policy=EVEN).run()


@pytest.mark.parametrize("measure", get_args(Measure))
def test_the_distance_asked_for_is_the_one_that_falls(measure: Measure, by_l2: AttackResult) -> None:
    result = make_case(2, n=16, budget=30, distance=measure, policy=EVEN).run()
    assert result.succeeded.all()
    reached = MEASURES[measure](result.original, result.perturbed)
    torch.testing.assert_close(result.best_within(30), reached, rtol=1e-4, atol=1e-6)
    assert reached.mean() <= 1.001 * MEASURES[measure](by_l2.original, by_l2.perturbed).mean()


def test_classes_at_probability_zero_are_no_way_but_no_harm() -> None:
    """Answers of -inf: an impossible class before, and the true one impossible after the flip."""
    case = make_case(2, n=4, budget=30)

    class Hard(LinearVictim):
        def _predict(self, x: Tensor) -> Tensor:
            scores = super()._predict(x)
            sure = scores.scatter(1, scores.argmin(1, keepdim=True), -math.inf)
            never = torch.full_like(scores[:, :1], -math.inf)
            flipped = (scores.argmax(1) != case.batch.y[: len(x)])[:, None] if len(x) == 4 else torch.tensor([[False]])
            return torch.cat([torch.where(flipped, sure, scores), never], 1)

    result = run_attack(case.attack, Hard(2), case.batch)
    assert result.succeeded.all()


OTHER_DATA = r"expected directions of shape \(samples, any number, 3, 8, 8\).*it was made for other data"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (torch.ones(2, 1, *SIZES[2]), OTHER_DATA),  # another channel count
        (torch.ones(2, 3, 8), OTHER_DATA),  # another rank
        (torch.ones(2, 3, 8, 9), OTHER_DATA),
        (torch.ones(1, CHANNELS[2], *SIZES[2]) * math.nan, "directions that are not finite"),
        (torch.ones(1, CHANNELS[2], *SIZES[2]) * math.inf, "directions that are not finite"),
    ],
)
def test_a_prior_that_does_not_fit_is_refused_in_a_sentence(said: Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make_case(2, n=2, budget=9, policy=told_policy(said)).run()


@pytest.mark.parametrize(("rank", "channels"), [(2, 1), (1, 3), (3, 3)])
def test_a_trained_prior_of_another_kind_is_refused_in_a_sentence(rank: int, channels: int) -> None:
    prior = TrainedPrior(DirectionPrior(rank, channels, 8, 1, 1), "mine")
    with pytest.raises(ModelError):
        make_case(2, n=2, budget=9, policy=Belief(prior=prior)).run()


def test_uniform_numbers_become_standard_normal_ones() -> None:
    one = 1 - math.exp(-0.5)  # whose length is one
    at = normal(torch.tensor([[0.0, 0.3, one, 0.0, one, 0.25, 1 - 2**-24, 0.5]]))
    assert torch.isfinite(at).all()
    assert at[0].tolist() == pytest.approx([0, 1, 0, float(at[0, 3]), 0, 0, 1, 0], abs=1e-4)
    assert -6 < float(at[0, 3]) < -5
    many = normal(uniform(torch.arange(200), torch.zeros(200, dtype=torch.long), 1000))
    moments = [float(many.pow(power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)
    assert abs(float((many[:, :500] * many[:, 500:]).mean())) < 0.02  # both of a pair
