"""The environment: a perturbation assigns palette entries to patches; one step is one proposal and one query.

    x = render(bank, assignment): each patch is copied from bank[assignment[patch]]; entry 0 is the untouched input

Restoring a patch is therefore exact, and no filter runs inside the loop. Shapes: n rows, f palette entries, p patches,
k classes. Rows do not depend on each other: a state can be cut, joined and replaced row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor

from rlab.core.batched import NoMemory, Rows
from rlab.core.distances import MEASURES, Measure
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.vectors import wide
from rlab.errors import OptionError

CONFIDENCE = 2.0  # standard deviations of a noisy model's margin by which a goal must be reached
Accepting = Literal["better", "always"]
# inputs (n, c, *size), phase, sample of each row (n,), assignment (n, p) -> scores (n, k)
Query = Callable[[Tensor, str, Tensor, Tensor], Tensor]
M = TypeVar("M", bound=Rows, covariant=True)


class Accept(IntEnum):
    """When a proposal replaces the current assignment; the first three rules also accept whatever reaches the goal."""

    IF_FLIPPED = 0
    IF_BETTER = 1
    ALWAYS = 2
    IF_NEARER = 3  # only if it reaches the goal at a smaller distance: for policies that continue after the first flip
    IF_FEWER = 4  # only if it reaches the goal with fewer patches, or with as many at a smaller distance


def render(bank: Tensor, assignment: Tensor, grid: PatchGrid) -> Tensor:
    """bank (n, f + 1, c, *size), assignment (n, p) -> (n, c, *size)."""
    choice = grid.spread(assignment)[:, None]
    return bank.gather(1, choice.expand(len(bank), 1, *bank.shape[2:])).squeeze(1)


@dataclass(frozen=True)
class Task:
    """What an attack has to do, known before the first query."""

    grid: PatchGrid
    entries: int  # f, palette entries without the untouched input
    goal: Goal
    budget: int
    accept: Accepting = "better"
    l2_penalty: float = 0.0  # cost of one unit of distance, as a share of the initial margin
    distance: Measure = "l2"  # the distance to minimise
    labels: bool = False  # the model returns labels only, so only the sign of a margin is known

    def __post_init__(self) -> None:
        if self.accept not in ("better", "always"):
            raise OptionError(f"expected accept to be 'better' or 'always', got {self.accept!r}")


@dataclass(frozen=True)
class State(Rows):
    """The current state of n samples. Policies read it; only `AttackEnv` makes new ones."""

    sample: Tensor  # (n,) index of the sample
    seed: Tensor  # (n,) the sample's random seed, see rlab.core.rng
    y: Tensor  # (n,) or (n, k)
    bank: Tensor  # (n, f + 1, c, *size)
    scale: Tensor  # (n,) one unit of L2 in the data's own values
    assignment: Tensor  # (n, p) in 0..f
    x: Tensor  # (n, c, *size) rendered from it
    scores: Tensor  # (n, k)
    clean: Tensor  # (n, k) scores of the untouched input
    margin: Tensor  # (n,) including the slack for a noisy model: below zero is a flip
    margin0: Tensor  # (n,) initial margin, the unit of margins: no result depends on a model's scale
    noise: Tensor  # (n,) standard deviation of the margin between identical queries; 0 for a deterministic model
    l2_penalty: Tensor  # (n,) see Task
    distance: Tensor  # (n,) between x and x0, by the task's measure
    queried: Tensor  # (n, p) the last assignment that was queried, accepted or not
    answer: Tensor  # (n, k) its scores
    drop: Tensor  # (n,) by how much it lowered the margin, accepted or not; 0 if the model failed
    step: Tensor  # (n,) number of proposals so far

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def x0(self) -> Tensor:
        return self.bank[:, 0]

    @property
    def slack(self) -> Tensor:
        """(n,): how far below zero a noisy margin must be measured."""
        return CONFIDENCE * self.noise

    def last_flipped(self, task: Task) -> Tensor:
        """(n,) bool: whether the last query reached the goal."""
        return task.goal.margin(self.answer, self.y) + self.slack < 0


@dataclass(frozen=True)
class Proposal(Rows, Generic[M]):
    """The assignment to query next, when to accept it, and the policy's memory after proposing it."""

    assignment: Tensor  # (n, p)
    rule: Tensor  # (n,) of `Accept`
    memory: M
    x: Tensor | None = None  # (n, c, *size) for free values; the assignment then marks the patches that changed


def propose(assignment: Tensor, rule: Accept) -> Proposal[NoMemory]:
    """The same rule for every row, and nothing to remember."""
    return Proposal(assignment, torch.full_like(assignment[:, 0], rule), NoMemory())


@dataclass(frozen=True)
class StepOutcome:
    """The result of one step, per row."""

    accepted: Tensor  # (n,) bool
    done: Tensor  # (n,) bool: the goal is reached
    failed: Tensor  # (n,) bool: the model returned NaN or nothing


