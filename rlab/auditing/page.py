"""The page of an audit: the verdict, what was tested, the results, and how to repeat it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from rlab.auditing.results import StageResults
from rlab.auditing.stages import read_audit
from rlab.benchmarking.requirements import UNDECIDED
from rlab.diagnosis.report import Diagnosis, findings_table
from rlab.explanation import MethodComparison
from rlab.present.page import Banner, Block, Code, Facts, Folded, Page, Section, Text
from rlab.present.table import Cell, Table, Tone, markdown
from rlab.redact import redact
from rlab.results.page import attack_sections, key_numbers
from rlab.results.tables import QUERIES

PAGE, VERDICT = "report.html", "verdict.md"
INTERVALS = (
    f"Brackets show 95% intervals. If an interval contains the limit, there are {UNDECIDED}: the requirement is not shown to "
    "hold, and the audit does not pass. Use more samples to decide it."
)


def stored_audit_page(folder: Path) -> Page:
    """The page of a stored audit; nothing is queried or checked again."""
    return audit_page(folder, *read_audit(folder))


def audit_page(folder: Path, record: Mapping[str, Any], results: StageResults) -> Page:
    """`record` is the content of `audit.json`."""
    requirements, data, name = record["requirements"], record["data"], record["model"]["name"]
    sections = [
        Section("Requirements", [requirements_table(requirements), Text(INTERVALS, quiet=True)]),
        Section("What was tested", _tested(record)),
        *([Section("Doctor", _doctor(results.doctor))] if results.doctor is not None else []),
        *(attack_sections(results.attack) if results.attack is not None else []),
        *([Section("Detection", _detection(results))] if results.detect is not None else []),
        *([Section("Corruptions", results.corrupt.blocks())] if results.corrupt is not None else []),
        *([Section("Explanations", _explanations(results.explain))] if results.explain is not None else []),
        *([_benchmark(results)] if results.benchmark else []),
        *(results.harden.sections(folder=folder / "harden") if results.harden is not None else []),
        Section("Cost", _cost(results)),
        Section("How to repeat it", _again(folder, results)),
    ]
    told = f". {results.attack.sentence}." if results.attack is not None else ""
    lead = f"{name}, {data['samples']} {data['kind']} samples{told}"
    numbers = key_numbers(results.attack) if results.attack is not None else ()
    return Page(record["title"] or f"Audit of {name}", sections, verdict_of(requirements), lead, numbers)


def _explanations(found: MethodComparison) -> list[Block]:
    return [block for section in found.sections() for block in section.blocks]


def verdict_of(requirements: Sequence[Mapping[str, Any]]) -> Banner:
    """How many requirements are not met; undecided if each of these has too few samples."""
    failed = sum(not verdict["passed"] for verdict in requirements)
    many = f"{len(requirements)} requirement{'s' if len(requirements) != 1 else ''}"
    unclear = sum(verdict["verdict"] == UNDECIDED for verdict in requirements)
    sentence = f"{many}, all met" if not failed else f"{failed} of {many} not met"
    sentence += f" ({unclear} of them: {UNDECIDED})" if unclear else ""
    return Banner(not failed, sentence, failed == unclear)


def verdict_text(page: Page, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The verdict in Markdown for a comment on a pull request: one line, the requirements and the main figures."""
    assert page.verdict is not None
    numbers = Table(["figure", "measured"], [[number.name, number.value] for number in page.numbers])
    tables = [requirements_table(verdicts), *([numbers] if page.numbers else [])]
    return "\n".join(
        [f"### {redact(page.title)}: {page.verdict.word}\n", f"{page.verdict.sentence}.\n", *map(markdown, tables)]
    )


