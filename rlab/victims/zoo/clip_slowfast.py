"""SlowFast: few frames through a wide path, all of them through a narrow one (Feichtenhofer et al. 2019,
https://arxiv.org/abs/1812.03982)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlab.errors import InputError

TIMES = {"slow": (1, 1, 3, 3), "fast": (3, 3, 3, 3)}  # kernels along time of the four stages
STEM_TIMES = {"slow": 1, "fast": 5}


class Bottleneck(nn.Module):
    """time x 1 x 1, 1 x 3 x 3, 1 x 1 x 1 beside a shortcut: (b, inner, t, h, w) -> (b, 4 * width, t, h', w')."""

    def __init__(self, inner: int, width: int, stride: int, time: int) -> None:
        super().__init__()
        outer = 4 * width
        self.conv1 = nn.Conv3d(inner, width, (time, 1, 1), padding=(time // 2, 0, 0), bias=False)
        self.conv2 = nn.Conv3d(width, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
        self.conv3 = nn.Conv3d(width, outer, 1, bias=False)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm3d(width), nn.BatchNorm3d(width), nn.BatchNorm3d(outer)
        self.downsample: nn.Module | None = None
        if stride != 1 or inner != outer:
            conv = nn.Conv3d(inner, outer, 1, (1, stride, stride), bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm3d(outer))

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn1(self.conv1(x)).relu()
        h = self.bn3(self.conv3(self.bn2(self.conv2(h)).relu()))
        return (h + (x if self.downsample is None else self.downsample(x))).relu()


class Pathway(nn.Module):
    """A stem and four stages; `extra` channels come from the other path before each stage, as multiples of the width."""

    def __init__(self, kind: str, width: int, blocks: Sequence[int], extra: Sequence[int]) -> None:
        super().__init__()
        time = STEM_TIMES[kind]
        self.conv1 = nn.Conv3d(3, width, (time, 7, 7), (1, 2, 2), (time // 2, 3, 3), bias=False)
        self.bn1 = nn.BatchNorm3d(width)
        inner = width
        for stage, count in enumerate(blocks):
            outer = width * 2**stage
            first = Bottleneck(inner + extra[stage], outer, 2 if stage else 1, TIMES[kind][stage])
            rest = [Bottleneck(4 * outer, outer, 1, TIMES[kind][stage]) for _ in range(count - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
            inner = 4 * outer
        self.width_out = inner

    def stem(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool3d(self.bn1(self.conv1(x)).relu(), (1, 3, 3), (1, 2, 2), (0, 1, 1))

    def stage(self, number: int, x: Tensor) -> Tensor:
        done: Tensor = self.get_submodule(f"layer{number}")(x)
        return done


class Lateral(nn.Module):
    """From the fast path to the slow one: (b, c, t, h, w) -> (b, 2 c, t / alpha, h, w)."""

    def __init__(self, channels: int, alpha: int, kernel: int, norm: bool) -> None:
        super().__init__()
        padding = (kernel // 2, 0, 0)
        self.conv = nn.Conv3d(channels, 2 * channels, (kernel, 1, 1), (alpha, 1, 1), padding, bias=False)
        self.bn = nn.BatchNorm3d(2 * channels) if norm else None

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.conv(x)
        return h if self.bn is None else self.bn(h).relu()


class SlowFast(nn.Module):
    """(b, 3, t, h, w) -> (b, classes), t a multiple of `alpha`: every alpha-th frame is slow, all are fast."""

    def __init__(
        self,
        classes: int,
        blocks: Sequence[int],
        width: int = 64,
        narrow: int = 8,
        alpha: int = 8,
        fusion: int = 5,
        lateral_norm: bool = True,
    ) -> None:
        """`narrow`: how many times thinner the fast path is; `fusion`: the lateral convolutions' kernel along time."""
        super().__init__()
        thin = width // narrow
        feeding = [
            thin,
            *(4 * thin * 2**stage for stage in range(len(blocks) - 1)),
        ]  # the fast path's widths that are fed
        self.slow = Pathway("slow", width, blocks, [2 * channels for channels in feeding])
        self.fast = Pathway("fast", thin, blocks, [0] * len(blocks))
        self.lateral = nn.ModuleList(Lateral(channels, alpha, fusion, lateral_norm) for channels in feeding)
        self.fc = nn.Linear(self.slow.width_out + self.fast.width_out, classes)
        self.drop = nn.Dropout(0.5)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] % self.alpha:
            raise InputError(f"expected a multiple of {self.alpha} frames for this SlowFast, got {x.shape[2]}")
        slow, fast = self.slow.stem(x[:, :, :: self.alpha]), self.fast.stem(x)
        for number, lateral in enumerate(self.lateral, 1):
            slow = self.slow.stage(number, torch.cat([slow, lateral(fast)], 1))
            fast = self.fast.stage(number, fast)
        pooled = torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1)
        scores: Tensor = self.fc(self.drop(pooled))
        return scores


def slowfast(classes: int = 400, fusion: int = 5, lateral_norm: bool = True) -> nn.Module:
    """SlowFast 4 x 16 on ResNet-50, 34 million parameters: 32 frames in, of which 4 are slow.

    `lateral_norm=False` is as mmaction2 has it; `fusion=7` is for the 8 x 8 weights."""
    return SlowFast(classes, (3, 4, 6, 3), fusion=fusion, lateral_norm=lateral_norm)
