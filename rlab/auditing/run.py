"""Run an audit: its stages, then the verdicts, `audit.json`, JUnit XML and the page.

Each stage writes a folder, resumes what it finds there, and counts its queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from matplotlib.figure import Figure
from pydantic import TypeAdapter

from rlab.auditing.config import AuditOptions
from rlab.auditing.load import Bars, LoadedAudit, load_audit, stopped_at
from rlab.auditing.page import PAGE, VERDICT, audit_page, verdict_text
from rlab.auditing.results import StageRecord, StageResults, write_audit
from rlab.auditing.stages import STAGES, fingerprints, judge, read_results
from rlab.benchmarking.requirements import Verdict
from rlab.diagnosis.report import Diagnosis, Severity
from rlab.errors import FolderError
from rlab.present.page import Page, write_page
from rlab.present.result import PathLike, Result
from rlab.progress import quiet
from rlab.runs.fingerprint import named_in
from rlab.runs.understood import Announce, show
from rlab.storage.contents import Contents
from rlab.storage.files import copy_folder, write_text
from rlab.storage.resume import Resume, open_run

DECLARED = "audit.yaml"
Tell = Callable[[str, StageRecord, bool], None]  # a stage's name, its cost, and whether it was finished before


@dataclass(frozen=True)
class AuditResult(Result):
    """The verdicts of an audit, and the results of its stages."""

    options: AuditOptions
    folder: Path
    stages: StageResults
    verdicts: tuple[Verdict, ...]
    record: Mapping[str, Any]  # the content of `audit.json`

    def __repr__(self) -> str:
        met = sum(verdict.passed for verdict in self.verdicts)
        return f"AuditResult({met} of {len(self.verdicts)} requirements met, {self.page})"

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def page(self) -> Path:
        return self.folder / PAGE

    def records(self) -> list[dict[str, Any]]:
        """One row per requirement, with its limit, the measured value and the verdict."""
        return [dict(requirement) for requirement in self.record["requirements"]]

    def plot(self) -> Figure:
        """Draw the attack of the audit."""
        if self.stages.attack is None:
            raise FolderError(f"the attack of {self.folder} did not run, so there is nothing to draw")
        return self.stages.attack.plot()

    def make_page(self) -> Page:
        return audit_page(self.folder, self.record, self.stages)

    def save(self, folder: PathLike) -> Path:
        """Copy the audit's folder."""
        return copy_folder(self.folder, Path(folder))


def run_audit(
    options: AuditOptions,
    folder: str | Path,
    *,
    tell: Tell = lambda stage, record, before: None,
    progress: Bars = lambda stage, total: quiet,
    announce: Announce = show,
) -> AuditResult:
    """Run the unfinished stages, check the requirements and write everything into `folder`. New requirements cost no queries."""
    audit = load_audit(options, Path(folder), progress, announce)
    marks = fingerprints(audit)
    model = Contents.of(audit.victim)
    asked = {"model": model, "data": marks["data"], **named_in(options.plain())}
    with open_run(audit.folder, {"command": "audit", **asked}) as resume:
        _check_stages(resume, marks)
        _forget_deleted(resume)
        finished, left_out = _run_stages(audit, resume, marks, tell)
        declared = yaml.safe_dump(options.plain(), sort_keys=False, allow_unicode=True)
        write_text(audit.folder / DECLARED, declared)
        results = read_results(audit.folder, finished, left_out)
        verdicts = tuple(judge(requirement, results, options.own) for requirement in options.requirements)
        record = write_audit(audit, options, results, verdicts, marks | {"model": model.mark()})
        page = audit_page(audit.folder, record, results)
        write_page(page, audit.folder / PAGE)
        write_text(audit.folder / VERDICT, verdict_text(page, record["requirements"]))
    return AuditResult(options, audit.folder, results, verdicts, record)


def _check_stages(resume: Resume, marks: Mapping[str, str]) -> None:
    """Refuse the finished stages of another audit before the first query."""
    stages = {stage: mark for stage, mark in marks.items() if stage in STAGES and stage != "detect"}
    differs = [stage for stage, mark in stages.items() if resume.fingerprint(stage) not in (None, mark)]
    if differs:
        another = f"holds another audit ({', '.join(differs)} differ{'s' if len(differs) == 1 else ''})"
        raise FolderError(f"{resume.folder} {another}: name another folder with --out")


def _forget_deleted(resume: Resume) -> None:
    """Forget stages whose files were deleted, so that they run again."""
    for stage, record in list(resume.values()):
        folder = resume.folder / stage
        if not record["note"] and not all((folder / name).exists() for name in STAGES[stage].files(folder)):
            resume.drop(stage)


def _run_stages(
    audit: LoadedAudit, resume: Resume, marks: Mapping[str, str], tell: Tell
) -> tuple[dict[str, StageRecord], dict[str, str]]:
    """Finished stages, and skipped stages with the reason."""
    finished: dict[str, StageRecord] = {}
    left_out: dict[str, str] = {}
    for stage in audit.options.steps:
        if why := _stopped(audit, finished):
            left_out[stage] = why
            continue
        before = resume.fingerprint(stage) == marks[stage]
        if not before:
            resume.create()  # marks the folder as an audit's before a stage writes into it
        stale: Literal["refuse", "remake"] = "remake" if stage == "detect" else "refuse"  # it adds to what it has
        stored = resume.step(stage, marks[stage], partial(_timed, audit, stage), stale)
        record = TypeAdapter(StageRecord).validate_python(stored)
        finished[stage] = record
        tell(stage, record, before)
    return finished, left_out


def _timed(audit: LoadedAudit, stage: str) -> dict[str, Any]:
    began = time.perf_counter()
    with stopped_at(stage):
        record = STAGES[stage].run(audit)
    return asdict(replace(record, seconds=time.perf_counter() - began))


def _stopped(audit: LoadedAudit, finished: Mapping[str, StageRecord]) -> str:
    """Why the remaining stages are skipped, or ''."""
    if "doctor" not in finished or audit.options.doctor is None or not audit.options.doctor.stop:
        return ""
    findings = Diagnosis.load(audit.folder / "doctor").findings
    wrong = [finding.name for finding in findings if finding.level is Severity.ERROR]
    return f"the doctor found errors ({', '.join(wrong)})" if wrong else ""
