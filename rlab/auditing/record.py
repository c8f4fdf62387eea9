"""What an audit leaves for machines: `audit.json` with every figure, and `junit.xml` for pipelines."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import rlab
from rlab.auditing.config import AuditOptions
from rlab.auditing.load import LoadedAudit
from rlab.auditing.measure import clean_correct
from rlab.auditing.results import StageRecord, StageResults, read_results
from rlab.benchmarking.make import versions
from rlab.benchmarking.requirements import Verdict
from rlab.core.breakdown import by_class, by_distortion
from rlab.errors import InputError
from rlab.runs.files import finite, read_json, write_atomically, write_json

AUDIT, JUNIT = "audit.json", "junit.xml"


def write_audit(
    audit: LoadedAudit,
    options: AuditOptions,
    results: StageResults,
    verdicts: Sequence[Verdict],
    fingerprints: Mapping[str, str],
) -> dict[str, Any]:
    """Writes both files and returns the first's content; an earlier verdict on the same stages is replaced."""
    batch = audit.batch
    record: dict[str, Any] = finite({
        "rlab_audit": rlab.__version__,
        "title": options.title,
        "passed": all(verdict.passed for verdict in verdicts),
        "requirements": [_requirement(verdict) for verdict in verdicts],
        "rows": {**asdict(results.rows), "total": results.rows.total},
        "stages": {stage: asdict(finished) for stage, finished in results.finished.items()},
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
    write_atomically(audit.folder / JUNIT, junit(options.title or f"audit of {options.own}", results, verdicts))
    return record


def _requirement(verdict: Verdict) -> dict[str, Any]:
    """The declared fields, and what became of them."""
    requirement = verdict.requirement
    return {
        "requirement": str(requirement), **requirement.plain(), "stage": requirement.figure.stage,
        "relation": requirement.relation, "limit": requirement.limit, "value": verdict.value, "shown": verdict.shown,
        "samples": verdict.samples, "note": verdict.note, "passed": verdict.passed,
    }  # fmt: skip


def figures(results: StageResults) -> dict[str, Any]:
    """Every figure of every stage by plain names."""
    plain: dict[str, Any] = {}
    if results.doctor is not None:
        plain["doctor"] = results.doctor
    if (attack := results.attack) is not None:
        plain["attack"] = {
            **attack.summary(), "clean_accuracy": float(clean_correct(attack).double().mean()),
            "classes": [asdict(row) for row in by_class(attack)], "distortions": by_distortion(attack),
        }  # fmt: skip
    if results.explain is not None:
        plain["explain"] = {
            method: {score: judged.mean(score).value for score in judged.scores}
            for method, judged in results.explain.judged.items()
        }
    if (report := results.report) is not None:
        tables = ("levels", "distortions", "transfer", "areas", "corruptions")
        plain["benchmark"] = {name: getattr(report, name) for name in tables} | {"verified": results.verified}
    if results.harden is not None:
        plain["harden"] = results.harden
    return plain


def junit(title: str, results: StageResults, verdicts: Sequence[Verdict]) -> bytes:
    """A test case a requirement and a stage: failures are requirements that do not hold, skips are stages left out."""
    suites = ElementTree.Element("testsuites", name=title)
    stages = _suite(suites, "stages", len(results.finished) + len(results.left_out), 0, len(results.left_out))
    for stage, record in results.finished.items():
        case = _case(stages, "stages", stage, record.seconds)
        note = f"; {record.note}" if record.note else ""
        ElementTree.SubElement(case, "system-out").text = f"{record.rows.total} rows reached models{note}"
    for stage, why in results.left_out.items():
        ElementTree.SubElement(_case(stages, "stages", stage), "skipped", message=why)
    failed = sum(not verdict.passed for verdict in verdicts)
    required = _suite(suites, "requirements", len(verdicts), failed, 0)
    for verdict in verdicts:
        case = _case(required, f"requirements.{verdict.requirement.figure.stage}", str(verdict.requirement))
        if verdict.passed:
            ElementTree.SubElement(case, "system-out").text = str(verdict)
        else:
            ElementTree.SubElement(case, "failure", message=str(verdict), type="requirement")
    ElementTree.indent(suites)
    content: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _suite(above: ElementTree.Element, name: str, tests: int, failures: int, skipped: int) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "skipped": str(skipped), "errors": "0"}
    return ElementTree.SubElement(above, "testsuite", {"name": name, **counts})


def _case(suite: ElementTree.Element, group: str, name: str, seconds: float | None = None) -> ElementTree.Element:
    attributes = {"classname": f"rlab.auditing.{group}", "name": name, "time": f"{seconds:.3f}" if seconds else "0"}
    return ElementTree.SubElement(suite, "testcase", attributes)


def read_audit(folder: Path) -> tuple[dict[str, Any], StageResults]:
    """The record of a finished audit, also one whose requirements were sentences, and what its stages left."""
    record = read_json(folder / AUDIT)
    try:
        finished = {stage: StageRecord.of(plain) for stage, plain in record["stages"].items()}
        explained = (record["config"].get("explain") or {}).get("samples", 0)
        return record, read_results(folder, finished, record["left_out"], explained)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / AUDIT} was not written by rlab: {type(error).__name__} {error}") from error
