"""The files of an audit: results of the stages, `audit.json` with every figure, and `junit.xml`. No model is queried here."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from pydantic import TypeAdapter
from torch import Tensor

import rlab
from rlab.auditing.config import AuditOptions
from rlab.auditing.detection import Detection
from rlab.auditing.load import LoadedAudit
from rlab.benchmarking import Benchmark, BenchmarkReport
from rlab.benchmarking.requirements import Verdict
from rlab.benchmarking.whole import versions
from rlab.corruptions.report import CorruptionReport
from rlab.diagnosis.report import Diagnosis
from rlab.explanation import MethodComparison
from rlab.hardening.report import Hardened
from rlab.present.report import plain_value
from rlab.redact import redact
from rlab.results.breakdown import by_class, by_distortion
from rlab.results.result import AttackResult
from rlab.storage.files import finite, write_json, write_text

AUDIT, JUNIT = "audit.json", "junit.xml"
GRADED = "graded"  # below the benchmark's folder: manifest and metadata of an existing benchmark


@dataclass(frozen=True)
class Rows:
    """Queries to the audited model, to other models of the benchmark, and to copies that hardening or sanity checks make."""

    model: int = 0
    others: int = 0
    copies: int = 0

    def __add__(self, more: Rows) -> Rows:
        return Rows(self.model + more.model, self.others + more.others, self.copies + more.copies)

    @property
    def total(self) -> int:
        return self.model + self.others + self.copies


@dataclass(frozen=True)
class StageRecord:
    """The cost of a finished stage."""

    rows: Rows = Rows()
    seconds: float = 0.0  # 0 if read from audit.json, in which equal audits are equal; junit.xml has it
    note: str = ""  # why it has no results


@dataclass(frozen=True)
class StageResults:
    """Results by stage; None if a stage did not run or has no results, for the reason in `left_out` or `finished`."""

    finished: Mapping[str, StageRecord]
    left_out: Mapping[str, str]  # skipped stages, and why
    doctor: Diagnosis | None = None
    attack: AttackResult | None = None
    detect: Detection | None = None
    corrupt: CorruptionReport | None = None
    explain: MethodComparison | None = None
    benchmark: Benchmark | None = None
    report: BenchmarkReport | None = None
    verified: Mapping[str, Any] | None = None
    harden: Hardened | None = None

    @property
    def rows(self) -> Rows:
        return sum((stage.rows for stage in self.finished.values()), Rows())


def explained_rows(result: AttackResult, samples: int) -> list[int]:
    """The first samples that the model classifies correctly."""
    rows: list[int] = result.attacked.nonzero().flatten()[:samples].tolist()
    return rows


def clean_correct(result: AttackResult) -> Tensor:
    """(n,) whether the model is right about the original."""
    if result.setting.target != "classes":
        return result.attacked
    if result.labels.shape[1:]:
        return ((result.before > 0.5) == (result.labels == 1)).all(1)
    return (result.before.argmax(1) == result.labels) & ~result.before.isnan().any(1)


def write_audit(
    audit: LoadedAudit, options: AuditOptions, results: StageResults, verdicts: Sequence[Verdict], fingerprints: Mapping[str, str]
) -> dict[str, Any]:  # fmt: skip
    """Write `audit.json` and `junit.xml`; -> the content of the first."""
    batch = audit.batch
    record: dict[str, Any] = finite({
        "rlab_audit": rlab.__version__,
        "title": options.title,
        "passed": all(verdict.passed for verdict in verdicts),
        "requirements": [_requirement(verdict) for verdict in verdicts],
        "rows": {**asdict(results.rows), "total": results.rows.total},
        "stages": {stage: {"rows": asdict(done.rows), "note": done.note} for stage, done in results.finished.items()},
        "left_out": dict(results.left_out),
        "figures": figures(results),
        "model": {"name": options.own, "fingerprint": fingerprints["model"]},
        "data": {"digest": fingerprints["data"], "samples": len(batch), "kind": batch.kind, "size": list(batch.size),
                 "channels": batch.x.shape[1], "left_out": len(batch.left_out)},
        "seed": options.seed,
        "versions": {"python": platform.python_version(), **versions(str(options.policy))},
        "config": options.plain(),
    })  # fmt: skip
    write_json(audit.folder / AUDIT, record)
    write_text(audit.folder / JUNIT, junit(options.title or f"audit of {options.own}", results, verdicts))
    return record


def _requirement(verdict: Verdict) -> dict[str, Any]:
    requirement = verdict.requirement
    return {
        "requirement": str(requirement), **requirement.plain(), "stage": requirement.figure.stage,
        "relation": requirement.relation, "limit": requirement.limit, "value": verdict.value, "shown": verdict.shown,
        "low": verdict.low, "high": verdict.high, "samples": verdict.samples, "note": verdict.note, "passed": verdict.passed,
        "verdict": verdict.word,
    }  # fmt: skip


def figures(results: StageResults) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    if results.doctor is not None:
        plain["doctor"] = TypeAdapter(Diagnosis).dump_python(results.doctor, mode="json")
    if (attack := results.attack) is not None:
        plain["attack"] = {
            **attack.summary(), "clean_accuracy": float(clean_correct(attack).double().mean()),
            "classes": [asdict(row) for row in by_class(attack)], "distortions": by_distortion(attack),
        }  # fmt: skip
    if results.detect is not None:
        plain["detect"] = asdict(results.detect)
    if results.corrupt is not None:
        corrupt = results.corrupt
        plain["corrupt"] = {name: plain_value(value) for name, value in corrupt.metrics().items()}
    if results.explain is not None:
        plain["explain"] = {
            method: {score: judged.mean(score).value for score in judged.scores}
            for method, judged in results.explain.judged.items()
        }
    if (report := results.report) is not None:
        tables = ("levels", "distortions", "transfer", "areas")
        plain["benchmark"] = {name: getattr(report, name) for name in tables} | {"verified": results.verified}
    if results.harden is not None:
        plain["harden"] = {
            **{when: {k: asdict(e) for k, e in each.figures.items()} for when, each in results.harden.measured.items()},
            "training": results.harden.summary(), "stopped": results.harden.stopped,
        }  # fmt: skip
    return plain


def junit(title: str, results: StageResults, verdicts: Sequence[Verdict]) -> str:
    """One test case per requirement and stage: a failure is a requirement that is not shown to hold, a skip is a skipped stage."""
    suites = ElementTree.Element("testsuites", name=title)
    stages, required = (ElementTree.SubElement(suites, "testsuite", name=name) for name in ("stages", "requirements"))
    for stage, record in results.finished.items():
        case = _case(stages, "stages", stage, record.seconds)
        note = f"; {record.note}" if record.note else ""
        ElementTree.SubElement(case, "system-out").text = f"{record.rows.total} queries{note}"
    for stage, why in results.left_out.items():
        ElementTree.SubElement(_case(stages, "stages", stage), "skipped", message=why)
    for verdict in verdicts:
        case = _case(required, f"requirements.{verdict.requirement.figure.stage}", str(verdict.requirement))
        if verdict.passed:
            ElementTree.SubElement(case, "system-out").text = str(verdict)
        else:
            kind = "undecided" if verdict.undecided else "requirement"
            ElementTree.SubElement(case, "failure", message=str(verdict), type=kind)
    for suite in suites:
        found = {"tests": "testcase", "failures": "testcase/failure", "skipped": "testcase/skipped", "errors": "error"}
        suite.attrib |= {name: str(len(suite.findall(path))) for name, path in found.items()}
    for element in suites.iter():
        element.attrib = {key: _legal(value) for key, value in element.attrib.items()}
        element.text = _legal(element.text or "")
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _legal(text: str) -> str:
    """The text without secrets and without characters that XML forbids."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", redact(text))


def _case(suite: ElementTree.Element, group: str, name: str, seconds: float | None = None) -> ElementTree.Element:
    attributes = {"classname": f"rlab.auditing.{group}", "name": name, "time": f"{seconds:.3f}" if seconds else "0"}
    return ElementTree.SubElement(suite, "testcase", attributes)
