"""How many threads torch uses on a CPU: as many as the user says, or one for small models, which several threads slow down.

The number decides the last bits of an answer, so a run keeps it. It depends on the model and the data, never on the clock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rlab.data.batch import Samples
from rlab.runs.executor import Executor
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

SMALL = 2**26  # parameters times values of an input; below this, threads wait for each other longer than they compute


def fitting_threads(victim: Victim, samples: Samples) -> int:
    """One thread if the model is small, otherwise as many as are set."""
    if not isinstance(victim, TorchVictim) or victim.device.type != "cpu":
        return torch.get_num_threads()
    work = sum(p.numel() for p in victim.model.parameters()) * torch.Size(samples.shape).numel()
    return 1 if work < SMALL else torch.get_num_threads()


def chosen_threads(own: int | None, begun: str | None, victim: Victim, samples: Samples, executor: Executor) -> int:
    """The user's `own` number of threads, or else that with which the run was `begun`, or else what fits the model."""
    if own is None and os.environ.get("OMP_NUM_THREADS"):
        own = torch.get_num_threads()
    return own or int(begun or 0) or min(executor.most_threads, fitting_threads(victim, samples))


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
