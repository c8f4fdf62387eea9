"""The model's answers: are they finite, of the declared kind, reproducible, and the labels?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rlab.core.goals import MultiLabel, Untargeted
from rlab.data.batch import Batch
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import (
    FEWEST,
    RISE,
    Finding,
    at_least,
    clear_rise,
    error,
    note,
    options,
    passed,
    sign_test,
    warning,
)
from rlab.errors import InputError, VictimError
from rlab.victims.answers import looks_like_probabilities
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

_ALONE = 4  # samples that are queried one by one
_EQUAL, _EQUAL_IN_HALF = 1e-3, 3e-2  # difference in probabilities allowed between two queries
_GRAVE = 2e-2
_SURE = 0.8  # the inner probability above which a row suggests two softmaxes
_SURE_OF_MANY = 0.5  # the same for 5 classes or more; all the others must agree to within 1 / k
_ROUND = 1e-3
_RARE = 0.05  # a loss less likely than this by chance is reported
_CHECK = "check the weights, the preprocessing and whether data and model have the same classes in the same order"
_AGREE = 0.9  # share of the samples that is needed to call labels renamed


def declared(probe: Probe, raw: Tensor) -> list[Finding]:
    """Compare outputs (b, k) with their declared kind, and read the probe's victim by their true kind."""
    victim, clear = probe.victim, raw[torch.isfinite(raw).all(1)]
    if not len(clear):
        return []
    if stated_classes := _ordered_classes(probe, clear):
        return stated_classes
    looks = looks_like_probabilities(clear, victim.multilabel)
    low, high = (float(end) for end in clear.aminmax())
    span = f"outputs range from {low:.4g} to {high:.4g}"
    if victim.outputs == "logits" and looks:
        rows = "" if victim.multilabel else " and every row sums to 1"
        return [_misread(probe, f"{span}{rows}, but are declared as logits", outputs="probabilities")]
    if victim.outputs == "probabilities" and (low < -_ROUND or high > 1 + _ROUND):
        return [_misread(probe, f"{span}, but are declared as probabilities", outputs="logits")]
    if not looks and low >= 0 and high <= 1:
        sums = f"rows sum to {clear.sum(1).min():.3g} to {clear.sum(1).max():.3g}"
        change = "pass multilabel=True if each is a sigmoid of its own, else return logits or probabilities"
        return [warning("outputs", f"{span} like probabilities but {sums}", change, options(multilabel="true"))]
    return []


def _misread(probe: Probe, what: str, change: str = "", **right: Unpack[VictimKeywords]) -> Finding:
    """The finding that the outputs are of another kind; the probe's victim is read in the right way from now on."""
    probe.victim.reading = probe.victim.read_as(**right).reading
    return error("outputs", what, change or f"pass outputs={right['outputs']!r}", options(**right))


def _ordered_classes(probe: Probe, raw: Tensor) -> list[Finding]:
    """Rows (b, k) of class numbers, most likely first, instead of scores; the probe's victim reads them so from now on."""
    victim, whole = probe.victim, bool((raw == raw.round()).all()) and float(raw.min()) >= 0
    if victim.multilabel or victim.reading.tells_labels or not whole or not (raw.sort(1).values.diff(dim=1) > 0).all():
        return []
    first = float((raw[:, 0] == probe.batch.y.to(raw)[: len(raw)]).float().mean())
    if first < 0.5 or first <= float(probe.correct(raw).mean()):
        return []
    what = f"each row is {raw.shape[1]} different integers, and the first is the label of {first:.0%} of the samples"
    change = "these are class numbers instead of scores: pass outputs='topk' and the number of classes"
    return [_misread(probe, what, change, outputs="topk", classes=max(probe.classes(), int(raw.max()) + 1))]


def output_findings(probe: Probe, raw: Tensor, scores: Tensor) -> Iterator[Finding]:
    """`raw` outputs (b, k) and `scores` (b, k) are from two queries of the same samples."""
    victim, (count, classes) = probe.victim, scores.shape
    kind = "several labels per sample" if victim.multilabel else "one label per sample"
    yield passed("outputs", f"{classes} {victim.outputs}, {kind}")
    chances = victim.probabilities(scores)
    if rows := (~torch.isfinite(chances).all(1)).nonzero().flatten().tolist():
        what = f"the model returns NaN for {len(rows)} of {count} samples, e.g. {probe.batch.ids[rows[0]]!r}"
        yield error("nan", what, "look for a division by 0, a log of 0 or an overflow in half precision")
        return
    yield passed("nan", f"finite scores for all {count} samples")
    yield _steadiness(probe, raw, scores)
    twice = _twice_each(scores) if victim.multilabel else _twice(scores)
    yield from [*twice, *_saturated(probe, raw)] or [
        passed("softmax-twice", f"probabilities up to {chances.max():.3g}")
    ]


