"""The verdicts and stages of an audit as JUnit XML, for pipelines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from rlab.auditing.record import StageRecord
from rlab.benchmarking.requirements import Verdict
from rlab.redact import redact

JUNIT = "junit.xml"


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
