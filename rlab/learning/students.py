"""Students: small networks of well-known kinds for inputs of every rank, from one definition.

    (n, c, *size) in the data's values -> logits (n, k)

A strided stem brings a photo, a long signal or a clip down to the size of a small image; three stages follow, each with half the
resolution and twice the width of the one before, then the mean over all positions and a linear layer. The kinds differ in
their stages, so that a set of students disagrees where little is known.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from rlab.data.kinds import Kind, kind_of
from rlab.priors.trained import CONV

Architecture = Literal["resnet", "plain", "inverted", "dilated", "frames", "factored"]
ARCHITECTURES: dict[Kind, tuple[Architecture, ...]] = {
    "signal": ("resnet", "plain", "dilated"),
    "image": ("resnet", "plain", "inverted"),
    "video": ("frames", "factored", "plain"),
}
WIDTHS: dict[Kind, int] = {"signal": 24, "image": 24, "video": 12}
WIDER: dict[Kind, int] = WIDTHS | {"image": 48}  # on a GPU
SIDES: dict[Kind, int] = {"signal": 128, "image": 32, "video": 16}  # the longest after the stem; frames are not reduced
STAGES = 3
MOST_WIDTH, MOST_SIDE, MOST_CLASSES = 512, 2**20, 2**20  # of a network that a header describes
NORM: dict[int, type[nn.Module]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class StudentShape(BaseModel):
    """The arguments of a student, as the header of its file holds them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    architecture: Architecture
    width: int = Field(ge=1, le=MOST_WIDTH)
    side: int = Field(ge=1, le=MOST_SIDE)  # the longest after the stem


def shapes_for(size: tuple[int, ...], device: torch.device) -> tuple[StudentShape, ...]:
    """The students for inputs of this size, which learn on this device."""
    kind = kind_of(size)
    width = (WIDTHS if device.type == "cpu" else WIDER)[kind]
    return tuple(StudentShape(architecture=name, width=width, side=SIDES[kind]) for name in ARCHITECTURES[kind])


