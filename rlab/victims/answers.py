"""What models return, as numbers: one part of an answer with several, a score of one's own, class numbers as scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rlab.errors import InputError, VictimError

Outputs = Literal["auto", "logits", "probabilities", "labels", "topk"]
LABELS = ("labels", "topk")  # outputs that tell classes and no scores
Score = Callable[[Any], Any]  # what a model returns -> (b,), above 0 where what is looked for is there, or (b, k)


def read_answer(answer: object, output: str | int | None, score: Score | None) -> Tensor:
    """What a model returned -> a tensor of whatever shape came: `output` picks a part, `score` makes numbers of it."""
    part = answer if output is None else _part(answer, output)
    if score is None:
        return _numbers(part)
    scored = _numbers(score(part))
    return torch.stack([torch.zeros_like(scored), scored], 1) if scored.dim() == 1 else scored


def _part(answer: object, output: str | int) -> object:
    """A key, a place, or an attribute of the answer."""
    if isinstance(answer, Mapping | Sequence):
        try:
            return answer[output]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            pass
    elif isinstance(output, str) and hasattr(answer, output):
        return getattr(answer, output)
    raise VictimError(f"the model's answer has no part {output!r}, it is {_kind(answer)}")


def _numbers(answer: object) -> Tensor:
    """A tensor, an array of real numbers, or the `logits` of an answer that has them, as Hugging Face models give."""
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
                    with np.errstate(over="ignore"):  # what no float32 can hold is infinite
                        return torch.from_numpy(array.astype(np.float32))
            except (TypeError, ValueError):
                pass
    wanted = "an array of numbers (b, k), all real, or an answer with logits"
    raise VictimError(f"expected the model to return {wanted}, got {_kind(answer)}{_advice(answer)}")


def _advice(answer: object) -> str:
    """Which part to take, where there are several."""
    if not isinstance(answer, Mapping | tuple | list) or not answer:
        return ""
    part = next(iter(answer)) if isinstance(answer, Mapping) else 0
    return (
        f": say which part holds the scores, such as -M output={part}, or make them of it by -M score=module:function"
    )


def _kind(answer: object) -> str:
    """What came, with the names of its parts."""
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        return f"{kind} with {', '.join(map(str, list(answer)[:8]))}"
    if isinstance(answer, tuple | list):
        return f"{kind} of {len(answer)}: {', '.join(type(part).__name__ for part in answer[:4])}"
    dtype = getattr(answer, "dtype", None)
    return kind if dtype is None else f"{kind} of {dtype}"


def check_reading(outputs: str, multilabel: bool, classes: int | None, output: object, score: object) -> None:
    """Refuses what cannot be meant."""
    if classes is not None and outputs not in LABELS:
        raise InputError(
            f"classes is for models that tell class numbers, outputs 'labels' or 'topk', got outputs {outputs!r}"
        )
    if classes is not None and (type(classes) is not int or classes < 2):
        raise InputError(f"expected at least 2 classes, got {classes!r}")
    if multilabel and outputs == "topk":
        raise InputError("a model of several labels at once has no order of them: pass outputs='labels'")
    if output is not None and (isinstance(output, bool) or not isinstance(output, str | int)):
        raise InputError(f"expected output to be the name or the place of a part of the answer, got {output!r}")
    if score is not None and not callable(score):
        raise InputError(f"expected score to be a function of what the model returns, got {type(score).__name__}")


def told_classes(answer: Tensor, rows: int, classes: int | None, outputs: Outputs) -> Tensor:
    """Class numbers (b,), or of `topk` (b, k) the likeliest first, or any scores (b, k) of all classes -> (b, classes): 1 for the
    class that is told, of `topk` half as much for each next one; NaN where the answer is."""
    if outputs == "labels" and answer.dim() == 2 and answer.shape[1] > 1:
        return torch.where(
            answer.isnan().any(1, keepdim=True), torch.nan, one_hot(answer.nan_to_num().argmax(1), answer.shape[1])
        )
    wanted = "one class number" if outputs == "labels" else "a row of class numbers, the likeliest first,"
    told = answer[:, None] if answer.dim() == 1 else answer
    if told.dim() != 2 or len(told) != rows or (outputs == "topk" and answer.dim() == 1):
        raise VictimError(f"expected {wanted} for each of {rows} inputs, got shape {tuple(answer.shape)}")
    if classes is None:
        raise VictimError(
            "the model tells class numbers, and not how many classes there are: pass classes=, such as -M classes=10"
        )
    lost = told.isnan().any(1, keepdim=True)
    told = told.nan_to_num()
    if (told != told.round()).any() or (told < 0).any() or (told >= classes).any():
        low, high = (f"{float(end):.6g}" for end in told.aminmax())
        raise VictimError(f"expected class numbers in 0..{classes - 1}, got values from {low} to {high}")
    shares = 0.5 ** torch.arange(told.shape[1], device=told.device, dtype=torch.float32)
    chances = torch.zeros(rows, classes, device=told.device).scatter_(
        1, told.long().flip(1), shares.flip(0).expand(rows, -1)
    )
    return torch.where(lost, torch.nan, chances / chances.sum(1, keepdim=True))
