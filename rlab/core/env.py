"""The environment: a perturbation is an assignment of palette entries to patches; one step is one proposal and one query.

    x = render(bank, assignment): each patch is copied from bank[assignment[patch]], entry 0 being the untouched input

so that taking a distortion back is exact, and no filter runs inside the loop. Shapes: n live rows, f palette entries,
p patches, k classes. Rows are independent of each other: a state can be cut, joined and replaced row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlab.core.distances import MEASURES, Measure
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.errors import InputError

# When a proposal replaces the current assignment: a look stays only if it reaches the goal, the others also if better / anyway.
# IF_NEARER stays if it reaches the goal with less distance than before: for policies that go on after the first flip.
LOOK, IF_BETTER, ALWAYS, IF_NEARER = 0, 1, 2, 3
SURE = 2.0  # deviations of a noisy model's answers by which a goal must be reached
Memory = Any  # what a policy carries along: a tensor or a mapping of tensors, each with the rows first
Ask = Callable[[Tensor, Tensor, str], Tensor]  # inputs (n, c, *size), sample of each row (n,), phase -> scores (n, k)


def render(bank: Tensor, assignment: Tensor, grid: PatchGrid) -> Tensor:
    """bank (n, f + 1, c, *size), assignment (n, p) -> (n, c, *size)."""
    choice = grid.expand(assignment)[:, None, None]
    return bank.gather(1, choice.expand(len(bank), 1, *bank.shape[2:])).squeeze(1)


@dataclass(frozen=True)
class Task:
    """What an attack is asked to do, known before the first query."""

    grid: PatchGrid
    entries: int  # f, palette entries not counting the untouched input
    goal: Goal
    budget: int
    keep: Literal["better", "always"] = "better"
    l2_penalty: float = 0.0  # what a unit of distance costs, as a share of the margin at the start
    success: float = 1.0  # what reaching the goal is worth, in the same unit
    distance: Measure = "l2"  # what is kept small
    labels: bool = False  # whether the model tells only which class wins, so that of a margin only the sign counts

    def __post_init__(self) -> None:
        if self.keep not in ("better", "always"):
            raise InputError(f"expected keep to be 'better' or 'always', got {self.keep!r}")


@dataclass(frozen=True)
class State:
    """Where n samples stand. A policy reads all of it; only `AttackEnv` makes new ones."""

    sample: Tensor  # (n,) whose row this is
    seed: Tensor  # (n,) the sample's own source of chance, see rlab.core.rng
    y: Tensor  # (n,) or (n, k)
    bank: Tensor  # (n, f + 1, c, *size)
    scale: Tensor  # (n,) what one unit of L2 is in the data's own values
    assignment: Tensor  # (n, p) in 0..f
    x: Tensor  # (n, c, *size) as rendered from it
    scores: Tensor  # (n, k)
    clean: Tensor  # (n, k) scores of the untouched input
    margin: Tensor  # (n,) with the slack a noisy model asks for: a flip is where it is below zero
    margin0: Tensor  # (n,) at the start; the unit rewards are counted in, so that no model's scale matters
    noise: Tensor  # (n,) deviation of the margin from answer to answer; 0 for a model that repeats itself
    l2_penalty: Tensor  # (n,) see Task
    distance: Tensor  # (n,) of x from x0, by the task's measure
    asked: Tensor  # (n, p) the assignment judged last, kept or not
    answer: Tensor  # (n, k) the scores it got
    feedback: Tensor  # (n, f + 1, p) drop in margin when the entry was last tried there; entry 0 is a restore
    tried: Tensor  # (n, f + 1, p) how often
    step: Tensor  # (n,) proposals judged so far
    memory: Memory  # (n, ...)

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def x0(self) -> Tensor:
        return self.bank[:, 0]

    @property
    def slack(self) -> Tensor:
        """(n,): how far below zero a margin must be seen to be trusted."""
        return SURE * self.noise

    def __getitem__(self, rows: Tensor) -> State:
        return State(**{f.name: _cut(getattr(self, f.name), rows) for f in fields(self)})

    @staticmethod
    def join(states: Sequence[State]) -> State:
        return State(**{f.name: _joined([getattr(s, f.name) for s in states]) for f in fields(State)})

    def put(self, rows: Tensor, other: State) -> None:
        """Overwrites rows in place, for training where a finished row starts anew."""
        for f in fields(self):
            mine, new = getattr(self, f.name), getattr(other, f.name)
            for key in mine if isinstance(mine, Mapping) else (None,):
                (mine if key is None else mine[key])[rows] = new if key is None else new[key]


def _cut(value: Memory, rows: Tensor) -> Memory:
    return value[rows] if isinstance(value, Tensor) else {key: inner[rows] for key, inner in value.items()}


def _joined(values: Sequence[Memory]) -> Memory:
    """Memories of different lengths (a row that left early remembers less) are cut to nothing: they are not used any more."""
    if isinstance(values[0], Tensor):
        return torch.cat([value for value in values if isinstance(value, Tensor)])
    return {}


@dataclass(frozen=True)
class Proposal:
    """The assignment a policy wants judged next, and whether it is to stay: one query either way."""

    assignment: Tensor  # (n, p)
    keep: Tensor  # (n,) LOOK, IF_BETTER, ALWAYS or IF_NEARER
    memory: Memory  # (n, ...)
    x: Tensor | None = None  # (n, c, *size), where values are free and the assignment only says which changed

    def __getitem__(self, rows: Tensor) -> Proposal:
        x = None if self.x is None else self.x[rows]
        return Proposal(self.assignment[rows], self.keep[rows], _cut(self.memory, rows), x)


@dataclass(frozen=True)
class StepOutcome:
    """What one step brought, per row."""

    reward: Tensor  # (n,)
    drop: Tensor  # (n,) of the margin, whether kept or not
    kept: Tensor  # (n,) bool
    done: Tensor  # (n,) bool: the goal is reached
    failed: Tensor  # (n,) bool: the model answered NaN, or not at all


@dataclass(frozen=True)
class Seen:
    """How rows stand after a step, (n,) each, on the CPU, where it is decided who goes on."""

    sample: Tensor
    won: Tensor  # bool: a flip is known
    kept: Tensor  # bool, as in StepOutcome
    done: Tensor
    failed: Tensor
    distance: Tensor
    scale: Tensor


def look(state: State, outcome: StepOutcome) -> Callable[[], Seen]:
    """Begins to bring it to the CPU; the call waits for that alone, not for what a GPU was given to do in between."""
    columns = (state.margin < 0, outcome.kept, outcome.done, outcome.failed, state.distance, state.scale)
    packed, sample = torch.stack([column.float() for column in columns]), state.sample
    ready = torch.cuda.Event() if packed.is_cuda else None
    packed, sample = (value.to("cpu", non_blocking=ready is not None) for value in (packed, sample))
    if ready is not None:
        ready.record(torch.cuda.current_stream(state.sample.device))

    def read() -> Seen:
        if ready is not None:
            ready.synchronize()
        won, kept, done, failed = packed[:4].bool()
        return Seen(sample, won, kept, done, failed, packed[4], packed[5])

    return read


def edit(assignment: Tensor, add: Tensor, restore: Tensor) -> Tensor:
    """The dual action: `add` (n, a) holds entry * p + patch, `restore` (n, r) holds patches; -1 leaves a place empty."""
    out = torch.cat([assignment, assignment[:, :1]], 1)  # a spare column swallows the empty places
    patches = assignment.shape[1]
    out.scatter_(1, torch.where(restore < 0, patches, restore), 0)
    entry = torch.where(add < 0, 0, add // patches)
    out.scatter_(1, torch.where(add < 0, patches, add % patches), entry)
    return out[:, :patches]


@dataclass(frozen=True)
class AttackEnv:
    """Judges proposals. `ask` is the victim behind its meter."""

    ask: Ask
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
        """A fresh state from clean scores (n, k); asks nothing. Its memory is empty: a policy's `begin` fills it."""
        n, f, p = len(bank), bank.shape[1], len(self.task.grid)
        blank = torch.zeros(n, f, p, device=bank.device)
        margin = self.task.goal.margin(scores, y)
        deviation = torch.zeros_like(margin) + noise
        return State(
            sample=sample, seed=seed, y=y, bank=bank, scale=scale,
            assignment=torch.zeros(n, p, dtype=torch.int64, device=bank.device),
            x=bank[:, 0].clone(), scores=scores, clean=scores, margin=margin + SURE * deviation,
            margin0=margin.maximum(deviation).clamp(min=1e-6), noise=deviation,
            l2_penalty=torch.full_like(margin, self.task.l2_penalty),
            distance=torch.zeros(n, device=bank.device), feedback=blank, tried=blank.clone(),
            asked=torch.zeros(n, p, dtype=torch.int64, device=bank.device), answer=scores,
            step=torch.zeros(n, dtype=torch.int64, device=bank.device),
            memory=torch.zeros(n, 0, device=bank.device),
        )  # fmt: skip

    def step(self, state: State, proposal: Proposal, phase: str = "search") -> tuple[State, StepOutcome]:
        """One query for every row."""
        task = self.task
        x = render(state.bank, proposal.assignment, task.grid) if proposal.x is None else proposal.x
        scores = self.ask(x, state.sample, phase)
        margin = task.goal.margin(scores, state.y) + state.slack
        distance = MEASURES[task.distance](state.x0, x) / (state.scale if task.distance != "l0" else 1.0)
        done = margin < 0
        failed = ~torch.isfinite(margin) & ~done  # a true class at probability zero is no failure
        drop = torch.where(failed, 0.0, state.margin - margin)  # of a failure nothing is kept or remembered
        cost = state.l2_penalty * (distance - state.distance)
        gain = drop / state.margin0 - cost
        stays = (drop > 0) | (gain > 0) | (task.keep == "always")  # a penalty forbids nothing, it only buys restores
        nearer = done & ((state.margin >= 0) | (distance < state.distance))
        kept = torch.where(
            proposal.keep == IF_NEARER,
            nearer,
            done | (proposal.keep == ALWAYS) | ((proposal.keep == IF_BETTER) & stays),
        ).logical_and(~failed)
        feedback, tried = state.feedback, state.tried
        if proposal.x is None:
            feedback, tried = _remember(state, proposal.assignment, drop)
        after = replace(
            state,
            assignment=_where(kept, proposal.assignment, state.assignment),
            x=_where(kept, x, state.x),
            scores=_where(kept, scores, state.scores),
            margin=_where(kept, margin, state.margin),
            distance=_where(kept, distance, state.distance),
            feedback=feedback,
            tried=tried,
            asked=proposal.assignment,
            answer=_where(failed, state.answer, scores),
            step=state.step + 1,
            memory=proposal.memory,
        )
        gained = (state.margin - margin.clamp(min=0)) / state.margin0 - cost  # going further below zero earns nothing
        reward = torch.where(kept, gained, 0.0) + task.success * (kept & done)
        return after, StepOutcome(reward, drop, kept, kept & done, failed)


def _where(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(rows.view(-1, *(1,) * (new.dim() - 1)), new, old)


def _remember(state: State, assignment: Tensor, drop: Tensor) -> tuple[Tensor, Tensor]:
    """Writes the drop, shared among the patches that changed, where each changed patch's entry was tried."""
    changed = assignment != state.assignment
    share = (drop / changed.sum(1).clamp(min=1))[:, None].expand_as(assignment)
    at = assignment[:, None]
    before = state.feedback.gather(1, at).squeeze(1)
    feedback = state.feedback.scatter(1, at, torch.where(changed, share, before)[:, None])
    tried = state.tried.scatter_add(1, at, changed[:, None].to(state.tried.dtype))
    return feedback, tried
