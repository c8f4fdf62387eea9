"""Requirements against what was found. What could not be measured does not pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.auditing.found import Found
from rlab.auditing.requirements import Rule
from rlab.benchmarking import Requirement, check_requirements
from rlab.core.breakdown import entry_filters
from rlab.core.result import AttackResult
from rlab.errors import InputError


@dataclass(frozen=True)
class Measured:
    """A figure, or why there is none (NaN)."""

    value: float
    samples: int = 0
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """One requirement and what became of it."""

    rule: Rule
    measured: Measured

    @property
    def passed(self) -> bool:
        return not math.isnan(self.measured.value) and self.rule.holds(self.measured.value)

    @property
    def shown(self) -> str:
        """The measured value as people read it."""
        return shown(self.rule, self.measured.value)

    def __str__(self) -> str:
        word = "passes" if self.passed else "fails"
        note = f" ({self.measured.note})" if self.measured.note else ""
        return f"{word}: {self.rule.text}, measured {self.shown}{note}"


def shown(rule: Rule, value: float) -> str:
    if math.isnan(value):
        return "nothing"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    percent = rule.figure.share and rule.figure.stage != "explain" and rule.figure.key != "area"
    return f"{value:.1%}" if percent else f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


def judge(rules: Sequence[Rule], found: Found, own: str) -> list[Outcome]:
    """One outcome a requirement, in order; `own` is the audited model's name in the benchmark."""
    return [Outcome(rule, _measure(rule, found, own)) for rule in rules]


def _measure(rule: Rule, found: Found, own: str) -> Measured:
    stage = rule.figure.stage
    if stage == "audit":
        return Measured(found.rows.total)
    if stage in found.left_out:
        return Measured(math.nan, note=found.left_out[stage])
    if stage in found.done and found.done[stage].note:
        return _of_nothing(rule, found, own)
    return _BY_STAGE[stage](rule, found, own)


def _of_nothing(rule: Rule, found: Found, own: str) -> Measured:
    """Where no sample was flipped, every sample stands on its original, which the audited model has right."""
    note = found.done[rule.figure.stage].note
    unbroken = rule.figure.stage == "benchmark" and rule.named in ("", own) and rule.figure.key in ("accuracy", "area")
    right = found.attack is not None and bool(found.attack.attacked.any())
    return Measured(1.0 if unbroken and right else math.nan, note=note)


def _doctor(rule: Rule, found: Found, own: str) -> Measured:
    assert found.doctor is not None
    level = rule.figure.key.removesuffix("s")
    named = [one["name"] for one in found.doctor["findings"] if one["level"] == level]
    return Measured(float(len(named)), note=", ".join(named))


def _attack(rule: Rule, found: Found, own: str) -> Measured:
    assert found.attack is not None
    result, key = found.attack, rule.figure.key
    held = of_class(result, rule.classed)
    if key == "clean_accuracy":
        right = clean_right(result)[held]
        return Measured(float(right.double().mean()), len(right))
    attacked, won = held & result.attacked, held & result.succeeded & with_filter(result, rule.distortion)
    if not attacked.any():
        return Measured(math.nan, note="the model has none of these samples right")
    if key == "success":
        reached = won & within(result, rule.within)
        return Measured(float(reached.sum()) / int(attacked.sum()), int(attacked.sum()))
    if not won.any():
        return Measured(rule.figure.worst, int(attacked.sum()), "no sample was flipped")
    return Measured(float(_VALUES[key](result)[won].double().quantile(0.5)), int(won.sum()))


_VALUES: dict[str, Callable[[AttackResult], Tensor]] = {
    "median_queries": lambda result: result.effort,
    "median_l2": lambda result: result.final["l2"],
    "median_snr": lambda result: result.final["snr_db"],
    "median_patches": lambda result: result.final["l0_patches"],
}


def of_class(result: AttackResult, name: str) -> Tensor:
    """(n,) samples of a class, by name or index; all where none is named."""
    if not name:
        return torch.ones(len(result), dtype=torch.bool)
    names = [one.lower() for one in result.setting.classes]
    index = names.index(name.lower()) if name.lower() in names else int(name)
    return result.labels[:, index] == 1 if result.labels.shape[1:] else result.labels == index


