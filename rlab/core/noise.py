"""How much the answers of a noisy model vary, from two queries of the same inputs."""

from __future__ import annotations

from torch import Tensor

NEAREST = 5  # classes nearest to the goal, from which the noise of a model's answers is estimated


def deviation(first: Tensor, second: Tensor) -> Tensor:
    """Estimate the standard deviation (n,) of margins from two queries (n, a) of the same inputs.

    It uses each sample's smallest margins. Two queries are few, so each variance is averaged with the mean over all samples.
    """
    near = ((first + second) / 2).topk(min(NEAREST, first.shape[1]), 1, largest=False).indices
    variance = (first - second).gather(1, near).square().mean(1) / 2
    return ((variance + variance.mean()) / 2).sqrt()
