"""Training losses: cross-entropy, and consistency between the outputs for clean and distorted inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Consistency = Literal["jsd", "kl"]


def cross_entropy(scores: Tensor, target: Tensor, multilabel: bool) -> Tensor:
    """Cross-entropy with target probabilities (b, k); scores are log-probabilities, or log-odds for multiple labels."""
    if multilabel:
        return F.binary_cross_entropy_with_logits(scores, target)
    return -(target * scores.clamp(min=-1e4)).sum(1).mean()  # avoids 0 * -inf = NaN


def distributions(scores: Tensor, multilabel: bool) -> Tensor:
    """(b, k) -> log-probabilities (b, 1, k), or (b, k, 2) for multiple independent labels."""
    if multilabel:
        return torch.stack([F.logsigmoid(scores), F.logsigmoid(-scores)], -1)
    return scores.clamp(min=-1e4)[:, None]


def divergence(clean: Tensor, other: Tensor, multilabel: bool) -> Tensor:
    """(b,): Kullback-Leibler divergence from the clean output to the other, averaged over multiple labels."""
    p, q = (distributions(scores, multilabel) for scores in (clean, other))
    return (p.exp() * (p - q)).sum(2).mean(1)


def jensen_shannon(answers: Sequence[Tensor], multilabel: bool) -> Tensor:
    """(b,): Jensen-Shannon divergence of several outputs (Hendrycks et al. 2020)."""
    logs = torch.stack([distributions(scores, multilabel) for scores in answers])
    mean = logs.logsumexp(0) - math.log(len(answers))
    return (logs.exp() * (logs - mean)).sum(3).mean((0, 2))


def disagreement(kind: Consistency, clean: Tensor, views: Sequence[Tensor], multilabel: bool) -> Tensor:
    """Mean over the batch: jsd of all outputs, or kl from the clean output to each view."""
    if kind == "jsd":
        return jensen_shannon([clean, *views], multilabel).mean()
    return torch.stack([divergence(clean, view, multilabel).mean() for view in views]).mean()