def requirements_table(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    """The requirements of `audit.json` with their verdicts."""
    rows = []
    for verdict in verdicts:
        word = verdict["verdict"]
        tone: Tone = "pass" if verdict["passed"] else "warn" if word == UNDECIDED else "fail"
        value = verdict["shown"]
        asked = verdict["requirement"] + (f"\n({verdict['note']})" if verdict["note"] else "")
        rows.append([Cell(word, tone), asked, value, verdict["samples"] or None])
    return Table(["", "requirement", "measured", "samples"], rows, words=2)


def _tested(record: Mapping[str, Any]) -> list[Block]:
    data, model, config = record["data"], record["model"], record["config"]
    left_out = f"; {data['left_out']} skipped" if data["left_out"] else ""
    facts = {
        "model": f"{config['model']['name']} (fingerprint {model['fingerprint']})",
        "data": f"{data['samples']} {data['kind']} samples of size {' × '.join(map(str, data['size']))}, "
        f"{data['channels']} channel{'s' if data['channels'] != 1 else ''}, from {config['data']['path']}{left_out}",
        "data digest": f"sha256 {data['digest']}",
        "seed": f"{record['seed']}",
        "versions": ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    declared = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    return [Facts(facts), Folded("The audit file, with every default", [Code(declared)])]


def _doctor(diagnosis: Diagnosis) -> list[Block]:
    share, findings, passed = diagnosis.accuracy, diagnosis.findings, diagnosis.passed
    asked = f"{diagnosis.queries} queries"
    asked += "" if share is None else f", {share:.0%} of the checked samples are classified correctly"
    told = f"{'' if findings else 'No problems were found. '}{asked}."
    return [*([findings_table(findings, passed)] if findings or passed else []), Text(told, quiet=True)]


def _detection(results: StageResults) -> list[Block]:
    assert results.attack is not None
    assert results.detect is not None
    names = results.attack.setting.classes
    rows: list[list[Any]] = [
        [tally.entry, tally.channels, names[tally.label] if names else tally.label, tally.detected, tally.still]
        for tally in results.detect.tallies
    ]
    head = ["distortion", "in", "class", "detected unchanged", "still detected"]
    note = "The distortion fills one group of channels over the whole length, and dB are within this group. There is no search."
    return [Table(head, rows, "Samples whose class the model detects", words=3), Text(note, quiet=True)]


def _benchmark(results: StageResults) -> Section:
    assert results.benchmark is not None
    blocks: list[Block] = [results.benchmark.table(), Text(QUERIES, quiet=True)]
    if results.verified is not None:
        wrong = "; ".join(map(str, results.verified["mismatches"][:5]))
        told = wrong or "every hash, distance and flip is as stored."
        blocks.append(Text(f"{results.verified['files']} files checked: {told}"))
    return Section("Benchmark", [*blocks, *(results.report.blocks() if results.report is not None else [])])


def _cost(results: StageResults) -> list[Block]:
    rows: list[list[Any]] = []
    for stage, record in results.finished.items():
        rows.append([stage, record.note, record.rows.model, record.rows.others, record.rows.copies])
    rows += [[stage, why, 0, 0, 0] for stage, why in results.left_out.items()]
    rows.append(["total", "", results.rows.model, results.rows.others, results.rows.copies])
    head = ["stage", "", "audited model", "other models", "copies"]
    note = "A query is one input that reaches a model, for any purpose. Queries of a stage that was interrupted are not counted."
    return [Table(head, rows, "Queries to models", words=2), Text(note, quiet=True)]


def _again(folder: Path, results: StageResults) -> list[Block]:
    lines = [f"rlab audit {quote(str(folder / 'audit.yaml'))} --out runs/again"]
    lines += [f"rlab attack --config {quote(str(folder / 'attack' / 'config.yaml'))} --out runs/attack"]
    if results.benchmark is not None and (own := folder / "benchmark") == results.benchmark.folder:
        lines += [f"rlab benchmark make --config {quote(str(own / 'config.yaml'))} --out runs/benchmark"]
        lines += [f"rlab benchmark verify {quote(str(own))}"]
    note = "In a new folder, every stage runs again; in this folder, only the requirements are checked again."
    return [Code("\n".join(lines)), Text(note, quiet=True)]
