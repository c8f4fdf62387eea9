"""What the model answers: numbers at all, of the declared kind, the same ones for the same question, the labels."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rlab.core.goals import MultiLabel, Untargeted
from rlab.data.batch import Batch
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import FEWEST, RISE, Finding, at_least, clear_rise, error, note, options, warning
from rlab.errors import InputError, VictimError
from rlab.victims.base import Victim, looks_like_probabilities
from rlab.victims.torch_module import TorchVictim

_ALONE = 4  # rows asked one by one
_EQUAL, _EQUAL_IN_HALF = 1e-3, 3e-2  # by how much probabilities may differ between two askings
_GRAVE = 2e-2
_SURE = 0.8  # the inner probability from which a row says that softmax ran twice
_SURE_OF_MANY = 0.5  # with more classes it takes less, as all the others must be alike to within 1 / k
_ROUND = 1e-3
_AGREE = 0.9  # of the samples, before labels are called renamed


def declared(probe: Probe, raw: Tensor) -> list[Finding]:
    """The outputs (b, k) against what the user said of them; sets the victim's `outputs` to what they are."""
    victim, clear = probe.victim, raw[torch.isfinite(raw).all(1)]
    if not len(clear):
        return []
    if stated_classes := _ordered_classes(probe, clear):
        return stated_classes
    stated, looks = victim.outputs, looks_like_probabilities(clear, victim.multilabel)
    low, high = (float(end) for end in clear.aminmax())
    span = f"outputs run from {low:.4g} to {high:.4g}"
    if stated == "logits" and looks:
        victim.outputs = "probabilities"
        rows = "" if victim.multilabel else " and every row sums to 1"
        change, flag = "pass outputs='probabilities'", options(outputs="probabilities")
        return [error("outputs", f"{span}{rows}, but are declared logits", change, flag)]
    if stated == "probabilities" and (low < -_ROUND or high > 1 + _ROUND):
        victim.outputs = "logits"
        change, flag = "pass outputs='logits'", options(outputs="logits")
        return [error("outputs", f"{span}, but are declared probabilities", change, flag)]
    if not looks and low >= 0 and high <= 1:
        sums = f"rows sum to {clear.sum(1).min():.3g} to {clear.sum(1).max():.3g}"
        change = "pass multilabel=True if they are one sigmoid a label, otherwise return logits or probabilities"
        return [warning("outputs", f"{span} like probabilities but {sums}", change, options(multilabel="true"))]
    return []


def _ordered_classes(probe: Probe, raw: Tensor) -> list[Finding]:
    """Rows (b, k) of class numbers, the likeliest first, which are no scores; the victim reads them so from here on."""
    victim, whole = probe.victim, bool((raw == raw.round()).all()) and float(raw.min()) >= 0
    if victim.multilabel or victim.tells_labels or not whole or not (raw.sort(1).values.diff(dim=1) > 0).all():
        return []
    first = float((raw[:, 0] == probe.batch.y.to(raw)[: len(raw)]).float().mean())
    if first < 0.5 or first <= float(probe.correct(raw).mean()):
        return []
    many = max(probe.classes(), int(raw.max()) + 1)
    victim.outputs, victim.classes = "topk", many
    what = f"every row holds {raw.shape[1]} different whole numbers, the first of them the label of {first:.0%} of the samples"
    change = "these are class numbers and no scores: pass outputs='topk' and how many classes there are"
    return [error("outputs", what, change, options(outputs="topk", classes=many))]


def output_findings(probe: Probe, raw: Tensor, scores: Tensor) -> list[Finding]:
    """Outputs (b, k) of one asking and scores (b, k) of another, both of the same samples."""
    rows = (~torch.isfinite(probe.victim.probabilities(scores)).all(1)).nonzero().flatten().tolist()
    if rows:
        what = f"the model answers NaN for {len(rows)} of {len(scores)} samples, first {probe.batch.ids[rows[0]]!r}"
        return [error("nan", what, "look for a division by a std of 0, a log of 0 or an overflow in half precision")]
    twice = _twice_each(scores) if probe.victim.multilabel else _twice(scores)
    return [*_steadiness(probe, raw, scores), *twice, *_saturated(probe, raw)]


def constant(probe: Probe, scores: Tensor) -> list[Finding]:
    """The same scores (b, k) whatever comes."""
    x = probe.batch.x
    chances = probe.victim.probabilities(scores)
    if len(x) < 2 or torch.equal(x, x[:1].expand_as(x)) or (chances - chances[:1]).abs().max() > 1e-6:
        return []
    what = f"the model gives the same scores for {len(x)} different samples"
    return [error("constant", what, "check that the weights are loaded and that the input reaches the model")]


