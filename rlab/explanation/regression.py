"""Bayesian linear regression of a model's answer on what was removed from its input, in closed form.

A question is a pair: a set of places removed, and its complement removed. The difference of the two answers is taken as

    drop = sum_q contrast_q w_q + noise,   w ~ N(0, a K),   noise ~ N(0, a v)

where the contrast is +1 at places that only the set removes and -1 at those that only its complement does, so that what is
the same for both (a constant, and interactions of two places) drops out. K ties neighbouring places together. Its reach and
the share of noise are weighed by their evidence, the amplitude a is its most likely value, and what is left is exact Gaussian
conditioning.
Shapes: T pairs, q places, f linear functions of the effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid

REACHES = (1.25, 2.0, 3.5)  # of K, in patches of the finest sets: what is finer than they are cannot be seen
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # variance of what sets do beyond adding up, against what the effects explain

BEND = 0.15  # of a region's effect: what the line does not tell
POOLED = 4  # contrasts that what is known of all regions' spread counts as


def kernel(places: PatchGrid, reach: float) -> Tensor:
    """(q, q): how alike the effects of two places are thought to be before any answer, one at equal places."""
    boxes = [[(cut.start + cut.stop) / 2 for cut in places.box(i)] for i in range(len(places))]
    at = torch.tensor(boxes, dtype=torch.float64) / torch.tensor(places.size, dtype=torch.float64)
    return torch.exp(-0.5 * (torch.cdist(at, at) / reach) ** 2)


@dataclass(frozen=True)
class Hypothesis:
    """One reach and one share of noise, conditioned on all pairs."""

    evidence: float  # log probability of the drops, up to a constant
    kernel: Tensor  # (q, q)
    amplitude: float  # a
    noise: float  # variance, in units of the amplitude
    root: Tensor  # (T, q): the covariance after the pairs is a (K - root' root)
    mean: Tensor  # (q,)

    def variance(self, functions: Tensor | None) -> Tensor:
        """(f, q) -> (f,); None asks about each place by itself."""
        if functions is None:
            return self.amplitude * (self.kernel.diagonal() - self.root.square().sum(0)).clamp(min=0)
        before = ((functions @ self.kernel) * functions).sum(1)
        return self.amplitude * (before - (functions @ self.root.T).square().sum(1)).clamp(min=0)

    @property
    def covariance(self) -> Tensor:
        """(q, q), in units of the amplitude."""
        return self.kernel - self.root.T @ self.root


def hypotheses(contrast: Tensor, drop: Tensor, kernels: Sequence[Tensor]) -> list[Hypothesis]:
    """contrast (T, q) and drop (T,), float64 -> what each kernel with each share of noise makes of them."""
    found, count = [], len(drop)
    for prior in kernels:
        projected = contrast @ prior  # (T, q)
        values, vectors = torch.linalg.eigh(projected @ contrast.T)
        values, answers, along = values.clamp(min=0), vectors.T @ drop, vectors.T @ projected
        scale = float(values.mean().clamp(min=1e-12))
        for share in NOISES:
            spread = values + share * scale
            amplitude = float(((answers**2 / spread).mean()).clamp(min=1e-12))
            evidence = -0.5 * (count * torch.tensor(amplitude).log() + spread.log().sum())
            root, mean = along / spread.sqrt()[:, None], along.T @ (answers / spread)
            found.append(Hypothesis(float(evidence), prior, amplitude, share * scale, root, mean))
    return found


def likeliest(found: Sequence[Hypothesis]) -> Hypothesis:
    return max(found, key=lambda hypothesis: hypothesis.evidence)


def average(found: Sequence[Hypothesis], functions: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (f,) of functions (f, q) of the effects, or of the effects themselves, each hypothesis
    weighed by its evidence."""
    weights = torch.tensor([hypothesis.evidence for hypothesis in found], dtype=torch.float64).softmax(0)
    kept = [(float(weight), h) for weight, h in zip(weights, found, strict=True) if weight > 1e-4]
    total = sum(weight for weight, _ in kept)
    means = torch.stack([h.mean if functions is None else functions @ h.mean for _, h in kept])
    spreads = torch.stack([h.variance(functions) for _, h in kept])
    shares = torch.tensor([weight / total for weight, _ in kept], dtype=torch.float64)[:, None]
    mean = (shares * means).sum(0)
    return mean, (shares * (spreads + (means - mean) ** 2)).sum(0).sqrt()


def reconcile(mean: Tensor, deviation: Tensor, contrasts: Tensor) -> tuple[Tensor, Tensor]:
    """What the regression says of each region (g,) and what was measured of it directly (g, k) -> mean and deviation (g,).

    A region is more or less than the sum of its places: by a share `BEND` of its effect, and by whatever else the direct contrasts
    show beside the regression's deviation and their own. Then the two are weighed by precision.
    """
    count, own = contrasts.shape[1], contrasts.var(1)
    size = mean**2 + 0.25 * (mean**2).mean()
    size = size / size.mean().clamp(min=1e-12)  # large effects spread more, and bend more
    spread = ((count - 1) * own + POOLED * own.mean() * size) / (
        count - 1 + POOLED
    )  # few contrasts say little of their own
    noise, known = (spread / count).clamp(min=1e-12), deviation**2 + (BEND * mean) ** 2
    surplus = ((contrasts.mean(1) - mean) ** 2 - known - noise).mean().clamp(min=0)
    variance = known + surplus * size
    weight = variance / (variance + noise)
    return mean + weight * (contrasts.mean(1) - mean), (weight * noise).sqrt()


def next_contrast(covariance: Tensor, noise: float, candidates: Tensor) -> tuple[int, Tensor]:
    """Of candidates (m, q) the one whose answer takes most off the summed variance of the effects, and the covariance (q, q)
    after it: what will be answered does not matter for that."""
    carried = covariance @ candidates.T  # (q, m)
    spread = (candidates.T * carried).sum(0) + noise
    best = int((carried.square().sum(0) / spread).argmax())
    return best, torch.addr(covariance, carried[:, best], carried[:, best], alpha=-1 / float(spread[best]))
