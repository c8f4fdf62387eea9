"""Requirements on constructed results, against figures counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.auditing import AuditResult
from rlab.auditing.measure import judge
from rlab.auditing.record import Rows, StageRecord
from rlab.auditing.verdicts import banner
from rlab.benchmarking.requirements import UNDECIDED, Requirement, Verdict
from rlab.core.distances import NAMES
from rlab.hardening.evaluation import Robustness
from rlab.hardening.options import HardenOptions
from rlab.hardening.report import Hardened
from rlab.present.report import Report
from rlab.results.kept import HeldInputs
from rlab.results.result import AttackResult, Setting, Status
from rlab.stats import Estimate
from rlab.storage.config import check

WON, LOST, SKIPPED = Status.SUCCEEDED, Status.SPENT, Status.SKIPPED


def planted() -> AttackResult:
    """Six samples: cats 0-2 (two flipped), dogs 3-5 (one flipped, one spent, one wrong before)."""
    nan = torch.full((6,), math.nan)
    final = {name: nan.clone() for name in NAMES}
    final["l2"] = torch.tensor([1.0, 2.0, 0.0, 4.0, 0.0, 0.0])
    final["snr_db"] = torch.tensor([30.0, 20.0, math.inf, 10.0, math.inf, math.inf])
    final["l0_patches"] = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.0, 0.0])
    before = torch.tensor([[0.9, 0.1]] * 3 + [[0.2, 0.8]] * 2 + [[0.7, 0.3]])
    counts = torch.zeros(6, 4, dtype=torch.int64)
    counts[:, 0] = torch.tensor([5, 10, 50, 20, 50, 1])
    setting = Setting(
        (2, 2), (1, 1), ("blur@1", "noise@0.1", "noise@0.2"), "untargeted", "random", 50, (0.0, 1.0), 0, ("cat", "dog")
    )
    return AttackResult(
        setting=setting, ids=tuple("abcdef"), labels=torch.tensor([0, 0, 0, 1, 1, 1]),
        status=(WON, WON, LOST, WON, LOST, SKIPPED), queries=counts, before=before, after=1 - before, flip=final, final=final,
        assignment=torch.tensor([[1, 0, 0, 0], [2, 1, 0, 0], [0] * 4, [3, 3, 2, 0], [0] * 4, [0] * 4], dtype=torch.uint8),
        inputs=HeldInputs(torch.zeros(6, 1, 2, 2), torch.zeros(6, 1, 2, 2)), seeds=torch.zeros(6).long(),
    )  # fmt: skip


def judged(result: AttackResult | None = None, **fields: Any) -> Verdict:
    return judge(Requirement.model_validate(fields), audited(attack=result or planted()))


def audited(left_out: dict[str, str] | None = None, **reports: Report) -> AuditResult:
    """An audit with these reports by stage; it sent 136 queries."""
    stages = {stage: StageRecord(Rows(model=136)) for stage in reports}
    own, found = {"name": "own", "fingerprint": ""}, {Path(stage): report for stage, report in reports.items()}
    return AuditResult({}, (), stages, left_out or {}, own, {}, {}, reports=found)


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"metric": "success"}, 3 / 5),
        ({"metric": "success", "at": {"snr": "20dB"}}, 2 / 5),
        ({"metric": "success", "at": {"snr": 25}}, 1 / 5),
        ({"metric": "success", "at": {"l2": 1.5}}, 1 / 5),
        ({"metric": "success", "at": {"queries": 10}}, 2 / 5),
        ({"metric": "success", "at": {"queries": 10, "l2": 1.5}}, 1 / 5),
        ({"metric": "success", "class": "cat"}, 2 / 3),
        ({"metric": "success", "class": 1}, 1 / 2),
        ({"metric": "success", "distortion": "noise"}, 2 / 5),
        ({"metric": "success", "distortion": "noise", "class": "cat", "at": {"queries": 10}}, 1 / 3),
        ({"metric": "clean_accuracy"}, 5 / 6),
        ({"metric": "clean_accuracy", "class": "dog"}, 2 / 3),
        ({"metric": "median_l2"}, 2.0),
        ({"metric": "median_l2", "distortion": "blur"}, 1.5),
        ({"metric": "median_snr"}, 20.0),
        ({"metric": "median_queries"}, 10.0),
        ({"metric": "median_patches"}, 2.0),
        ({"metric": "queries"}, 136.0),
    ],
)
def test_figures_equal_those_counted_by_hand(fields: dict[str, Any], value: float) -> None:
    assert judged(**fields, at_least=0).value == pytest.approx(value)


def many(flips: int, of: int, status: Status = WON) -> AttackResult:
    """So many samples like the first, so many of them flipped, the others held."""
    result = planted().where(torch.zeros(of, dtype=torch.int64))
    return replace(result, status=(status,) * flips + (LOST,) * (of - flips))


NONE = replace(planted(), status=(LOST,) * 5 + (SKIPPED,))  # without flips, distances are infinite
VERDICTS: list[tuple[AttackResult, dict[str, Any], str]] = [
    (planted(), {"metric": "queries", "at_most": 136}, "passes"),  # the limit itself
    (planted(), {"metric": "queries", "below": 136}, "fails"),
    (NONE, {"metric": "median_l2", "at_least": 1000}, "passes"),
    (NONE, {"metric": "median_l2", "at_most": 1000}, "fails"),
    (NONE, {"metric": "median_snr", "at_most": "5 dB"}, "passes"),
    (NONE, {"metric": "success", "at_most": 0}, "passes"),
    (many(300, 1000), {"metric": "success", "below": "40%"}, "passes"),  # 27% to 33% (Wilson)
    (many(600, 1000), {"metric": "success", "below": "40%"}, "fails"),
    (many(5, 10), {"metric": "success", "below": "40%"}, UNDECIDED),  # the figure alone does not fail it either
    (many(0, 3), {"metric": "success", "at_most": 0}, "passes"),  # shares of none and all are decided
    (many(1, 3), {"metric": "success", "at_most": 0}, "fails"),
    (many(0, 3), {"metric": "clean_accuracy", "at_least": "100%"}, "passes"),
    (many(3, 3), {"metric": "median_l2", "at_least": 0.5}, UNDECIDED),  # the median of few samples
    (many(8, 8), {"metric": "median_l2", "at_least": 0.5}, "passes"),
]


@pytest.mark.parametrize(("result", "fields", "word"), VERDICTS)
def test_verdicts(result: AttackResult, fields: dict[str, Any], word: str) -> None:
    verdict = judged(result, **fields)
    assert (verdict.word, verdict.passed) == (word, word == "passes")


def test_a_limit_inside_the_interval_is_undecided() -> None:
    few = judged(many(3, 10), metric="success", below="40%")  # 11% to 60% (Wilson)
    assert (few.word, few.passed) == (UNDECIDED, False)
    assert (few.low, few.high) == pytest.approx((0.108, 0.603), abs=1e-3)
    assert "[10.8%, 60.3%]" in str(few)


def test_nan_under_distortion_counts_as_a_failure() -> None:
    broken = many(600, 1000, Status.FAILED)
    verdict = judged(broken, metric="success", below="40%")
    assert verdict.value == pytest.approx(0.6)
    assert verdict.word == "fails"
    assert "NaN" in verdict.note
    assert not judged(broken, metric="success", at={"l2": 0.1}, below="40%").passed
    assert not judged(broken, metric="median_l2", at_least=0.1).passed  # nothing flipped, but nothing held either
    lost = judged(many(600, 1000, Status.LOST), metric="success", below="40%")
    assert "did not answer" in lost.note


def test_a_missing_figure_does_not_pass() -> None:
    skipped = replace(planted(), status=(SKIPPED,) * 6)
    for metric, limit in (("success", {"at_most": 1}), ("success", {"at_least": 0}), ("median_l2", {"at_least": 0})):
        verdict = judged(skipped, metric=metric, **limit)
        assert not verdict.passed
        assert "none of these samples correctly" in str(verdict)
    skipped_stage = audited({"attack": "the doctor found errors"})
    verdict = judge(Requirement.model_validate({"metric": "success", "at_most": 1}), skipped_stage)
    assert not verdict.passed
    assert "the doctor found errors" in str(verdict)


def test_hardening_is_measured_as_a_difference() -> None:
    figures = {
        "before": {"clean": Estimate(0.9), "agent_l2": Estimate(1.0)},
        "after": {"clean": Estimate(0.85), "agent_l2": Estimate(math.inf)},
    }
    measured = {when: Robustness(each, {}, 0) for when, each in figures.items()}
    hardened = Hardened(check(HardenOptions, {}), (), "", torch.zeros(2), 0, measured=measured)
    declared: list[dict[str, Any]] = [
        {"metric": "clean_accuracy", "when": "lost by hardening", "at_most": "4%"},
        {"metric": "clean_accuracy", "when": "after hardening", "at_least": "85%"},
        {"metric": "median_l2", "when": "gained by hardening", "at_least": 3},
        {"metric": "accuracy_under_pgd", "when": "after hardening", "at_least": 0},
    ]
    audit = audited(harden=hardened)
    lost, kept, far, absent = (judge(Requirement.model_validate(fields), audit) for fields in declared)
    assert lost.value == pytest.approx(0.05)
    assert not lost.passed
    assert kept.passed
    assert far.passed
    assert not absent.passed


@pytest.mark.parametrize(
    ("verdicts", "word"), [("tt", "undecided"), ("tf", "failed"), ("pt", "undecided"), ("pp", "passed")]
)
def test_too_few_samples_leave_an_audit_undecided(verdicts: str, word: str) -> None:
    """Amber where nothing failed; the audit is still not passed."""
    results = {"t": many(5, 10), "f": many(600, 1000), "p": many(300, 1000)}
    shown = banner([judged(results[v], metric="success", below="40%") for v in verdicts])
    assert (shown.word, shown.passed) == (word, verdicts == "pp")
    assert shown.tone == {"undecided": "warn", "failed": "fail", "passed": "pass"}[word]
