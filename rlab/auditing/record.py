"""What an audit leaves for machines: `audit.json` with every figure, and `junit.xml` for pipelines."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import rlab
from rlab.auditing.config import AuditConfig, make_audit_config
from rlab.auditing.found import Found
from rlab.auditing.judge import Measured, Outcome, clean_right
from rlab.auditing.manifest import Done, Rows
from rlab.auditing.requirements import parse_rule
from rlab.auditing.stages import write_json
from rlab.auditing.stored import read_json
from rlab.benchmarking.make import versions
from rlab.core.breakdown import by_class, by_distortion
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.runs.files import write_atomically

AUDIT, JUNIT = "audit.json", "junit.xml"


def write_audit(
    folder: Path, config: AuditConfig, found: Found, outcomes: Sequence[Outcome], marks: Mapping[str, str], batch: Batch
) -> None:
    """Both files; an earlier verdict on the same stages is replaced."""
    write_json(folder / AUDIT, audit_record(config, found, outcomes, marks, batch))
    write_atomically(folder / JUNIT, junit(config, found, outcomes))


def audit_record(
    config: AuditConfig, found: Found, outcomes: Sequence[Outcome], marks: Mapping[str, str], batch: Batch
) -> dict[str, Any]:
    return {
        "rlab_audit": rlab.__version__,
        "title": config.title,
        "passed": all(one.passed for one in outcomes),
        "requirements": [_requirement(one) for one in outcomes],
        "rows": {**asdict(found.rows), "total": found.rows.total},
        "stages": {name: asdict(one) for name, one in found.done.items()},
        "left_out": dict(found.left_out),
        "figures": figures(found),
        "model": {"name": config.own, "mark": marks["model"]},
        "data": {"digest": marks["data"], "samples": len(batch), "kind": batch.kind, "size": list(batch.size),
                 "channels": batch.x.shape[1], "left_out": len(batch.left_out)},
        "seed": config.seed,
        "versions": {"python": platform.python_version(), **versions(config.attack.policy)},
        "config": config.plain(),
    }  # fmt: skip


def _requirement(one: Outcome) -> dict[str, Any]:
    return {
        "requirement": one.rule.text, "stage": one.rule.figure.stage, "figure": one.rule.figure.key,
        "relation": one.rule.relation, "limit": one.rule.limit, **asdict(one.measured), "passed": one.passed,
    }  # fmt: skip


def figures(found: Found) -> dict[str, Any]:
    """Every figure of every stage by plain names."""
    made: dict[str, Any] = {}
    if found.doctor is not None:
        made["doctor"] = found.doctor
    if found.attack is not None:
        clean = float(clean_right(found.attack).double().mean())
        made["attack"] = {
            **found.attack.summary(), "clean_accuracy": clean,
            "classes": [asdict(row) for row in by_class(found.attack)], "distortions": by_distortion(found.attack),
        }  # fmt: skip
    if found.explain is not None:
        made["explain"] = {
            name: {score: one.mean(score).value for score in one.scores} for name, one in found.explain.judged.items()
        }
    if found.report is not None:
        report = found.report
        made["benchmark"] = {
            "levels": report.levels, "distortions": report.distortions, "transfer": report.transfer,
            "areas": report.areas, "corruptions": report.corruptions, "verified": found.verified,
        }  # fmt: skip
    if found.harden is not None:
        made["harden"] = found.harden
    return made


def junit(config: AuditConfig, found: Found, outcomes: Sequence[Outcome]) -> bytes:
    """A test case a requirement and a stage: failures are requirements that do not hold, skips are stages left out."""
    suites = ElementTree.Element("testsuites", name=config.title or f"audit of {config.own}")
    stages = _suite(suites, "stages", len(found.done) + len(found.left_out), 0, len(found.left_out))
    for name, one in found.done.items():
        case = ElementTree.SubElement(
            stages, "testcase", classname="rlab.auditing.stages", name=name, time=f"{one.seconds:.3f}"
        )
        ElementTree.SubElement(case, "system-out").text = f"{one.rows.total} rows reached models" + (
            f"; {one.note}" if one.note else ""
        )
    for name, why in found.left_out.items():
        case = ElementTree.SubElement(stages, "testcase", classname="rlab.auditing.stages", name=name, time="0")
        ElementTree.SubElement(case, "skipped", message=why)
    failed = sum(not one.passed for one in outcomes)
    required = _suite(suites, "requirements", len(outcomes), failed, 0)
    for outcome in outcomes:
        case = ElementTree.SubElement(
            required,
            "testcase",
            classname=f"rlab.auditing.requirements.{outcome.rule.figure.stage}",
            name=outcome.rule.text,
            time="0",
        )
        if outcome.passed:
            ElementTree.SubElement(case, "system-out").text = str(outcome)
        else:
            ElementTree.SubElement(case, "failure", message=str(outcome), type="requirement")
    ElementTree.indent(suites)
    content: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _suite(above: ElementTree.Element, name: str, tests: int, failures: int, skipped: int) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "skipped": str(skipped), "errors": "0"}
    return ElementTree.SubElement(above, "testsuite", {"name": name, **counts})


def read_audit(folder: Path) -> tuple[AuditConfig, dict[str, Done], dict[str, str], tuple[Outcome, ...]]:
    """Configuration, stages and verdict of a finished audit."""
    found = read_json(folder / AUDIT)
    try:
        config = make_audit_config(found["config"])
        done = {name: Done(**one | {"rows": Rows(**one["rows"])}) for name, one in found["stages"].items()}
        outcomes = tuple(_outcome(one) for one in found["requirements"])
        return config, done, dict(found["left_out"]), outcomes
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / AUDIT} was not written by rlab: {type(error).__name__} {error}") from error


def _outcome(row: Mapping[str, Any]) -> Outcome:
    value = math.nan if row["value"] is None else float(row["value"])
    return Outcome(parse_rule(row["requirement"]), Measured(value, row["samples"], row["note"]))
