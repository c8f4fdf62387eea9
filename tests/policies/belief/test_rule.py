"""The rule against a search over every rival."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.policies.belief import rule
from rlab.policies.belief.answers import repeats
from rlab.policies.belief.frontier import make_frontier
from rlab.policies.belief.rule import Effects, RuleChoice, likeliest, redraw, strongest
from rlab.policies.belief.state import BeliefState
from tests.policies.belief.planted import make_case


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_rival_is_as_good_as_the_best_of_all_frontiers(flipped: bool, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    n, a, f, p = 12, 4, 3, 300
    mean, cost = torch.randn(n, a, f, p, generator=draw), torch.rand(n, f, p, generator=draw) + 0.1
    need = 60 + 20 * torch.rand(n, a, generator=draw)
    within = 20 + 5 * torch.rand(n, generator=draw)  # cost that may be spent after a flip
    frontiers = [make_frontier(mean[:, i], cost) for i in range(a)]
    steps = [g.for_cost(within) if flipped else g.for_effect(need[:, i]) for i, g in enumerate(frontiers)]
    last = [step.clamp(min=1)[:, None] - 1 for step in steps]
    gains = torch.cat([g.effect.gather(1, at) for g, at in zip(frontiers, last, strict=True)], 1)
    costs = torch.cat([g.cost.gather(1, at) for g, at in zip(frontiers, last, strict=True)], 1)
    merit = gains - need if flipped else -costs
    rates = torch.stack([g.rate_at(step.clamp(min=1)) for g, step in zip(frontiers, steps, strict=True)], 1)
    best, rival = merit.max(1)
    rate = rates.gather(1, rival[:, None])[:, 0]
    memory: Any = SimpleNamespace(geometry=SimpleNamespace(cost=cost), bold=torch.ones(n), rate=rate)
    state: Any = SimpleNamespace(margin=torch.full((n,), -1.0 if flipped else 1.0))
    chosen = likeliest(memory, Effects(mean, torch.zeros(n, f, p), torch.zeros(n), need), state)
    reached = merit.gather(1, chosen[:, None])[:, 0]
    assert (reached >= best - 0.05 * best.abs()).all()  # one step of a path may lie between them
    assert (chosen == rival).float().mean() >= 0.75
    assert len(set(rival.tolist())) > 1


@pytest.mark.parametrize("seed", range(4))
def test_the_strongest_changes_of_few_patches_within_a_cost(seed: int) -> None:
    """Against the dual: at any rate, count times the best worth plus rate times limit bounds the effect."""
    draw = torch.Generator().manual_seed(seed)
    n, f, p = 8, 3, 100
    effect, cost = torch.randn(n, f, p, generator=draw), torch.rand(n, f, p, generator=draw) + 0.1
    limit, count = 2 + 3 * torch.rand(n, generator=draw), torch.randint(4, 30, (n,), generator=draw)
    chosen = strongest(effect, cost, limit, count)
    taken, at = chosen > 0, (chosen - 1).clamp(min=0)[:, None]
    spent, gained = ((values.gather(1, at)[:, 0] * taken).sum(1) for values in (cost, effect))
    assert (spent <= limit).all()
    assert (taken.sum(1) <= count).all()
    worth = (effect[:, None] - torch.linspace(0, 5, 400)[:, None, None] * cost[:, None]).amax(2).clamp(min=0)
    best = worth.sort(dim=2, descending=True).values.cumsum(2).gather(2, (count - 1)[:, None, None].expand(n, 400, 1))
    bound = (best[..., 0] + torch.linspace(0, 5, 400) * limit[:, None]).amin(1)
    assert (gained <= bound + 1e-4).all()
    assert (gained >= 0.8 * bound).all()
    free = strongest(effect, cost, torch.full((n,), 1e6), count)
    alone = effect.amax(1).clamp(min=0).sort(dim=1, descending=True).values.cumsum(1)
    reached = (effect.gather(1, (free - 1).clamp(min=0)[:, None])[:, 0] * (free > 0)).sum(1)
    torch.testing.assert_close(reached, alone.gather(1, (count - 1)[:, None])[:, 0])
    assert not strongest(effect, cost, torch.zeros(n), count).any()


def test_only_draws_that_repeat_a_query_are_replaced_by_hotter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """On few patches proposals come again and again. On a GPU all rows are drawn again, with the same result."""
    changed = list[int]()

    def both(choice: RuleChoice, effects: Effects, memory: BeliefState, state: State, task: Task) -> Tensor:
        wanted = redraw(choice, effects, memory, state, task)
        with monkeypatch.context() as gpu:
            gpu.setattr(rule, "rows_to_redraw", lambda repeated: torch.arange(len(repeated)))
            assert torch.equal(redraw(choice, effects, memory, state, task), wanted)
        moved = (wanted != choice.assignment).any(1)
        assert not (moved & ~repeats(choice.assignment, memory.answers.codes)).any()
        changed.append(int(moved.sum()))
        return wanted

    with monkeypatch.context() as watched:
        watched.setattr(rule, "redraw", both)
        make_case(2, budget=50).run()
    assert sum(changed) > 0
