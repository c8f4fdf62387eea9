"""The labels against the model's predictions; no further rows are asked."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rlab.core.goals import MultiLabel, Untargeted
from rlab.data.batch import Batch
from rlab.diagnosis.chance import FEWEST, RISE, at_least, clear_rise
from rlab.diagnosis.probe import Probe
from rlab.diagnosis.report import Finding, error, warning
from rlab.errors import InputError

_AGREE = 0.9  # of the samples, before labels are called renamed


def label_range(batch: Batch, multilabel: bool, classes: int) -> list[Finding]:
    """All labels of the batch, not only those of the samples picked."""
    try:
        (MultiLabel() if multilabel else Untargeted()).check(batch.y, classes)
    except InputError as problem:
        return [error("labels", str(problem), _mend(batch, multilabel, classes))]
    return []


def _mend(batch: Batch, multilabel: bool, classes: int) -> str:
    if multilabel:
        return f"give a row of {classes} zeros and ones a sample, or pass multilabel=False to the model"
    if batch.y.shape[1:]:
        return "pass multilabel=True to the model, or give one class index a sample"
    if int(batch.y.min()) == 1 and int(batch.y.max()) == classes:
        return "subtract 1 from the labels: they count from 1"
    return "load the labels this model was trained on, or the model with as many classes as there are labels"


def shifted(probe: Probe, scores: Tensor) -> list[Finding]:
    """Labels that count from another number than the model does; with two classes that would be a swap."""
    y, guess, right = probe.batch.y, scores.argmax(1), probe.correct(scores)
    if probe.victim.multilabel or scores.shape[1] < 3:
        return []
    for shift, change in ((1, "add 1 to the labels"), (-1, "subtract 1 from the labels")):
        moved = (guess == y + shift).float()
        level = clear_rise(right, moved)
        if level and (float(moved.mean()) >= _AGREE or not renamed(probe, scores)):
            what = f"{int(moved.sum())} of {len(y)} predictions are the label {shift:+d}, {int(right.sum())} the label"
            return [Finding(level, what, f"{change}: the model counts its classes otherwise", "labels")]
    return []


def renamed(probe: Probe, scores: Tensor) -> list[Finding]:
    """One class for another throughout. A class's first sample proves nothing, so only the further ones count."""
    y, guess, classes = probe.batch.y, scores.argmax(1), scores.shape[1]
    if probe.victim.multilabel or float(probe.correct(scores).mean()) > 1 - RISE:
        return []
    counts = torch.zeros(classes, classes, dtype=torch.int64)
    counts.index_put_((y, guess), torch.ones_like(y), accumulate=True)
    repeated = counts[counts.sum(1) > 1]
    known, named = linear_sum_assignment(repeated.numpy(), maximize=True)
    same = int(repeated[known, named].sum())
    if len(repeated) < 2 or same - len(repeated) < FEWEST or same < _AGREE * int(repeated.sum()):
        return []
    labels = (counts.sum(1) > 1).nonzero().flatten().tolist()
    pairs = ", ".join(f"{labels[a]} as {b}" for a, b in list(zip(known.tolist(), named.tolist(), strict=True))[:4])
    what = (
        f"the model tells the classes apart but names them otherwise in {same} of {int(repeated.sum())} cases: {pairs}"
    )
    return [error("labels", what, "put the labels into the order of the model's classes")]


def low_accuracy(probe: Probe, scores: Tensor) -> list[Finding]:
    """Error only where the samples speak both for guessing and against half of what lies above it."""
    if probe.victim.multilabel or len(scores) < FEWEST:
        return []
    tries, classes = scores.shape
    hits, chance = int(probe.correct(scores).sum()), 1 / classes
    guessing = at_least(hits, tries, chance)
    poor = 1 - at_least(hits + 1, tries, (1 + chance) / 2)
    if guessing < 0.1 and hits / tries >= 0.5:
        return []
    what = f"{hits} of {tries} predictions are the label; guessing among {classes} classes gives {chance * tries:.1f}"
    if guessing > 0.05 and poor < 0.01:
        common = int(scores.argmax(1).mode().values)
        often = int((scores.argmax(1) == common).sum())
        what += f"; {often} predictions are class {common}"
        return [error("accuracy", what, "check the weights, the preprocessing and that data and model share classes")]
    change = "check that the model was trained on such data; samples it gets wrong are not attacked"
    return [warning("accuracy", what, change)]
