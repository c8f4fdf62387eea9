"""Check requirements against the reports of the stages. A figure that is missing or too uncertain does not pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

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
from rlab.stats import NOTHING, Estimate, difference, estimate, median_estimate, share_estimate

_HARDENED = {"clean_accuracy": "clean", "accuracy_under_attack": "agent", "accuracy_under_held_out_filters": "held_out",
             "median_l2": "agent_l2"}  # fmt: skip  # other figures: accuracy_under_NAME
CLEAN = "clean_"  # before a metric of untouched inputs
_WITHOUT = (Status.FAILED, Status.LOST, Status.UNVERIFIED)  # ends without a result
_VALUES: dict[str, Callable[[AttackResult], Tensor]] = {
    "median_queries": lambda result: result.effort,
    "median_l2": lambda result: result.final["l2"],
    "median_snr": lambda result: result.final["snr_db"],
    "median_patches": lambda result: result.final["l0_patches"],
}
Measured = tuple[Estimate, int, str]  # a figure, the number of samples and a note
_TOLD = 6  # groups of channels in a note


def judge(requirement: Requirement, audit: AuditResult) -> Verdict:
    """The verdict by the report that measures the requirement's metric."""
    stage = requirement.figure.stage
    if stage == "audit":
        return Verdict(requirement, audit.rows.total)
    if stage in audit.left_out:
        return Verdict(requirement, math.nan, note=audit.left_out[stage])
    if note := audit.stages[stage].note:
        # without flips, every file of a benchmark would be an original, which the audited model classifies correctly
        right = 0 if audit.attack is None else int(audit.attack.attacked.sum())
        every = share_estimate(right, right)
        unbroken = {"flip_distance": Estimate(math.inf), "accuracy": every, "area": every}
        return Verdict.of(requirement, unbroken.get(requirement.metric, NOTHING), 0, note)
    kind, measure = _MEASURED["mismatches" if requirement.metric == "mismatches" else stage]
    report = audit.find(kind)
    assert report is not None
    return Verdict.of(requirement, *measure(requirement, audit, report))


def _doctor(requirement: Requirement, audit: AuditResult, report: Diagnosis) -> Measured:
    level = requirement.metric.removesuffix("s")
    names = [finding.name for finding in report.findings if finding.level.value == level]
    return Estimate(len(names)), 0, ", ".join(names)


def _attack(requirement: Requirement, audit: AuditResult, result: AttackResult) -> Measured:
    metric = requirement.metric
    if metric.removeprefix(CLEAN) in FIGURES:
        return _whole(requirement, result)
    members = torch.ones(len(result), dtype=torch.bool)
    if requirement.class_ is not None:
        index = class_index(result, requirement.class_)
        members = result.labels[:, index] == 1 if result.labels.shape[1:] else result.labels == index
    if metric == "clean_accuracy":
        correct = _clean_correct(result)[members]
        return share_estimate(int(correct.sum()), len(correct)), len(correct), ""
    attacked, flipped = members & result.attacked, members & result.succeeded & _within(requirement, result)
    if requirement.distortion is not None:  # the final change uses the filter
        entries = entry_filters(result.setting.palette)[requirement.distortion]
        flipped &= torch.isin(result.assignment.long(), torch.tensor(entries)).any(1)
    ended = {status: attacked & torch.tensor([each is status for each in result.status]) for status in _WITHOUT}
    failed, count = ended[Status.FAILED], int(attacked.sum())
    note = ", ".join(f"{int(rows.sum())} {status.value}" for status, rows in ended.items() if rows.any())
    if not count:
        return NOTHING, 0, "the model classifies none of these samples correctly"
    if metric == "success":  # NaN under a distortion counts as a flip
        return share_estimate(int((flipped | failed).sum()), count), count, note
    if not flipped.any():
        value = math.nan if failed.any() else requirement.figure.unbroken
        return Estimate(value), count, note or "no sample was flipped"
    return median_estimate(_VALUES[metric](result)[flipped]), int(flipped.sum()), note


def _whole(requirement: Requirement, result: AttackResult) -> Measured:
    """A figure of all samples together, such as the mean average precision; samples without such a flip count untouched."""
    name = requirement.metric
    kind, figure = FIGURES[name.removeprefix(CLEAN)]
    if result.setting.target != kind:
        is_for = f"{name} is for models that predict {WORDS[kind]}"
        return NOTHING, 0, f"{is_for}, but this one predicts {WORDS[result.setting.target]}"
    flipped = result.succeeded & _within(requirement, result) & (not name.startswith(CLEAN))
    of = figure(torch.where(flipped[:, None], result.after, result.before), result.labels)
    measured = estimate(lambda draws: np.array([of(rows) for rows in draws]), len(result))
    return measured, len(result), f"{int(flipped.sum())} samples changed" if flipped.any() else ""


