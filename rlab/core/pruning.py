"""Pruning: a search that reduces the distance by itself also restores patches that its best flip does not need.

When the search is calm (it has gained little for long) and comes no nearer for some queries, groups of the weakest changes are
restored: half of the patches at first, twice as many after a group that was not needed, half as many after one that was. After
a few single patches that are needed, the search goes on. Before a sample ends, every patch has its turn. Then the flip is
thinned: the policy looks for fewer patches that flip at nearly the same distance, until many tries in a row found none. A
restored patch never increases the distance and a thinner flip by less than a tenth; every try is a query, and the search learns
from its answer as from any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task

CALM = 60  # queries without a clear gain, until when a search is about the distance alone
PAUSE = 10  # queries in a row that come no nearer, after which patches are restored
TRIES = 3  # single patches in a row that are needed, after which the search goes on
RESERVE = 0.1  # share of the budget that is left when every patch has its turn
GAIN = 0.03  # share of the distance; smaller gains, also in sum, do not interrupt a calm
NEAR = 1.1  # times the distance of the nearest flip: up to there, fewer patches are worth more than the distance
VAIN = 80  # tries in a row that found no fewer patches, after which a sample ends
M = TypeVar("M", bound=Rows)
Fewer = Callable[[State, M, Task, Tensor], Tensor]  # see `rlab.policies.base.Policy.fewer`


@dataclass(frozen=True)
class Calm(Rows):
    """How long n searches have gained nothing worth naming; from `CALM` queries on, a search stays calm."""

    distance: Tensor  # (n,) of the best flip at the last clear gain; infinite before the flip
    queries: Tensor  # (n,) since then

    @classmethod
    def begin(cls, state: State) -> Calm:
        return cls(torch.full_like(state.distance, torch.inf), torch.zeros_like(state.step))

    def after(self, state: State) -> Calm:
        """With the last answer in it."""
        gained = (state.margin < 0) & ~(state.distance > (1 - GAIN) * self.distance) & (self.queries < CALM)
        return Calm(
            torch.where(gained, state.distance, self.distance),
            torch.where(gained | (state.margin >= 0), 0, self.queries + 1),
        )


@dataclass(frozen=True)
class Pruning(Rows):
    """What is known of the best flips of n samples, and whose turn it is."""

    turn: Tensor  # (n,) bool: the last proposal restored a group
    finished: Tensor  # (n,) bool: the sample may end, because every patch had its turn
    size: Tensor  # (n,) patches in the group to restore next
    needed: Tensor  # (n, p) bool: patches of the best flip that are needed, each by itself
    failures: Tensor  # (n,) needed patches in a row
    misses: Tensor  # (n,) queries of the search since it last came nearer, or since the last turn
    distance: Tensor  # (n,) of the best flip
    patches: Tensor  # (n,) of the best flip
    most: Tensor  # (n,) the distance up to which the flip is thinned; 0 before
    vain: Tensor  # (n,) tries in a row that did not thin it
    calm: Calm

    @classmethod
    def begin(cls, state: State) -> Pruning:
        none, zero = torch.zeros_like(state.assignment, dtype=torch.bool), torch.zeros_like(state.step)
        no = zero.bool()
        far, most = torch.full_like(state.distance, torch.inf), torch.zeros_like(state.distance)
        return cls(no, no, zero, none, zero, zero, far, zero, most, zero, Calm.begin(state))

    def after(self, state: State, ending: Tensor, patience: int | None = None) -> Pruning:
        """With the last answer in it; `ending` (n,) marks samples about to end, which try until `patience` tries failed in a row.

        A noisy model may flip by chance if it is asked often enough, so few tries may fail there.
        """
        flipped, changed = state.margin < 0, state.assignment > 0
        distance, patches = torch.where(flipped, state.distance, torch.inf), changed.sum(1)
        held, nearer = self.turn & (patches < self.patches), ~self.turn & (distance < self.distance)
        failed = self.turn & ~held
        alone = failed & (self.size == 1)
        needed = (self.needed & ~nearer[:, None]) | (alone[:, None] & changed & (state.queried == 0))
        size = torch.where(held, 2 * self.size, torch.where(failed, self.size // 2, self.size))
        size = torch.where(nearer, patches // 2, size).clamp(min=1).minimum((changed & ~needed).sum(1))
        failures = torch.where(held | nearer, 0, self.failures + alone)
        misses = torch.where(nearer, 0, self.misses + ~self.turn)
        calm = self.calm.after(state)
        thorough = ending & (state.noise == 0)
        bearable = torch.where(thorough, len(needed[0]) if patience is None else patience, TRIES)
        turn = (
            flipped
            & (self.most == 0)
            & (size > 0)
            & (failures < bearable)
            & (self.turn | ending | ((misses >= PAUSE) & (calm.queries >= CALM)))
        )
        restored = flipped & ending & ~turn
        most = torch.where(thorough & restored & (self.most == 0), NEAR * distance, self.most)
        vain = torch.where((self.most == 0) | (patches < self.patches), 0, self.vain + 1)
        tries = (most > 0) & (patches > 1) & (vain < (VAIN if patience is None else patience))
        return Pruning(
            turn=turn,
            finished=restored & ~tries,
            size=size,
            needed=needed,
            failures=torch.where(turn | ending, failures, 0),
            misses=torch.where(turn, 0, misses),
            distance=distance,
            patches=patches,
            most=most,
            vain=vain,
            calm=calm,
        )

    def instead(
        self, proposal: Proposal[M], state: State, task: Task, fewer: Fewer[M] | None
    ) -> tuple[Proposal[M], Pruning]:
        """The proposal, or where it is the turn the best flip without its weakest changes, or what `fewer` proposes.

        Where `fewer` proposes nothing, the sample may end.
        """
        strength = task.grid.collect((state.x - state.x0).square())
        strength = strength.masked_fill((state.assignment == 0) | self.needed, torch.inf)
        rank = strength.sort(dim=1, stable=True).indices.argsort(1)
        rest = torch.where(rank < self.size[:, None], 0, state.assignment)
        assignment = torch.where(self.turn[:, None], rest, proposal.assignment)
        rule = torch.where(self.turn, int(Accept.IF_FLIPPED), proposal.rule)
        if fewer is None:
            return replace(proposal, assignment=assignment, rule=rule), self
        thinner, thins = fewer(state, proposal.memory, task, self.most), self.most > 0
        found = thins & (thinner > 0).any(1)
        assignment = torch.where(found[:, None], thinner, assignment)
        rule = torch.where(found, int(Accept.IF_FEWER), rule)
        pruning = replace(self, finished=self.finished | (thins & ~found))
        return replace(proposal, assignment=assignment, rule=rule), pruning
