"""Verdicts as people and pipelines read them: rows, a table, a sentence, Markdown, and JUnit XML with the stages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from rlab.auditing.record import StageRecord
from rlab.benchmarking.requirements import UNDECIDED, Verdict
from rlab.present.page import Banner, Page
from rlab.present.table import Cell, Cells, Table, Tone, markdown
from rlab.redact import redact

JUNIT = "junit.xml"
INTERVALS = (
    f"Brackets show 95% intervals. If an interval contains the limit, there are {UNDECIDED}: the requirement is not shown to "
    "hold, and the audit does not pass. Use more samples to decide it."
)


def row_of(verdict: Verdict) -> dict[str, Any]:
    requirement = verdict.requirement
    about = {name: getattr(requirement, name) for name in ("relation", "limit")}
    measured = {name: getattr(verdict, name) for name in ("value", "shown", "low", "high", "samples", "note", "passed")}
    declared = {"requirement": str(requirement), **requirement.plain(), "stage": requirement.figure.stage}
    return declared | about | measured | {"verdict": verdict.word}


def banner(verdicts: Sequence[Verdict]) -> Banner:
    """How many requirements are not met; undecided if each of these has too few samples."""
    failed = sum(not verdict.passed for verdict in verdicts)
    many = f"{len(verdicts)} requirement{'s' if len(verdicts) != 1 else ''}"
    unclear = sum(verdict.undecided for verdict in verdicts)
    sentence = f"{many}, all met" if not failed else f"{failed} of {many} not met"
    sentence += f" ({unclear} of them: {UNDECIDED})" if unclear else ""
    return Banner(not failed, sentence, failed == unclear)


def verdict_text(page: Page, verdicts: Sequence[Verdict]) -> str:
    """The verdict in Markdown for a comment on a pull request: one line, the requirements and the main figures."""
    word, sentence = (
        ("finished", "no requirements") if page.verdict is None else (page.verdict.word, page.verdict.sentence)
    )
    numbers = Table(["figure", "measured"], [[number.name, number.value] for number in page.numbers])
    tables = [*([requirements_table(verdicts)] if verdicts else []), *([numbers] if page.numbers else [])]
    return "\n".join([f"### {redact(page.title)}: {word}\n", f"{sentence}.\n", *map(markdown, tables)])


def requirements_table(verdicts: Sequence[Verdict]) -> Table:
    rows: list[Cells] = []
    for verdict in verdicts:
        tone: Tone = "pass" if verdict.passed else "warn" if verdict.undecided else "fail"
        asked = str(verdict.requirement) + (f"\n({verdict.note})" if verdict.note else "")
        rows.append([Cell(verdict.word, tone), asked, verdict.shown, verdict.samples or None])
    return Table(["", "requirement", "measured", "samples"], rows, words=2)


def junit(
    title: str, finished: Mapping[str, StageRecord], left_out: Mapping[str, str], verdicts: Sequence[Verdict]
) -> str:
    """One test case per requirement and stage: a failure is a requirement that is not shown to hold, a skip is a skipped stage."""
    suites = ElementTree.Element("testsuites", name=title)
    stages, required = (ElementTree.SubElement(suites, "testsuite", name=name) for name in ("stages", "requirements"))
    for stage, record in finished.items():
        case = _case(stages, "stages", stage, record.seconds)
        note = f"; {record.note}" if record.note else ""
        ElementTree.SubElement(case, "system-out").text = f"{record.rows.total} queries{note}"
    for stage, why in left_out.items():
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
