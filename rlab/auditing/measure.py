"""Check requirements against the reports of the stages. A figure that is missing or too uncertain does not pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rlab.auditing.config import Condition
from rlab.auditing.report import AuditResult
from rlab.benchmarking import BenchmarkReport
from rlab.benchmarking.requirements import Requirement, Verdict, quantity
from rlab.benchmarking.verdicts import measure_benchmark
from rlab.benchmarking.verify import Verification
from rlab.corruptions.report import CorruptionReport
from rlab.diagnosis.report import Diagnosis
from rlab.explanation import MethodComparison
from rlab.hardening.before_after import AFTER, BEFORE
from rlab.hardening.report import Hardened
from rlab.predictions.kinds import WORDS
from rlab.predictions.metrics import FIGURES
from rlab.present.report import Report
from rlab.results.breakdown import entry_filters
from rlab.results.result import AttackResult, Status
from rlab.stats import NOTHING, difference, estimate, median_estimate, share_estimate

_HARDENED = {"clean_accuracy": "clean", "accuracy_under_attack": "agent", "accuracy_under_held_out_filters": "held_out",
             "median_l2": "agent_l2"}  # fmt: skip  # other figures: accuracy_under_NAME
CLEAN = "clean_"  # before a metric of untouched inputs
_TOLD = 6  # groups of channels in a note


def judge(requirement: Requirement, audit: AuditResult) -> Verdict:
    """The verdict by the report that measures the requirement's metric."""
    stage, own = requirement.figure.stage, requirement.model in (None, audit.model["name"])
    if stage == "audit":
        return Verdict(requirement, audit.rows.total)
    if stage in audit.left_out:
        return Verdict(requirement, math.nan, note=audit.left_out[stage])
    if note := audit.stages[stage].note:
        # without flips, every file of a benchmark would be an original, which the audited model classifies correctly
        if own and requirement.metric == "flip_distance":
            return Verdict(requirement, math.inf, note=note)
        right = 0 if audit.attack is None else int(audit.attack.attacked.sum())
        unbroken = own and requirement.metric in ("accuracy", "area")
        return Verdict.of(requirement, share_estimate(right, right) if unbroken else NOTHING, 0, note)
    kind, measure = _MEASURED["mismatches" if requirement.metric == "mismatches" else stage]
    report = audit.find(kind)
    assert report is not None
    return measure(requirement, audit, report)


def _doctor(requirement: Requirement, audit: AuditResult, report: Diagnosis) -> Verdict:
    level = requirement.metric.removesuffix("s")
    names = [finding.name for finding in report.findings if finding.level.value == level]
    return Verdict(requirement, float(len(names)), note=", ".join(names))


def _attack(requirement: Requirement, audit: AuditResult, result: AttackResult) -> Verdict:
    metric = requirement.metric
    if metric.removeprefix(CLEAN) in FIGURES:
        return _whole(requirement, result)
    members = torch.ones(len(result), dtype=torch.bool)
    if requirement.class_ is not None:
        index = class_index(result, requirement.class_)
        members = result.labels[:, index] == 1 if result.labels.shape[1:] else result.labels == index
    if metric == "clean_accuracy":
        correct = _clean_correct(result)[members]
        return Verdict.of(requirement, share_estimate(int(correct.sum()), len(correct)), len(correct))
    attacked = members & result.attacked
    flipped = members & result.succeeded
    if requirement.distortion is not None:  # the final change uses the filter
        entries = entry_filters(result.setting.palette)[requirement.distortion]
        flipped &= torch.isin(result.assignment.long(), torch.tensor(entries)).any(1)
    failed, note = _failures(result, attacked)
    if not attacked.any():
        return Verdict(requirement, math.nan, note="the model classifies none of these samples correctly")
    if metric == "success":
        for kind, bound in (requirement.at or {}).items():
            flipped &= within(result, kind, quantity(bound)[0])
        count = int(attacked.sum())
        return Verdict.of(requirement, share_estimate(int((flipped | failed).sum()), count), count, note)
    if not flipped.any():
        value = math.nan if failed.any() else requirement.figure.unbroken
        return Verdict(requirement, value, int(attacked.sum()), note or "no sample was flipped")
    measured = median_estimate(_VALUES[metric](result)[flipped])
    return Verdict.of(requirement, measured, int(flipped.sum()), note)


def _whole(requirement: Requirement, result: AttackResult) -> Verdict:
    """A figure of all samples together, such as the mean average precision; samples without such a flip count untouched."""
    name = requirement.metric
    kind, figure = FIGURES[name.removeprefix(CLEAN)]
    if result.setting.target != kind:
        note = f"{name} is for models that predict {WORDS[kind]}, but this one predicts {WORDS[result.setting.target]}"
        return Verdict(requirement, math.nan, note=note)
    flipped = result.succeeded & (not name.startswith(CLEAN))
    for by, bound in (requirement.at or {}).items():
        flipped &= within(result, by, quantity(bound)[0])
    of = figure(torch.where(flipped[:, None], result.after, result.before), result.labels)
    measured = estimate(lambda draws: np.array([of(rows) for rows in draws]), len(result))
    note = f"{int(flipped.sum())} samples changed" if flipped.any() else ""
    return Verdict.of(requirement, measured, len(result), note)