def with_filter(result: AttackResult, name: str) -> Tensor:
    """(n,) samples in whose final set the filter takes part."""
    if not name:
        return torch.ones(len(result), dtype=torch.bool)
    known = {one.lower(): entries for one, entries in entry_filters(result.setting.palette).items()}
    return torch.isin(result.assignment.long(), torch.tensor(known[name.lower()])).any(1)


def within(result: AttackResult, limit: tuple[str, float] | None) -> Tensor:
    """(n,) samples whose final change is no louder, no longer or no dearer than the limit."""
    if limit is None:
        return torch.ones(len(result), dtype=torch.bool)
    kind, value = limit
    if kind == "snr":
        return result.final["snr_db"] >= value
    return (result.final["l2"] if kind == "l2" else result.effort) <= value


def clean_right(result: AttackResult) -> Tensor:
    """(n,) where the model is right on the untouched input."""
    if result.labels.shape[1:]:
        return ((result.before > 0.5) == (result.labels == 1)).all(1)
    return (result.before.argmax(1) == result.labels) & ~result.before.isnan().any(1)


def _explain(rule: Rule, found: Found, own: str) -> Measured:
    assert found.explain is not None
    method = rule.named.lower() or next(iter(found.explain.judged))
    one = next(one for name, one in found.explain.judged.items() if name.lower() == method)
    return Measured(one.mean(rule.figure.key).value, len(one.explanation), "" if rule.named else method)


def _benchmark(rule: Rule, found: Found, own: str) -> Measured:
    assert found.report is not None
    assert found.verified is not None
    if rule.figure.key == "mismatches":
        wrong = found.verified["mismatches"]
        return Measured(float(len(wrong)), found.verified["files"], wrong[0] if wrong else "")
    model = next((one for one in found.report.models if one.lower() == rule.named.lower()), own)
    if rule.figure.key == "area":
        areas = [(row["area"], row["set"], 0) for row in found.report.areas if row["model"] == model]
        return _hardest(rule, areas)
    return _hardest(rule, _accuracies(rule, found, model))


def _accuracies(rule: Rule, found: Found, model: str) -> list[tuple[float, str, int]]:
    assert found.report is not None
    names = [row["level"] for row in found.report.levels] + [row["distortion"] for row in found.report.distortions]
    what = next((name for name in names if name.lower() == rule.what.lower()), rule.what)
    try:
        verdicts = check_requirements(found.report, [Requirement(what, 0.0, model)])
    except InputError:  # a filter of the palette that covers most of no file
        return []
    return [(one.accuracy, one.set, one.samples) for one in verdicts]


def _hardest(rule: Rule, values: list[tuple[float, str, int]]) -> Measured:
    """Of several sets, the one that is furthest from what is required."""
    known = [one for one in values if not math.isnan(one[0])]
    if not known:
        return Measured(math.nan, note=f"no file of the benchmark has {rule.what!r} as its main distortion")
    wants_more = rule.relation in ("at least", "above")
    value, name, samples = (min if wants_more else max)(known)
    return Measured(value, samples, f"set {name}" if len(known) > 1 else "")


def _harden(rule: Rule, found: Found, own: str) -> Measured:
    assert found.harden is not None
    before, after = (_number(found.harden[when].get(rule.figure.key)) for when in ("before", "after"))
    value = {"before": before, "after": after, "gained by": after - before, "lost by": before - after}[rule.moment]
    return replace(Measured(value), note="" if not math.isnan(value) else "this was not measured")


def _number(estimate: dict[str, float | str | None] | None) -> float:
    value = (estimate or {}).get("value")
    return math.nan if value is None else float(value)


_BY_STAGE: dict[str, Callable[[Rule, Found, str], Measured]] = {
    "doctor": _doctor,
    "attack": _attack,
    "explain": _explain,
    "benchmark": _benchmark,
    "harden": _harden,
}
