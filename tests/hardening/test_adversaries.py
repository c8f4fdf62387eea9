"""Generators of adversaries: their limits, their effect, and the baselines by hand and against reference implementations."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rlab.core.goals import MultiLabel, Untargeted
from rlab.errors import OptionError
from rlab.hardening.adversaries import (
    AdversaryGenerator,
    GradientAdversary,
    PerturbationSpace,
    PolicyAdversary,
    Unreachable,
    assign,
    random_weights,
)
from rlab.hardening.baselines import (
    AugmentationGenerator,
    AugMix,
    ProjectedGradient,
    coarser,
    equalised,
    moved,
    stretched,
)
from rlab.policies import parse_policy
from rlab.victims.torch_module import TorchVictim
from tests.hardening.toys import PALETTE, Shortcut, shortcut
from tests.helpers import PATCHES, RANKS, make_grid

BOUNDS = (0.0, 1.0)
GOAL = Untargeted()


def space(rank: int) -> PerturbationSpace:
    return PerturbationSpace(BOUNDS, [PALETTE], [list(PATCHES[rank])], 2, GOAL)


def planted(rank: int, n: int) -> tuple[Shortcut, Tensor, Tensor]:
    toy = shortcut(rank, n=n)
    return toy, toy.batch.x, toy.batch.y


def generators(rank: int) -> dict[str, AdversaryGenerator]:
    shared = space(rank)
    return {
        "agent": PolicyAdversary(shared, parse_policy("random"), 12, 1.0),
        "belief": PolicyAdversary(shared, parse_policy("belief"), 6, 2.0),
        "gradient": GradientAdversary(shared, (0.1, 0.3)),
        "trades": GradientAdversary(shared, (0.1, 0.3), 1, 1.0, from_clean=True),
        "augment": AugmentationGenerator(shared),
        "augmix": AugMix(BOUNDS),
        "fgsm": ProjectedGradient(BOUNDS, GOAL, 0.05),
        "pgd": ProjectedGradient(BOUNDS, GOAL, 0.5, "l2", steps=4, random_start=True),
    }


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", list(generators(1)))
def test_every_generator_respects_bounds_and_is_deterministic_and_truthful(rank: int, name: str) -> None:
    (toy, x, y), generator = planted(rank, 16), generators(rank)[name]
    before = x.clone()
    first, again, other = (generator(toy.victim, x, y, seed) for seed in (5, 5, 6))
    assert torch.equal(first.x, again.x)
    assert torch.equal(x, before)
    assert name in ("fgsm", "belief") or not torch.equal(first.x, other.x)
    assert first.x.min() >= 0
    assert first.x.max() <= 1
    assert torch.equal(first.flipped, toy.victim(first.x).argmax(1) != y)


@pytest.mark.parametrize("name", ["agent", "gradient"])
def test_generators_that_use_the_model_find_its_shortcut(name: str) -> None:
    """Only the shortcut's patch is worth changing; generators that use the model change it more often than random ones."""
    toy, x, y = planted(2, 32)
    grid = make_grid(2)

    def hits(generator: AdversaryGenerator) -> float:
        changed = grid.total((generator(toy.victim, x, y, 1).x - x).abs().sum(1)) > 0
        return float(changed[:, toy.patch].float().mean() / changed.float().mean())

    generator = (
        PolicyAdversary(space(2), parse_policy("greedy"), 60, 0.0)
        if name == "agent"
        else GradientAdversary(space(2), (0.3, 0.3), aimed=1.0)
    )
    assert hits(generator) > 2 * hits(AugmentationGenerator(space(2)))
    assert generator(toy.victim, x, y, 1).flipped.all()


@pytest.mark.parametrize(("policy", "budget"), [("random", 40), ("belief", 20), ("auto", 20)])
def test_a_policy_that_continues_beyond_the_flip_goes_deeper_and_not_back_to_the_boundary(
    policy: str, budget: int
) -> None:
    """A belief proposes smaller distances after its goal is reached; for training samples it never is."""
    toy, x, y = planted(2, 12)
    at_flip, deeper = (
        PolicyAdversary(space(2), parse_policy(policy), budget, beyond)(toy.victim, x, y, 3) for beyond in (0.0, 8.0)
    )
    assert at_flip.flipped.float().mean() >= 0.5
    margins = [GOAL.margin(toy.victim(adversaries.x), y) for adversaries in (at_flip, deeper)]
    assert (margins[1] <= margins[0] + 1e-5).all()
    assert (margins[1] < margins[0] - 1e-3).any()
    distances = [(adversaries.x - x).flatten(1).norm(dim=1).mean() for adversaries in (at_flip, deeper)]
    assert distances[1] > 0.9 * distances[0]


