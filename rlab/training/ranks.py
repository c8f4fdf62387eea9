"""Several processes that train one network, started by torchrun: each takes its share of every batch, and gradients are
averaged, so that a step is that of the whole batch.

    torchrun --nproc-per-node 4 -m rlab train agents/photos.yaml --out OUT
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed, nn

from rlab.errors import OptionError

_LONGEST = timedelta(hours=2)  # how long others wait while the first process validates
Held = TypeVar("Held")


@dataclass(frozen=True)
class Ranks:
    """This process among those of a training; only the first opens the folder, validates and writes."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def alone(self, what: AbstractContextManager[Held]) -> AbstractContextManager[Held | None]:
        """A context for the first process; None for the others."""
        return what if self.first else nullcontext()

    def share(self, rows: int) -> slice:
        """This process's part of a batch of `rows`."""
        if rows % self.count:
            raise OptionError(f"a batch of {rows} cannot be divided among {self.count} processes: use a multiple")
        each = rows // self.count
        return slice(self.rank * each, (self.rank + 1) * each)

    def same(self, value: float, device: torch.device | str) -> float:
        """The value of the first process, sent as a tensor on this device."""
        if self.count == 1:
            return value
        held = torch.tensor(value, dtype=torch.float64, device=device)
        distributed.broadcast(held, 0)
        return float(held)

    def align(self, network: nn.Module) -> None:
        """Give the network the weights of the first process."""
        for weights in network.state_dict().values() if self.count > 1 else ():
            distributed.broadcast(weights, 0)

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients in place, with one message for all of them."""
        given = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.count > 1 and given:
            flat = torch.cat([gradient.flatten() for gradient in given])
            distributed.all_reduce(flat)
            for gradient, mean in zip(
                given, flat.div_(self.count).split([each.numel() for each in given]), strict=True
            ):
                gradient.copy_(mean.view_as(gradient))


ALONE = Ranks()


def started() -> Ranks:
    """As torchrun started this process; alone where it did not."""
    return Ranks(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


@contextmanager
def join(device: str) -> Iterator[Ranks]:
    """Join the processes that torchrun started, each on its own GPU if the device is cuda; else run alone."""
    ranks = started()
    if ranks.count == 1:
        yield ALONE
        return
    place, own = torch.device(device), int(os.environ.get("LOCAL_RANK", 0))
    if place.type == "cuda":
        if place.index is not None:
            raise OptionError(f"torchrun gives each process its own GPU, got the device {device!r}: use cuda")
        if own >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise OptionError(f"torchrun started more processes than there are GPUs: --nproc-per-node {count}")
        torch.cuda.set_device(own)
    distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_LONGEST)
    try:
        yield ranks
    finally:
        distributed.destroy_process_group()
