"""The pieces the agent's networks are built of, for any rank."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

CONV: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Block(nn.Module):
    """Residual, with a term from the whole grid so that far patches know of each other."""

    def __init__(self, conv: Any, width: int) -> None:
        super().__init__()
        self.near = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), conv(width, width, 3, padding=1),
            nn.GroupNorm(8, width), nn.SiLU(), conv(width, width, 3, padding=1),
        )  # fmt: skip
        self.far = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.near(h) + spread(self.far(F.silu(h.flatten(2).mean(2))), h)


def spread(vector: Tensor, like: Tensor) -> Tensor:
    """(n, w) -> (n, w, 1, ...) with as many axes as `like`."""
    return vector.view(*vector.shape, *(1,) * (like.dim() - 2))
