"""The attack: predict -> [propose -> one query -> keep or not] -> clean up -> verify. The whole flow is in this file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from rlab import defaults
from rlab.agents import parse_policy
from rlab.agents.base import Policy
from rlab.cleanup import clean_up
from rlab.data.batch import Batch
from rlab.data.take import free_bytes
from rlab.distances import NAMES, measure
from rlab.draws import sample_seeds
from rlab.env import AttackEnv, State, Task
from rlab.errors import InputError, VictimError
from rlab.filters import check_palette
from rlab.filters.palette import Palette, Spec, unit_scale
from rlab.goals import Goal, parse_goal
from rlab.grid import PatchGrid
from rlab.progress import Progress, bar, quiet
from rlab.result import AttackResult, Setting, Status
from rlab.victims.base import QueryMeter, Victim

Store = Callable[[Mapping[str, Tensor], Setting], Tensor]  # writes a chunk's arrays, reads the perturbed inputs back
Watch = Callable[[State], None]  # told the flipped rows as they stand after cleanup, before they are stored


@dataclass(frozen=True)
class Attack:
    """A policy with all it needs but a victim and data. `chunk` samples share the bank's memory and step together."""

    policy: Policy
    grid: PatchGrid
    palette: Palette
    goal: Goal
    budget: int
    keep: Literal["better", "always"] = "better"
    price: float = 0.0
    cleanup: bool = True
    patience: int | None = None
    chunk: int = 64
    label: str = ""  # the policy as the user named it

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise InputError(f"expected a chunk of at least 1 sample, got {self.chunk}")
        least = self.policy.least_steps(self.task) + 2  # the clean prediction and the verification
        if self.budget < least:
            raise InputError(
                f"a budget of {self.budget} queries a sample is below the cost of one step, which is {least} here "
                f"(clean prediction, step, verification): raise the budget or take larger patches or a smaller palette"
            )

    @property
    def task(self) -> Task:
        return Task(self.grid, len(self.palette), self.goal, self.budget, self.keep, self.price)

    def __call__(self, victim: Victim, batch: Batch, seed: int = 0, progress: Progress = quiet) -> AttackResult:
        """Attacks every sample of the batch, a chunk at a time."""
        check_palette(self.palette, batch.x[:4], batch.bounds)
        parts = []
        for rows in self.chunks(len(batch)):
            parts.append(self.attack_chunk(victim, batch[rows], seed, rows.start, labels=batch.y))
            progress(parts[-1])
        return AttackResult.join(parts)

    def chunks(self, samples: int) -> Iterator[slice]:
        return (slice(at, min(at + self.chunk, samples)) for at in range(0, samples, self.chunk))

    def attack_chunk(
        self,
        victim: Victim,
        batch: Batch,
        seed: int,
        first: int,
        store: Store | None = None,
        labels: Tensor | None = None,
        watch: Watch | None = None,
    ) -> AttackResult:
        """The samples of one chunk; `first` is the chunk's place in the run, `labels` are those of all its chunks."""
        began = time.perf_counter()
        n, seeds = len(batch), sample_seeds(seed, first, len(batch))
        original = batch.x.contiguous()
        x0, y = original.to(victim.device), batch.y.to(victim.device)
        meter = QueryMeter(victim, n, self.budget)
        clean = _first_answer(meter, x0, batch)
        self._check_clean(victim, batch, clean, batch.y if labels is None else labels)
        status = [Status.SKIPPED] * n
        assignment = torch.zeros(n, len(self.grid), dtype=torch.uint8)
        perturbed, after = original.clone(), clean.cpu().clone()
        flip = {name: torch.full((n,), math.nan) for name in NAMES}

        found = torch.arange(0)
        right = self.goal.right(clean, y) & ~self.goal.reached(clean, y)
        if right.any():
            env = AttackEnv(meter, self.task)
            start = self._start(env, x0, y, batch.bounds, right, seeds.to(x0.device), clean)
            flipped, spent, failed = self._search(env, meter, start)
            for ended, word in ((flipped, Status.SUCCEEDED), (spent, Status.SPENT), (failed, Status.FAILED)):
                for i in ended.sample.tolist():
                    status[i] = word
            found = flipped.sample.cpu()
            for name, distance in measure(flipped.x0, flipped.x, flipped.assignment, batch.bounds).items():
                flip[name][found] = distance.cpu()
            if self.cleanup and len(flipped):
                worth, regions = self.policy.worth(flipped, env.task), self.policy.regions(env.task)
                flipped = clean_up(env, flipped, worth, meter, patience=self.patience, regions=regions)
            if watch is not None:
                watch(flipped)
            for ended in (flipped, spent, failed):
                rows = ended.sample.cpu()
                assignment[rows] = ended.assignment.cpu().to(torch.uint8)
                perturbed[rows], after[rows] = ended.x.cpu(), ended.scores.cpu()
        arrays = {"assignment": assignment, "original": original, "perturbed": perturbed}
        stored = (store or _through_bytes)(arrays, self._setting(batch, seed))
        self._verify(meter, stored, batch.y, found, after, status)
        spent_rows = meter.counts.sum(1)
        return AttackResult(
            setting=self._setting(batch, seed),
            ids=batch.ids,
            labels=batch.y,
            status=tuple(status),
            queries=meter.counts,
            before=victim.probabilities(clean.cpu()),
            after=victim.probabilities(after),
            flip=flip,
            final=measure(original, perturbed, assignment, batch.bounds),
            assignment=assignment,
            original=original,
            perturbed=perturbed,
            seconds=(time.perf_counter() - began) * spent_rows / spent_rows.sum(),
            seeds=seeds,
            marks=batch.marks or (),
        )

    def _check_clean(self, victim: Victim, batch: Batch, clean: Tensor, labels: Tensor) -> None:
        """A label that will not do stops the run at its first answer, however late its sample comes."""
        assert victim.classes is not None
        if self.goal.multilabel != victim.multilabel:
            want = "multilabel=True" if self.goal.multilabel else "multilabel=False"
            raise InputError(f"the goal {str(self.goal)!r} needs a model declared with {want}")
        self.goal.check(labels, victim.classes)
        bad = torch.isnan(clean).any(1)
        if bad.any():
            raise InputError(
                f"the model answered NaN for {int(bad.sum())} of {len(batch)} untouched samples, "
                f"first {batch.ids[int(bad.nonzero()[0])]!r}: mend the model or its input range"
            )

    def _start(
        self,
        env: AttackEnv,
        x0: Tensor,
        y: Tensor,
        bounds: tuple[float, float],
        right: Tensor,
        seeds: Tensor,
        clean: Tensor,
    ) -> State:
        rows = right.nonzero().flatten()
        bank = self.palette.bank(x0[rows], bounds, seeds[rows].tolist())
        scale = unit_scale(x0[rows], bounds)[1].flatten()
        state = env.start(y[rows], rows, seeds[rows], bank, scale, clean[rows])
        return replace(state, memory=self.policy.begin(state, env.task))

    def _search(self, env: AttackEnv, meter: QueryMeter, state: State) -> tuple[State, State, State]:
        """Until every sample is flipped, out of budget or failed; one query of each budget is kept for verification."""
        none = state[torch.arange(0, device=state.sample.device)]
        broke = meter.left(state.sample) <= 1  # a model that had to be asked again has used up the rest
        flipped, spent, failed = [none], [state[broke]], [none]
        state = state[~broke] if broke.any() else state
        while len(state):
            state, outcome = env.step(state, self.policy.propose(state, env.task))
            out = (meter.left(state.sample) <= 1) & ~outcome.done & ~outcome.failed
            for ended, rows in ((flipped, outcome.done), (spent, out), (failed, outcome.failed)):
                if rows.any():
                    ended.append(state[rows])
            stay = ~(outcome.done | out | outcome.failed)
            state = state if stay.all() else state[stay]  # cutting rows copies their banks
        joined = [State.join(ended) for ended in (flipped, spent, failed)]
        first, second, third = (one[one.sample.argsort()] for one in joined)
        return first, second, third

    def _verify(
        self, meter: QueryMeter, stored: Tensor, y: Tensor, rows: Tensor, after: Tensor, status: list[Status]
    ) -> None:
        """Every success is predicted once more from what is stored, unless a question asked again cost the last query."""
        affordable = meter.left(rows) > 0
        for i in rows[~affordable].tolist():
            status[i] = Status.SPENT
        rows = rows[affordable]
        if not len(rows):
            return
        scores = meter(stored[rows].to(meter.victim.device), rows, "verify").cpu()
        after[rows] = scores
        for i, held in zip(rows.tolist(), self.goal.reached(scores, y[rows]).tolist(), strict=True):
            status[i] = Status.SUCCEEDED if held else Status.UNVERIFIED

    def _setting(self, batch: Batch, seed: int) -> Setting:
        return Setting(
            size=batch.size,
            patch=self.grid.patch,
            palette=self.palette.names,
            goal=str(self.goal),
            policy=self.label or str(self.policy),
            budget=self.budget,
            bounds=batch.bounds,
            seed=seed,
            classes=batch.classes,
            unit=batch.unit,
            rate=batch.rate,
            leads=batch.leads,
        )


