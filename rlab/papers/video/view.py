"""What the two agents see of a state: maps over frames and their patches, in units that no model, palette or size sets.

n rows, t frames, f palette entries, (rows, columns) patches of a frame. The fixed part is computed once per clip and travels
in the policy's memory; the moving part is read from the state at every step. A frame is also seen as a vector, by a small
convolutional network that keeps it at 16 x 16 and learns with the agents, or by MobileNet-V2 (https://arxiv.org/abs/1801.04381),
frozen, whose weights are a file of the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.core.batched import Rows
from rlab.core.env import State, Task
from rlab.core.grid import PatchGrid
from rlab.errors import ModelError, OptionError
from rlab.papers.video.choices import Hierarchy
from rlab.priors.trained import DirectionPrior, projection
from rlab.victims.weights import read_state_dict

SCALARS = 8
CELLS = 2  # along each side of a patch
CHANGE_MAPS, TRY_MAPS, PATCH_MAPS = 3, 3, 3
EFFECT = 10.0  # the scale of drops in margin: a tenth of the first margin is 1
View = dict[str, Tensor]
Encoder = Literal["small", "mobilenet"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
SIDE, MOBILE_SIDE, MOBILE_DEPTH = 16, 160, 1280
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# expansion, channels, blocks, stride of each stage
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True)
class PairConfig:
    """The shape of the two agents: what stands in their file beside the weights."""

    channels: int = 3
    width: int = 32
    entry_width: int = 16
    blocks: int = 2
    levels: int = 2
    coarse: int = 4  # cells along each side of a frame at the first level
    encoder: Encoder = "small"
    temporal: bool = True  # without it every frame is kept, and there is one agent
    hints: bool = False  # whether objectness and motion are seen too; they then need OpenCV wherever the agent is used
    heads: int = 0  # directions of the prior both agents see by; 0 is no prior
    prior_width: int = 16
    prior_levels: int = 3
    shrink: int = 2
    distortion_weight: float = 0.0  # what a unit of MAP costs when a change is chosen, as a share of the first margin

    def __post_init__(self) -> None:
        Hierarchy((1, 1), self.coarse, self.levels)
        if self.encoder not in ENCODERS:
            raise OptionError(f"expected encoder to be one of {', '.join(ENCODERS)}, got {self.encoder!r}")

    @property
    def depth(self) -> int:
        """Numbers a frame."""
        return depth_of(self.encoder, self.channels)

    @property
    def changes(self) -> int:
        """Maps of what an entry would change: its mean, power and size, and how far it goes along each direction."""
        return CHANGE_MAPS + self.heads

    @property
    def wide(self) -> int:
        """Maps of cells."""
        return self.channels * CELLS * CELLS + 2 * self.hints


@dataclass(frozen=True)
class FixedView(Rows):
    """What stays the same during the attack on a clip."""

    frames: Tensor  # (n, t, k)
    cells: Tensor  # (n, t, 4c [+ 2], rows, columns)
    changes: Tensor  # (n, f, t, 3 + heads, rows, columns)

    def seen(self, state: State, task: Task) -> View:
        """Together with the moving part."""
        return {"frames": self.frames, "cells": self.cells, "changes": self.changes} | moving(state, task)


def fixed(
    state: State, grid: PatchGrid, channels: int, frames: Tensor, hints: Tensor | None, prior: DirectionPrior | None
) -> FixedView:
    t, rows, columns = grid.shape
    x0 = in_channels(state.x0, channels) / _each(state.scale, state.x0)
    cells = F.adaptive_avg_pool3d(x0, (t, CELLS * rows, CELLS * columns)).transpose(1, 2)
    cells = F.pixel_unshuffle(cells - 0.5, CELLS)
    if hints is not None:
        cells = torch.cat([cells, hints], 2)
    return FixedView(frames, cells, _changes(state, grid, x0, prior))


def _changes(state: State, grid: PatchGrid, x0: Tensor, prior: DirectionPrior | None) -> Tensor:
    """(n, f, t, 3 + heads, rows, columns): each entry's mean, root mean square and mean size in a patch, and how far it
    goes along each direction of the prior."""
    change = (state.bank[:, 1:] - state.bank[:, :1]) / _each(state.scale, state.bank)
    mean = grid.reduce(change.mean(2))
    power = grid.reduce(change.square().mean(2)).sqrt()
    maps = 4 * torch.stack([mean, power, grid.reduce(change.abs().mean(2))], 2)
    if prior is not None:
        change = in_channels(change.flatten(0, 1), x0.shape[1]).unflatten(0, change.shape[:2])
        maps = torch.cat([maps, (projection(prior(x0), change, grid) * len(grid)).clamp(-20, 20) / 4], 2)
    return maps.unflatten(3, grid.shape).transpose(2, 3)


def moving(state: State, task: Task) -> View:
    """`tries` (n, f, t, 3, rows, columns), `patches` (n, t, 3, rows, columns), `scalars` (n, 8)."""
    shape = task.grid.shape
    entries = torch.arange(state.bank.shape[1], device=state.x.device)
    here = (state.assignment[:, None] == entries[:, None]).to(state.feedback.dtype)
    share = (state.feedback / state.margin0[:, None, None] * EFFECT).clamp(-3, 3)
    often = state.tried.clamp(max=4) / 2
    maps = torch.stack([here, share, often], 2).unflatten(3, shape).transpose(2, 3)  # (n, f + 1, t, 3, rows, columns)
    nothing = maps[:, 0]
    distorted = torch.cat([1 - nothing[:, :, :1], nothing[:, :, 1:]], 2)
    return {"tries": maps[:, 1:], "patches": distorted, "scalars": _scalars(state, task)}


def _scalars(state: State, task: Task) -> Tensor:
    """How the attack stands."""
    distorted = (state.assignment != 0).to(torch.float32).mean(1)
    top = F.pad(state.scores.float().topk(min(2, state.scores.shape[1]), 1).values.exp().clamp(max=1), (0, 2))[:, :2]
    margins = [state.margin / state.margin0, (state.margin0 + 1).log() / 3]
    spent = [(state.step + 1.0).log() / 5, state.l2_penalty]
    amounts = [(distorted * 10).clamp(max=2), (distorted > 0).to(torch.float32)]
    return torch.cat([torch.stack([*margins, *spent, *amounts], 1), top], 1)


def costs(view: View) -> Tensor:
    """(n, t, f + 1, q): what each single change would add to the clip's mean absolute change times 255; entry 0 restores.

    Patches count as of one size: one that a clip's edge cuts short seems dearer than it is.
    """
    size = view["changes"][:, :, :, 2].flatten(3).transpose(1, 2) * (255 / 4)  # (n, t, f, q)
    here = view["tries"][:, :, :, 0].flatten(3).transpose(1, 2)
    size = size / (size.shape[1] * size.shape[3])
    spent = (size * here).sum(2, keepdim=True)
    return torch.cat([torch.zeros_like(spent), size], 2) - spent


def in_channels(x: Tensor, channels: int) -> Tensor:
    """(n, c, *size) -> (n, channels, *size): one channel is repeated, others are averaged and repeated."""
    if x.shape[1] == channels:
        return x
    return x.mean(1, keepdim=True).expand(-1, channels, *x.shape[2:])


def _each(scale: Tensor, like: Tensor) -> Tensor:
    return scale.view(-1, *(1,) * (like.dim() - 1))


def depth_of(encoder: Encoder, channels: int) -> int:
    """Numbers a frame that `look` gives."""
    return MOBILE_DEPTH if encoder == "mobilenet" else channels * SIDE * SIDE


@torch.no_grad()
def look(x: Tensor, frames: int, channels: int, mobilenet: MobileNet | None = None) -> Tensor:
    """Clips (n, c, t, h, w) in 0..1 -> (n, frames, k): each frame as the agents' encoders take it."""
    side = SIDE if mobilenet is None else MOBILE_SIDE
    x = in_channels(x, channels if mobilenet is None else 3)
    flat = F.adaptive_avg_pool3d(x, (frames, *x.shape[3:])).transpose(1, 2)
    if mobilenet is None:
        return F.adaptive_avg_pool2d(flat.flatten(0, 1), side).unflatten(0, (len(x), frames)).flatten(2)
    pictures = F.interpolate(flat.flatten(0, 1), size=(side, side), mode="bilinear", align_corners=False)
    return torch.cat([mobilenet(part) for part in pictures.split(128)]).unflatten(0, (len(x), frames))