def constant(probe: Probe, scores: Tensor) -> list[Finding]:
    """The same scores (b, k) for all inputs."""
    x = probe.batch.x
    chances = probe.victim.probabilities(scores)
    if len(x) < 2 or torch.equal(x, x[:1].expand_as(x)) or (chances - chances[:1]).abs().max() > 1e-6:
        return []
    what = f"the model returns the same scores for {len(x)} different samples"
    return [error("constant", what, "check that the weights are loaded and that the input reaches the model")]


def _steadiness(probe: Probe, raw: Tensor, scores: Tensor) -> Finding:
    victim, chances = probe.victim, probe.victim.probabilities(scores)
    half = isinstance(victim, TorchVictim) and (victim.autocast or victim.dtype.itemsize < 4)
    allowed = _EQUAL_IN_HALF if half else _EQUAL
    if victim.outputs == "topk":
        raw = chances  # another query would give the same
    elif victim.outputs not in ("probabilities", "labels"):
        raw = raw.sigmoid() if victim.multilabel else raw.softmax(1)
    name, apart = "random", float((raw - chances).abs().max())
    seen = f"two queries of the same samples give probabilities that differ by up to {apart:.2g}"
    if apart <= allowed:
        name, (apart, seen) = "batch", _alone(probe, chances)
    training, change = _training(victim), "call .eval() on the whole model before wrapping it"
    if apart <= allowed and training:
        return note("training-mode", f"{training}, without effect on the scores", change)
    if apart <= allowed:
        return passed("steady", "the same scores for the same samples, together and alone")
    if training:
        return error("training-mode", f"{seen}; {training}", change)
    change = "put the model into evaluation mode, which disables dropout, or fix its seed"
    return (error if apart > _GRAVE else warning)(name, seen, change)


def _alone(probe: Probe, chances: Tensor) -> tuple[float, str]:
    """How much the answer to a single sample differs from the answer to it in a batch."""
    few = probe.batch.x[:_ALONE]
    if len(probe.batch) < 2:
        return 0.0, ""
    try:
        answers = torch.cat([probe.victim(row, PHASE) for row in few.split(1)])
    except VictimError as problem:
        return 1.0, f"the model accepts a batch but not a single sample: {problem}"
    apart = float((probe.victim.probabilities(answers) - chances[: len(few)]).abs().max())
    return apart, f"probabilities of a sample alone and in a batch differ by up to {apart:.2g}"


def _training(victim: Victim) -> str:
    """A list of the parts of a torch model that are in training mode."""
    if not isinstance(victim, TorchVictim):
        return ""
    parts = [f"{name} ({type(part).__name__})" for name, part in victim.model.named_modules() if part.training]
    return f"in training mode: {', '.join(parts[:3])}{', ...' if len(parts) > 3 else ''}" if parts else ""


def _twice(scores: Tensor) -> list[Finding]:
    """If scores (b, k) are log softmax(q) of probabilities q, then q = scores - mean(scores) + 1 / k."""
    inner = scores - scores.mean(1, keepdim=True) + 1 / scores.shape[1]
    sure = inner.amax(1) > (_SURE if scores.shape[1] < 5 else _SURE_OF_MANY)
    if inner.min() < -_ROUND or inner.max() > 1 + _ROUND or sure.float().mean() < 0.5:
        return []
    top, k = float(scores.exp().max()), scores.shape[1]
    what = f"no probability exceeds {top:.3f}, the maximum of a softmax of probabilities of {k} classes"
    return [error("softmax-twice", what, "apply softmax only once: return logits or probabilities")]


def _twice_each(scores: Tensor) -> list[Finding]:
    """Log-odds of a sigmoid of probabilities are between 0 and 1, and near these if the model is certain."""
    near = ((scores < 1 - _SURE) | (scores > _SURE)).float().mean()
    if scores.min() < -_ROUND or scores.max() > 1 + _ROUND or near < 0.5:
        return []
    low, high = (float(end) for end in scores.sigmoid().aminmax())
    what = f"all probabilities are between {low:.3f} and {high:.3f}, like a sigmoid of probabilities"
    return [error("softmax-twice", what, "apply the sigmoid only once: return logits or probabilities")]


def _saturated(probe: Probe, raw: Tensor) -> list[Finding]:
    if probe.victim.outputs != "probabilities":
        return []
    stuck = ((raw <= 0) | (raw >= 1)).all(1)
    if stuck.float().mean() < 0.25:
        return []
    what = f"{int(stuck.sum())} of {len(raw)} rows are exactly 0 and 1, which hides how close a flip is"
    if stuck.all() and not probe.victim.multilabel:
        change = "return logits and pass outputs='logits', or pass outputs='labels' if the model returns decisions"
        return [warning("saturated", what, change, options(outputs="labels"))]
    change = "return logits and pass outputs='logits', or calibrate the model"
    return [warning("saturated", what, change)]


