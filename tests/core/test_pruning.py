"""Pruning of the best flip on a model of which the necessary patches are known."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rlab.core.batched import NoMemory
from rlab.core.distances import Measure
from rlab.core.env import Accept, Proposal, State, Task, propose
from rlab.data.batch import Batch
from rlab.policies.base import MemorylessPolicy
from rlab.results.result import AttackResult
from rlab.verbs import attack
from rlab.victims.callables import CallableVictim

SIDE, NEEDED = 8, 3  # patches of one pixel, of which the flip needs three, other ones in each sample
BRIGHT, DIM = 0.6, 0.4


@dataclass(frozen=True)
class Everything(MemorylessPolicy):
    """Changes every patch, again and again: all that comes nearer is the work of the pruning."""

    reduces: ClassVar[bool] = True

    def by_labels(self) -> Everything:
        return self

    def propose(self, state: State, memory: NoMemory, task: Task) -> Proposal[NoMemory]:
        return propose(torch.ones_like(state.assignment), Accept.IF_NEARER)


def marked(n: int) -> tuple[Batch, torch.Tensor]:
    """Grey images with three bright pixels each, and where these are."""
    places = torch.stack(
        [torch.randperm(SIDE**2, generator=torch.Generator().manual_seed(i))[:NEEDED] for i in range(n)]
    )
    x = torch.full((n, 1, SIDE**2), DIM).scatter_(2, places[:, None], BRIGHT)
    return Batch(x.view(n, 1, SIDE, SIDE), torch.zeros(n, dtype=torch.int64)), places


def flips_at_three(**options: Any) -> CallableVictim:
    """Class 1 once all bright pixels are brighter; dim ones make no difference."""

    def function(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        margin = NEEDED - 0.5 - (x > BRIGHT + 0.1).sum((1, 2, 3))
        if options.get("outputs") == "labels":
            return (margin < 0).astype(np.int64)
        return np.stack([margin, np.zeros_like(margin)], 1).astype(np.float32)

    return CallableVictim(function, **{"outputs": "logits", **options})


def run(victim: CallableVictim, batch: Batch, **options: Any) -> AttackResult:
    usual: dict[str, Any] = {"policy": Everything(), "palette": ("illuminate+@0.2",), "patch": 1, "budget": 400}
    return attack(victim, batch, **{**usual, **options})


@pytest.mark.parametrize("distance", ["l2", "l0", "linf", "map"])
def test_only_the_necessary_patches_are_left(distance: Measure) -> None:
    batch, places = marked(5)
    victim = flips_at_three()
    result = run(victim, batch, distance=distance)
    assert result.succeeded.all()
    assert [row.nonzero().flatten().tolist() for row in result.assignment] == places.sort(1).values.tolist()
    assert victim.rows.total() == int(result.queries.sum())
    assert (result.queries.sum(1) < 400).all()
    assert (result.final["l2"] <= result.flip["l2"]).all()
    for improvements in result.improvements:
        assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(improvements))


def test_labels_alone_are_enough() -> None:
    batch, _ = marked(3)
    result = run(flips_at_three(outputs="labels", classes=2), batch)
    assert ((result.assignment > 0).sum(1) == NEEDED).all()


@pytest.mark.parametrize("policy", ["auto", pytest.param("belief", marks=pytest.mark.slow)])
def test_the_belief_search_leaves_only_the_necessary_patches(policy: str) -> None:
    batch, places = marked(4)
    result = run(flips_at_three(), batch, policy=policy)
    assert [row.nonzero().flatten().tolist() for row in result.assignment] == places.sort(1).values.tolist()


@pytest.mark.parametrize("budget", [4, 95])
def test_a_small_budget_holds_and_its_last_part_prunes(budget: int) -> None:
    batch, _ = marked(3)
    victim = flips_at_three()
    result = run(victim, batch, budget=budget, until="budget")
    assert result.succeeded.all()
    assert victim.rows.total() == int(result.queries.sum()) == 3 * budget
    assert ((result.assignment > 0).sum(1) < SIDE**2).all() == (budget == 95)


@pytest.mark.slow
def test_samples_do_not_know_each_other() -> None:
    batch, _ = marked(4)
    together = run(flips_at_three(), batch)
    for i in range(4):
        alone = run(flips_at_three(), batch[[i]])
        assert torch.equal(alone.assignment[0], together.assignment[i])
        assert alone.queries[0].tolist() == together.queries[i].tolist()


def test_without_cleanup_or_after_the_flip_nothing_is_pruned() -> None:
    batch, _ = marked(2)
    for options in ({"cleanup": False}, {"until": "flip"}):
        assert ((run(flips_at_three(), batch, **options).assignment > 0).sum(1) == SIDE**2).all()


def test_patience_ends_the_tries_on_patches_that_are_needed() -> None:
    batch, _ = marked(2)
    patient, hasty = (run(flips_at_three(), batch, patience=patience) for patience in (None, 1))
    assert (hasty.queries.sum(1) <= patient.queries.sum(1)).all()
    assert hasty.succeeded.all()
