"""Work for several at once: each loads the model by its name, and gets its tasks from the process that owns what they make.

Workers are processes on this machine (`rlab.runs.pool`) or actors of a Ray cluster (`rlab.runs.cluster`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.data.batch import Batch, Samples
from rlab.data.source import Loss, read_ahead
from rlab.errors import InputError
from rlab.filters import check_palette
from rlab.progress import Progress
from rlab.results.kept import Keep
from rlab.results.result import AttackResult
from rlab.runs.attack import SentChunk, attack_chunk
from rlab.runs.cluster import Need, hand_out_on_ray
from rlab.runs.fingerprint import model_fingerprint
from rlab.runs.options import AttackOptions
from rlab.runs.pool import Agree, HandOut, Start, Work, hand_out
from rlab.runs.sharing import WorkerOptions
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

MakeWork = Callable[..., Work]  # of a victim and further arguments


def place(options: WorkerOptions, model: ModelOptions) -> tuple[ModelOptions, ModelOptions]:
    """The model with its device, and as the process that hands out the work loads it: a cluster's GPUs are not here."""
    if options.devices and model.device is not None:
        raise InputError("got both a device and devices: leave out one of the two")
    if options.devices:
        model = model.model_copy(update={"device": options.devices[0]})
    return model, model.model_copy(update={"device": None}) if options.cluster else model


@dataclass(frozen=True)
class Crew:
    """Several workers with the same model as this process has."""

    options: WorkerOptions
    model: ModelOptions
    bounds: tuple[float, float]
    fingerprint: str

    @classmethod
    def of(cls, options: WorkerOptions, model: ModelOptions, victim: Victim) -> Crew | None:
        """None where this process does the work itself; `victim` is the model as it is loaded here, see `place`."""
        if not options.shared:
            return None
        if isinstance(victim, HttpVictim):
            raise InputError(
                "a model behind an address is asked by one process, which keeps its rate, with many requests at once: leave out "
                "the workers, and raise -M concurrency=32 where the model bears more"
            )
        return cls(options, model, victim.bounds, model_fingerprint(model.name, victim, model.plain()))

    @property
    def on_gpu(self) -> bool:
        return (self.model.device or "cpu").startswith("cuda")

    def hand_out(self, make: MakeWork, *arguments: Any) -> HandOut:
        """Who does the work that `make(victim, *arguments)` gives; both go to another process, so by names and plain values."""
        own = os.environ.get("OMP_NUM_THREADS")  # who names it means it
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

    def paced(self, attack: Attack) -> Attack:
        """With chunks as they suit the workers' device, which this process may not have."""
        return replace(attack, paced=attack.paced and not self.on_gpu)

    def attack_parts(self, options: AttackOptions, labels: Tensor) -> HandOut:
        """For `run_attack`; `labels` are those of all chunks."""
        return self.hand_out(_sending if self.options.cluster else _writing, options, labels)

    def attack(
        self, options: AttackOptions, attack: Attack, batch: Samples, progress: Progress
    ) -> tuple[AttackResult, int]:
        """As `attack` on the samples, and how many rows reached the workers' models; `options` build that attack."""
        check_palette(attack.palette, batch[:4].x, batch.bounds)
        chunks = {f"chunk-{rows.start:08d}": rows for rows in attack.chunks(len(batch))}
        made, asked, lost = dict[str, AttackResult](), 0, list[Loss]()
        with read_ahead(batch, list(chunks.values())) as read:

            def task(rows: slice) -> tuple[Batch | None, int]:
                chunk, losses = read(rows)
                lost.extend(losses)
                return chunk, rows.start

            tasks = {key: partial(task, rows) for key, rows in chunks.items()}
            with closing(self.hand_out(_attacking, options, batch.y)(tasks, lambda key: None)) as parts:
                for key, (part, rows) in parts:
                    if part is not None:
                        made[key], asked = part, asked + rows
                        progress(part)
        if not made:
            raise InputError(f"none of {len(batch)} samples can be read, first {lost[0][0]!r} ({lost[0][1]})")
        return AttackResult.join([made[key] for key in chunks if key in made]), asked


def _start(
    model: ModelOptions,
    bounds: tuple[float, float],
    fingerprint: str,
    threads: int,
    make: MakeWork,
    arguments: tuple[Any, ...],
) -> Work:
    torch.set_num_threads(threads)
    victim = load_model(model, bounds)
    if model_fingerprint(model.name, victim, model.plain()) != fingerprint:
        raise InputError(
            f"its {model.name} is not the model that the command has: the same weights are needed everywhere, and chance "
            "in a function that makes a model needs a fixed seed"
        )
    return make(victim, *arguments)


def _writing(victim: Victim, options: AttackOptions, labels: Tensor) -> Work:
    attack = None

    def work(task: tuple[Batch | None, int, Path, Keep], agree: Agree) -> pa.Table:
        nonlocal attack
        chunk, first, part, keep = task
        if chunk is None:  # nothing of it can be read
            agree()
            return pa.table({})
        attack = attack or options.build(chunk)
        return attack_chunk(attack, victim, chunk, first, labels, part, agree, keep=keep)

    return work


def _sending(victim: Victim, options: AttackOptions, labels: Tensor) -> Work:
    """The same where the folder is elsewhere: the part is written here, verified from there, and sent."""
    write = _writing(victim, options, labels)

    def work(task: tuple[Batch | None, int, Path, Keep], agree: Agree) -> SentChunk:
        chunk, first, part, keep = task
        with TemporaryDirectory() as folder:
            here = Path(folder) / part.name
            rows = write((chunk, first, here, keep), agree)
            return SentChunk(rows, b"" if chunk is None else here.read_bytes())

    return work


def _attacking(victim: Victim, options: AttackOptions, labels: Tensor) -> Work:
    """In memory; a chunk's samples step together, as in one process."""

    def work(task: tuple[Batch | None, int], agree: Agree) -> tuple[AttackResult | None, int]:
        chunk, first = task
        if chunk is None:  # nothing of it can be read
            return None, 0
        before = victim.rows.total()
        return options.build(chunk).attack_chunk(victim, chunk, first, labels), victim.rows.total() - before

    return work
