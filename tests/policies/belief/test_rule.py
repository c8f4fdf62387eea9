"""The fixed rule against what comes of looking at every way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlab.policies.belief.frontier import make_frontier
from rlab.policies.belief.rule import (
    Effects,
    RuleChoice,
    hotter_at_once,
    hotter_where_needed,
    likeliest,
    single_change,
)
from tests.policies.belief.planted import make_case


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_way_is_as_good_as_the_best_of_all_frontiers(flipped: bool, seed: int) -> None:
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
    best, way = merit.max(1)
    memory = {"cost": cost, "bold": torch.ones(n), "rate": rates.gather(1, way[:, None])[:, 0]}
    state: Any = SimpleNamespace(margin=torch.full((n,), -1.0 if flipped else 1.0))
    chosen = likeliest(memory, Effects(mean, torch.zeros(n, f, p), torch.zeros(n), need), state)
    reached = merit.gather(1, chosen[:, None])[:, 0]
    assert (reached >= best - 0.05 * best.abs()).all()  # one step of a path may lie between them
    assert (chosen == way).float().mean() >= 0.75
    assert len(set(way.tolist())) > 1


def test_a_single_change_is_the_one_that_brings_most_for_its_cost() -> None:
    before, wanted = torch.tensor([[0, 0, 1]]), torch.tensor([[1, 1, 0]])
    effect, cost = torch.tensor([[[1.0, 3.0, 0.5]]]), torch.tensor([[[1.0, 2.0, 4.0]]])
    assert single_change(before, wanted, effect, cost, torch.tensor([False])).tolist() == [[0, 1, 1]]
    assert single_change(before, wanted, effect, cost, torch.tensor([True])).tolist() == [[0, 0, 0]]


def test_draws_made_at_once_are_those_made_where_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On few patches proposals come again and again, and have to be drawn hotter."""
    changed = list[int]()

    def both(choice: RuleChoice, *about: Any) -> Tensor:
        wanted = hotter_where_needed(choice, *about)
        assert torch.equal(hotter_at_once(choice, *about), wanted)
        changed.append(int((wanted != choice.assignment).any(1).sum()))
        return wanted

    monkeypatch.setattr("rlab.policies.belief.rule.hotter_where_needed", both)
    make_case(2, budget=50).run()
    assert sum(changed) > 0
