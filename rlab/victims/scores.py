"""From the numbers that a classifier returns to log-probabilities, or to log-odds of several labels."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.errors import VictimError
from rlab.victims.answers import LABELS, Outputs

TOLERANCE = 1e-3  # rounding allowed for sums of probabilities and for bounds


def recognise(answer: Tensor, multilabel: bool) -> Outputs:
    """Whether rows (b, k) are probabilities or logits; 'auto' if no row has finite values only."""
    clear = answer[torch.isfinite(answer).all(1)]
    if not len(clear):
        return "auto"
    return "probabilities" if looks_like_probabilities(clear, multilabel) else "logits"


def to_scores(answer: Tensor, outputs: Outputs, multilabel: bool) -> Tensor:
    """(b, k) -> log-probabilities, or log-odds of several labels."""
    if outputs not in ("probabilities", *LABELS):
        return answer if multilabel else answer.log_softmax(1)
    seen = answer[~answer.isnan()]
    if len(seen) and (seen.min() < -TOLERANCE or seen.max() > 1 + TOLERANCE):
        span = f"{seen.min():.4g} to {seen.max():.4g}"
        raise VictimError(f"expected probabilities, got values from {span}: pass outputs='logits'")
    sure = answer.clamp(1e-12, 1 - 1e-7) if multilabel else answer.clamp(1e-12, 1)
    return sure.logit() if multilabel else sure.log()


def looks_like_probabilities(answer: Tensor, multilabel: bool) -> bool:
    """Whether rows (b, k) are probabilities; logits practically never sum to 1 by chance."""
    inside = bool(((answer >= -TOLERANCE) & (answer <= 1 + TOLERANCE)).all())
    return inside and (multilabel or bool((answer.sum(1) - 1).abs().max() < TOLERANCE))