class Student(nn.Module):
    """`shape` is that of one input, (c, *size); inputs are standardised by the buffers `mean` and `std`."""

    mean: Tensor  # (c, 1, ...)
    std: Tensor

    def __init__(self, about: StudentShape, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.about, rank, width = about, len(shape) - 1, about.width
        stage = _STAGES[about.architecture]
        each = (shape[0], *(1,) * rank)
        self.register_buffer("mean", torch.zeros(each))
        self.register_buffer("std", torch.ones(each))
        self.stem = _stem(shape, about)
        widths = [width * 2**at for at in range(STAGES)]
        first = 2 if about.architecture == "inverted" else 1  # depthwise convolutions are slow
        strides = [first, *(2,) * (STAGES - 1)]
        plan = zip([width, *widths], widths, strides, strict=False)
        self.stages = nn.Sequential(*(stage(rank, before, after, stride) for before, after, stride in plan))
        self.last = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stages(self.stem((x - self.mean) / self.std))
        logits: Tensor = self.last(h.flatten(2).mean(2))
        return logits


def _conv(
    rank: int, before: int, after: int, kernel: int | tuple[int, ...] = 3, stride: int | tuple[int, ...] = 1, *,
    groups: int = 1, dilation: int = 1, act: bool = True,
) -> nn.Sequential:  # fmt: skip
    """Convolution, normalisation, activation; sizes are kept but for the stride."""
    sides = (kernel,) * rank if isinstance(kernel, int) else kernel
    padding = tuple(dilation * (side // 2) for side in sides)
    conv = CONV[rank](before, after, sides, stride, padding, dilation=dilation, groups=groups, bias=False)
    return nn.Sequential(conv, NORM[rank](after), *([nn.ReLU()] if act else []))


def _stem(shape: tuple[int, ...], about: StudentShape) -> nn.Module:
    """Reduces each side but frames to at most `about.side`; the kind "frames" looks at one frame at a time."""
    kind, size, flat = kind_of(shape[1:]), shape[1:], about.architecture == "frames"
    reduced = [2 ** max(0, ceil(length / about.side) - 1).bit_length() for length in size]
    strides = tuple(1 if kind == "video" and axis == 0 else stride for axis, stride in enumerate(reduced))
    kernel = tuple(1 if flat and axis == 0 else max(3, 2 * stride - 1) for axis, stride in enumerate(strides))
    return _conv(len(size), shape[0], about.width, kernel, strides)


class Residual(nn.Module):
    """x + f(x), where a 1x1 convolution brings x to the shape of f(x) if they differ (https://arxiv.org/abs/1512.03385)."""

    def __init__(self, body: nn.Module, rank: int, before: int, after: int, stride: int | tuple[int, ...]) -> None:
        super().__init__()
        same = before == after and set((stride,) if isinstance(stride, int) else stride) == {1}
        self.body = body
        self.skip = nn.Identity() if same else _conv(rank, before, after, 1, stride, act=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.skip(x) + self.body(x))


def _resnet(rank: int, before: int, after: int, stride: int) -> nn.Module:
    body = nn.Sequential(_conv(rank, before, after, 3, stride), _conv(rank, after, after, act=False))
    return Residual(body, rank, before, after, stride)


def _plain(rank: int, before: int, after: int, stride: int) -> nn.Module:
    """All convolutional (https://arxiv.org/abs/1412.6806)."""
    return nn.Sequential(_conv(rank, before, after, 3, stride), _conv(rank, after, after))


def _inverted(rank: int, before: int, after: int, stride: int) -> nn.Module:
    """Inverted residuals with depthwise convolutions (https://arxiv.org/abs/1801.04381)."""

    def block(before: int, stride: int) -> nn.Module:
        wide = 3 * before
        body = nn.Sequential(
            _conv(rank, before, wide, 1),
            _conv(rank, wide, wide, 3, stride, groups=wide),
            _conv(rank, wide, after, 1, act=False),
        )
        return Residual(body, rank, before, after, stride)

    return nn.Sequential(block(before, stride), block(after, 1))


def _dilated(rank: int, before: int, after: int, stride: int) -> nn.Module:
    """Dilated residual convolutions (https://arxiv.org/abs/1803.01271), centred instead of causal."""
    near = nn.Sequential(_conv(rank, before, after, 3, stride), _conv(rank, after, after, dilation=2, act=False))
    far = nn.Sequential(_conv(rank, after, after, dilation=4), _conv(rank, after, after, dilation=8, act=False))
    return nn.Sequential(Residual(near, rank, before, after, stride), Residual(far, rank, after, after, 1))


def _frames(rank: int, before: int, after: int, stride: int) -> nn.Module:
    """A residual network for each frame, whose mean decides (https://arxiv.org/abs/1608.00859)."""
    flat, strides = (1, *(3,) * (rank - 1)), (1, *(stride,) * (rank - 1))
    body = nn.Sequential(_conv(rank, before, after, flat, strides), _conv(rank, after, after, flat, act=False))
    return Residual(body, rank, before, after, strides)


def _factored(rank: int, before: int, after: int, stride: int) -> nn.Module:
    """(2+1)-D: convolutions over space, then over time (https://arxiv.org/abs/1711.11248)."""
    space, time = (1, *(3,) * (rank - 1)), (3, *(1,) * (rank - 1))
    strides, along = (1, *(stride,) * (rank - 1)), (stride, *(1,) * (rank - 1))
    body = nn.Sequential(_conv(rank, before, after, space, strides), _conv(rank, after, after, time, along, act=False))
    return Residual(body, rank, before, after, stride)


_STAGES: dict[Architecture, Callable[[int, int, int, int], nn.Module]] = {
    "resnet": _resnet,
    "plain": _plain,
    "inverted": _inverted,
    "dilated": _dilated,
    "frames": _frames,
    "factored": _factored,
}
assert set(_STAGES) == set(get_args(Architecture))