def _failures(result: AttackResult, attacked: Tensor) -> tuple[Tensor, str]:
    """(n,) samples on which the model returned NaN, which counts as a flip; and a note about all that ended without a result."""
    without = (Status.FAILED, Status.LOST, Status.UNVERIFIED)
    ended = {status: attacked & torch.tensor([each is status for each in result.status]) for status in without}
    told = [f"{int(rows.sum())} {status.value}" for status, rows in ended.items() if rows.any()]
    return ended[Status.FAILED], ", ".join(told)


_VALUES: dict[str, Callable[[AttackResult], Tensor]] = {
    "median_queries": lambda result: result.effort,
    "median_l2": lambda result: result.final["l2"],
    "median_snr": lambda result: result.final["snr_db"],
    "median_patches": lambda result: result.final["l0_patches"],
}


def class_index(result: AttackResult, name: str) -> int:
    classes = result.setting.classes
    return classes.index(name) if name in classes else int(name)


def within(result: AttackResult, kind: str, bound: float) -> Tensor:
    """(n,) samples whose final change stays within the bound on SNR, L2 or queries."""
    if kind == "snr":
        return result.final["snr_db"] >= bound
    return (result.final["l2"] if kind == "l2" else result.effort) <= bound


def _clean_correct(result: AttackResult) -> Tensor:
    """(n,) whether the model is right about the original."""
    if result.setting.target != "classes":
        return result.attacked
    if result.labels.shape[1:]:
        return ((result.before > 0.5) == (result.labels == 1)).all(1)
    return (result.before.argmax(1) == result.labels) & ~result.before.isnan().any(1)


def _detect(requirement: Requirement, audit: AuditResult, result: AttackResult) -> Verdict:
    """The group of channels with the worst share counts; the note has all groups, the worst first."""
    wanted = (class_index(result, str(requirement.class_)), *Condition.of(requirement))
    tallies = audit.stages["detect"].tallies
    found = [tally for tally in tallies if (tally.label, tally.distortion, tally.snr) == wanted]
    if not found:
        return Verdict(requirement, math.nan, note="the model detects this class in no unchanged sample")
    worst_first = sorted(found, key=lambda tally: tally.still, reverse=requirement.relation in ("below", "at_most"))
    named = "" if requirement.at else "{0.entry} in "
    told = [f"{named}{{0.channels}}: {{0.still}} of {{0.detected}}".format(tally) for tally in worst_first]
    more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    worst = worst_first[0]
    note = "; ".join(told[:_TOLD]) + more
    return Verdict.of(requirement, share_estimate(worst.still, worst.detected), worst.detected, note)


def _corrupt(requirement: Requirement, audit: AuditResult, report: CorruptionReport) -> Verdict:
    """The mean over kinds and levels, or over those that the requirement names; its interval is that of so many samples."""
    rows = [row for row in report.records() if requirement.distortion in (None, row["kind"])]
    values = [row["accuracy"] for row in rows if requirement.level in (None, str(row["level"]))]
    samples, mean = report.clean.samples, float(np.mean(values)) if values else math.nan
    return Verdict.of(requirement, share_estimate(mean * samples, samples), samples)


def _explain(requirement: Requirement, audit: AuditResult, report: MethodComparison) -> Verdict:
    method = requirement.method or next(iter(report.judged))
    note, judged = "" if requirement.method else method, report.judged[method]
    return Verdict.of(requirement, judged.mean(requirement.metric), len(judged), note)


def _benchmark(requirement: Requirement, audit: AuditResult, report: BenchmarkReport) -> Verdict:
    verdicts = measure_benchmark(report, requirement, requirement.model or audit.model["name"])
    if not verdicts:
        note = f"no file of the benchmark has {requirement.distortion!r} as its main distortion"
        return Verdict(requirement, math.nan, note=note)
    hardest = min if requirement.relation in ("at_least", "above") else max  # the worst case
    return replace(hardest(verdicts, key=lambda verdict: verdict.value), requirement=requirement)


def _mismatches(requirement: Requirement, audit: AuditResult, report: Verification) -> Verdict:
    wrong = report.mismatches
    return Verdict(requirement, float(len(wrong)), report.files, str(wrong[0]) if wrong else "")


def _harden(requirement: Requirement, audit: AuditResult, report: Hardened) -> Verdict:
    assert requirement.when is not None
    key = _HARDENED.get(requirement.metric, requirement.metric.removeprefix("accuracy_under_"))
    before, after = (report.measured[when].figures.get(key, NOTHING) for when in (BEFORE, AFTER))
    values = {"before": before, "after": after, "gained": difference(after, before), "lost": difference(before, after)}
    measured = values[requirement.when.split()[0]]
    return Verdict.of(requirement, measured, 0, "not measured" if math.isnan(measured.value) else "")


_MEASURED: Mapping[str, tuple[type[Report], Callable[..., Verdict]]] = {
    "doctor": (Diagnosis, _doctor),
    "attack": (AttackResult, _attack),
    "detect": (AttackResult, _detect),
    "corrupt": (CorruptionReport, _corrupt),
    "explain": (MethodComparison, _explain),
    "benchmark": (BenchmarkReport, _benchmark),
    "mismatches": (Verification, _mismatches),
    "harden": (Hardened, _harden),
}
