"""Stands between an attack and the victim: counts every row, records flips, and stops the attack once all is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlab.comparison.outcome import AttackOutcome, Contender
from rlab.core.distances import l2
from rlab.core.goals import Untargeted
from rlab.core.rng import sample_seeds, seeded_globals
from rlab.core.trace import Improvements
from rlab.core.vectors import wide
from rlab.data.batch import Batch
from rlab.data.eight_bit import EightBit
from rlab.errors import AttackError, DataError, InputError, OptionError, VictimError
from rlab.filters.palette import Round
from rlab.progress import Progress, Tally, UnderWay, quiet
from rlab.victims.base import Victim

Until = Literal["flip", "budget"]  # a sample is decided at its first flip, or once its budget is spent
VALUES = 40 * 3 * 224 * 224  # at once at most, about forty photos: attacks hold several copies in memory
REDUCED = "reduced by bisection"  # the stage after the flip, in the words of the table
_HALVINGS = 10  # of the way to the original, down to a thousandth


class Decided(Exception):
    """Every sample is flipped or out of budget; leaves the attack's own loop."""


class QueryRecorder:
    """Samples x (n, c, *size) in [0, 1] under attack, with the clean scores (n, k).

    Attacks of your own pass the sample of each row to `ask`. Libraries call the recorder like a model: with several samples, they
    send the rows of those they still attack, in order, and the nearest original identifies each.
    """

    def __init__(
        self, victim: Victim, x: Tensor, y: Tensor, budget: int, until: Until, scale: tuple[float, float], clean: Tensor,
        rounded: Round | None = None,
    ):  # fmt: skip
        self.victim, self.x, self.y, self.clean, self.rounded = victim, x, y, clean, rounded or (lambda x: x)
        self.budget, self.until, self.scale = budget, until, scale  # rows of each sample that the attack may send
        self.phase, self.seed = "search", 0  # the seed of the attack's own random numbers
        self.progress: Progress = quiet  # hears of decided samples
        self.count = torch.zeros(len(x), dtype=torch.int64)  # queries
        self.nearest, self.l2 = x.clone(), torch.full((len(x),), torch.inf)  # flip of each sample and its distance
        self.improvements: list[list[tuple[int, float]]] = [[] for _ in x]  # (query, distance) of each nearer flip

    @property
    def open(self) -> Tensor:
        """(n,) bool: samples whose rows are still counted."""
        undecided = torch.isinf(self.l2) if self.until == "flip" else torch.ones_like(self.l2, dtype=torch.bool)
        return undecided & (self.count < self.budget)

    def tally(self) -> Tally:
        """Counts over the decided samples."""
        decided, flipped = ~self.open, torch.isfinite(self.l2)
        return Tally(int(decided.sum()), int((decided & flipped).sum()), int((decided & ~flipped).sum()))

    def live(self) -> Tensor:
        """(m,) the open samples; raise `Decided` if there is none."""
        rows = self.open.nonzero().flatten()
        if not len(rows):
            raise Decided
        return rows.to(self.x.device)

    def ask(self, x: Tensor, samples: Tensor) -> Tensor:
        """Rows x (m, c, *size) in [0, 1] of these samples (m,) -> scores (m, k).

        Rows of decided samples, and rows beyond a budget, never reach the model; their scores are NaN.
        """
        self.live()
        owner = samples.cpu()
        number = self.count[owner] + _earlier(owner) + 1  # query number of each row
        sent = (self.open[owner] & (number <= self.budget)).nonzero().flatten()
        scores = self.clean.new_full((len(x), self.clean.shape[1]), torch.nan)
        if len(sent):
            rows, chosen = self.rounded(x[sent.to(x.device)].detach()), owner[sent]
            at = samples[sent.to(samples.device)]
            self.progress(UnderWay(self.tally))
            answers = self.victim(rows * self.scale[1] + self.scale[0], self.phase)
            scores[sent.to(scores.device)] = answers
            self.count.index_add_(0, chosen, torch.ones_like(chosen))
            inside = (rows.flatten(1).amin(1) >= 0) & (rows.flatten(1).amax(1) <= 1)
            flipped = Untargeted().reached(answers, self.y[at.to(self.y.device)]) & inside
            distances = l2(self.x[at.to(self.x.device)], rows).cpu()
            for row in flipped.nonzero().flatten().tolist():
                i, distance = int(chosen[row]), distances[row]
                if distance < self.l2[i]:
                    self.l2[i], self.nearest[i] = distance, rows[row]
                    self.improvements[i].append((int(number[sent[row]]), float(distance)))
        return scores

    def __call__(self, x: Tensor) -> Tensor:
        """The victim as a library sees it: x (m, c, *size) in [0, 1] -> scores (m, k)."""
        self.live()
        x = x.detach().to(self.x)
        if not torch.isfinite(x).all():
            raise ValueError("its query is not finite")
        scores = self.ask(x, self._identify(x))
        self.live()
        return scores

    def _identify(self, x: Tensor) -> Tensor:
        """(m,) the sample of each row."""
        if len(self.x) == 1:
            return torch.zeros(len(x), dtype=torch.int64)
        nearest = torch.cdist(x.flatten(1), self.x.flatten(1)).argmin(1).cpu()
        if (nearest[1:] <= nearest[:-1]).any():
            raise OptionError("cannot identify the samples of the attack's rows: attack one sample at a time, batch=1")
        return nearest

    def reduce(self, nearer: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        """Bisect from each flip towards the original while there is budget, for attacks that stop at the flip.

        `nearer`: samples (m,), shares (m,) of the distance -> inputs (m, c, *size); by default on a straight line.
        """
        self.until, self.phase = "budget", "cleanup"
        won = torch.isfinite(self.l2)
        start, low, high = self.nearest.clone(), torch.zeros(len(self.x)), torch.ones(len(self.x))
        for _ in range(_HALVINGS):
            rows = (won & self.open).nonzero().flatten()
            if not len(rows):
                return
            share, at = (low + high)[rows] / 2, rows.to(self.x.device)
            part = share.to(start)
            x = nearer(at, part) if nearer else torch.lerp(self.x[at], start[at], wide(part, start))
            held = ~Untargeted().reached(self.ask(x, at), self.y[at]).cpu()
            low[rows], high[rows] = torch.where(held, share, low[rows]), torch.where(held, high[rows], share)


Function = Callable[[QueryRecorder, Tensor], object]  # attacks the samples of the recorder, rows (m,) of the batch


@dataclass(frozen=True)
class RecordedContender(Contender):
    """A function that asks a recorder: a user's, or an attack of a library."""

    name: str
    function: Function
    uses: tuple[str, ...] = ("what your code uses",)
    until: Until = "budget"
    together: int = 1  # samples that it can attack at once
    images_only: bool = False
    reduces: bool = False  # whether to bisect towards the original afterwards
    prepare: Callable[[], object] | None = None  # imports what it needs, or says what is missing

    @property
    def needs(self) -> tuple[str, ...]:
        return (*self.uses, *((REDUCED,) if self.reduces else ()))

    def check(self, batch: Batch, budget: int) -> None:
        check_unit(batch, self.images_only)
        if self.prepare is not None:
            self.prepare()

    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        self.check(batch, budget)
        seeds = sample_seeds(seed, 0, len(batch))

        def run(recorder: QueryRecorder, rows: Tensor) -> None:
            recorder.seed = int(seeds[rows[0]]) % 2**31
            with suppress(Decided), seeded_globals(recorder.seed), failing(self.name, recorder.x):
                self.function(recorder, rows)
            if self.reduces:
                recorder.reduce()

        together = max(1, min(self.together, VALUES // batch.x[0].numel()))
        return run_recorded(victim, batch, budget, run, self.until, together, progress=progress)


def _earlier(samples: Tensor) -> Tensor:
    """(m,) -> (m,): the number of earlier rows of the same sample."""
    order = samples.argsort(stable=True)
    counts = samples.bincount()
    starts = (counts.cumsum(0) - counts)[samples[order]]
    return torch.empty_like(samples).scatter_(0, order, torch.arange(len(samples)) - starts)


def run_recorded(
    victim: Victim,
    batch: Batch,
    budget: int,
    run: Function,
    until: Until = "flip",
    together: int = 1,
    progress: Progress = quiet,
) -> AttackOutcome:
    """Run an attack on every correctly classified sample, `together` at once, and verify each flip.

    `run` gets a recorder and the indices (m,) of its samples in the batch. A sample's clean prediction is its first query, and the
    last query of its budget verifies its flip, so the attack itself has `budget` - 2.
    """
    if batch.target != "classes":
        raise DataError(
            "attacks of libraries and of your own need classes: compare policies, such as belief and square"
        )
    before, n = victim.rows.total(), len(batch)
    low, span = check_unit(batch)
    x = ((batch.x - low) / span).to(victim.device).contiguous()  # libraries view rows flat
    y = batch.y.to(victim.device)
    clean = victim(batch.x.to(victim.device), "search")
    batch.check_numbers(clean.shape[1])
    rounded = EightBit((0.0, 1.0)) if batch.eight_bit else None
    correct = (clean.argmax(1) == y).cpu()
    succeeded, queries = torch.zeros(n, dtype=torch.bool), torch.ones(n, dtype=torch.int64)
    distances, improvements = torch.full((n,), torch.nan), list[Improvements]([()] * n)
    wrong = int((~correct).sum())
    progress(Tally(wrong, skipped=wrong))
    for rows in correct.nonzero().flatten().split(together):
        recorder = QueryRecorder(victim, x[rows], y[rows], max(0, budget - 2), until, (low, span), clean[rows], rounded)
        recorder.progress = progress
        with suppress(Decided):
            run(recorder, rows)
        queries[rows] += recorder.count
        for i, flips in zip(rows.tolist(), recorder.improvements, strict=True):
            improvements[i] = tuple((1 + at, far) for at, far in flips)
        flipped = torch.isfinite(recorder.l2).nonzero().flatten()
        if len(flipped):
            perturbed = recorder.nearest[flipped]
            verified = Untargeted().reached(victim(perturbed * span + low, "verify"), y[rows[flipped]]).cpu()
            won = rows[flipped][verified]
            succeeded[won] = True
            distances[won] = l2(x[rows][flipped], perturbed).cpu()[verified]
        won_here = int(succeeded[rows].sum())
        progress(Tally(len(rows), won_here, len(rows) - won_here))
    spent = victim.rows.total() - before
    return AttackOutcome(correct, succeeded, queries, distances, budget, spent, tuple(improvements))


@contextmanager
def failing(name: str, x: Tensor) -> Iterator[None]:
    """Give an error in somebody else's attack the name of the attack."""
    try:
        yield
    except (Decided, InputError, VictimError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise AttackError(f"{name} failed on inputs of shape {tuple(x.shape)}: {why}") from error


def check_unit(batch: Batch, images_only: bool = False) -> tuple[float, float]:
    """The lowest value and the span of bounded data; refuse other data."""
    low, span = batch.bounds[0], batch.bounds[1] - batch.bounds[0]
    if span == float("inf") or (images_only and batch.kind != "image"):
        wanted = "images" if images_only else "data"
        got = f"got {batch.kind} data in {list(batch.bounds)}"
        raise DataError(f"this attack needs {wanted} with bounds, {got}: compare policies, or name another attack")
    return low, span
