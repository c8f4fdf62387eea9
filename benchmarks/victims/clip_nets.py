"""The video networks C3D, TSN, TSM and SlowFast, as published or of other widths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from rlab.errors import DataError

# Convolutions by name and multiple of the width, a pooling between stages; the first leaves time alone.
_STAGES = ((("1a", 1),), (("2a", 2),), (("3a", 4), ("3b", 4)), (("4a", 8), ("4b", 8)), (("5a", 8), ("5b", 8)))
RESNET_50 = (3, 4, 6, 3)
TIMES = {"slow": (1, 1, 3, 3), "fast": (3, 3, 3, 3)}  # kernels along time of the four stages
STEM_TIMES = {"slow": 1, "fast": 5}
SHIFTED = 8  # one channel in eight comes from the next frame, one in eight from the previous
TOGETHER = 64  # frames in a first convolution, whose working memory is many times a frame's
_PUBLISHED = 8192  # values before fc6 for 16 x 112 x 112 at width 64


class C3D(nn.Module):
    """Tran et al. 2015 (https://arxiv.org/abs/1412.0767), a plain stack of 3x3x3 convolutions and poolings.

    (b, 3, t, h, w) -> (b, classes). As published, `width` 64 and `hidden` 4096, it takes 16 x 112 x 112 alone. With batch
    norm behind every convolution and a global average before the first linear layer it is `compact`: it trains from few
    clips, and takes any size.
    """

    def __init__(self, classes: int, width: int = 64, hidden: int = 4096, compact: bool = False) -> None:
        super().__init__()
        self.compact = compact
        layers = [layer for stage in _STAGES for layer in stage]
        sizes = [3, *(width * times for _, times in layers)]
        for (name, _), (inner, outer) in zip(layers, pairwise(sizes), strict=True):
            self.add_module(f"conv{name}", nn.Conv3d(inner, outer, 3, padding=1, bias=not compact))
            if compact:
                self.add_module(f"bn{name}", nn.BatchNorm3d(outer))
        self.fc6 = nn.Linear(sizes[-1] if compact else _PUBLISHED * width // 64, hidden)
        self.fc7 = nn.Linear(hidden, hidden)
        self.fc8 = nn.Linear(hidden, classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self._features(x)
        for layer in (self.fc6, self.fc7):
            h = self.drop(layer(h).relu())
        scores: Tensor = self.fc8(h)
        return scores

    def _features(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu":  # whose convolutions are twice as fast with channels last
            x = x.contiguous(memory_format=torch.channels_last_3d)
        for number, stage in enumerate(_STAGES):
            x = nn.functional.max_pool3d(x, (1 if number == 1 else 2, 2, 2)) if number else x
            for name, _ in stage:
                x = self.get_submodule(f"conv{name}")(x)
                x = self.get_submodule(f"bn{name}")(x).relu() if self.compact else x.relu()
        return x.mean((2, 3, 4)) if self.compact else nn.functional.max_pool3d(x, 2, padding=(0, 1, 1)).flatten(1)


def c3d(classes: int = 487) -> nn.Module:
    """As published, 78 million parameters: (b, 3, 16, 112, 112) -> (b, classes)."""
    return C3D(classes)


def shift(x: Tensor, frames: int) -> Tensor:
    """(b * t, c, h, w) -> the same: the first eighth of the channels one frame back, the second one frame on."""
    clip = x.unflatten(0, (-1, frames))
    fold = x.shape[1] // SHIFTED
    edge = torch.zeros_like(clip[:, :1])
    back = torch.cat([clip[:, 1:, :fold], edge[:, :, :fold]], 1)
    on = torch.cat([edge[:, :, fold : 2 * fold], clip[:, :-1, fold : 2 * fold]], 1)
    return torch.cat([back, on, clip[:, :, 2 * fold :]], 2).flatten(0, 1)


class Residual(nn.Module):
    """A basic (two 3x3) or bottleneck (1x1, 3x3, 1x1) block of a ResNet; `shifts` mixes frames before its convolutions."""

    def __init__(self, inner: int, width: int, stride: int, bottleneck: bool, shifts: bool) -> None:
        super().__init__()
        outer = 4 * width if bottleneck else width
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        sizes = (inner, *(width,) * (len(kernels) - 1), outer)
        strided = 1 if bottleneck else 0  # where the stride is, as torchvision has it
        for i, kernel in enumerate(kernels):
            step = stride if i == strided else 1
            conv = nn.Conv2d(sizes[i], sizes[i + 1], kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{i + 1}", conv)
            self.add_module(f"bn{i + 1}", nn.BatchNorm2d(sizes[i + 1]))
        self.downsample: nn.Module | None = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
        self.depth, self.shifts = len(kernels), shifts

    def forward(self, x: Tensor, frames: int) -> Tensor:
        h = shift(x, frames) if self.shifts else x
        for i in range(1, self.depth + 1):
            h = self.get_submodule(f"bn{i}")(self.get_submodule(f"conv{i}")(h))
            h = h.relu() if i < self.depth else h
        return (h + (x if self.downsample is None else self.downsample(x))).relu()


class FrameNet(nn.Module):
    """One ResNet for every frame, names as torchvision has them, and the mean of the frames' scores.

    (b, 3, t, h, w) -> (b, classes), any t. TSN (https://arxiv.org/abs/1608.00859), or with `shifts`, which moves channels
    between frames, TSM (https://arxiv.org/abs/1811.08383)."""

    def __init__(
        self, classes: int, blocks: Sequence[int], width: int = 64, bottleneck: bool = True, shifts: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages, inner = len(blocks), width
        for stage, count in enumerate(blocks):
            outer = width * 2**stage
            first = Residual(inner, outer, 2 if stage else 1, bottleneck, shifts)
            inner = outer * (4 if bottleneck else 1)
            rest = [Residual(inner, outer, 1, bottleneck, shifts) for _ in range(count - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(first, *rest))
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(inner, classes)

    def _stem(self, pictures: Tensor) -> Tensor:
        return nn.functional.max_pool2d(self.bn1(self.conv1(pictures)).relu(), 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        frames = x.shape[2]
        pictures = x.transpose(1, 2).flatten(0, 1)
        h = torch.cat([self._stem(part) for part in pictures.split(len(pictures) if self.training else TOGETHER)])
        for stage in range(1, self.stages + 1):
            for block in self.get_submodule(f"layer{stage}").children():
                h = block(h, frames)
        scores: Tensor = self.fc(self.drop(h.mean((2, 3))))
        return scores.unflatten(0, (-1, frames)).mean(1)


def tsn(classes: int = 400) -> nn.Module:
    """TSN on ResNet-50, 24 million parameters; it was published for 3 to 8 frames of 224 x 224."""
    return FrameNet(classes, RESNET_50)


def tsm(classes: int = 400) -> nn.Module:
    """TSM on ResNet-50, the same parameters; it was published for 8 or 16 frames of 224 x 224."""
    return FrameNet(classes, RESNET_50, shifts=True)


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
    """Few frames through a wide path, all of them through a narrow one (https://arxiv.org/abs/1812.03982).

    (b, 3, t, h, w) -> (b, classes), t a multiple of `alpha`: every alpha-th frame is slow, all are fast."""

    def __init__(
        self, classes: int, blocks: Sequence[int], width: int = 64, narrow: int = 8, alpha: int = 8, fusion: int = 5,
        lateral_norm: bool = True,
    ) -> None:  # fmt: skip
        """`narrow`: how many times thinner the fast path is; `fusion`: the lateral convolutions' kernel along time."""
        super().__init__()
        thin = width // narrow
        # The fast path's widths that are fed.
        feeding = [thin, *(4 * thin * 2**stage for stage in range(len(blocks) - 1))]
        self.slow = Pathway("slow", width, blocks, [2 * channels for channels in feeding])
        self.fast = Pathway("fast", thin, blocks, [0] * len(blocks))
        self.lateral = nn.ModuleList(Lateral(channels, alpha, fusion, lateral_norm) for channels in feeding)
        self.fc = nn.Linear(self.slow.width_out + self.fast.width_out, classes)
        self.drop = nn.Dropout(0.5)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] % self.alpha:
            raise DataError(f"expected a multiple of {self.alpha} frames for this SlowFast, got {x.shape[2]}")
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
    return SlowFast(classes, RESNET_50, fusion=fusion, lateral_norm=lateral_norm)