def label_range(batch: Batch, multilabel: bool, classes: int) -> list[Finding]:
    """Check all labels of the batch, not only those of the chosen samples."""
    try:
        batch.check_numbers(classes)
    except InputError as problem:
        change = "write all class names of the model in order, one per line, to a file and name it as classes"
        return [error("labels", str(problem).partition(": ")[0], change, "-D classes=FILE")]
    try:
        (MultiLabel() if multilabel else Untargeted()).check(batch.y, classes)
    except InputError as problem:
        return [error("labels", str(problem), _mend(batch, multilabel, classes))]
    return []


def _mend(batch: Batch, multilabel: bool, classes: int) -> str:
    if multilabel:
        return f"give each sample a row of {classes} zeros and ones, or pass multilabel=False to the model"
    if batch.y.shape[1:]:
        return "pass multilabel=True to the model, or give each sample one class number"
    if int(batch.y.min()) == 1 and int(batch.y.max()) == classes:
        return "subtract 1 from the labels, which count from 1"
    return "load the labels that the model was trained on, or a model with as many classes as there are labels"


def shifted(probe: Probe, scores: Tensor) -> list[Finding]:
    """Labels that count from another number than the model; with two classes that would be a swap."""
    y, guess, hits = probe.batch.y, scores.argmax(1), probe.correct(scores)
    if probe.victim.multilabel or scores.shape[1] < 3:
        return []
    for shift, change in ((1, "add 1 to the labels"), (-1, "subtract 1 from the labels")):
        moved = (guess == y + shift).float()
        level = clear_rise(hits, moved)
        if level and (float(moved.mean()) >= _AGREE or not renamed(probe, scores)):
            what = f"{int(moved.sum())} of {len(y)} predictions equal the label {shift:+d}, and {int(hits.sum())} the label"
            return [Finding(level, "labels", what, f"{change}: the model counts its classes from another number")]
    return []


def renamed(probe: Probe, scores: Tensor) -> list[Finding]:
    """Classes with swapped names. The first sample of a class proves nothing, so only further ones count."""
    y, guess, classes = probe.batch.y, scores.argmax(1), scores.shape[1]
    if probe.victim.multilabel or float(probe.correct(scores).mean()) > 1 - RISE:
        return []
    counts = torch.zeros(classes, classes, dtype=torch.int64)
    counts.index_put_((y, guess), torch.ones_like(y), accumulate=True)
    repeated = counts[counts.sum(1) > 1]
    rows, named = linear_sum_assignment(repeated.numpy(), maximize=True)
    same = int(repeated[rows, named].sum())
    if len(repeated) < 2 or same - len(repeated) < FEWEST or same < _AGREE * int(repeated.sum()):
        return []
    labels = (counts.sum(1) > 1).nonzero().flatten().tolist()
    pairs = ", ".join(f"{labels[a]} as {b}" for a, b in list(zip(rows.tolist(), named.tolist(), strict=True))[:4])
    what = f"the model separates the classes but numbers them differently for {same} of {int(repeated.sum())} samples: {pairs}"
    return [error("labels", what, "renumber the labels like the model's classes")]


def low_accuracy(probe: Probe, scores: Tensor) -> list[Finding]:
    """An error only if the samples fit guessing, and do not fit half of the accuracy above it."""
    if len(scores) < FEWEST:
        return []
    if probe.victim.multilabel:
        return _worse_than_guessing(probe, scores)
    tries, classes = scores.shape
    hits, chance = int(probe.correct(scores).sum()), 1 / classes
    guessing = at_least(hits, tries, chance)
    poor = 1 - at_least(hits + 1, tries, (1 + chance) / 2)
    if guessing < 0.1 and hits / tries >= 0.5:
        return []
    what = f"{hits} of {tries} predictions are right; guessing among {classes} classes gets {chance * tries:.1f} of {tries} right"
    if guessing > 0.05 and poor < 0.01:
        common = int(scores.argmax(1).mode().values)
        often = int((scores.argmax(1) == common).sum())
        return [error("accuracy", f"{what}; {often} predictions are class {common}", _CHECK)]
    change = "check that the model was trained on such data; misclassified samples are not attacked"
    return [warning("accuracy", what, change)]


def _worse_than_guessing(probe: Probe, scores: Tensor) -> list[Finding]:
    """Fewer labels right than by one answer to all samples: the more common value of each label."""
    right, y = probe.correct(scores), probe.batch.y > 0
    guess = (y == (y.float().mean(0) > 0.5)).float().mean(1)
    if right.mean() >= guess.mean() or sign_test(right, guess) > _RARE:
        return []
    share, same = float(right.mean()), float(guess.mean())
    what = f"{share:.0%} of the labels are right; the same answer to every sample gets {same:.0%} right"
    return [warning("accuracy", what, _CHECK)]