def class_index(result: AttackResult, name: str) -> int:
    classes = result.setting.classes
    return classes.index(name) if name in classes else int(name)


def _within(requirement: Requirement, result: AttackResult) -> Tensor:
    """(n,) samples whose final change stays within the bounds on SNR, L2 and queries."""
    fits = torch.ones(len(result), dtype=torch.bool)
    for kind, bound in (requirement.at or {}).items():
        limit = quantity(bound)[0]
        fits &= result.final["snr_db"] >= limit if kind == "snr" else _VALUES[f"median_{kind}"](result) <= limit
    return fits


def _clean_correct(result: AttackResult) -> Tensor:
    """(n,) whether the model is right about the original."""
    if result.setting.target != "classes":
        return result.attacked
    if result.labels.shape[1:]:
        return ((result.before > 0.5) == (result.labels == 1)).all(1)
    return (result.before.argmax(1) == result.labels) & ~result.before.isnan().any(1)


def _detect(requirement: Requirement, audit: AuditResult, result: AttackResult) -> Measured:
    """The group of channels with the worst share counts; the note has all groups, the worst first."""
    wanted = (class_index(result, str(requirement.class_)), *Condition.of(requirement))
    tallies = audit.stages["detect"].tallies
    found = [tally for tally in tallies if (tally.label, tally.distortion, tally.snr) == wanted]
    if not found:
        return NOTHING, 0, "the model detects this class in no unchanged sample"
    worst_first = sorted(found, key=lambda tally: tally.still, reverse=requirement.relation in ("below", "at_most"))
    named = "" if requirement.at else "{0.entry} in "
    told = [f"{named}{{0.channels}}: {{0.still}} of {{0.detected}}".format(tally) for tally in worst_first]
    more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    worst = worst_first[0]
    return share_estimate(worst.still, worst.detected), worst.detected, "; ".join(told[:_TOLD]) + more


def _corrupt(requirement: Requirement, audit: AuditResult, report: CorruptionReport) -> Measured:
    """The mean over kinds and levels, or over those that the requirement names; its interval is that of so many samples."""
    rows = [row for row in report.records() if requirement.distortion in (None, row["kind"])]
    values = [row["accuracy"] for row in rows if requirement.level in (None, str(row["level"]))]
    samples, mean = report.clean.samples, float(np.mean(values)) if values else math.nan
    return share_estimate(mean * samples, samples), samples, ""


def _explain(requirement: Requirement, audit: AuditResult, report: MethodComparison) -> Measured:
    judged = report.judged[requirement.method] if requirement.method else report.first
    return judged.mean(requirement.metric), len(judged), "" if requirement.method else judged.method


def _benchmark(requirement: Requirement, audit: AuditResult, report: BenchmarkReport) -> Measured:
    verdicts = measure_benchmark(report, requirement, audit.model["name"])
    if not verdicts:
        return NOTHING, 0, f"no file of the benchmark has {requirement.distortion!r} as its main distortion"
    hardest = min if requirement.relation in ("at_least", "above") else max  # the worst case
    worst = hardest(verdicts, key=lambda verdict: verdict.value)
    return Estimate(worst.value, worst.low, worst.high), worst.samples, worst.note


def _mismatches(requirement: Requirement, audit: AuditResult, report: Verification) -> Measured:
    return Estimate(len(report.mismatches)), report.files, str(report.mismatches[0]) if report.mismatches else ""


def _harden(requirement: Requirement, audit: AuditResult, report: Hardened) -> Measured:
    key = _HARDENED.get(requirement.metric, requirement.metric.removeprefix("accuracy_under_"))
    before, after = (report.measured[when].figures.get(key, NOTHING) for when in (BEFORE, AFTER))
    values = {"before": before, "after": after, "gained": difference(after, before), "lost": difference(before, after)}
    measured = values[str(requirement.when).split()[0]]
    return measured, 0, "not measured" if math.isnan(measured.value) else ""


_MEASURED: Mapping[str, tuple[type[Report], Callable[..., Measured]]] = {
    "doctor": (Diagnosis, _doctor),
    "attack": (AttackResult, _attack),
    "detect": (AttackResult, _detect),
    "corrupt": (CorruptionReport, _corrupt),
    "explain": (MethodComparison, _explain),
    "benchmark": (BenchmarkReport, _benchmark),
    "mismatches": (Verification, _mismatches),
    "harden": (Hardened, _harden),
}