@dataclass(frozen=True)
class Snapshot:
    """Rows after a step, (n,) each, on the CPU, where the attack decides which of them continue."""

    sample: Tensor
    flipped: Tensor  # bool: a flip is known
    accepted: Tensor  # bool, as in StepOutcome
    done: Tensor
    failed: Tensor
    distance: Tensor
    scale: Tensor


def snapshot(state: State, outcome: StepOutcome) -> Callable[[], Snapshot]:
    """Start the copy to the CPU; the returned function waits for it alone, not for later work of the GPU."""
    columns = (state.margin < 0, outcome.accepted, outcome.done, outcome.failed, state.distance, state.scale)
    packed, sample = torch.stack([column.float() for column in columns]), state.sample
    ready = torch.cuda.Event() if packed.is_cuda else None
    packed, sample = (value.to("cpu", non_blocking=ready is not None) for value in (packed, sample))
    if ready is not None:
        ready.record(torch.cuda.current_stream(state.sample.device))

    def read() -> Snapshot:
        if ready is not None:
            ready.synchronize()
        flipped, accepted, done, failed = packed[:4].bool()
        return Snapshot(sample, flipped, accepted, done, failed, packed[4], packed[5])

    return read


def edit(assignment: Tensor, add: Tensor, restore: Tensor) -> Tensor:
    """The dual action: `add` (n, a) holds entry * p + patch, `restore` (n, r) holds patches; -1 stands for no change."""
    out = torch.cat([assignment, assignment[:, :1]], 1)  # a spare column takes the -1s
    patches = assignment.shape[1]
    out.scatter_(1, torch.where(restore < 0, patches, restore), 0)
    entry = torch.where(add < 0, 0, add // patches)
    out.scatter_(1, torch.where(add < 0, patches, add % patches), entry)
    return out[:, :patches]


@dataclass(frozen=True)
class AttackEnv:
    """Evaluates proposals; `query` is the victim behind its meter."""

    query: Query
    task: Task

    def start(
        self,
        y: Tensor,
        sample: Tensor,
        seed: Tensor,
        bank: Tensor,
        scale: Tensor,
        scores: Tensor,
        noise: float | Tensor = 0.0,
    ) -> State:
        """The initial state, from clean scores (n, k); makes no query."""
        n, p = len(bank), len(self.task.grid)
        margin = self.task.goal.margin(scores, y)
        deviation = torch.zeros_like(margin) + noise
        return State(
            sample=sample, seed=seed, y=y, bank=bank, scale=scale,
            assignment=torch.zeros(n, p, dtype=torch.int64, device=bank.device),
            x=bank[:, 0].clone(), scores=scores, clean=scores, margin=margin + CONFIDENCE * deviation,
            margin0=margin.maximum(deviation).clamp(min=1e-6), noise=deviation,
            l2_penalty=torch.full_like(margin, self.task.l2_penalty),
            distance=torch.zeros(n, device=bank.device),
            queried=torch.zeros(n, p, dtype=torch.int64, device=bank.device), answer=scores,
            drop=torch.zeros_like(margin), step=torch.zeros(n, dtype=torch.int64, device=bank.device),
        )  # fmt: skip

    def step(self, state: State, proposal: Proposal[Rows], phase: str = "search") -> tuple[State, StepOutcome]:
        """One query for every row."""
        task = self.task
        x = render(state.bank, proposal.assignment, task.grid) if proposal.x is None else proposal.x
        scores = self.query(x, phase, state.sample, proposal.assignment)
        margin = task.goal.margin(scores, state.y) + state.slack
        distance = MEASURES[task.distance](state.x0, x) / (state.scale if task.distance != "l0" else 1.0)
        done = margin < 0
        failed = ~torch.isfinite(margin) & ~done  # a true class of probability zero is a success
        drop = torch.where(failed, 0.0, state.margin - margin)  # nothing is learned from a failure
        cost = state.l2_penalty * (distance - state.distance)
        gain = drop / state.margin0 - cost
        # A penalty makes restores worthwhile and forbids nothing.
        better = (drop > 0) | (gain > 0) | (task.accept == "always")
        first, nearer = state.margin >= 0, distance < state.distance
        patches, known = ((each > 0).sum(1) for each in (proposal.assignment, state.assignment))
        by_rule = torch.stack(
            [
                done,
                done | better,
                torch.ones_like(done),
                done & (first | nearer),
                done & (first | (patches < known) | ((patches == known) & nearer)),
            ]
        )  # in the order of `Accept`
        accepted = by_rule.gather(0, proposal.rule[None])[0] & ~failed
        after = replace(
            state,
            assignment=_where(accepted, proposal.assignment, state.assignment),
            x=_where(accepted, x, state.x),
            scores=_where(accepted, scores, state.scores),
            margin=_where(accepted, margin, state.margin),
            distance=_where(accepted, distance, state.distance),
            queried=proposal.assignment,
            answer=_where(failed, state.answer, scores),
            drop=drop,
            step=state.step + 1,
        )
        return after, StepOutcome(accepted, accepted & done, failed)


def _where(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(wide(rows, new), new, old)
