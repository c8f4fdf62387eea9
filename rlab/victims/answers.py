"""From what a model returns to log-probabilities, or log-odds of several labels: an output or a custom score, or class numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rlab.errors import VictimError
from rlab.victims.reading import LABELS, Outputs, Score

TOLERANCE = 1e-3  # rounding allowed for sums of probabilities and for bounds
_FAR = 1e6  # largest log-odds; a log-probability is at least minus this


def read_answer(answer: object, output: str | int | None, score: Score | None) -> Tensor:
    """What a model returned -> a tensor of any shape; `output` selects a part, `score` turns it into numbers."""
    numbers = to_numbers(scored(answer, output, score))
    one = score is not None and numbers.dim() == 1
    return torch.stack([torch.zeros_like(numbers), numbers], 1) if one else numbers


def scored(answer: object, output: str | int | None, score: Score | None) -> object:
    """The part of what a model returned that `output` names, or what `score` makes of it."""
    part = answer if output is None else _part(answer, output)
    return part if score is None else score(part)


def _part(answer: object, output: str | int) -> object:
    """The answer's item or attribute of this name or index."""
    if isinstance(answer, Mapping | Sequence):
        try:
            return answer[output]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            pass
    elif isinstance(output, str) and hasattr(answer, output):
        return getattr(answer, output)
    raise VictimError(f"the model's output has no part {output!r}; it is {_kind(answer)}")


def to_numbers(answer: object) -> Tensor:
    """A tensor, an array of real numbers, or an object with `logits` such as those of Hugging Face models."""
    match answer:
        case Tensor():
            return answer
        case object(logits=Tensor() as logits) | {"logits": Tensor() as logits}:
            return logits
        case tuple() | list() if any(isinstance(part, Tensor) for part in answer):
            pass
        case Mapping() | None:
            pass
        case _:
            try:
                array = np.asarray(answer)
                if array.dtype.kind in "fiub":
                    with np.errstate(over="ignore"):  # values beyond float32 become infinite
                        return torch.from_numpy(array.astype(np.float32))
            except (TypeError, ValueError):
                pass
    wanted = "an array of real numbers (b, k) or an object with logits"
    raise VictimError(f"expected the model to return {wanted}, got {_kind(answer)}{_advice(answer)}")


def _advice(answer: object) -> str:
    """How to select a part if there are several."""
    if not isinstance(answer, Mapping | tuple | list) or not answer:
        return ""
    part = next(iter(answer)) if isinstance(answer, Mapping) else 0
    return f": select the scores with e.g. -M output={part}, or compute them with -M score=module:function"


def _kind(answer: object) -> str:
    """The type of an answer and of its parts."""
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        return f"{kind} with {', '.join(map(str, list(answer)[:8]))}"
    if isinstance(answer, tuple | list):
        return f"{kind} of {len(answer)}: {', '.join(type(part).__name__ for part in answer[:4])}"
    dtype = getattr(answer, "dtype", None)
    return kind if dtype is None else f"{kind} of {dtype}"


def ranked_classes(answer: Tensor, rows: int, classes: int | None, outputs: Outputs) -> Tensor:
    """Class numbers as probabilities (b, classes); NaN rows stay NaN.

    `labels`: class numbers (b,), or scores (b, k), where only the largest counts. `topk`: class numbers (b, k), most
    likely first, each weighted half as much as the one before.
    """
    if outputs == "labels" and answer.dim() == 2 and answer.shape[1] > 1:
        best = one_hot(answer.nan_to_num().argmax(1), answer.shape[1])
        return torch.where(answer.isnan().any(1, keepdim=True), torch.nan, best)
    wanted = "one class number" if outputs == "labels" else "a row of class numbers, most likely first,"
    numbers = answer[:, None] if answer.dim() == 1 else answer
    if numbers.dim() != 2 or len(numbers) != rows or (outputs == "topk" and answer.dim() == 1):
        raise VictimError(f"expected {wanted} for each of {rows} inputs, got shape {tuple(answer.shape)}")
    if classes is None:
        raise VictimError("the model returns class numbers: pass their number, e.g. classes=10 (-M classes=10)")
    lost = numbers.isnan().any(1, keepdim=True)
    numbers = numbers.nan_to_num()
    if (numbers != numbers.round()).any() or (numbers < 0).any() or (numbers >= classes).any():
        low, high = (f"{float(end):.6g}" for end in numbers.aminmax())
        raise VictimError(f"expected class numbers in 0..{classes - 1}, got values from {low} to {high}")
    shares = 0.5 ** torch.arange(numbers.shape[1], device=numbers.device, dtype=torch.float32)
    weights = torch.zeros(rows, classes, device=numbers.device)
    weights.scatter_(1, numbers.long().flip(1), shares.flip(0).expand(rows, -1))
    return torch.where(lost, torch.nan, weights / weights.sum(1, keepdim=True))


def recognise(answer: Tensor, multilabel: bool) -> Outputs:
    """Whether rows (b, k) are probabilities or logits; 'auto' if no row has finite values only."""
    clear = answer[torch.isfinite(answer).all(1)]
    if not len(clear):
        return "auto"
    return "probabilities" if looks_like_probabilities(clear, multilabel) else "logits"


def to_scores(answer: Tensor, outputs: Outputs, multilabel: bool) -> Tensor:
    """(b, k) -> log-probabilities, or log-odds of several labels."""
    if outputs not in ("probabilities", *LABELS):
        return (answer if multilabel else answer.log_softmax(1)).clamp(-_FAR, _FAR)  # masked logits are infinite
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
