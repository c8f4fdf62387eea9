"""What the model answers: numbers at all, of the declared kind, the same ones for the same question."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import Finding, error, note, warning
from rlab.errors import VictimError
from rlab.victims.base import looks_like_probabilities
from rlab.victims.torch_module import TorchVictim

_ALONE = 4  # rows asked one by one
_EQUAL, _EQUAL_IN_HALF = 1e-3, 3e-2  # by how much probabilities may differ between two askings
_GRAVE = 2e-2
_SURE = 0.8  # the inner probability from which a row says that softmax ran twice
_SURE_OF_MANY = 0.5  # with more classes it takes less, as all the others must be alike to within 1 / k
_ROUND = 1e-3


def declared(probe: Probe, raw: Tensor) -> list[Finding]:
    """The outputs (b, k) against what the user said of them; sets the victim's `outputs` to what they are."""
    victim, clear = probe.victim, raw[torch.isfinite(raw).all(1)]
    if not len(clear):
        return []
    said, looks = victim.outputs, looks_like_probabilities(clear, victim.multilabel)
    low, high = (float(end) for end in clear.aminmax())
    span = f"outputs run from {low:.4g} to {high:.4g}"
    if said == "logits" and looks:
        victim.outputs = "probabilities"
        rows = "" if victim.multilabel else " and every row sums to 1"
        return [error("outputs", f"{span}{rows}, but are declared logits", "pass outputs='probabilities'")]
    if said == "probabilities" and (low < -_ROUND or high > 1 + _ROUND):
        victim.outputs = "logits"
        return [error("outputs", f"{span}, but are declared probabilities", "pass outputs='logits'")]
    if not looks and low >= 0 and high <= 1:
        sums = f"rows sum to {clear.sum(1).min():.3g} to {clear.sum(1).max():.3g}"
        change = "pass multilabel=True if they are one sigmoid a label, otherwise return logits or probabilities"
        return [warning("outputs", f"{span} like probabilities but {sums}", change)]
    return []


def output_findings(probe: Probe, raw: Tensor, scores: Tensor) -> list[Finding]:
    """Outputs (b, k) of one asking and scores (b, k) of another, both of the same samples."""
    if not torch.isfinite(probe.victim.probabilities(scores)).all():
        return [_nan(probe, scores)]
    twice = _twice_each(scores) if probe.victim.multilabel else _twice(scores)
    return [*_steadiness(probe, raw, scores), *twice, *_saturated(probe, raw)]


def _nan(probe: Probe, scores: Tensor) -> Finding:
    rows = (~torch.isfinite(probe.victim.probabilities(scores)).all(1)).nonzero().flatten().tolist()
    first = probe.batch.ids[rows[0]]
    what = f"the model answers NaN for {len(rows)} of {len(scores)} samples, first {first!r}"
    return error("nan", what, "look for a division by a std of 0, a log of 0 or an overflow in half precision")


def constant(probe: Probe, scores: Tensor) -> list[Finding]:
    """The same scores (b, k) whatever comes."""
    given = probe.batch.x
    chances = probe.victim.probabilities(scores)
    if len(given) < 2 or torch.equal(given, given[:1].expand_as(given)) or (chances - chances[:1]).abs().max() > 1e-6:
        return []
    what = f"the model gives the same scores for {len(given)} different samples"
    return [error("constant", what, "check that the weights are loaded and that the input reaches the model")]


def _probabilities(probe: Probe, raw: Tensor) -> Tensor:
    if probe.victim.outputs == "probabilities":
        return raw
    return raw.sigmoid() if probe.victim.multilabel else raw.softmax(1)


def _steadiness(probe: Probe, raw: Tensor, scores: Tensor) -> list[Finding]:
    victim, chances = probe.victim, probe.victim.probabilities(scores)
    half = isinstance(victim, TorchVictim) and (victim.autocast or victim.dtype.itemsize < 4)
    allowed = _EQUAL_IN_HALF if half else _EQUAL
    again = float((_probabilities(probe, raw) - chances).abs().max())
    if again > allowed:
        seen = f"asked twice about the same samples, the model's probabilities differ by up to {again:.2g}"
        return [_unsteady(probe, "random", seen, again)]
    alone, seen = _alone(probe, chances)
    if alone > allowed:
        return [_unsteady(probe, "batch", seen, alone)]
    if training := _training(probe):
        return [note("training-mode", f"{training}, without effect on the answers", "call .eval() on the whole model")]
    return []


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


def _unsteady(probe: Probe, name: str, seen: str, apart: float) -> Finding:
    if training := _training(probe):
        return error("training-mode", f"{seen}; {training}", "call .eval() on the whole model before wrapping it")
    change = "put the model into evaluation mode (dropout and batch normalisation off), or fix its seed"
    return (error if apart > _GRAVE else warning)(name, seen, change)


def _training(probe: Probe) -> str:
    """The parts of a torch model that are in training mode, as words."""
    if not isinstance(probe.victim, TorchVictim):
        return ""
    parts = [f"{name} ({type(part).__name__})" for name, part in probe.victim.model.named_modules() if part.training]
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
    change = "return logits and pass outputs='logits', or calibrate a model that only decides"
    return [warning("saturated", what, change)]
