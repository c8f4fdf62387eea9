"""Makers of training samples: what they may not leave, what they must reach, and the baselines against their references."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rlab.core.goals import MultiLabel, Untargeted
from rlab.errors import InputError
from rlab.hardening.balance import class_counts, class_weights, draw, imbalance, row_weights
from rlab.hardening.baselines import AugmentMaker, GradientMaker, fgsm, pgd
from rlab.hardening.makers import AgentMaker, Maker, PerturbationSpace, SlopeMaker, assign
from rlab.hardening.weights import blend, follow, take
from rlab.policies import parse_policy
from rlab.victims.torch_module import TorchVictim
from tests.hardening.toys import PALETTE, shortcut
from tests.helpers import PATCHES, RANKS, make_grid

BOUNDS = (0.0, 1.0)
GOAL = Untargeted()


def ground(rank: int) -> PerturbationSpace:
    return PerturbationSpace(BOUNDS, [PALETTE], [list(PATCHES[rank])], 2, GOAL)


def makers(rank: int) -> dict[str, Maker]:
    place = ground(rank)
    return {
        "agent": AgentMaker(place, parse_policy("random"), 12, 1.0),
        "slope": SlopeMaker(place, (0.1, 0.3)),
        "augment": AugmentMaker(place),
        "fgsm": fgsm(BOUNDS, GOAL, 0.05),
        "pgd": pgd(BOUNDS, GOAL, 0.5, "l2", steps=4),
    }


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", list(makers(1)))
def test_every_maker_keeps_to_bounds_is_deterministic_and_tells_the_truth(rank: int, name: str) -> None:
    toy, maker = shortcut(rank, n=16), makers(rank)[name]
    x, y = toy.batch.x, toy.batch.y
    before = x.clone()
    one, again, other = (maker(toy.victim, x, y, seed) for seed in (5, 5, 6))
    assert torch.equal(one.x, again.x)
    assert torch.equal(x, before)
    assert name in ("fgsm",) or not torch.equal(one.x, other.x)
    assert one.x.min() >= 0
    assert one.x.max() <= 1
    assert torch.equal(one.flipped, toy.victim(one.x).argmax(1) != y)


@pytest.mark.parametrize("name", ["agent", "slope"])
def test_what_looks_at_the_model_finds_its_shortcut(name: str) -> None:
    """The shortcut's patch is the only one worth changing, and those who look change it far more often than chance does."""
    toy = shortcut(2, n=32)
    x, y = toy.batch.x, toy.batch.y
    grid = make_grid(2)

    def hits(maker: Maker) -> float:
        changed = grid.total((maker(toy.victim, x, y, 1).x - x).abs().sum(1)) > 0
        return float(changed[:, toy.patch].float().mean() / changed.float().mean())

    made = (
        AgentMaker(ground(2), parse_policy("greedy"), 60, 0.0) if name == "agent" else SlopeMaker(ground(2), (0.3, 0.3))
    )
    assert hits(made) > 2 * hits(AugmentMaker(ground(2)))
    assert made(toy.victim, x, y, 1).flipped.all()


def test_an_agent_that_goes_on_beyond_the_flip_goes_deeper() -> None:
    toy = shortcut(1, n=32)
    x, y = toy.batch.x, toy.batch.y

    def depth(beyond: float) -> Tensor:
        made = AgentMaker(ground(1), parse_policy("random"), 40, beyond)(toy.victim, x, y, 3)
        return GOAL.margin(toy.victim(made.x), y)

    at_flip, deeper = depth(0.0), depth(2.0)
    assert (deeper <= at_flip + 1e-6).all()
    assert (deeper < at_flip - 1e-3).any()


def test_queries_of_an_agent_stay_within_its_budget() -> None:
    toy = shortcut(1, n=8)
    AgentMaker(ground(1), parse_policy("random"), 7, 10.0)(toy.victim, toy.batch.x, toy.batch.y, 0)
    assert toy.victim.rows["train"] <= 7 * 8
    assert set(toy.victim.rows) == {"train"}


def problem(seed: int) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(seed)
    gain, cost = torch.randn(1, 4, 3, generator=chance), torch.rand(1, 4, 3, generator=chance)
    gain[:, 0], cost[:, 0] = 0, 0
    return gain, cost


@given(st.integers(0, 10_000), st.floats(0.05, 5.0))
def test_an_assignment_stays_within_its_room_and_takes_nothing_that_helps_the_model(seed: int, room: float) -> None:
    gain, cost = problem(seed)
    chosen = assign(gain, cost, torch.tensor([room]))
    assert cost.gather(1, chosen[:, None]).sum() <= room + 1e-5
    assert (gain.gather(1, chosen[:, None]) >= 0).all()


def test_an_assignment_is_close_to_the_best_there_is() -> None:
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
    gain, cost = torch.randn(5, 4, 6), torch.rand(5, 4, 6)
    gain[:, 0], cost[:, 0] = 0, 0
    chosen = assign(gain, cost, torch.full((5,), 1e9))
    assert torch.equal(chosen, gain.argmax(1))


@pytest.mark.parametrize("rank", RANKS)
def test_slopes_go_no_farther_than_asked(rank: int) -> None:
    toy = shortcut(rank, n=16)
    x = toy.batch.x
    made = SlopeMaker(ground(rank), (0.05, 0.4))(toy.victim, x, toy.batch.y, 0).x
    far = (made - x).flatten(1).norm(dim=1)
    assert far.max() <= 0.4 * x[0].numel() ** 0.5 + 1e-4
    assert far.max() > 0


def linear_victim() -> TorchVictim:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([torch.ones(12), torch.tensor([-1.0, 3.0] * 6)]))  # type: ignore[operator]
    return TorchVictim(model, outputs="logits")


