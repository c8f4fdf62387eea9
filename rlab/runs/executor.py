"""Run tasks in this process, in local processes or on a Ray cluster.

Workers load the model by name and get their tasks from the process that owns the results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch

from rlab.errors import ModelError, OptionError
from rlab.runs.cluster import RayCrew, joined, room
from rlab.runs.fingerprint import model_fingerprint
from rlab.runs.local import LocalCrew
from rlab.runs.sharing import WorkerOptions
from rlab.runs.worker import Start, Work, hand_out
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim
from rlab.victims.limit import is_limited
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

Tasks = Iterable[Any]  # each has a `key`
MakeWork = Callable[..., Work]  # called with a victim and further arguments


# An executor: `with executor.map(make, arguments, tasks) as results` hands the tasks to `make(victim, *arguments)`.


@dataclass(frozen=True)
class InProcess:
    """Runs tasks in this process, one after the other."""

    victim: Victim | None

    @property
    def on_gpu(self) -> bool:
        return self.victim is not None and self.victim.device.type != "cpu"

    @property
    def most_threads(self) -> int:
        return torch.get_num_threads()

    @contextmanager
    def map(self, make: MakeWork, arguments: tuple[Any, ...], tasks: Tasks) -> Iterator[Iterator[Any]]:
        yield map(make(self.victim, *arguments), tasks)


def place(options: WorkerOptions, model: ModelOptions) -> tuple[ModelOptions, ModelOptions]:
    """Return the model with the workers' device, and as this process loads it: it has no device of a cluster."""
    if options.shared and is_limited():
        raise OptionError(
            "a limit of queries holds in one process: leave out workers, devices and cluster, or the limit"
        )
    if options.devices and model.device is not None:
        raise OptionError("got both a device and devices: leave out one of the two")
    if options.devices:
        model = model.model_copy(update={"device": options.devices[0]})
    return model, model.model_copy(update={"device": None}) if options.cluster else model


@dataclass(frozen=True)
class Workers:
    """Runs tasks in processes or on machines that load the same model as this process."""

    options: WorkerOptions
    model: ModelOptions
    bounds: tuple[float, float]
    fingerprint: str
    threads: int | None = None  # of each worker; None: as many as it may have

    @classmethod
    def of(cls, options: WorkerOptions, model: ModelOptions, victim: Victim) -> Workers | None:
        """Return None if this process does the work; `victim` is the model as loaded here (see `place`)."""
        if not options.shared:
            return None
        if isinstance(victim, HttpVictim):
            raise OptionError(
                "one process queries a model behind an address, with many requests at once and at its rate limit: leave out "
                "the workers, and raise -M concurrency=32 if the server can take more"
            )
        return cls(options, model, victim.bounds, model_fingerprint(victim))

    @property
    def on_gpu(self) -> bool:
        return (self.model.device or "cpu").startswith("cuda")

    @property
    def count(self) -> int:
        """The number of local workers."""
        return self.options.workers or len(self.options.devices or ()) or 1

    @property
    def most_threads(self) -> int:
        """Threads that a worker may have: its share of the CPU, or what the user chose by OMP_NUM_THREADS."""
        if os.environ.get("OMP_NUM_THREADS"):
            return torch.get_num_threads()
        return 1 if self.options.cluster is not None else max(1, torch.get_num_threads() // self.count)

    @contextmanager
    def map(self, make: MakeWork, arguments: tuple[Any, ...], tasks: Tasks) -> Iterator[Iterator[Any]]:
        """Yield the results as they come; the arguments are pickled, so use names and plain values."""
        with closing(self._results(partial(self._start, make, arguments), tasks)) as results:
            yield results

    def _results(self, start: Callable[[int, int], Start], tasks: Tasks) -> Generator[Any]:
        made: Iterator[tuple[str, Any]] = ((task.key, task) for task in tasks)
        if (first := next(made, None)) is None:
            return
        made = chain([first], made)
        if self.options.cluster is None:
            yield from hand_out(LocalCrew(), [start(number, self.count) for number in range(self.count)], made)
            return
        with joined(self.options.cluster) as ray:
            each = (self.threads or self.most_threads, int(self.on_gpu))  # CPUs and GPUs of a worker
            count = self.options.workers or room(ray.cluster_resources(), *each)
            yield from hand_out(RayCrew(ray, *each), [start(number, count) for number in range(count)], made)

    def _start(self, make: MakeWork, arguments: tuple[Any, ...], number: int, count: int) -> Start:
        devices = self.options.devices
        device = devices[number % len(devices)] if devices else self.model.device
        name = f"worker {number + 1} of {count}" + (f" on {device}" if device else "")
        model = self.model.model_copy(update={"device": device})
        return Start(
            name, _start, (model, self.bounds, self.fingerprint, self.threads or self.most_threads, make, arguments)
        )


Executor = InProcess | Workers


def _start(
    model: ModelOptions,
    bounds: tuple[float, float],
    fingerprint: str,
    threads: int,
    make: MakeWork,
    arguments: tuple[Any, ...],
) -> Work:
    """In the worker: load the model, check that it is the same, and return the work."""
    torch.set_num_threads(threads)
    victim = load_model(model, bounds)
    if model_fingerprint(victim) != fingerprint:
        raise ModelError(
            f"the worker's {model.name} differs from the model in this process: use the same weights everywhere, and a fixed "
            "seed if a function initialises the model at random"
        )
    return make(victim, *arguments)
