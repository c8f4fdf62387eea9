"""Cleanup: after the flip, restore patches that are not needed, least useful first.

The search has estimated how much each patch lowers the margin, so cleanup restores several at once: as many as the margin
should bear. A group that fails is halved; a single patch that fails is needed and stays. Every try is a query.

A policy that works on regions gets these restored whole first, level by level from coarse to fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.core.env import Accept, AttackEnv, State, propose, snapshot
from rlab.core.trace import Trace
from rlab.victims.meter import QueryMeter


@dataclass
class _Row:
    """The patches of one sample that may still be restored, least useful first, and how many to try at once."""

    patches: list[int]
    contribution: list[float]  # estimated drop in margin of each patch
    cap: int
    levels: list[list[list[int]]]  # regions to try first, least useful first in each level
    failures: int = field(default=0)
    needed: set[frozenset[int]] = field(default_factory=set)  # regions that are needed

    def impatient(self, patience: int | None) -> bool:
        """Whether `patience` tries failed in a row; while regions are left, that only ends their level."""
        if patience is None or self.failures < patience:
            return False
        if not self.levels:
            return True
        self.levels.pop(0)
        self.failures = 0
        return False

    def group(self, slack: float) -> list[int]:
        """The next region, or the longest run of patches whose contributions sum to at most the slack; at least one patch."""
        while self.levels:
            self.levels[0] = [region for region in self.levels[0] if frozenset(region) not in self.needed]
            if self.levels[0]:
                return self.levels[0][0]
            self.levels.pop(0)
        total, count = 0.0, 0
        for contribution in self.contribution[: self.cap]:
            total += max(contribution, 0.0)
            if total > slack and count:
                break
            count += 1
        return self.patches[:count]

    def learn(self, group: list[int], held: bool) -> None:
        self.failures = 0 if held else self.failures + 1
        if self.levels:
            if held:
                self._forget(set(group))
            else:
                self.needed.add(frozenset(group))
            return
        count = len(group)
        if held or count == 1:
            del self.patches[:count], self.contribution[:count]
        self.cap = len(self.patches) if held else max(1, count // 2)

    def _forget(self, gone: set[int]) -> None:
        """Drop the patches of a restored region, and regions that held nothing else."""
        kept = [i for i, patch in enumerate(self.patches) if patch not in gone]
        self.patches, self.contribution = [self.patches[i] for i in kept], [self.contribution[i] for i in kept]
        self.cap = len(self.patches)
        left = [[[patch for patch in region if patch not in gone] for region in level] for level in self.levels]
        self.levels = [[region for region in level if region] for level in left]


def clean_up(
    env: AttackEnv,
    state: State,
    contribution: Tensor,
    meter: QueryMeter,
    trace: Trace | None = None,
    reserve: int = 1,
    patience: int | None = None,
    regions: Sequence[Tensor] = (),
) -> State:
    """Flipped rows -> the same rows, in the same order, with fewer patches. Leaves `reserve` queries of each budget.

    `contribution` (n, p) estimates how much each patch lowers the margin; a sample ends after `patience` failed tries in a row
    (None: try every patch). `regions` are levels, coarse first, each (p,): the region of each patch.
    """
    rows = [_row(state.assignment[i], contribution[i], regions) for i in range(len(state))]
    finished: list[State] = []
    while True:
        left = meter.left(state.sample) - reserve
        able = zip(rows, (left > 0).tolist(), strict=True)
        open_ = [bool(row.patches) and some and not row.impatient(patience) for row, some in able]
        if not all(open_):
            mask = torch.tensor(open_, device=state.sample.device)
            finished.append(state[~mask])
            state, rows = state[mask], [row for row, go in zip(rows, open_, strict=True) if go]
        if not rows:
            break
        groups = [row.group(-slack) for row, slack in zip(rows, state.margin.tolist(), strict=True)]
        assignment = state.assignment.clone()
        for i, group in enumerate(groups):
            assignment[i, group] = 0
        state, outcome = env.step(state, propose(assignment, Accept.IF_FLIPPED), phase="cleanup")
        if trace is not None:
            trace.note(state, snapshot(state, outcome)(), meter)
        for row, group, ok in zip(rows, groups, outcome.done.tolist(), strict=True):
            row.learn(group, ok)
    joined = State.cat(finished)
    return joined[joined.sample.argsort()]


def _row(assigned: Tensor, contribution: Tensor, regions: Sequence[Tensor]) -> _Row:
    """Least useful first."""
    patches = assigned.nonzero().flatten()
    order = contribution[patches].argsort()
    held, valued = patches[order].tolist(), contribution[patches][order].tolist()
    return _Row(held, valued, len(held), [_split(held, valued, level.tolist()) for level in regions])


def _split(patches: list[int], contribution: list[float], region: list[int]) -> list[list[int]]:
    """Distorted patches by region, the region with the smallest mean contribution first."""
    parts: dict[int, list[tuple[int, float]]] = {}
    for patch, value in zip(patches, contribution, strict=True):
        parts.setdefault(region[patch], []).append((patch, value))
    ordered = sorted(parts.values(), key=lambda part: sum(value for _, value in part) / len(part))
    return [[patch for patch, _ in part] for part in ordered]