class Trunk(nn.Module):
    """What `look` gives (n, t, k) -> features (n, t, width), learned with an agent."""

    def __init__(self, encoder: Encoder, channels: int, width: int) -> None:
        super().__init__()
        self.channels, self.small = channels, encoder == "small"
        if self.small:
            steps = ((channels, width // 2), (width // 2, width), (width, width))
            layers: list[nn.Module] = []
            for before, after in steps:
                layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.SiLU()]
            self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        else:
            self.net = nn.Sequential(nn.LayerNorm(MOBILE_DEPTH), nn.Linear(MOBILE_DEPTH, width), nn.SiLU())

    def forward(self, frames: Tensor) -> Tensor:
        n, t, _ = frames.shape
        flat = frames.flatten(0, 1)
        if self.small:
            flat = flat.view(-1, self.channels, SIDE, SIDE) - 0.5
        features: Tensor = self.net(flat)
        return features.view(n, t, -1)


class MobileNet(nn.Module):
    """MobileNet-V2 up to its pooled features: (n, 3, h, w) in 0..1 -> (n, 1280); parameters named as torchvision names them."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, 3, 2)]
        before = 32
        for expansion, after, blocks, stride in _STAGES:
            for i in range(blocks):
                layers.append(_Inverted(before, after, stride if i == 0 else 1, expansion))
                before = after
        self.features = nn.Sequential(*layers, _conv(before, MOBILE_DEPTH, 1, 1))
        self.register_buffer("mean", torch.tensor(_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.features((x - self.get_buffer("mean")) / self.get_buffer("std"))
        return maps.mean((2, 3))


class _Inverted(nn.Module):
    """Widen, filter each channel, narrow; added to its input where the shapes allow."""

    def __init__(self, before: int, after: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = before * expansion
        widen = [_conv(before, wide, 1, 1)] if expansion != 1 else []
        narrow = [nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after)]
        self.conv = nn.Sequential(*widen, _conv(wide, wide, 3, stride, groups=wide), *narrow)
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.adds else out


def _conv(before: int, after: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, after, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())


def read_mobilenet(path: str | Path) -> MobileNet:
    """MobileNet-V2 with the weights of a file, .safetensors or a plain torch state dict, as torchvision publishes them."""
    weights = read_state_dict(Path(path))
    net = MobileNet()
    try:
        net.load_state_dict({name: value for name, value in weights.items() if name.startswith("features.")})
    except RuntimeError as error:
        raise ModelError(f"the weights in {str(path)!r} are not those of torchvision's MobileNet-V2") from error
    return net.eval().requires_grad_(False)
