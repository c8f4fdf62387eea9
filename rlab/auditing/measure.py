"""Requirements against what the stages found. What could not be measured does not pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rlab.auditing.results import StageResults, clean_correct
from rlab.benchmarking.requirements import Requirement, Verdict, measure_benchmark, quantity
from rlab.core.breakdown import entry_filters
from rlab.core.result import AttackResult
from rlab.stats import median_of

_HARDENED = {"clean_accuracy": "clean", "accuracy_under_attack": "agent", "accuracy_under_held_out_filters": "held_out",
             "median_l2": "agent_l2"}  # fmt: skip  # the others are named by what they are under


def judge(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    """`own` is the audited model's name in the benchmark."""
    stage = requirement.figure.stage
    if stage == "audit":
        return Verdict(requirement, results.rows.total)
    if stage in results.left_out:
        return Verdict(requirement, math.nan, note=results.left_out[stage])
    if stage in results.finished and (note := results.finished[stage].note):
        # where no sample was flipped, every sample stands on its original, which the audited model has right
        unbroken = requirement.metric in ("accuracy", "area") and requirement.model in (None, own)
        correct = results.attack is not None and bool(results.attack.attacked.any())
        return Verdict(requirement, 1.0 if unbroken and correct else math.nan, note=note)
    return _BY_STAGE[stage](requirement, results, own)


def _doctor(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    assert results.doctor is not None
    level = requirement.metric.removesuffix("s")
    names = [finding["name"] for finding in results.doctor["findings"] if finding["level"] == level]
    return Verdict(requirement, float(len(names)), note=", ".join(names))


def _attack(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    assert results.attack is not None
    result, metric = results.attack, requirement.metric
    members = of_class(result, requirement.class_)
    if metric == "clean_accuracy":
        correct = clean_correct(result)[members]
        return Verdict(requirement, float(correct.double().mean()), len(correct))
    attacked = members & result.attacked
    flipped = members & result.succeeded & with_filter(result, requirement.distortion)
    if not attacked.any():
        return Verdict(requirement, math.nan, note="the model has none of these samples right")
    if metric == "success":
        for kind, bound in (requirement.at or {}).items():
            flipped &= within(result, kind, quantity(bound)[0])
        return Verdict(requirement, float(flipped.sum()) / int(attacked.sum()), int(attacked.sum()))
    if not flipped.any():
        return Verdict(requirement, requirement.figure.unbroken, int(attacked.sum()), "no sample was flipped")
    return Verdict(requirement, median_of(_VALUES[metric](result), flipped), int(flipped.sum()))


_VALUES: dict[str, Callable[[AttackResult], Tensor]] = {
    "median_queries": lambda result: result.effort,
    "median_l2": lambda result: result.final["l2"],
    "median_snr": lambda result: result.final["snr_db"],
    "median_patches": lambda result: result.final["l0_patches"],
}


def of_class(result: AttackResult, name: str | None) -> Tensor:
    """(n,) samples of a class, by name or index; all where none is named."""
    if name is None:
        return torch.ones(len(result), dtype=torch.bool)
    classes = result.setting.classes
    index = classes.index(name) if name in classes else int(name)
    return result.labels[:, index] == 1 if result.labels.shape[1:] else result.labels == index


def with_filter(result: AttackResult, name: str | None) -> Tensor:
    """(n,) samples in whose final set the filter takes part; all where none is named."""
    if name is None:
        return torch.ones(len(result), dtype=torch.bool)
    entries = entry_filters(result.setting.palette)[name]
    return torch.isin(result.assignment.long(), torch.tensor(entries)).any(1)


def within(result: AttackResult, kind: str, bound: float) -> Tensor:
    """(n,) samples whose final change is no louder, no farther or no dearer than the bound."""
    if kind == "snr":
        return result.final["snr_db"] >= bound
    return (result.final["l2"] if kind == "l2" else result.effort) <= bound


def _explain(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    assert results.explain is not None
    method = requirement.method or next(iter(results.explain.judged))
    judged = results.explain.judged[method]
    note = "" if requirement.method else method
    return Verdict(requirement, judged.mean(requirement.metric).value, len(judged.explanation), note)


def _benchmark(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    assert results.report is not None
    assert results.verified is not None
    if requirement.metric == "mismatches":
        wrong = results.verified["mismatches"]
        return Verdict(requirement, float(len(wrong)), results.verified["files"], wrong[0] if wrong else "")
    verdicts = measure_benchmark(results.report, requirement, requirement.model or own)
    if not verdicts:
        note = f"no file of the benchmark has {requirement.distortion!r} as its main distortion"
        return Verdict(requirement, math.nan, note=note)
    hardest = min if requirement.relation in ("at_least", "above") else max  # furthest from what is required
    verdict = hardest(verdicts, key=lambda verdict: verdict.value)
    return replace(verdict, requirement=requirement, note=verdict.note if len(verdicts) > 1 else "")


def _harden(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    assert results.harden is not None
    assert requirement.when is not None
    key = _HARDENED.get(requirement.metric, requirement.metric.removeprefix("accuracy_under_"))
    stored = ((results.harden[when].get(key) or {}).get("value") for when in ("before", "after"))
    before, after = (math.nan if value is None else float(value) for value in stored)
    values = {"before": before, "after": after, "gained": after - before, "lost": before - after}
    value = values[requirement.when.split()[0]]
    return Verdict(requirement, value, note="this was not measured" if math.isnan(value) else "")


_BY_STAGE: dict[str, Callable[[Requirement, StageResults, str], Verdict]] = {
    "doctor": _doctor, "attack": _attack, "explain": _explain, "benchmark": _benchmark, "harden": _harden,
}  # fmt: skip
