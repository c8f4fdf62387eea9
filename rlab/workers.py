"""An attack by several processes on one machine: each loads the model by its name and attacks chunks that are handed to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.core.kept import Keep
from rlab.data.batch import Batch, Samples
from rlab.errors import InputError
from rlab.options import RunOptions
from rlab.runs.attack import attack_chunk
from rlab.runs.pool import Agree, Start, Work
from rlab.victims.resolve import load_model


def shared_out(options: RunOptions, batch: Samples, workers: int, devices: Sequence[str] = ()) -> list[Start]:
    """So many workers, each on a device of its own, or with its share of the processor's threads."""
    if options.model.name.startswith(("http://", "https://")):
        raise InputError(
            "a model behind an address is asked by one process, which keeps its rate, with many requests at once: leave out "
            "the workers, and raise -M concurrency=32 where the model bears more"
        )
    own = os.environ.get("OMP_NUM_THREADS")  # who names it means it
    threads = torch.get_num_threads() if own else max(1, torch.get_num_threads() // workers)
    starts = []
    for number in range(workers):
        device = devices[number % len(devices)] if devices else options.model.device
        model = options.model.model_copy(update={"device": device})
        name = f"worker {number + 1} of {workers}" + (f" on {device}" if device else "")
        arguments = (options.model_copy(update={"model": model}), batch.y, batch.bounds, threads)
        starts.append(Start(name, _start, arguments))
    return starts


def _start(options: RunOptions, labels: Tensor, bounds: tuple[float, float], threads: int) -> Work:
    torch.set_num_threads(threads)
    victim, attack = load_model(options.model, bounds), None

    def work(task: tuple[Batch | None, int, Path, Keep], agree: Agree) -> list[dict[str, Any]]:
        nonlocal attack
        chunk, first, part, keep = task
        if chunk is None:  # nothing of it can be read
            agree()
            return []
        attack = attack or options.build(chunk)
        return attack_chunk(attack, victim, chunk, first, labels, part, agree, keep=keep)

    return work


def parse_devices(text: str | None, device: str | None) -> list[str]:
    """'cuda:0,cuda:1' -> names."""
    devices = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not devices:
        raise InputError(f"expected devices such as cuda:0,cuda:1, got {text!r}")
    if devices and device is not None:
        raise InputError("got both a device and devices: leave out one of the two")
    return devices
