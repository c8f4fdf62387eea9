"""Residual networks for CIFAR-10: (b, 3, 32, 32) -> (b, classes). ResNet-18 and WRN name their weights as RobustBench does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from rlab.errors import InputError


def _convolution(inner: int, outer: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False)


class Padded(nn.Module):
    """A shortcut without parameters, "option A": subsample, pad channels with zeros."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.stride, self.extra = stride, (outer - inner) // 2

    def forward(self, x: Tensor) -> Tensor:
        short = x[..., :: self.stride, :: self.stride]
        return pad(short, (0, 0, 0, 0, self.extra, self.extra)) if self.extra else short


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, where the shape changes a padded one or a 1x1 convolution."""

    def __init__(self, inner: int, outer: int, stride: int, padded: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inner, outer, 3, stride), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = _convolution(outer, outer, 3), nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if padded:
            self.shortcut = nn.Sequential(Padded(inner, outer, stride))
        elif stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(_convolution(inner, outer, 1, stride), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(relu(self.bn1(self.conv1(x))))) + self.shortcut(x)
        return relu(out)


class ResNet(nn.Module):
    """He et al. 2016 (https://arxiv.org/abs/1512.03385) for small images: a 3x3 stem, and stages, each of half the size."""

    def __init__(self, widths: Sequence[int], blocks: int, classes: int, padded: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(3, widths[0], 3), nn.BatchNorm2d(widths[0])
        self.stages = len(widths)
        for number, (inner, outer) in enumerate(zip((widths[0], *widths), widths, strict=False), 1):
            steps = ((inner, 1 if number == 1 else 2), *((outer, 1),) * (blocks - 1))
            stage = nn.Sequential(*(BasicBlock(own, outer, stride, padded) for own, stride in steps))
            self.add_module(f"layer{number}", stage)
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        for number in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
        scores: Tensor = self.linear(x.mean((2, 3)))
        return scores


def cifar_resnet(depth: int = 20, classes: int = 10) -> nn.Module:
    """ResNet-20, -32, -44, -56, ...: three stages of (depth - 2) / 6 blocks, 16, 32 and 64 wide, as in section 4.2."""
    if depth < 8 or (depth - 2) % 6:
        raise InputError(f"expected a depth of 6 n + 2, such as 20, 32 or 56, got {depth}")
    return ResNet((16, 32, 64), (depth - 2) // 6, classes, padded=True)


def resnet18(classes: int = 10) -> nn.Module:
    """ResNet-18 for images of 32 pixels, 11.2 million parameters."""
    return ResNet((64, 128, 256, 512), 2, classes, padded=False)


class WideBlock(nn.Module):
    """A pre-activation block; a 1x1 convolution of the activated input is the shortcut where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inner), _convolution(inner, outer, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outer), _convolution(outer, outer, 3)
        self.convShortcut = None if inner == outer else _convolution(inner, outer, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = relu(self.bn1(x))
        short = x if self.convShortcut is None else self.convShortcut(active)
        out: Tensor = self.conv2(relu(self.bn2(self.conv1(active)))) + short
        return out


class WideResNet(nn.Module):
    """Wide residual network (https://arxiv.org/abs/1605.07146): three stages of `blocks`."""

    def __init__(self, blocks: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = _convolution(3, 16, 3)
        shapes = ((16, 16 * width, 1), (16 * width, 32 * width, 2), (32 * width, 64 * width, 2))
        self.block1, self.block2, self.block3 = (
            nn.Sequential(OrderedDict(layer=nn.Sequential(*(
                WideBlock(outer if i else inner, outer, 1 if i else stride) for i in range(blocks)
            ))))
            for inner, outer, stride in shapes
        )  # fmt: skip
        self.bn1, self.fc = nn.BatchNorm2d(64 * width), nn.Linear(64 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        features = relu(self.bn1(self.block3(self.block2(self.block1(self.conv1(x))))))
        scores: Tensor = self.fc(features.mean((2, 3)))
        return scores


def wide_resnet(depth: int = 40, width: int = 2, classes: int = 10) -> nn.Module:
    """WRN-`depth`-`width`: WRN-40-2 by default, 2.2 million parameters."""
    if depth < 10 or (depth - 4) % 6:
        raise InputError(f"expected a depth of 6 n + 4, such as 16, 28 or 40, got {depth}")
    return WideResNet((depth - 4) // 6, width, classes)
