"""Pruning of the best flip on a model of which the necessary patches are known."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rlab.core.batched import NoMemory
from rlab.core.distances import Measure
from rlab.core.env import Accept, Proposal, State, Task, propose
from rlab.core.pruning import NEAR
from rlab.data.batch import Batch
from rlab.policies.base import MemorylessPolicy, Policy
from rlab.policies.belief import Belief
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


@dataclass(frozen=True)
class Scripted(Everything):
    """Knows where the model looks; thins the flip by the places that it gets."""

    places: tuple[int, ...] = ()
    entry: int = 2

    def fewer(self, state: State, memory: NoMemory, task: Task, most: torch.Tensor) -> torch.Tensor:
        thinner = torch.zeros_like(state.assignment)
        thinner[:, list(self.places)] = self.entry
        return torch.where((most > 0)[:, None], thinner, 0)


def flips_at(strength: float, places: tuple[int, ...], noise: float = 0.0) -> CallableVictim:
    """Class 1 once these pixels together are brighter by `strength`."""
    draw = np.random.default_rng(0)

    def function(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        margin = strength - 0.01 - (x.reshape(len(x), -1)[:, list(places)] - DIM).sum(1)
        margin += noise * draw.normal(size=len(x))
        return np.stack([margin, np.zeros_like(margin)], 1).astype(np.float32)

    return CallableVictim(function, outputs="logits")


def grey(n: int) -> Batch:
    return Batch(torch.full((n, 1, SIDE, SIDE), DIM), torch.zeros(n, dtype=torch.int64))


def test_a_flip_with_fewer_patches_stays_although_it_is_farther() -> None:
    """The pruning leaves four patches at 0.2; two of them at 0.42 flip as well."""
    places = (3, 12, 33, 60)
    palette = ("illuminate+@0.2", "illuminate+@0.3")
    victim = flips_at(0.6, places)  # three of four at 0.2, or two at 0.3
    plain, thinned = (
        run(victim, grey(3), policy=p, palette=palette) for p in (Everything(), Scripted(places=places[:2]))
    )
    assert ((plain.assignment > 0).sum(1) == 3).all()
    assert [row.nonzero().flatten().tolist() for row in thinned.assignment] == [[3, 12]] * 3
    assert (thinned.final["l2"] > plain.final["l2"]).all()
    assert torch.equal(thinned.succeeded, plain.succeeded)
    for curves in (plain, thinned):  # they record the nearest flips, as before
        assert [improvements[-1][1] for improvements in curves.improvements] == pytest.approx(
            plain.final["l2"].tolist()
        )


@pytest.mark.parametrize("places", [(), (3,), (3, 12, 33, 60)])
def test_proposals_that_do_not_help_end_a_sample(places: tuple[int, ...]) -> None:
    """None at all, one that does not flip, and one that has more patches."""
    victim = flips_at(0.6, (3, 12, 33, 60))
    result = run(victim, grey(2), policy=Scripted(places=places, entry=1))
    assert ((result.assignment > 0).sum(1) == 3).all()
    assert (result.queries.sum(1) < 400).all()
    if not places:
        plain = run(victim, grey(2))
        assert torch.equal(result.queries, plain.queries)
    hasty = run(victim, grey(2), policy=Scripted(places=places, entry=1), patience=2)
    assert (hasty.queries.sum(1) <= result.queries.sum(1)).all()


@pytest.mark.parametrize("policy", ["belief", pytest.param("auto", marks=pytest.mark.slow)])
def test_the_belief_search_thins_a_flip_within_a_tenth_of_its_distance(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linear model of nine patches with two strengths each: all 3^9 assignments are known."""
    weights = np.random.default_rng(3).uniform(0, 3, 9)
    weights *= 4 / weights.sum()
    levels = torch.linspace(0.22, 0.3, 8)
    batch = Batch(levels[:, None, None, None].expand(-1, 1, 3, 3).contiguous(), torch.zeros(8, dtype=torch.int64))

    def function(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        margin = 1.5 - x.reshape(len(x), -1) @ weights
        return np.stack([margin, np.zeros_like(margin)], 1)

    every = np.array(list(product(range(3), repeat=9)))
    gain, distance, patches = every @ weights / 10, np.sqrt((every**2).sum(1)) / 10, (every > 0).sum(1)
    options: dict[str, Any] = {"palette": ("illuminate+@0.1", "illuminate+@0.2"), "budget": 600, "policy": policy}
    victim = CallableVictim(function, outputs="logits")
    thinned = run(victim, batch, **options)
    monkeypatch.setattr(Belief, "fewer", Policy.fewer)
    pruned = run(victim, batch, **options)
    fewest = list[int]()
    for level, improvements, final in zip(
        levels.tolist(), thinned.improvements, thinned.final["l2"].tolist(), strict=True
    ):
        flips, nearest = gain > 1.5 - 4 * level, improvements[-1][1]
        assert nearest <= 1.1 * distance[flips].min()
        assert final <= NEAR * nearest * (1 + 1e-5)
        fewest.append(int(patches[flips & (distance <= NEAR * nearest)].min()))
    found, before = ((result.assignment > 0).sum(1) for result in (thinned, pruned))
    assert (torch.tensor(fewest) <= found).all()
    assert (found <= before).all()
    assert found.sum() < before.sum()
    assert victim.rows.total() == int(thinned.queries.sum() + pruned.queries.sum())


def test_a_noisy_model_is_not_thinned() -> None:
    places = (3, 12, 33, 60)
    palette = ("illuminate+@0.2", "illuminate+@0.3")
    victim = flips_at(0.6, places, noise=1e-3)
    result = run(victim, grey(3), policy=Scripted(places=places[:2]), palette=palette, noisy=True)
    assert not (result.assignment == 2).any()
