"""Reverse distortion removal: after the flip, give patches back, least useful first, while the goal still holds.

How much each patch lowered the margin is known from the search, so several are tried at once: as many as the margin is
expected to bear. A group that fails is halved; a single patch that fails is needed and stays. Every try is a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.env import LOOK, AttackEnv, Proposal, State
from rlab.victims.base import QueryMeter


@dataclass
class _Row:
    """What is left to try for one sample, least useful first, and how many at once."""

    patches: list[int]
    worth: list[float]  # drop in margin each brought
    cap: int
    failures: int = field(default=0)

    def group(self, slack: float) -> list[int]:
        """The longest run of patches whose worth adds up to no more than the slack in the margin; at least one."""
        total, count = 0.0, 0
        for worth in self.worth[: self.cap]:
            total += max(worth, 0.0)
            if total > slack and count:
                break
            count += 1
        return self.patches[:count]

    def learn(self, count: int, held: bool) -> None:
        if held or count == 1:
            del self.patches[:count], self.worth[:count]
        self.failures = 0 if held else self.failures + 1
        self.cap = len(self.patches) if held else max(1, count // 2)


def clean_up(
    env: AttackEnv, state: State, worth: Tensor, meter: QueryMeter, reserve: int = 1, patience: int | None = None
) -> State:
    """Flipped rows -> the same rows, in the same order, with fewer patches. Leaves `reserve` queries of each budget.

    `worth` (n, p) is what each patch is thought to take off the margin; `patience` stops a sample after so many tries in a
    row that failed, None tries every patch.
    """
    rows = [_row(state.assignment[i], worth[i]) for i in range(len(state))]
    finished: list[State] = []
    while True:
        left = meter.left(state.sample) - reserve
        open_ = [
            bool(row.patches) and n > 0 and (patience is None or row.failures < patience)
            for row, n in zip(rows, left.tolist(), strict=True)
        ]
        if not all(open_):
            mask = torch.tensor(open_, device=state.sample.device)
            finished.append(state[~mask])
            state, rows = state[mask], [row for row, go in zip(rows, open_, strict=True) if go]
        if not rows:
            break
        groups = [row.group(-slack) for row, slack in zip(rows, state.margin.tolist(), strict=True)]
        state, held = _try(env, state, groups)
        for row, group, ok in zip(rows, groups, held.tolist(), strict=True):
            row.learn(len(group), ok)
    joined = State.join(finished)
    return joined[joined.sample.argsort()]


def _row(assigned: Tensor, worth: Tensor) -> _Row:
    """Least useful first."""
    patches = assigned.nonzero().flatten()
    order = worth[patches].argsort()
    return _Row(patches[order].tolist(), worth[patches][order].tolist(), cap=len(patches))


def _try(env: AttackEnv, state: State, groups: list[list[int]]) -> tuple[State, Tensor]:
    assignment = state.assignment.clone()
    for row, group in enumerate(groups):
        assignment[row, group] = 0
    keep = torch.full((len(state),), LOOK, device=assignment.device)
    state, outcome = env.step(state, Proposal(assignment, keep, state.memory), phase="cleanup")
    return state, outcome.done
