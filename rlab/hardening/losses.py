"""What training minimises: cross-entropy with the labels, and answers to distorted inputs that agree with those to clean ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Consistency = Literal["jsd", "kl"]


def cross_entropy(scores: Tensor, target: Tensor, multilabel: bool) -> Tensor:
    """With targets (b, k) that are probabilities; scores are log-probabilities, or log-odds where labels are several."""
    if multilabel:
        return F.binary_cross_entropy_with_logits(scores, target)
    return -(target * scores.clamp(min=-1e4)).sum(1).mean()  # a probability of 0 under a target of 0 is no NaN


def distributions(scores: Tensor, multilabel: bool) -> Tensor:
    """(b, k) -> log-probabilities (b, 1, k), or (b, k, 2) where each label is a choice of its own."""
    if multilabel:
        return torch.stack([F.logsigmoid(scores), F.logsigmoid(-scores)], -1)
    return scores.clamp(min=-1e4)[:, None]


def divergence(clean: Tensor, other: Tensor, multilabel: bool) -> Tensor:
    """(b,) Kullback and Leibler's, from the clean answer to the other; labels of one sample count on average."""
    p, q = (distributions(scores, multilabel) for scores in (clean, other))
    return (p.exp() * (p - q)).sum(2).mean(1)


def jensen_shannon(answers: Sequence[Tensor], multilabel: bool) -> Tensor:
    """(b,) of several answers: how far each is from their mean, on average (Hendrycks et al. 2020)."""
    logs = torch.stack([distributions(scores, multilabel) for scores in answers])
    mean = logs.logsumexp(0) - math.log(len(answers))
    return (logs.exp() * (logs - mean)).sum(3).mean((0, 2))


def disagreement(kind: Consistency, clean: Tensor, views: Sequence[Tensor], multilabel: bool) -> Tensor:
    """The mean over the batch: jsd of all answers, or kl from the clean one to each view."""
    if kind == "jsd":
        return jensen_shannon([clean, *views], multilabel).mean()
    return torch.stack([divergence(clean, view, multilabel).mean() for view in views]).mean()
