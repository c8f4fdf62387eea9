"""Linear models whose boundary is known, and attacks from papers on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers.contender import PeerContender, parse_peer
from rlab.comparison import AttackOutcome
from rlab.data.batch import Batch
from rlab.runs.options import AttackOptions
from rlab.victims.torch_module import TorchVictim

SHAPE = (3, 8, 8)


class Linear(nn.Module):
    """Two classes with the margin <w, x - 1/2> + margin, |w| = 4; counts its rows."""

    def __init__(self, margin: float, seed: int = 0) -> None:
        super().__init__()
        weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(4 * weight / weight.norm())
        self.margin, self.seen = margin, 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        ahead = ((x - 0.5) * self.weight).flatten(1).sum(1) + self.margin
        return torch.stack([ahead, torch.zeros_like(ahead)], 1)


def greys(n: int = 3) -> Batch:
    """Images near one half, so that small steps stay inside the bounds; all are of class 0."""
    draw = torch.Generator().manual_seed(1)
    return Batch(0.5 + 0.001 * torch.rand(n, *SHAPE, generator=draw), torch.zeros(n, dtype=torch.int64))


def contender(spec: str, *surrogates: nn.Module, reduce: bool = False, **options: Any) -> PeerContender:
    declared = AttackOptions.model_validate({"surrogate": surrogates or None, **options})
    return parse_peer(spec, declared, reduce)


def attack(
    spec: str, victim: nn.Module, *surrogates: nn.Module, budget: int = 40, n: int = 3, **more: Any
) -> AttackOutcome:
    """`budget` is the attack's own, beside the clean prediction and the verification."""
    return contender(spec, *surrogates, **more)(
        TorchVictim(victim, outputs="logits"), greys(n), budget + 2, more.get("seed", 0)
    )


def boundaries(model: Linear, n: int = 3) -> list[float]:
    """The smallest L2 that flips each image."""
    ahead = model(greys(n).x)
    least: list[float] = ((ahead[:, 0] - ahead[:, 1]) / 4).tolist()
    return least
