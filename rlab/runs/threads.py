"""How many threads torch uses on a CPU: as many as the user says, or one or all, whichever a few queries show to be faster.

Small models are slower with several threads on busy cores. The number decides the last bits of an answer, so a run keeps it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import median
from time import perf_counter
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.data.batch import Samples
from rlab.data.source import read_ahead
from rlab.errors import give_notice
from rlab.runs.executor import Executor
from rlab.runs.options import AttackOptions
from rlab.storage.resume import Resume
from rlab.storage.steps import THREADS
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter
from rlab.victims.torch_module import TorchVictim

ROUNDS = 3  # timed forwards with each number of threads, after one that warms up
ROWS, SHARE = 64, 10  # most samples that are timed; at most one in SHARE queries of their budget goes into timing
FASTER = 0.9  # all threads are used if they take at most this share of the time of one
_known = WeakKeyDictionary[Victim, int]()  # a model is timed once, also if a command attacks it several times


@dataclass(frozen=True)
class Threads:
    """The number of threads of a run, and how many queries each of its samples from `first` to `stop` gave for the choice."""

    count: int
    first: int = 0
    stop: int = 0
    queries: int = 0

    def timed(self, places: Tensor) -> Tensor:
        """Places (n,) of samples in the run -> their queries (n,)."""
        return ((places >= self.first) & (places < self.stop)) * self.queries


@dataclass(frozen=True)
class ThreadChoice:
    """What the number of threads depends on."""

    options: AttackOptions | None
    attack: Attack
    executor: Executor
    victim: Victim
    samples: Samples

    @contextmanager
    def applied(self, rows: slice | None, resume: Resume | None) -> Iterator[tuple[Threads | None, Executor]]:
        """Let torch use the number that fits, here and in workers; None keeps torch's own. `rows` are the first samples."""
        before = torch.get_num_threads()
        try:
            threads = None if self.options is None or rows is None else self._made(self.options.threads, rows, resume)
            count = before if threads is None else threads.count
            torch.set_num_threads(count)
            yield threads, self.executor.with_threads(count) if threads else self.executor
        finally:
            torch.set_num_threads(before)

    def _made(self, own: int | None, rows: slice, resume: Resume | None) -> Threads | None:
        """The user's number, else the one with which the run was begun, else a new choice."""
        if own is None and os.environ.get("OMP_NUM_THREADS"):
            own = torch.get_num_threads()
        victim, most = self.victim, self.executor.most_threads
        local = isinstance(victim, TorchVictim) and victim.device.type == "cpu" and not self.executor.on_gpu
        if own is None and not local:
            return None
        if resume is not None and (stored := resume.recall(THREADS, "")):
            threads = Threads(**stored)
            if own not in (None, threads.count):
                change = f"this run was begun with threads={threads.count} and goes on with threads={own}"
                give_notice(f"{change}: results may differ in their last bits")
            return replace(threads, count=own or threads.count)
        if resume is not None:
            resume.begin()
        threads = Threads(own or _known.get(victim, most))
        if own is None and victim not in _known and self._pays(most):
            threads = self._timed(rows, most)
        if resume is not None:
            resume.record(THREADS, "", asdict(threads))
        return threads

    def _pays(self, most: int) -> bool:
        """Whether there is a choice, and the budget for it; torch compiles for one number of threads."""
        compiled = isinstance(self.victim, TorchVictim) and self.victim.compile
        able = most > 1 and not compiled and not self.attack.noisy
        return able and self.attack.budget >= 2 * (1 + ROUNDS) * SHARE

    def _timed(self, rows: slice, most: int) -> Threads:
        """Query the first samples with all threads and with one, in turn."""
        few, victim = slice(rows.start, min(rows.stop, rows.start + ROWS)), self.victim
        with read_ahead(self.samples, [few]) as read:
            batch, _ = read(few)
        if batch is None:  # none of them can be read
            return Threads(most)
        x, every, reading = batch.x.contiguous(), torch.arange(len(batch)), victim.reading
        meter = QueryMeter(victim, len(batch), self.attack.budget)

        seconds = defaultdict[int, list[float]](list)
        for count in (most, 1) * (1 + ROUNDS):
            torch.set_num_threads(count)
            began = perf_counter()
            meter.query(x, "timing", every)
            seconds[count].append(perf_counter() - began)
        victim.reading = reading  # all samples of a chunk recognise them better than a few
        several, one = (median(seconds[count][1:]) for count in (most, 1))
        _known[victim] = most if several <= FASTER * one else 1
        return Threads(_known[victim], few.start, few.stop, int(meter.counts.sum(1).max()))
