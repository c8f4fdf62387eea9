"""Attack a small object detector with your own score function: the attack hides the disc that the detector finds.

    python examples/detector.py               # writes scenes.npz, attacks it, prints how little distortion hides a disc
    rlab attack --config detector.yaml        # the same on the command line, in a folder with all three files

A detector returns boxes instead of a class, so `surest` turns them into one number, which is above 0 while the detector
finds a disc. For the attack this is class 1, and the goal is class 0. You can attack any detector or segmenter in this way;
only `surest` depends on its output.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import rlab

SIZE, RADIUS, BOXES = 32, 4, 3


class DiscDetector(nn.Module):
    """Images (b, 3, h, w) -> one dict per image: `boxes` (k, 4) and `scores` (k,), like torchvision's detectors."""

    def __init__(self) -> None:
        super().__init__()
        away = torch.linspace(-2, 2, 4 * RADIUS + 1).square()
        inside = (away[:, None] + away < 1).float()
        ring = (away[:, None] + away < 4).float() - inside
        self.register_buffer("template", (inside / inside.sum() - ring / ring.sum())[None, None])

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        contrast = F.conv2d(images.mean(1, keepdim=True), self.get_buffer("template"), padding=2 * RADIUS)
        peaks = contrast.masked_fill(contrast < F.max_pool2d(contrast, 5, 1, 2), -1.0)  # keep local maxima only
        height, place = peaks.flatten(1).topk(BOXES, 1)
        corner = torch.stack([place % images.shape[3], place // images.shape[3]], 2) - RADIUS
        boxes = torch.cat([corner, corner + 2 * RADIUS], 2).float()
        scores = (20 * (height - 0.25)).sigmoid()
        return [{"boxes": one, "scores": sure} for one, sure in zip(boxes, scores, strict=True)]


def model() -> nn.Module:
    """Build the model that detector.yaml names as detector:model."""
    return DiscDetector()


def surest(outputs: list[dict[str, Tensor]]) -> Tensor:
    """Detector output -> (b,): log-odds of the most confident box."""
    return torch.stack([image["scores"].amax() for image in outputs]).logit(1e-6)


def scenes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Make dark noise with one bright disc, (n, 3, h, w) in [0, 1], and labels of 1: a disc is present."""
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
