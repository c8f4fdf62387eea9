"""Run an audit: its stages, then the verdicts, and everything that its folder holds.

Each stage runs a command in a folder of its own, resumes what it finds there, and counts its queries.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from rlab.auditing.config import AuditOptions
from rlab.auditing.load import LoadedAudit, load_audit, stopped_at
from rlab.auditing.measure import judge
from rlab.auditing.record import StageRecord
from rlab.auditing.report import AuditResult, needed, read_reports
from rlab.auditing.stages import STAGES, fingerprints
from rlab.benchmarking.manifest import versions
from rlab.diagnosis.report import Diagnosis, Severity
from rlab.errors import FolderError
from rlab.progress import showing
from rlab.runs.fingerprint import named_in
from rlab.runs.understood import Announce, show
from rlab.storage.contents import Contents
from rlab.storage.resume import Resume, open_run

Tell = Callable[[str, StageRecord, bool], None]  # a stage's name, its cost, and whether it was finished before
_RECORDS: TypeAdapter[StageRecord] = TypeAdapter(StageRecord)


def run_audit(
    options: AuditOptions,
    folder: str | Path,
    *,
    tell: Tell = lambda stage, record, before: None,
    progress: bool = False,
    announce: Announce = show,
) -> AuditResult:
    """Run the unfinished stages, check the requirements and write everything into `folder`. New requirements cost no queries.

    With `progress`, each stage shows a bar.
    """
    audit = load_audit(options, Path(folder), announce)
    marks, model, batch = fingerprints(audit), Contents(audit.victim), audit.batch
    asked = {"model": model, "data": marks["data"], **named_in(options.plain())}
    with showing(progress), open_run(audit.folder, {"command": AuditResult.verb, **asked}) as resume:
        _check_stages(resume, marks)
        _forget_deleted(resume)
        finished, left_out = _run_stages(audit, resume, marks, tell)
        data = {
            "digest": marks["data"], "samples": len(batch), "kind": batch.kind, "size": list(batch.size),
            "channels": batch.x.shape[1], "left_out": len(batch.left_out),
        }  # fmt: skip
        result = AuditResult(
            options.plain(), (), finished, left_out, {"name": options.own, "fingerprint": model.mark()}, data,
            {"python": platform.python_version(), **versions(str(options.policy))},
            audit.folder, read_reports(audit.folder, finished),
        )  # fmt: skip
        result = replace(result, verdicts=tuple(judge(requirement, result) for requirement in options.requirements))
        result.write(audit.folder)
    return result


def _check_stages(resume: Resume, marks: Mapping[str, str]) -> None:
    """Refuse the finished stages of another audit before the first query."""
    stages = {stage: mark for stage, mark in marks.items() if stage in STAGES and stage != "detect"}
    differs = [stage for stage, mark in stages.items() if resume.fingerprint(stage) not in (None, mark)]
    if differs:
        another = f"holds another audit ({', '.join(differs)} differ{'s' if len(differs) == 1 else ''})"
        raise FolderError(f"{resume.folder} {another}: name another folder with --out")


def _forget_deleted(resume: Resume) -> None:
    """Forget stages whose reports were deleted, so that they run again."""
    for stage, record in list(resume.values()):
        if not record["note"] and not all(path.exists() for path in needed(resume.folder, stage)):
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
        finished[stage] = _RECORDS.validate_python(stored)
        tell(stage, finished[stage], before)
    return finished, left_out


def _timed(audit: LoadedAudit, stage: str) -> dict[str, Any]:
    began = time.perf_counter()
    with stopped_at(stage):
        record = STAGES[stage](audit)
    return asdict(replace(record, seconds=time.perf_counter() - began))


def _stopped(audit: LoadedAudit, finished: Mapping[str, StageRecord]) -> str:
    """Why the remaining stages are skipped, or ''."""
    if "doctor" not in finished or audit.options.doctor is None or not audit.options.doctor.stop:
        return ""
    findings = Diagnosis.load(audit.folder / "doctor").findings
    wrong = [finding.name for finding in findings if finding.level is Severity.ERROR]
    return f"the doctor found errors ({', '.join(wrong)})" if wrong else ""
