"""Checks of goal, policy and labels against a model's first answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlab.core.goals import Below, Goal, Targeted, check_kinds, refuse_other_labels
from rlab.data.batch import Batch
from rlab.errors import ModelError, OptionError
from rlab.predictions.kinds import WORDS
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

_SAME, _ROUGHLY = 1e-3, 0.02  # largest change of a score; a GPU and half precision round by the size of a batch


def check_clean(goal: Goal, scored: str, victim: Victim, batch: Batch, clean: Tensor, labels: Tensor) -> None:
    """Refuse a goal, a policy or labels (n, ...) of the whole run that do not fit the clean answers (b, k).

    `scored` names the policy if it needs scores.
    """
    check_kinds(goal, victim.prediction, batch.target)
    if victim.prediction == "classes":
        _check_scores(goal, scored, victim, batch, clean)
    goal.check(labels, clean.shape[1])
    if isinstance(goal, Targeted) and batch.aims is not None:
        goal.check_aims(batch.aims, clean.shape[1])
    refuse_nan(clean, batch.ids)


def _check_scores(goal: Goal, scored: str, victim: Victim, batch: Batch, clean: Tensor) -> None:
    if goal.multilabel != victim.multilabel:
        want = "multilabel=True" if goal.multilabel else "multilabel=False"
        other = "" if goal.multilabel else ", or choose the goal multilabel"
        raise ModelError(f"the goal {str(goal)!r} needs a model declared with {want} (-M {want.lower()}){other}")
    refuse_other_labels(clean, victim.multilabel, batch.one_label, victim.outputs)
    scored = f"goal {str(goal)!r}" if isinstance(goal, Below) else scored
    if victim.reading.tells_labels and scored:
        raise OptionError(
            f"the {scored} needs scores, but the model returns only labels: use the policy auto and the goal untargeted"
        )
    batch.check_numbers(clean.shape[1])


def need_classes(victim: Victim, command: str) -> None:
    """Refuse a model that does not return scores of classes."""
    if victim.prediction != "classes":
        raise ModelError(
            f"`rlab {command}` takes models that return scores of classes, but this one returns {WORDS[victim.prediction]}: "
            "`rlab attack` takes all kinds"
        )


def same_answers(victim: Victim, before: Tensor, now: Tensor) -> bool:
    """Whether two answers to the same inputs (probabilities, boxes, maps or numbers) differ at most by rounding."""
    half = isinstance(victim, TorchVictim) and (victim.autocast or victim.dtype.itemsize == 2)
    far = _ROUGHLY if half or victim.device.type != "cpu" else _SAME
    share = 0.0 if victim.prediction == "classes" else far  # boxes and numbers may be large
    return before.shape == now.shape and torch.allclose(before, now, rtol=share, atol=far, equal_nan=True)


def refuse_nan(clean: Tensor, ids: Sequence[str]) -> None:
    """Refuse answers (n, k) with NaN to untouched samples."""
    bad = torch.isnan(clean).any(1)
    if bad.any():
        raise ModelError(
            f"the model answered NaN for {int(bad.sum())} of {len(ids)} untouched samples, "
            f"first {ids[int(bad.nonzero()[0])]!r}: fix the model or its input range"
        )
