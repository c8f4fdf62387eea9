"""TSN and TSM: one ResNet for every frame, the mean of the frames' scores; TSM also moves channels between frames.

Wang et al. 2016, https://arxiv.org/abs/1608.00859; Lin et al. 2019, https://arxiv.org/abs/1811.08383.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SHIFTED = 8  # one channel in so many comes from the next frame, as many from the one before


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
    """A ResNet over frames, names as torchvision has them: (b, 3, t, h, w) -> (b, classes), any t."""

    def __init__(
        self, classes: int, blocks: Sequence[int], width: int = 64, bottleneck: bool = True, shifts: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inner = width
        for stage, count in enumerate(blocks):
            outer = width * 2**stage
            made: list[nn.Module] = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                made.append(Residual(inner, outer, stride, bottleneck, shifts))
                inner = outer * (4 if bottleneck else 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.stages = len(blocks)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        frames = x.shape[2]
        h = self.bn1(self.conv1(x.transpose(1, 2).flatten(0, 1))).relu()
        h = nn.functional.max_pool2d(h, 3, 2, 1)
        for stage in range(1, self.stages + 1):
            for block in self.get_submodule(f"layer{stage}").children():
                h = block(h, frames)
        scores: Tensor = self.fc(self.drop(h.mean((2, 3))))
        return scores.unflatten(0, (-1, frames)).mean(1)


RESNET_50 = (3, 4, 6, 3)


def tsn(classes: int = 400) -> nn.Module:
    """TSN on ResNet-50, 24 million parameters; it was published for 3 to 8 frames of 224 x 224."""
    return FrameNet(classes, RESNET_50)


def tsm(classes: int = 400) -> nn.Module:
    """TSM on ResNet-50, the same parameters; it was published for 8 or 16 frames of 224 x 224."""
    return FrameNet(classes, RESNET_50, shifts=True)
