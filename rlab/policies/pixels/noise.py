"""Random directions for probes."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.core.env import State
from rlab.core.rng import normal, uniform
from rlab.data.kinds import Kind
from rlab.policies.pixels.basis import cosines

COLOUR = 0.03  # power of the differences between channels, relative to that of their mean
CENTRE = 0.5  # how much weaker noise is at the edge


def white_noise(state: State) -> Tensor:
    """(n, c, *size)"""
    count = state.x0[0].numel()
    return normal(uniform(state.seed, state.step, count + count % 2))[:, :count].view_as(state.x0)


def shaped_noise(state: State, kind: Kind) -> Tensor:
    """(n, c, *size): white; for images of high frequency, alike in all channels and stronger in the middle, because there the
    gradients of networks are large."""
    white = white_noise(state)
    if kind != "image":
        return white
    channels, size = white.shape[1], white.shape[2:]
    along = [torch.arange(length, device=white.device) / length for length in size]
    power = along[0].square()[:, None] + along[1].square()
    shade = torch.where(torch.arange(channels, device=white.device)[:, None, None] > 0, COLOUR * power.mean(), power)
    mix, rows, columns = (cosines(length, white.device) for length in (channels, *size))
    shaped = rows.T @ (white * shade.sqrt()) @ columns
    off = [torch.linspace(-1, 1, length, device=white.device) for length in size]
    inner = (-CENTRE * (off[0].square()[:, None] + off[1].square())).exp()
    return (mix.T @ shaped.flatten(2)).view_as(white) * inner