def test_an_unreachable_goal_falls_with_the_margin_and_stays_above_zero() -> None:
    scores, y = torch.tensor([[-0.1, -3.0], [-2.0, -0.5], [-300.0, 0.0]]), torch.tensor([0, 0, 0])
    goal = Unreachable(GOAL)
    assert goal.margin(scores, y).tolist() == pytest.approx([3.9, float(torch.tensor(-1.5).exp()), 0.0], abs=1e-5)
    assert torch.equal(goal.alternatives(scores, y).amin(1), goal.margin(scores, y))
    assert not goal.reached(scores, y).any()


def test_queries_of_an_agent_stay_within_its_budget() -> None:
    toy = shortcut(1, n=8)
    PolicyAdversary(space(1), parse_policy("random"), 7, 10.0)(toy.victim, toy.batch.x, toy.batch.y, 0)
    assert toy.victim.rows["train"] <= 7 * 8
    assert set(toy.victim.rows) == {"train"}


def problem(seed: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    gain, cost = torch.randn(1, 4, 3, generator=rng), torch.rand(1, 4, 3, generator=rng)
    gain[:, 0], cost[:, 0] = 0, 0
    return gain, cost


@given(st.integers(0, 10_000), st.floats(0.05, 5.0))
def test_an_assignment_stays_within_its_room_and_takes_nothing_that_helps_the_model(seed: int, room: float) -> None:
    gain, cost = problem(seed)
    chosen = assign(gain, cost, torch.tensor([room]))
    assert cost.gather(1, chosen[:, None]).sum() <= room + 1e-5
    assert (gain.gather(1, chosen[:, None]) >= 0).all()


def test_an_assignment_is_close_to_the_best() -> None:
    """Against all 64 assignments of three patches."""
    reached, best = 0.0, 0.0
    for seed in range(60):
        gain, cost = problem(seed)
        all_ways = torch.tensor(list(itertools.product(range(4), repeat=3)))
        gains, costs = (v[0].T[torch.arange(3), all_ways].sum(1) for v in (gain, cost))
        best += float(gains[costs <= 0.7].max())
        reached += float(gain.gather(1, assign(gain, cost, torch.tensor([0.7]))[:, None]).sum())
    assert 0.85 * best < reached <= best


def test_an_assignment_without_a_limit_takes_the_best_everywhere() -> None:
    gain, cost = problem(0)
    assert torch.equal(assign(gain, cost, torch.full((1,), 1e9)), gain.argmax(1))


@pytest.mark.parametrize("rank", RANKS)
def test_the_gradient_adversary_stays_within_its_radius(rank: int) -> None:
    toy, x, y = planted(rank, 16)
    adversaries = GradientAdversary(space(rank), (0.05, 0.4))(toy.victim, x, y, 0).x
    distance = (adversaries - x).flatten(1).norm(dim=1)
    assert distance.max() <= 0.4 * x[0].numel() ** 0.5 + 1e-4
    assert distance.max() > 0


@pytest.mark.parametrize("rank", RANKS)
def test_random_weights_leave_room_for_the_input_and_differ_from_row_to_row(rank: int) -> None:
    grid = make_grid(rank)
    weights = random_weights((64, 3, len(grid)), grid, 0, torch.device("cpu"))
    assert (weights >= 0).all()
    total = weights.sum(1)
    assert ((total - 1).abs().lt(1e-5) | (total == 0)).all()  # a patch is distorted by the row's mixture, or not at all
    everywhere = (total > 0).all(1).float().mean()
    assert 0.2 < everywhere < 0.7
    assert len({tuple(row.tolist()) for row in (total > 0)}) > 16


def test_aimed_samples_are_harder_than_random_ones_and_cost_passes() -> None:
    toy, x, y = planted(2, 64)

    def margin(aimed: float, steps: int = 2) -> float:
        maker = GradientAdversary(space(2), (0.3, 0.3), steps, aimed)
        return float(GOAL.margin(toy.victim(maker.make(toy.victim, x, y, 1)), y).mean())

    by_chance = margin(0.0)
    assert toy.victim.rows["train"] == 0
    assert margin(1.0) < by_chance - 0.5
    assert toy.victim.rows["train"] == 2 * 64  # no more than a pass a step
    assert margin(1.0, steps=0) == by_chance


def linear_victim() -> TorchVictim:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([torch.ones(12), torch.tensor([-1.0, 3.0] * 6)]))  # type: ignore[operator]
    return TorchVictim(model, outputs="logits")