def test_gradient_steps_by_hand() -> None:
    """For a linear model the best step is known: against the sign, or along the direction, of the weights' difference."""
    x, y = torch.full((1, 3, 2, 2), 0.5), torch.tensor([0])
    down = torch.tensor([-1.0, 1.0] * 6).view(1, 3, 2, 2)  # against the difference of the rows, 2 or -2
    assert torch.allclose(fgsm(BOUNDS, GOAL, 0.1)(linear_victim(), x, y, 0).x, x + 0.1 * down)
    made = GradientMaker(BOUNDS, GOAL, 0.6, "l2")(linear_victim(), x, y, 0).x
    assert torch.allclose(made, x + 0.6 * down / 12**0.5, atol=1e-5)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("rank", RANKS)
def test_pgd_stays_in_its_ball_and_is_stronger_than_one_step(norm: str, rank: int) -> None:
    toy = shortcut(rank, n=32)
    x, y = toy.batch.x, toy.batch.y
    radius = 0.3 if norm == "l2" else 0.02
    one = GradientMaker(BOUNDS, GOAL, radius, norm)(toy.victim, x, y, 0).x  # type: ignore[arg-type]
    many = pgd(BOUNDS, GOAL, radius, norm)(toy.victim, x, y, 0).x  # type: ignore[arg-type]
    change = (many - x).flatten(1)
    far = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    assert far.max() <= radius + 1e-5
    assert GOAL.margin(toy.victim(many), y).mean() <= GOAL.margin(toy.victim(one), y).mean() + 0.05


def test_as_torchattacks_does_it() -> None:
    torchattacks = pytest.importorskip("torchattacks", reason="pip install --no-deps torchattacks")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    x, y = torch.rand(16, 3, 4, 4), torch.arange(16) % 4
    victim = TorchVictim(model, outputs="logits")
    theirs = torchattacks.FGSM(model, eps=0.03)(x, y)
    assert torch.allclose(fgsm(BOUNDS, GOAL, 0.03)(victim, x, y, 0).x, theirs, atol=1e-6)
    theirs = torchattacks.PGD(model, eps=0.03, alpha=0.01, steps=5, random_start=False)(x, y)
    ours = GradientMaker(BOUNDS, GOAL, 0.03, "linf", 5, 0.01)(victim, x, y, 0).x
    assert torch.allclose(ours, theirs, atol=1e-6)
    theirs = torchattacks.PGDL2(model, eps=0.4, alpha=0.1, steps=5, random_start=False)(x, y)
    ours = GradientMaker(BOUNDS, GOAL, 0.4, "l2", 5, 0.1)(victim, x, y, 0).x
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_gradient_steps_where_labels_are_several() -> None:
    toy = shortcut(1, n=8)
    victim = TorchVictim(toy.victim.model, multilabel=True, outputs="logits")
    y = nn.functional.one_hot(toy.batch.y, 2)
    goal = MultiLabel()
    made = fgsm(BOUNDS, goal, 0.05)(victim, toy.batch.x, y, 0)
    assert (goal.margin(victim(made.x), y) < goal.margin(victim(toy.batch.x), y)).all()


def test_a_radius_or_a_norm_that_will_not_do_is_refused() -> None:
    with pytest.raises(InputError, match="radius above 0"):
        fgsm(BOUNDS, GOAL, 0.0)
    with pytest.raises(InputError, match="norm l2 or linf"):
        GradientMaker(BOUNDS, GOAL, 0.1, "l7")  # type: ignore[arg-type]


def test_seldom_classes_are_drawn_more_often_and_the_sentence_says_so() -> None:
    counts = class_counts(torch.tensor([0] * 60 + [1] * 20 + [2] * 2), 4)
    assert counts.tolist() == [60, 20, 2, 0]
    weights = class_weights(counts)
    assert weights.tolist() == pytest.approx(
        [1 / 3, 1, 4, 4]
    )  # the middle one is usual; no more than four times as often
    assert "from cat 60 down to 3 0" in imbalance(counts, ("cat", "dog", "bird"))
    assert imbalance(torch.tensor([10.0, 12.0]), ()) == ""
    assert imbalance(torch.zeros(3), ()) == ""
    y = torch.tensor([0] * 60 + [1] * 20 + [2] * 2)
    drawn = y[torch.cat([draw(row_weights(y, weights), 10, torch.Generator().manual_seed(i)) for i in range(200)])]
    share = torch.bincount(drawn).float() / len(drawn)
    assert share[0] < 0.55  # 60 of 82 without weights
    assert share[2] > 0.09  # 2 of 82 without


def test_weights_of_samples_with_several_labels_are_those_of_the_rarest() -> None:
    y = torch.tensor([[1, 0, 0], [1, 0, 1], [0, 0, 0]])
    assert row_weights(y, torch.tensor([0.5, 1.0, 4.0])).tolist() == [0.5, 4.0, 0.5]
    assert class_counts(y, 3).tolist() == [2, 0, 1]


def test_averages_and_blends_by_hand() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    average = take(model)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value += {"0.weight": 1.0, "1.num_batches_tracked": 7}.get(name, 0)
    old = average["0.weight"].clone()
    follow(average, model, 0.75)
    assert torch.allclose(average["0.weight"], old + 0.25)
    assert int(average["1.num_batches_tracked"]) == 7
    mixed = blend(
        {"w": torch.tensor([0.0]), "n": torch.tensor(1)}, {"w": torch.tensor([2.0]), "n": torch.tensor(5)}, 0.25
    )
    assert mixed["w"].tolist() == [0.5]
    assert int(mixed["n"]) == 5
