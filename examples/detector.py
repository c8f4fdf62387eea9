"""A small object detector as the victim: an attack hides the disc it finds, by a score of one's own.

    python examples/detector.py               # writes scenes.npz, attacks it, says how little hides a disc
    rlab attack --config detector.yaml        # the same on the command line, in a folder with all three files

A detector returns boxes and no class, so `surest` makes one number of them: above 0 while a disc is found. To the attack that is
class 1, and the goal is class 0. Any detector or segmenter goes the same way; only `surest` knows what it returns.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import rlab

SIZE, RADIUS, BOXES = 32, 4, 3


class DiscDetector(nn.Module):
    """Images (b, 3, h, w) -> a dict an image: `boxes` (k, 4) and their `scores` (k,), as torchvision's detectors return."""

    def __init__(self) -> None:
        super().__init__()
        away = torch.linspace(-2, 2, 4 * RADIUS + 1).square()
        inside = (away[:, None] + away < 1).float()
        ring = (away[:, None] + away < 4).float() - inside
        self.register_buffer("template", (inside / inside.sum() - ring / ring.sum())[None, None])

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        contrast = F.conv2d(images.mean(1, keepdim=True), self.get_buffer("template"), padding=2 * RADIUS)
        peaks = contrast.masked_fill(contrast < F.max_pool2d(contrast, 5, 1, 2), -1.0)  # the largest of its neighbours
        height, place = peaks.flatten(1).topk(BOXES, 1)
        corner = torch.stack([place % images.shape[3], place // images.shape[3]], 2) - RADIUS
        boxes = torch.cat([corner, corner + 2 * RADIUS], 2).float()
        scores = (20 * (height - 0.25)).sigmoid()
        return [{"boxes": one, "scores": sure} for one, sure in zip(boxes, scores, strict=True)]


def model() -> nn.Module:
    """What the name detector:model calls."""
    return DiscDetector()


def surest(found: list[dict[str, Tensor]]) -> Tensor:
    """What the detector returned -> (b,): log-odds of the surest box."""
    return torch.stack([image["scores"].amax() for image in found]).logit(1e-6)


def scenes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Dark noise with one bright disc somewhere, (n, 3, h, w) in [0, 1], and the label 1: there is one."""
    draw = np.random.default_rng(0)
    x = 0.2 + 0.1 * draw.random((count, 3, SIZE, SIZE))
    centre = draw.uniform(2 * RADIUS, SIZE - 2 * RADIUS, (count, 2, 1, 1))
    grid = np.arange(SIZE)
    disc = (grid[:, None] - centre[:, 0]) ** 2 + (grid - centre[:, 1]) ** 2 < RADIUS**2
    return np.where(disc[:, None], x + 0.5, x).astype(np.float32), np.ones(count, dtype=np.int64)


def main() -> None:
    x, y = scenes(12)
    np.savez("scenes.npz", x=x, y=y)
    victim = rlab.TorchVictim(model(), score=surest)
    print(rlab.attack(victim, (x, y), patch=4, budget=200))


if __name__ == "__main__":
    main()