def _steadiness(probe: Probe, raw: Tensor, scores: Tensor) -> list[Finding]:
    victim, chances = probe.victim, probe.victim.probabilities(scores)
    half = isinstance(victim, TorchVictim) and (victim.autocast or victim.dtype.itemsize < 4)
    allowed = _EQUAL_IN_HALF if half else _EQUAL
    if victim.outputs == "topk":
        raw = chances  # a question of its own would say the same
    elif victim.outputs not in ("probabilities", "labels"):
        raw = raw.sigmoid() if victim.multilabel else raw.softmax(1)
    name, apart = "random", float((raw - chances).abs().max())
    seen = f"asked twice about the same samples, the model's probabilities differ by up to {apart:.2g}"
    if apart <= allowed:
        name, (apart, seen) = "batch", _alone(probe, chances)
    training, change = _training(victim), "call .eval() on the whole model before wrapping it"
    if apart <= allowed:
        return [note("training-mode", f"{training}, without effect on the answers", change)] if training else []
    if training:
        return [error("training-mode", f"{seen}; {training}", change)]
    change = "put the model into evaluation mode (dropout and batch normalisation off), or fix its seed"
    return [(error if apart > _GRAVE else warning)(name, seen, change)]


def _alone(probe: Probe, chances: Tensor) -> tuple[float, str]:
    """How far a row's answer by itself is from its answer among others."""
    few = probe.batch.x[:_ALONE]
    if len(probe.batch) < 2:
        return 0.0, ""
    try:
        answers = torch.cat([probe.victim(row, PHASE) for row in few.split(1)])
    except VictimError as problem:
        return 1.0, f"a sample that is answered among others is not answered alone: {problem}"
    apart = float((probe.victim.probabilities(answers) - chances[: len(few)]).abs().max())
    return apart, f"probabilities of a sample alone and among others differ by up to {apart:.2g}"


def _training(victim: Victim) -> str:
    """The parts of a torch model that are in training mode, as words."""
    if not isinstance(victim, TorchVictim):
        return ""
    parts = [f"{name} ({type(part).__name__})" for name, part in victim.model.named_modules() if part.training]
    return f"in training mode: {', '.join(parts[:3])}{', ...' if len(parts) > 3 else ''}" if parts else ""


def _twice(scores: Tensor) -> list[Finding]:
    """If scores (b, k) are log softmax(q) of probabilities q, then q is what they are above their mean, plus 1 / k."""
    inner = scores - scores.mean(1, keepdim=True) + 1 / scores.shape[1]
    sure = inner.amax(1) > (_SURE if scores.shape[1] < 5 else _SURE_OF_MANY)
    if inner.min() < -_ROUND or inner.max() > 1 + _ROUND or sure.float().mean() < 0.5:
        return []
    top, k = float(scores.exp().max()), scores.shape[1]
    what = f"no probability is above {top:.3f}, which is as sure as a softmax of probabilities gets with {k} classes"
    return [error("softmax-twice", what, "apply softmax once: return logits, or the probabilities as they are")]


def _twice_each(scores: Tensor) -> list[Finding]:
    """Log-odds of a sigmoid of probabilities lie between 0 and 1, at the ends where the model is sure."""
    near = ((scores < 1 - _SURE) | (scores > _SURE)).float().mean()
    if scores.min() < -_ROUND or scores.max() > 1 + _ROUND or near < 0.5:
        return []
    low, high = (float(end) for end in scores.sigmoid().aminmax())
    what = f"all probabilities lie between {low:.3f} and {high:.3f}, as those of a sigmoid of probabilities do"
    return [error("softmax-twice", what, "apply the sigmoid once: return logits, or the probabilities as they are")]


def _saturated(probe: Probe, raw: Tensor) -> list[Finding]:
    if probe.victim.outputs != "probabilities":
        return []
    stuck = ((raw <= 0) | (raw >= 1)).all(1)
    if stuck.float().mean() < 0.25:
        return []
    what = f"{int(stuck.sum())} of {len(raw)} rows are probabilities of exactly 0 and 1, which hide how near a flip is"
    if stuck.all() and not probe.victim.multilabel:
        change = "return logits and pass outputs='logits', or pass outputs='labels' if the model only decides"
        return [warning("saturated", what, change, options(outputs="labels"))]
    change = "return logits and pass outputs='logits', or calibrate a model that only decides"
    return [warning("saturated", what, change)]


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
    y, guess, hits = probe.batch.y, scores.argmax(1), probe.correct(scores)
    if probe.victim.multilabel or scores.shape[1] < 3:
        return []
    for shift, change in ((1, "add 1 to the labels"), (-1, "subtract 1 from the labels")):
        moved = (guess == y + shift).float()
        level = clear_rise(hits, moved)
        if level and (float(moved.mean()) >= _AGREE or not renamed(probe, scores)):
            what = f"{int(moved.sum())} of {len(y)} predictions are the label {shift:+d}, {int(hits.sum())} the label"
            return [Finding(level, "labels", what, f"{change}: the model counts its classes otherwise")]
    return []


def renamed(probe: Probe, scores: Tensor) -> list[Finding]:
    """One class for another throughout. A class's first sample proves nothing, so only the further ones count."""
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
    what = f"the model tells classes apart but names them otherwise in {same} of {int(repeated.sum())} cases: {pairs}"
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