def _first_answer(meter: QueryMeter, x0: Tensor, batch: Batch) -> Tensor:
    """Scores (n, k) of the untouched inputs; a model that fails on them may be made for other leads."""
    try:
        return meter(x0, torch.arange(len(batch)), "search")
    except VictimError as error:
        if not batch.leads:
            raise
        raise VictimError(
            f"{error} (the data have {len(batch.leads)} leads, {', '.join(batch.leads)}: "
            f"if the model was made for others, choose them with leads)"
        ) from error


def _through_bytes(arrays: Mapping[str, Tensor], setting: Setting) -> Tensor:
    """The perturbed inputs as `AttackResult.save` would write them, read back."""
    return from_bytes(to_bytes({"perturbed": arrays["perturbed"]}))["perturbed"]


def make_attack(
    batch: Batch,
    *,
    palette: Sequence[Spec] | None = None,
    patch: int | Sequence[int] | None = None,
    goal: str | Goal = "untargeted",
    budget: int | None = None,
    policy: str | Policy = defaults.POLICY,
    price: float | None = None,
    chunk: int | None = None,
    **options: Any,
) -> Attack:
    """An attack for data like this batch; what is None follows the kind of data (rlab.defaults)."""
    specs = defaults.palette(batch) if palette is None else palette
    chosen = Palette.of(specs, batch.rank, batch.x.shape[1], batch.rate, batch.unit)
    together = chunk or defaults.chunk(batch, len(chosen))
    _check_room(batch, min(together, len(batch)), len(chosen))
    grid = PatchGrid.of(batch.size, defaults.patch(batch) if patch is None else patch)
    proposer = parse_policy(policy).suited(grid)
    return Attack(
        policy=proposer,
        grid=grid,
        palette=chosen,
        goal=parse_goal(goal) if isinstance(goal, str) else goal,
        budget=defaults.BUDGETS[batch.kind] if budget is None else budget,
        price=proposer.price if price is None else price,
        chunk=together,
        label=_label(policy, proposer),
        **options,
    )


def _label(policy: str | Policy, proposer: Policy) -> str:
    """The policy as the user named it, and whom 'auto' took."""
    if not isinstance(policy, str):
        return ""
    took = f" -> {proposer}" if policy.startswith("auto") else ""
    return policy + took


def _check_room(batch: Batch, samples: int, entries: int) -> None:
    """Refuses a chunk whose bank would not fit into this machine's free memory."""
    need, free = samples * (entries + 1) * batch.x[0].numel() * batch.x.element_size(), free_bytes()
    if free is not None and need > free:
        raise InputError(
            f"a chunk of {samples} samples under {entries} palette entries needs {need / 1e9:.1f} GB of memory and "
            f"{free / 1e9:.1f} GB are free: pass a smaller chunk or palette"
        )


def attack(victim: Victim, batch: Batch, *, seed: int = 0, **options: Any) -> AttackResult:
    """Finds, for every sample, few patches whose distortion makes the victim err. Options are those of `make_attack`."""
    with bar(len(batch)) as progress:
        return make_attack(batch, **options)(victim, batch, seed, progress)
