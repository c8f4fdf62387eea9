"""Simulated clips: one textured object moves over a textured background; the class is the direction it moves in."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rlab.data.batch import Batch

FRAMES, SIDE = 16, 32
CLASSES = ("left", "right", "up", "down")
STEPS = ((0, -1), (0, 1), (-1, 0), (1, 0))  # down and right are positive
SHAPES = ("disc", "square", "diamond")
RATE = 25.0
Floats = NDArray[np.float64]


def clips(rows: NDArray[np.int64], seed: int) -> Batch:
    """Clips (b, 3, 16, 32, 32) in [0, 1], masks of the object; a row's clip depends on the row and the seed alone."""
    made = [_clip(np.random.default_rng((seed, int(row)))) for row in rows]
    return Batch(
        x=torch.from_numpy(np.stack([x for x, _, _ in made]).astype(np.float32)),
        y=torch.tensor([label for _, _, label in made]),
        ids=tuple(f"simulated-{row:04d}" for row in rows),
        classes=CLASSES,
        masks=torch.from_numpy(np.stack([mask for _, mask, _ in made])),
        rate=RATE,
    )


def _clip(draw: np.random.Generator) -> tuple[Floats, NDArray[np.bool_], int]:
    """One clip (3, t, h, w), its mask (t, h, w) and its class."""
    label = int(draw.integers(len(CLASSES)))
    mask = _track(draw, STEPS[label])
    background, inside = _texture(draw, 0.18), _texture(draw, 0.08)
    contrast = draw.uniform(0.09, 0.4) * draw.choice((-1, 1), (3, 1, 1))
    light = 1 + draw.normal(0, 0.03, (1, FRAMES, 1, 1))
    x = (
        np.where(mask[None], (background.mean() + contrast + inside - inside.mean())[:, None], background[:, None])
        * light
    )
    return np.clip(x + draw.normal(0, draw.uniform(0.01, 0.05), x.shape), 0, 1), mask, label


def _track(draw: np.random.Generator, step: tuple[int, int]) -> NDArray[np.bool_]:
    """Where the object is, (t, h, w). It leaves on one side and comes back on the other: one frame tells nothing."""
    speed = draw.uniform(0.5, 1.6)
    drift = speed * draw.normal(0, 0.3)
    time = np.arange(FRAMES)[:, None]
    along, across = np.array([step]), np.array([step[::-1]])
    centre = draw.uniform(0, SIDE, (1, 2)) + time * (speed * along + drift * across) + draw.normal(0, 0.25, (FRAMES, 2))
    grid = np.arange(SIDE)
    dy, dx = (_wrapped(grid - centre[:, axis, None]) for axis in (0, 1))
    return _inside(draw.choice(SHAPES), dy[:, :, None], dx[:, None, :], draw.uniform(3.0, 5.0))


def _wrapped(distance: Floats) -> Floats:
    """The shorter way round."""
    return (distance + SIDE / 2) % SIDE - SIDE / 2


def _inside(shape: str, dy: Floats, dx: Floats, radius: float) -> NDArray[np.bool_]:
    distances = {
        "disc": np.hypot(dy, dx),
        "square": np.maximum(abs(dy), abs(dx)) * 1.13,
        "diamond": (abs(dy) + abs(dx)) * 0.8,
    }
    found: NDArray[np.bool_] = distances[shape] <= radius
    return found


def _texture(draw: np.random.Generator, strength: float) -> Floats:
    """Smooth coloured noise (3, h, w) around a random grey: waves of a few cycles a side, seamless at the borders."""
    grid = 2 * np.pi * np.arange(SIDE) / SIDE
    cycles, phase = draw.integers(-5, 6, (8, 2)), draw.uniform(0, 2 * np.pi, (8, 1, 1))
    waves = np.sin(cycles[:, 0, None, None] * grid[:, None] + cycles[:, 1, None, None] * grid + phase)
    mixed: Floats = np.einsum("ck,khw->chw", draw.normal(0, strength / np.sqrt(8), (3, 8)), waves)
    return draw.uniform(0.35, 0.65) + mixed
