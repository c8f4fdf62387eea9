"""Bayesian linear regression of a model's output on the removed places of its input, in closed form.

Each measurement is a pair: a set of places removed, and its complement removed. The difference of the outputs is modelled as

    drop = sum_q contrast_q w_q + noise,   w ~ N(0, a K),   noise ~ N(0, a v)

where the contrast is +1 for places in the set and -1 for places in its complement, so that common terms (a constant, and
interactions of two places) cancel. K correlates neighbouring places. Length scales and noise levels are averaged by their
evidence, the amplitude a takes its most likely value, and the rest is exact Gaussian conditioning.
Shapes: T pairs, q places, f linear functions of the effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid

REACHES = (1.25, 2.0, 3.5)  # length scales of K, in patches of the finest sets, which limit the resolution
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # variance of interactions, relative to what the effects explain

BEND = 0.15  # share of a region's effect that the linear model may miss
POOLED = 4  # the pooled variance of all regions counts as this many contrasts


def kernel(places: PatchGrid, reach: float) -> Tensor:
    """(q, q): prior correlation between the effects of two places."""
    boxes = [[(cut.start + cut.stop) / 2 for cut in places.box(i)] for i in range(len(places))]
    at = torch.tensor(boxes, dtype=torch.float64) / torch.tensor(places.size, dtype=torch.float64)
    return torch.exp(-0.5 * (torch.cdist(at, at) / reach) ** 2)


@dataclass(frozen=True)
class Hypothesis:
    """One length scale and one noise level, conditioned on all pairs."""

    evidence: float  # log probability of the drops, up to a constant
    kernel: Tensor  # (q, q)
    amplitude: float  # a
    noise: float  # variance, in units of the amplitude
    root: Tensor  # (T, q): the covariance after the pairs is a (K - root' root)
    mean: Tensor  # (q,)

    def variance(self, functions: Tensor | None) -> Tensor:
        """(f, q) -> (f,); None means each place by itself."""
        if functions is None:
            return self.amplitude * (self.kernel.diagonal() - self.root.square().sum(0)).clamp(min=0)
        before = ((functions @ self.kernel) * functions).sum(1)
        return self.amplitude * (before - (functions @ self.root.T).square().sum(1)).clamp(min=0)

    @property
    def covariance(self) -> Tensor:
        """(q, q), in units of the amplitude."""
        return self.kernel - self.root.T @ self.root


def hypotheses(contrast: Tensor, drop: Tensor, kernels: Sequence[Tensor]) -> list[Hypothesis]:
    """contrast (T, q), drop (T,), float64 -> one hypothesis per kernel and noise level."""
    results, count = [], len(drop)
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
            results.append(Hypothesis(float(evidence), prior, amplitude, share * scale, root, mean))
    return results


def likeliest(candidates: Sequence[Hypothesis]) -> Hypothesis:
    return max(candidates, key=lambda hypothesis: hypothesis.evidence)


def average(candidates: Sequence[Hypothesis], functions: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (f,) of functions (f, q) of the effects (None: the effects), weighted by evidence."""
    weights = torch.tensor([hypothesis.evidence for hypothesis in candidates], dtype=torch.float64).softmax(0)
    kept = [(float(weight), h) for weight, h in zip(weights, candidates, strict=True) if weight > 1e-4]
    total = sum(weight for weight, _ in kept)
    means = torch.stack([h.mean if functions is None else functions @ h.mean for _, h in kept])
    spreads = torch.stack([h.variance(functions) for _, h in kept])
    shares = torch.tensor([weight / total for weight, _ in kept], dtype=torch.float64)[:, None]
    mean = (shares * means).sum(0)
    return mean, (shares * (spreads + (means - mean) ** 2)).sum(0).sqrt()


def reconcile(mean: Tensor, deviation: Tensor, contrasts: Tensor) -> tuple[Tensor, Tensor]:
    """Combine the regression's estimate of each region (g,) with direct contrasts (g, k) -> mean and deviation (g,).

    A region's effect may differ from the sum of its places by a share `BEND`, and by any surplus that the direct contrasts
    show. Both estimates are then weighted by precision.
    """
    count, own = contrasts.shape[1], contrasts.var(1)
    size = mean**2 + 0.25 * (mean**2).mean()
    size = size / size.mean().clamp(min=1e-12)  # large effects vary more
    spread = ((count - 1) * own + POOLED * own.mean() * size) / (count - 1 + POOLED)  # few contrasts say little alone
    noise, known = (spread / count).clamp(min=1e-12), deviation**2 + (BEND * mean) ** 2
    surplus = ((contrasts.mean(1) - mean) ** 2 - known - noise).mean().clamp(min=0)
    variance = known + surplus * size
    weight = variance / (variance + noise)
    return mean + weight * (contrasts.mean(1) - mean), (weight * noise).sqrt()


def next_contrast(covariance: Tensor, noise: float, candidates: Tensor) -> tuple[int, Tensor]:
    """The candidate of (m, q) that most reduces the summed variance of the effects, and the covariance (q, q) after it.

    Neither depends on the measured value.
    """
    carried = covariance @ candidates.T  # (q, m)
    spread = (candidates.T * carried).sum(0) + noise
    best = int((carried.square().sum(0) / spread).argmax())
    return best, torch.addr(covariance, carried[:, best], carried[:, best], alpha=-1 / float(spread[best]))
