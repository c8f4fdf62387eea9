"""What the training commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR


def step_through(net: nn.Module, optimizer: Optimizer, losses: Iterable[Tensor], after: Callable[[], None]) -> None:
    """Train by one step for each loss, which is made when it is its turn; `after` follows each step."""
    net.train()
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after()
    net.eval()


def one_cycle(optimizer: Optimizer, peak: float, steps: int, rise: float = 0.3) -> Callable[[], None]:
    """The learning rate rises to the peak in the first steps and falls in the others."""
    return OneCycleLR(optimizer, peak, total_steps=steps, pct_start=rise).step


def normalised(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(b, c, ...) -> the same."""
    shift, scale = (torch.tensor(v, device=x.device).view(-1, *(1,) * (x.dim() - 2)) for v in (mean, std))
    return (x - shift) / scale


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor, prepare: Callable[[Tensor], Tensor], rows: int) -> float:
    """The share of samples that the network classifies correctly."""
    right = [net(prepare(part)).argmax(1) == labels for part, labels in zip(x.split(rows), y.split(rows), strict=True)]
    return float(torch.cat(right).float().mean())
