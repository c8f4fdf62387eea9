"""Who does the work: this process, processes on this machine, or the machines of a Ray cluster, behind one protocol.

Workers load the model by its name and get their tasks from the process that owns the results.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from rlab.errors import ModelError, OptionError
from rlab.runs.cluster import Need, hand_out_on_ray
from rlab.runs.fingerprint import model_fingerprint
from rlab.runs.pool import HandOut, Made, Start, Tasks, Work, hand_out
from rlab.runs.sharing import WorkerOptions
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

MakeWork = Callable[..., Work]  # takes a victim and further arguments


class Executor(Protocol):
    """Runs tasks; `hand_out(make, *arguments)` returns the function that gives out tasks to `make(victim, *arguments)`."""

    @property
    def on_gpu(self) -> bool: ...

    def hand_out(self, make: MakeWork, *arguments: Any) -> HandOut: ...


@dataclass(frozen=True)
class InProcess:
    """This process does the work, one task after the other."""

    victim: Victim | None

    @property
    def on_gpu(self) -> bool:
        return self.victim is not None and self.victim.device.type != "cpu"

    def hand_out(self, make: MakeWork, *arguments: Any) -> HandOut:
        return partial(_one_by_one, make(self.victim, *arguments))


def _one_by_one(work: Work, tasks: Tasks, agree: Callable[[str], None]) -> Made:
    for key, task in tasks.items():
        yield key, work(task(), partial(agree, key))


def place(options: WorkerOptions, model: ModelOptions) -> tuple[ModelOptions, ModelOptions]:
    """The model with its device, and the model as this process loads it: a cluster's GPUs are elsewhere."""
    if options.devices and model.device is not None:
        raise OptionError("got both a device and devices: leave out one of the two")
    if options.devices:
        model = model.model_copy(update={"device": options.devices[0]})
    return model, model.model_copy(update={"device": None}) if options.cluster else model


@dataclass(frozen=True)
class Workers:
    """Several processes or machines with the same model as this process."""

    options: WorkerOptions
    model: ModelOptions
    bounds: tuple[float, float]
    fingerprint: str

    @classmethod
    def of(cls, options: WorkerOptions, model: ModelOptions, victim: Victim) -> Workers | None:
        """None where this process does the work; `victim` is the model as loaded here, see `place`."""
        if not options.shared:
            return None
        if isinstance(victim, HttpVictim):
            raise OptionError(
                "one process queries a model behind an address, with many requests at once and at its rate limit: leave out "
                "the workers, and raise -M concurrency=32 if the server can take more"
            )
        return cls(options, model, victim.bounds, model_fingerprint(model.name, victim, model.plain()))

    @property
    def on_gpu(self) -> bool:
        return (self.model.device or "cpu").startswith("cuda")

    def hand_out(self, make: MakeWork, *arguments: Any) -> HandOut:
        """The arguments go to other processes, so they must be names and plain values."""
        own = os.environ.get("OMP_NUM_THREADS")  # the user set it on purpose
        if self.options.cluster is not None:
            threads = torch.get_num_threads() if own else 1
            start = partial(self._start, make, arguments, threads)
            need = Need(threads, int(self.on_gpu))
            return partial(hand_out_on_ray, self.options.cluster, self.options.workers, need, start)
        count = self.options.workers or len(self.options.devices or ())
        threads = torch.get_num_threads() if own else max(1, torch.get_num_threads() // count)
        return partial(hand_out, [self._start(make, arguments, threads, number, count) for number in range(count)])

    def _start(self, make: MakeWork, arguments: tuple[Any, ...], threads: int, number: int, count: int) -> Start:
        devices = self.options.devices
        device = devices[number % len(devices)] if devices else self.model.device
        name = f"worker {number + 1} of {count}" + (f" on {device}" if device else "")
        model = self.model.model_copy(update={"device": device})
        return Start(name, _start, (model, self.bounds, self.fingerprint, threads, make, arguments))


def _start(
    model: ModelOptions,
    bounds: tuple[float, float],
    fingerprint: str,
    threads: int,
    make: MakeWork,
    arguments: tuple[Any, ...],
) -> Work:
    """Runs in the worker: load the model, check that it is the same, and make the work."""
    torch.set_num_threads(threads)
    victim = load_model(model, bounds)
    if model_fingerprint(model.name, victim, model.plain()) != fingerprint:
        raise ModelError(
            f"the worker's {model.name} differs from the model in this process: use the same weights everywhere, and a fixed "
            "seed where a function initialises the model at random"
        )
    return make(victim, *arguments)
