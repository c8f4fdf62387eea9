"""The Q-map: one convolutional network that values every change of every patch, for any palette, input size and rank.

    q = V + A - mean A,   A: (n, counts, f + 1, p); entry 0 restores a patch, entry i writes palette entry i there

A step may change several patches at once: plane k of `counts` holds the values of changes made `counts[k]` at a time, and
a set is worth the mean of its members. Palette entries are scored with shared weights from what they would change.
Dueling: Wang et al. 2016, https://arxiv.org/abs/1511.06581.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.agents.features import CELLS, ENTRY_MAPS, PATCH_MAPS, SCALARS, Features

_CONV: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@dataclass(frozen=True)
class QMapConfig:
    """The shape of the network."""

    rank: int
    channels: int = 3
    width: int = 64
    blocks: int = 4
    entry_width: int = 32
    counts: tuple[int, ...] = (1, 2, 4, 8)


class QMap(nn.Module):
    """Features of n states -> values (n, counts, f + 1, p)."""

    def __init__(self, config: QMapConfig) -> None:
        super().__init__()
        conv, c, w, e = _CONV[config.rank], config.channels, config.width, config.entry_width
        self.config = config
        self.look = nn.Sequential(conv(2 * c, w, 3, padding=1), nn.SiLU(), conv(w, w, CELLS, stride=CELLS))
        self.entry = nn.Sequential(conv(2 * c + ENTRY_MAPS + 1, e, 1), nn.SiLU(), conv(e, e, 1), nn.SiLU())
        self.gather = conv(2 * e + PATCH_MAPS + c, w, 1)
        self.situation = nn.Sequential(nn.Linear(SCALARS, w), nn.SiLU(), nn.Linear(w, w))
        self.blocks = nn.ModuleList(Block(conv, w) for _ in range(config.blocks))
        self.place = conv(w, e, 1)
        self.add_effect = nn.Sequential(conv(3 * e, e, 1), nn.SiLU(), conv(e, 1, 1))
        self.restore_effect = conv(w, 1, 1)
        self.add = nn.Sequential(conv(3 * e + 1, e, 1), nn.SiLU(), conv(e, len(config.counts), 1))
        self.restore = conv(w + 1, len(config.counts), 1)
        self.value = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 1))

    def forward(self, seen: Features) -> Tensor:
        return self.judge(seen)[0]

    def judge(self, seen: Features) -> tuple[Tensor, Tensor]:
        """Values (n, counts, f + 1, p), and the drop in margin foreseen for each single change (n, f + 1, p), scaled."""
        n, f = seen["entries"].shape[:2]
        slope, guess = linear_guess(seen["entries"][:, :, : self.config.channels], seen["entry_maps"])
        known = torch.cat([seen["entries"], seen["entry_maps"], guess], 2)
        entry = self.entry(known.flatten(0, 1)).unflatten(0, (n, f))
        summary = torch.cat([entry.mean(1), entry.amax(1), seen["patch_maps"], slope], 1)
        h = self.look(torch.cat([seen["before"], seen["now"]], 1)) + self.gather(summary)
        h = h + _spread(self.situation(seen["scalars"]), h)
        for block in self.blocks:
            h = block(h)
        place = self.place(h)[:, None].expand(-1, f, *(-1,) * (h.dim() - 1))
        both = torch.cat([place, entry, place * entry], 2).flatten(0, 1)
        add_effect, restore_effect = self.add_effect(both), self.restore_effect(h)
        add = self.add(torch.cat([both, add_effect], 1)).unflatten(0, (n, f)).transpose(1, 2)
        restore = self.restore(torch.cat([h, restore_effect], 1))[:, :, None]
        effect = torch.cat([restore_effect, add_effect.unflatten(0, (n, f)).squeeze(2)], 1).flatten(2).float()
        # in half precision the sum below would swallow the differences
        advantage = torch.cat([restore, add], 2).flatten(3).float()
        value = self.value(h.flatten(2).mean(2))[:, :, None, None].float()
        return value + advantage - advantage.mean((2, 3), keepdim=True), effect


def linear_guess(change: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
    """What the tries so far say of a patch if the margin were linear in its mean: a slope, and each entry's drop from it.

    change (n, f, c, *grid), maps (n, f, 3, *grid) with the drop second and the tries third -> (n, c, *grid), (n, f, 1, *grid)
    """
    drop, tried = maps[:, :, 1:2], (maps[:, :, 2:3] > 0).to(change.dtype)
    weight = (change.square().sum(2, keepdim=True) * tried).sum(1) + 0.05
    slope = (drop * change).sum(1) / weight
    return slope, (slope[:, None] * change).sum(2, keepdim=True)


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
        return h + self.near(h) + _spread(self.far(F.silu(h.flatten(2).mean(2))), h)


def _spread(vector: Tensor, like: Tensor) -> Tensor:
    return vector.view(*vector.shape, *(1,) * (like.dim() - 2))


def best_set(q: Tensor, counts: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Values (n, counts, f + 1, p), illegal ones -inf -> plane (n,), entries (n, m), patches (n, m), m = max(counts).

    Each plane's best set takes the best entry of each of its best patches; the plane whose set has the best mean is chosen.
    Places beyond the plane's count are -1.
    """
    patches, most = q.shape[-1], min(max(counts), q.shape[-1])
    value, entry = q.max(2)
    value, patch = value.topk(most, 2)
    entry = entry.gather(2, patch)
    place = torch.arange(most, device=q.device)
    size = torch.tensor([min(count, patches) for count in counts], device=q.device)
    inside = (place < size[:, None])[None] & torch.isfinite(value)
    # a plane with too few legal patches takes those there are
    mean = torch.where(inside, value, 0).sum(2) / inside.sum(2).clamp(min=1)
    plane = torch.where(inside.any(2), mean, -torch.inf).argmax(1)
    pick = plane.view(-1, 1, 1).expand(-1, 1, most)
    inside, entry, patch = (t.gather(1, pick).squeeze(1) for t in (inside, entry, patch))
    return plane, torch.where(inside, entry, -1), torch.where(inside, patch, -1)
