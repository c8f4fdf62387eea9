"""The page of an audit: the verdict first, then what was asked, what was found, and how to do it again."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rlab.auditing.config import AuditConfig
from rlab.auditing.found import Found
from rlab.auditing.judge import Outcome
from rlab.auditing.record import AUDIT
from rlab.auditing.stored import read_json
from rlab.benchmarking.page import benchmark_section
from rlab.explanation.page import explain_section
from rlab.hardening.sections import harden_section
from rlab.present.attack import attack_sections
from rlab.present.page import Block, Cell, Code, Facts, Folded, Page, Section, Table, Text, Tone, Verdict, write_page

PAGE = "report.html"
_TONES: dict[str, Tone] = {"error": "fail", "warning": "warn"}


def write_audit_page(
    folder: Path, config: AuditConfig, found: Found, outcomes: Sequence[Outcome], path: Path | None = None
) -> Path:
    """Writes `report.html` into the folder, or to `path`, from what is stored."""
    record = read_json(folder / AUDIT)
    failed = sum(not one.passed for one in outcomes)
    many = f"{len(outcomes)} requirement{'s' if len(outcomes) != 1 else ''}"
    sentence = f"{many}, all met" if not failed else f"{failed} of {many} not met"
    sections = [
        Section("Requirements", _requirements(outcomes)),
        Section("What was tested", _tested(config, record)),
        *([Section("Doctor", _doctor(found))] if found.doctor is not None else []),
        *(attack_sections(found.attack) if found.attack is not None else []),
        *([explain_section(found.explain)] if found.explain is not None else []),
        *([benchmark_section(found.benchmark, found.report, found.verified)] if found.benchmark is not None else []),
        *([harden_section(found.harden, folder / "harden")] if found.harden is not None else []),
        Section("What it cost", _ledger(found)),
        Section("How to do it again", _again(config, folder)),
    ]
    title = config.title or f"Audit of {config.own}"
    lead = f"{config.own}, {record['data']['samples']} {record['data']['kind']} samples"
    return write_page(Page(title, sections, Verdict(not failed, sentence), lead), path or folder / PAGE)


def _requirements(outcomes: Sequence[Outcome]) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for one in outcomes:
        word = Cell("passes", "pass") if one.passed else Cell("fails", "fail")
        count = f"{one.measured.samples}" if one.measured.samples else "–"
        rows.append([word, one.rule.text, one.measured.note, one.shown, count])
    return [Table(["", "requirement", "", "measured", "samples"], rows, words=3)]


def _tested(config: AuditConfig, record: dict[str, Any]) -> list[Block]:
    data, plain = record["data"], config.plain()
    facts = {
        "model": f"{plain['model']['name']} (mark {record['model']['mark']})",
        "data": f"{data['samples']} {data['kind']} samples of size {' × '.join(map(str, data['size']))}, "
        f"{data['channels']} channel{'s' if data['channels'] != 1 else ''}, from {config.data.path}"
        + (f"; {data['left_out']} left out" if data["left_out"] else ""),
        "data digest": f"sha256 {data['digest']}",
        "seed": f"{config.seed}",
        "versions": ", ".join(f"{name} {one}" for name, one in record["versions"].items()),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    declared = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return [Facts(facts), Folded("The declared file, with every default", [Code(declared)])]


def _doctor(found: Found) -> list[Block]:
    assert found.doctor is not None
    right = found.doctor["accuracy"]
    said = f"{found.doctor['queries']} queries" + (
        "" if right is None else f", {right:.0%} of the samples looked at are right"
    )
    if not found.doctor["findings"]:
        return [Text(f"Nothing was found. {said}.")]
    rows = [
        [Cell(one["level"], _TONES.get(one["level"], "")), one["name"], one["what"], one["change"]]
        for one in found.doctor["findings"]
    ]
    return [Table(["", "finding", "seen", "change"], rows, words=4), Text(f"{said}.", quiet=True)]


def _ledger(found: Found) -> list[Block]:
    rows = []
    for name, one in found.done.items():
        note = one.note or (
            f"begun {one.begun} times; rows of an interrupted try are not counted" if one.begun > 1 else ""
        )
        rows.append(
            [name, note, *(f"{n:,}" for n in (one.rows.model, one.rows.others, one.rows.copies)), f"{one.seconds:.1f}"]
        )
    rows += [[name, why, "0", "0", "0", "–"] for name, why in found.left_out.items()]
    all_ = found.rows
    rows.append(
        [
            "in all",
            "",
            *(f"{n:,}" for n in (all_.model, all_.others, all_.copies)),
            f"{sum(one.seconds for one in found.done.values()):.1f}",
        ]
    )
    head = ["stage", "", "the audited model", "other models", "copies in training", "seconds"]
    said = Text(
        "A query is one input that reaches a model, whatever for. Rows are counted by the wrapper around the model.",
        quiet=True,
    )
    return [Table(head, rows, "Rows that reached models", words=2), said]


def _again(config: AuditConfig, folder: Path) -> list[Block]:
    lines = [
        f"rlab audit {folder / 'audit.yaml'} --out runs/again",
        f"rlab attack --config {folder / 'attack' / 'config.yaml'} --out runs/attack",
    ]
    if config.benchmark is not None:
        lines += [
            f"rlab benchmark make --config {folder / 'benchmark' / 'config.yaml'} --out runs/benchmark",
            f"rlab benchmark verify {folder / 'benchmark'}",
        ]
    said = "In another folder everything is asked again; in this one finished stages stay and only requirements are judged."
    return [Code("\n".join(lines)), Text(said, quiet=True)]
