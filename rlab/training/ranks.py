"""Several processes that train one network, as torchrun starts them: each takes its share of every batch, and gradients are
averaged, so that one step is that of the whole batch.

    torchrun --nproc-per-node 4 -m rlab train agents/photos.yaml --out OUT
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed, nn

from rlab.errors import InputError

_LONGEST = timedelta(hours=2)  # that others wait for the first, which alone validates
Held = TypeVar("Held")


@dataclass(frozen=True)
class Ranks:
    """This process among those of a training; the first alone opens the folder, validates and writes."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def alone(self, what: AbstractContextManager[Held]) -> AbstractContextManager[Held | None]:
        """What only the first opens; None for the others."""
        return what if self.first else nullcontext()

    def split(self, number: int, what: str) -> int:
        """The share of each."""
        if number % self.count:
            raise InputError(f"{what} {number} cannot be shared out to {self.count} processes: take a multiple")
        return number // self.count

    def share(self, rows: int) -> slice:
        """The rows that are this process's, of those that all drew alike."""
        each = self.split(rows, "a batch of")
        return slice(self.rank * each, (self.rank + 1) * each)

    def agree(self, value: float) -> float:
        """The first's."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=_device())
        distributed.broadcast(shared, 0)
        return float(shared)

    def same(self, value: Any) -> Any:
        """The first's, whatever it is."""
        whole = [value]
        if self.count > 1:
            distributed.broadcast_object_list(whole, 0)
        return whole[0]

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients, in place; one message for all of them."""
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
    """With the others that torchrun started, each on a GPU of its own where the device is cuda; else alone."""
    ranks = started()
    if ranks.count == 1:
        yield ALONE
        return
    place, own = torch.device(device), int(os.environ.get("LOCAL_RANK", 0))
    if place.type == "cuda":
        if place.index is not None:
            raise InputError(f"torchrun gives each process a GPU of its own, got the device {device!r}: say cuda")
        if own >= torch.cuda.device_count():
            raise InputError(
                f"torchrun started more processes than there are GPUs: --nproc-per-node {torch.cuda.device_count()}"
            )
        torch.cuda.set_device(own)
    distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_LONGEST)
    try:
        yield ranks
    finally:
        distributed.destroy_process_group()


def _device() -> torch.device:
    """Where messages lie."""
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
