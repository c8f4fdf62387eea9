"""What the two agents see of a clip and of how its attack stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.batched import Rows
from rlab.core.env import State
from rlab.core.feedback import Feedback
from rlab.core.grid import PatchGrid
from rlab.papers import saliency

Encoder = Literal["small", "lite0"]
SCALARS, SUB, THUMBNAIL = 5, 2, 16
PATCH_MAPS = 2 * 3 * SUB * SUB + 5
GAIN = 10.0  # scale of drops in the agents' view: a tenth of the first margin is 1


@dataclass(frozen=True)
class Clip(Rows):
    """What stays the same during the attack on a clip: n rows, t frames, f filters, q patches of a frame."""

    pixels: Tensor  # (n, t, 24, rows, columns) colours, and their change since the frame before
    strength: Tensor  # (n, f, t, q) size of each filter's change
    frames: Tensor  # (n, t, k) thumbnails, or the features of EfficientNet-Lite0


@dataclass(frozen=True)
class Scene(Rows):
    """A clip and how its attack stands."""

    clip: Clip
    gain: Tensor  # (n, f, t, q) drop in margin at the last try
    tried: Tensor  # (n, f, t, q)
    held: Tensor  # (n, t, q) the assignment
    scalars: Tensor  # (n, SCALARS)


@torch.no_grad()
def look(state: State, grid: PatchGrid, encoder: Encoder) -> Clip:
    t, rows, columns = grid.shape
    scale, x0 = state.scale.view(-1, 1, 1, 1, 1), state.x0
    x0 = (x0 if x0.shape[1] == 3 else x0.mean(1, keepdim=True).expand(-1, 3, *x0.shape[2:])) / scale
    cells = F.adaptive_avg_pool3d(x0, (t, SUB * rows, SUB * columns)).transpose(1, 2)
    cells = F.pixel_unshuffle(cells - 0.5, SUB)
    change = 4 * (cells - torch.cat([cells[:, :1], cells[:, :-1]], 1))
    strength = 4 * grid.reduce((state.bank[:, 1:] - state.bank[:, :1]).abs().mean(2) / scale)
    side = x0.shape[3:] if encoder == "lite0" else (THUMBNAIL, THUMBNAIL)
    pictures = F.adaptive_avg_pool3d(x0, (t, *side)).transpose(1, 2).flatten(0, 1)
    frames = saliency.lite0_features(pictures) if encoder == "lite0" else pictures.flatten(1)
    return Clip(torch.cat([cells, change], 2), strength.unflatten(2, (t, -1)), frames.unflatten(0, (-1, t)))


def see(state: State, clip: Clip, feedback: Feedback) -> Scene:
    t = clip.pixels.shape[1]
    gain = (feedback.drop[:, 1:] / state.margin0[:, None, None] * GAIN).clamp(-3, 3)
    numbers = [state.margin / state.margin0, (state.margin0 + 1).log() / 3, (state.step + 1.0).log() / 5]
    distorted = (10 * (state.assignment != 0).float().mean(1)).clamp(max=2)
    scalars = torch.stack([*numbers, distorted, state.scores.amax(1).clamp(-20, 0).exp()], 1)
    tried, held = feedback.tried[:, 1:].clamp(max=4) / 4, state.assignment.unflatten(1, (t, -1))
    return Scene(clip, gain.unflatten(2, (t, -1)), tried.unflatten(2, (t, -1)), held, scalars)
