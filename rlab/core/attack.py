"""The whole attack: predict -> [propose -> one query -> accept or reject] -> clean up -> store -> verify."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.checks import check_clean, refuse_nan
from rlab.core.cleanup import clean_up
from rlab.core.distances import Measure
from rlab.core.env import Accepting, AttackEnv, State, Task, snapshot
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.noise import deviation
from rlab.core.outcome import SearchOutcome
from rlab.core.pruning import RESERVE, Pruning
from rlab.core.rng import sample_seeds
from rlab.core.setting import Learned, Setting
from rlab.core.status import Status
from rlab.core.trace import Trace, Until
from rlab.core.verification import verified
from rlab.data.batch import Batch
from rlab.errors import OptionError, VictimError
from rlab.filters.palette import FreePixels, Palette, unit_scale
from rlab.progress import Progress, quiet
from rlab.storage.journal import Journal
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

if TYPE_CHECKING:
    from rlab.policies.base import Policy

S = TypeVar("S", bound=Rows)
Store = Callable[[SearchOutcome], Tensor]  # stores the perturbed inputs (n, c, *size), and reads them back


@dataclass(frozen=True)
class Attack:
    """A policy with everything it needs except a victim and data; `chunk` samples step together and share the bank."""

    policy: Policy[Any]
    grid: PatchGrid
    palette: Palette
    goal: Goal
    budget: int
    accept: Accepting = "better"
    l2_penalty: float = 0.0
    cleanup: bool = True
    patience: int | None = None
    chunk: int = 64
    label: str = ""  # the policy as the user named it
    seed: int = 0
    until: Until = "steady"
    distance: Measure = "l2"
    paced: bool = False  # whether a run on disk may use smaller chunks, so that it saves often
    learned: Learned | None = None  # the simulator that the policy uses
    noisy: bool = False  # whether scores vary between equal queries; a second clean query estimates by how much

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise OptionError(f"expected a chunk of at least 1 sample, got {self.chunk}")
        least = self.policy.least_steps(self.task) + 2 + self.noisy  # the clean predictions and the verification
        if self.budget < least:
            raise OptionError(
                f"a budget of {self.budget} queries per sample is below the cost of one step, which is {least} here "
                f"(clean prediction, step, verification): raise the budget, or use larger patches or a smaller palette"
            )

    @property
    def task(self) -> Task:
        entries = len(self.palette)
        return Task(self.grid, entries, self.goal, self.budget, self.accept, self.l2_penalty, distance=self.distance)

    def chunks(self, samples: int, first: int = 0) -> Iterator[slice]:
        return (slice(at, min(at + self.chunk, samples)) for at in range(first, samples, self.chunk))

    def search(
        self,
        victim: Victim,
        batch: Batch,
        first: int = 0,
        labels: Tensor | None = None,
        progress: Progress = quiet,
        journal: Journal | None = None,
        store: Store = lambda outcome: outcome.perturbed,
    ) -> SearchOutcome:
        """Search one chunk of samples and verify what was found from where `store` has put it.

        `first` is the chunk's position in the run, `labels` are the labels of the whole run. The `journal` knows
        answers from before a stop.
        """
        n = len(batch)
        seeds, meter = sample_seeds(self.seed, first, n), QueryMeter(victim, n, self.budget, journal)
        x0, y = (value.contiguous().to(victim.device) for value in (batch.x, batch.y))
        clean = self._first_answers(meter, x0, batch, labels)
        status, flipped = [Status.SKIPPED] * n, None
        assignment = torch.zeros(n, len(self.grid), dtype=torch.uint8)
        perturbed, scores = x0.clone(), clean.cpu().clone()
        aimed = self.goal.aim(clean, y, batch.aims)
        attacked = self.goal.correct(clean, y) & ~self.goal.reached(clean, aimed)
        policy = self.policy.by_labels() or self.policy if victim.reading.tells_labels else self.policy
        cleanup = self.cleanup and self.until != "flip" and not policy.reduces
        trace = Trace(n, batch.bounds, self.distance, progress, cleanup, attacked.cpu())
        if attacked.any():
            env = AttackEnv(meter.query, replace(self.task, labels=victim.reading.tells_labels))
            start = self._start(env, meter, batch, x0, attacked, seeds.to(x0.device), clean, aimed)
            flipped, spent, failed, contribution = self._steps(policy, env, meter, start, trace)
            for ended, word in ((flipped, Status.SUCCEEDED), (spent, Status.SPENT), (failed, Status.FAILED)):
                for i in ended.sample.tolist():
                    status[i] = word
            if cleanup and len(flipped):
                regions, patience = policy.regions(env.task), self.patience
                flipped = clean_up(env, flipped, contribution, meter, trace, patience=patience, regions=regions)
            for ended in (flipped, spent, failed):
                rows = ended.sample.cpu()
                assignment[rows] = ended.assignment.cpu().to(torch.uint8)
                perturbed[ended.sample], scores[rows] = ended.x, ended.scores.cpu()
        perturbed = perturbed.cpu()
        outcome = SearchOutcome(
            batch, self._setting(batch), meter, seeds, clean.cpu(), scores, tuple(status), trace, assignment, perturbed,
            perturbed, flipped,
        )  # fmt: skip
        return verified(replace(outcome, stored=store(outcome)), self.goal)

    def _first_answers(self, meter: QueryMeter, x0: Tensor, batch: Batch, labels: Tensor | None) -> Tensor:
        """Scores (n, k) of the untouched inputs, against which goal, policy and all labels of the run are checked."""
        n = len(batch)
        try:
            scores = meter.query(x0, "search", torch.arange(n), torch.zeros(n, len(self.grid)))
            if meter.lost.any():
                lost = f"{int(meter.lost.sum())} of {n} untouched samples"
                raise VictimError(f"the model did not answer for {lost} within {meter.budget} queries: it may be down")
        except VictimError as error:
            if not batch.leads:
                raise
            raise VictimError(
                f"{error} (the data have {len(batch.leads)} leads, {', '.join(batch.leads)}: "
                f"if the model was made for others, choose them with leads)"
            ) from error
        able = self.policy.by_labels() is not None or self.accept == "always"  # without scores
        scored = "" if able else f"policy {self.label or str(self.policy)!r}"
        check_clean(self.goal, scored, meter.victim, batch, scores, batch.y if labels is None else labels)
        return scores

    def _start(
        self, env: AttackEnv, meter: QueryMeter, batch: Batch, x: Tensor, attacked: Tensor, seeds: Tensor, clean: Tensor,
        aimed: Tensor,
    ) -> State:  # fmt: skip
        """Return the first state of the attacked rows; x (n, c, *size) holds all inputs on the model's device."""
        rows = attacked.nonzero().flatten()
        x0, y, scores = x[rows], aimed[rows], clean[rows]
        bank = self.palette.bank(x0, batch.bounds, seeds[rows].tolist())
        scale = unit_scale(x0, batch.bounds)[1].flatten()
        again = self._once_more(meter, x0, rows, scores) if self.noisy else scores
        refuse_nan(again, [batch.ids[i] for i in rows.tolist()])
        noise = deviation(self.goal.alternatives(scores, y), self.goal.alternatives(again, y)) if self.noisy else 0.0
        averages = self.goal.fits in ("classes", "numbers")  # the mean of two boxes or maps is none
        mean = (scores + again) / 2 if self.noisy and averages else scores
        return env.start(y, rows, seeds[rows], bank, scale, mean, noise)

    def _once_more(self, meter: QueryMeter, x0: Tensor, rows: Tensor, scores: Tensor) -> Tensor:
        """Query untouched inputs again and return scores (n, k); keep the first scores if the budget does not allow it."""
        able, again = meter.left(rows) > 1, scores.clone()
        if able.any():
            answers = meter.query(x0[able], "search", rows[able])
            again[able] = torch.where(meter.lost.to(rows.device)[rows[able]][:, None], again[able], answers)
        return again

    def _steps(
        self, policy: Policy[S], env: AttackEnv, meter: QueryMeter, state: State, trace: Trace
    ) -> tuple[State, State, State, Tensor]:
        """Until every sample has flipped, spent its budget or failed; one query of each budget is left for verification.

        Also how much each patch of a flip contributed, as the policy sees it.
        """
        none = state[torch.arange(0, device=state.sample.device)]
        contributions = [torch.zeros_like(none.assignment, dtype=torch.float32)]
        memory = policy.begin(state, env.task)
        broke = meter.left(state.sample) <= 1  # a model that was queried again after an error has used up the rest
        flipped, spent, failed = [none], [state[broke]], [none]
        if broke.any():
            state, memory = state[~broke], memory[~broke]
        samples, device = state.sample.cpu(), state.sample.device
        proposal = policy.propose(state, memory, env.task) if len(state) else None
        pruning = Pruning.begin(state) if self._prunes(policy) else None
        settled = torch.zeros_like(samples, dtype=torch.bool)
        while proposal is not None:
            state, outcome = env.step(state, proposal)
            broke, read = meter.left(samples) <= 1, snapshot(state, outcome)
            # The next proposal is made before the answers are read, so that the CPU need not wait for a GPU.
            last = policy.reduces and bool(broke.all())
            memory = proposal.memory if last else policy.observe(state, proposal.memory, env.task)
            proposal = None if broke.all() else policy.propose(state, memory, env.task)
            if proposal is not None and pruning is not None:
                ending = settled | (meter.left(samples) - 1 <= RESERVE * self.budget)
                pruning = pruning.after(state, ending.to(device), self.patience)
                fewer = policy.fewer if ending.any() else None
                proposal, pruning = pruning.instead(proposal, state, env.task, fewer)
            after = read()
            trace.note(state, after, meter)
            over, settled = after.done, trace.settled(after, self.until, meter)
            if policy.reduces:
                pruned = pruning.finished.cpu() if pruning is not None and settled.any() else True
                over = after.flipped & (settled & pruned | broke | after.failed)
            out, fails = broke & ~after.flipped, after.failed & ~after.flipped
            for ended, rows in ((flipped, over), (spent, out), (failed, fails)):
                if rows.any():
                    ended.append(state if rows.all() else state[rows.to(device)])
            if not policy.reduces and over.any():
                ends = over.to(device)
                contributions.append(policy.contribution(state[ends], memory[ends], env.task))
            stay = ~(over | out | fails)
            if proposal is not None and not stay.all():  # selecting rows copies their banks
                there, pruning = stay.to(device), pruning and pruning[stay.to(device)]
                state, samples, settled = state[there], samples[stay], settled[stay]
                proposal = proposal[there] if stay.any() else None
        order = torch.cat([ended.sample for ended in flipped]).argsort()
        contribution = contributions[0] if policy.reduces else torch.cat(contributions)[order]
        return _in_order(flipped), _in_order(spent), _in_order(failed), contribution

    def _prunes(self, policy: Policy[Any]) -> bool:
        """Whether patches are restored during the search, not after it; free pixels have none."""
        patches = not isinstance(self.palette, FreePixels)
        return self.cleanup and policy.reduces and self.until != "flip" and patches

    def _setting(self, batch: Batch) -> Setting:
        return Setting(
            size=batch.size,
            patch=self.grid.patch,
            palette=self.palette.names,
            goal=str(self.goal),
            policy=self.label or str(self.policy),
            budget=self.budget,
            bounds=batch.bounds,
            seed=self.seed,
            classes=batch.classes,
            unit=batch.unit,
            rate=batch.rate,
            leads=batch.leads,
            distance=self.distance,
            learned=self.learned,
            channels=self.grid.channels,
            target=batch.target,
        )


def _in_order(ended: Sequence[State]) -> State:
    """All rows by sample; a single row is not copied, because the bank of a long clip is large."""
    some = [state for state in ended if len(state)] or ended[:1]
    if len(some) == 1 and len(some[0]) < 2:
        return some[0]
    rows = State.cat(some)
    return rows[rows.sample.argsort()]