def test_gradient_steps_by_hand() -> None:
    """For a linear model the best step is known: the sign, or the direction, of the difference of the weights."""
    x, y = torch.full((1, 3, 2, 2), 0.5), torch.tensor([0])
    down = torch.tensor([-1.0, 1.0] * 6).view(1, 3, 2, 2)  # against the difference of the rows, 2 or -2
    assert torch.allclose(ProjectedGradient(BOUNDS, GOAL, 0.1)(linear_victim(), x, y, 0).x, x + 0.1 * down)
    adversaries = ProjectedGradient(BOUNDS, GOAL, 0.6, "l2")(linear_victim(), x, y, 0).x
    assert torch.allclose(adversaries, x + 0.6 * down / 12**0.5, atol=1e-5)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("rank", RANKS)
def test_pgd_stays_in_its_ball_and_is_stronger_than_one_step(norm: str, rank: int) -> None:
    toy, x, y = planted(rank, 32)
    radius = 0.3 if norm == "l2" else 0.02
    once = ProjectedGradient(BOUNDS, GOAL, radius, norm)(toy.victim, x, y, 0).x  # type: ignore[arg-type]
    many = ProjectedGradient(BOUNDS, GOAL, radius, norm, 10, random_start=True)(toy.victim, x, y, 0).x  # type: ignore[arg-type]
    change = (many - x).flatten(1)
    distance = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    assert distance.max() <= radius + 1e-5
    assert GOAL.margin(toy.victim(many), y).mean() <= GOAL.margin(toy.victim(once), y).mean() + 0.05


def test_agreement_with_torchattacks() -> None:
    torchattacks = pytest.importorskip("torchattacks", reason="pip install --no-deps torchattacks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    x, y = torch.rand(16, 3, 4, 4), torch.arange(16) % 4
    steps = {"steps": 5, "random_start": False}
    pairs = [
        (torchattacks.FGSM(model, eps=0.03), ProjectedGradient(BOUNDS, GOAL, 0.03)),
        (
            torchattacks.PGD(model, eps=0.03, alpha=0.01, **steps),
            ProjectedGradient(BOUNDS, GOAL, 0.03, "linf", 5, 0.01),
        ),
        (torchattacks.PGDL2(model, eps=0.4, alpha=0.1, **steps), ProjectedGradient(BOUNDS, GOAL, 0.4, "l2", 5, 0.1)),
    ]
    for theirs, ours in pairs:
        assert torch.allclose(ours(TorchVictim(model, outputs="logits"), x, y, 0).x, theirs(x, y), atol=1e-4)


def test_gradient_steps_with_multiple_labels() -> None:
    toy = shortcut(1, n=8)
    victim = TorchVictim(toy.victim.model, multilabel=True, outputs="logits")
    y = nn.functional.one_hot(toy.batch.y, 2)
    goal = MultiLabel()
    adversaries = ProjectedGradient(BOUNDS, goal, 0.05)(victim, toy.batch.x, y, 0)
    assert (goal.margin(victim(adversaries.x), y) < goal.margin(victim(toy.batch.x), y)).all()


@pytest.mark.parametrize(("radius", "norm"), [(0.0, "linf"), (0.1, "l7")])
def test_an_invalid_radius_or_norm_is_refused(radius: float, norm: Any) -> None:
    with pytest.raises(OptionError):
        ProjectedGradient(BOUNDS, GOAL, radius, norm)


def test_operations_on_pictures_by_hand() -> None:
    x = torch.tensor([0.2, 0.4, 0.4, 0.6]).view(1, 1, 2, 2)
    assert stretched(x).flatten().tolist() == pytest.approx([0.0, 0.5, 0.5, 1.0], abs=1e-6)
    assert equalised(x).flatten().tolist() == pytest.approx([0.0, 1 / 3, 1 / 3, 1.0], abs=1e-6)
    assert coarser(x, torch.tensor(1.0)).flatten().tolist() == [0.0, 0.0, 0.0, 0.5]
    shifted = moved(x, torch.tensor([1.0]))  # by half the width, to the left
    assert shifted.flatten().tolist() == pytest.approx([0.4, 0.0, 0.6, 0.0], abs=1e-5)
    assert torch.allclose(moved(x, torch.zeros(1)), x, atol=1e-6)


@pytest.mark.parametrize("rank", RANKS)
def test_augmix_changes_every_row_differently_and_keeps_most_of_it(rank: int) -> None:
    toy, x, y = planted(rank, 32)
    new = AugMix(BOUNDS).make(toy.victim, x, y, 3)
    change = (new - x).flatten(1).norm(dim=1)
    assert (change > 0).float().mean() > 0.9
    assert change.unique().numel() > 16
    assert change.mean() < 0.7 * (x - x.mean(0)).flatten(1).norm(dim=1).mean() + x.flatten(1).norm(dim=1).mean() * 0.3
    assert not toy.victim.rows  # AugMix does not query the model
