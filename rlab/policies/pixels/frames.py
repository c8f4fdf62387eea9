"""Which frames of a clip count: many video networks see only every second, fourth or eighth frame, or see those best.

If a network sees half of the frames, changing only these flips it at 0.7 times the distance. So the search tries one half of the
frames and, where that gains nothing, perhaps the other; then the halves of the better half, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.batched import Rows

WAITING, SETTLED = -1, 2  # `tried` before the first trial and after the last
BETTER = 1.1  # how many times as much as all frames a half has to gain
OTHER = 0.6  # the other half is not tried if the first gains more than this share: it could hardly be better


@dataclass(frozen=True)
class Frames(Rows):
    """Every `stride`-th frame from `phase`, and the half of them that is tried next."""

    stride: Tensor  # (n,)
    phase: Tensor  # (n,)
    tried: Tensor  # (n,) how many halves of these frames were tried, or WAITING
    gain: Tensor  # (n,) the drop of the margin for a unit of L2 when these frames changed

    @classmethod
    def every(cls, margin: Tensor) -> Frames:
        """All frames, for as many rows as there are margins (n,)."""
        one = torch.ones_like(margin, dtype=torch.int64)
        return cls(stride=one, phase=0 * one, tried=WAITING * one, gain=torch.zeros_like(margin))

    @property
    def trial(self) -> Tensor:
        """(n,) bool: whether the next query tries a half."""
        return (self.tried == 0) | (self.tried == 1)

    def mask(self, count: int) -> Tensor:
        """(n, count): 1 for the frames that the next query changes, and 0 for others."""
        stride = torch.where(self.trial, 2 * self.stride, self.stride)
        phase = torch.where(self.tried == 1, self.phase + self.stride, self.phase)
        return (torch.arange(count, device=stride.device) % stride[:, None] == phase[:, None]).float()

    def better(self, gain: Tensor) -> Tensor:
        """(n,) bool: whether the last query tried a half and it gains more than all of these frames; its gain is (n,)."""
        return self.trial & (gain > BETTER * self.gain)

    def after(self, gain: Tensor, ready: Tensor, count: int) -> Frames:
        """With the gain (n,) of the last query; the first trial comes where `ready` (n,) bool. At least two of the `count`
        frames are left."""
        better = self.better(gain)
        worse = self.trial & ~better
        stride = torch.where(better, 2 * self.stride, self.stride)
        tried = torch.where(self.trial | ready, self.tried + 1, self.tried).clamp(max=SETTLED)
        tried = torch.where(better, 0, tried)
        done = (worse & (gain > OTHER * self.gain)) | (4 * stride > count)
        return Frames(
            stride=stride,
            phase=torch.where(better & (self.tried == 1), self.phase + self.stride, self.phase),
            tried=torch.where(done, SETTLED, tried),
            gain=torch.where(worse, self.gain, gain),
        )
