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
from typing import Any

from pydantic import TypeAdapter

from rlab.auditing.config import AuditOptions
from rlab.auditing.detection import detect
from rlab.auditing.load import LoadedAudit, load_audit, stopped_at
from rlab.auditing.measure import judge
from rlab.auditing.record import StageRecord
from rlab.auditing.report import AuditResult, needed, read_reports
from rlab.auditing.stages import STAGES, marks
from rlab.benchmarking.manifest import versions
from rlab.diagnosis.report import Diagnosis, Severity
from rlab.progress import showing
from rlab.runs.fingerprint import data_fingerprint, named_in
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
    model, digest = Contents(audit.victim), data_fingerprint(audit.batch)
    batch, declared = audit.batch, options.plain()
    attack = audit.options.attack_options().plain()
    question = {"command": AuditResult.verb, "model": model, "data": digest, "attack": attack, **named_in(declared)}
    with showing(progress), open_run(audit.folder, question) as resume:
        finished, left_out = _run_stages(audit, resume, tell)
        result = AuditResult(
            config=declared,
            verdicts=(),
            stages=finished,
            left_out=left_out,
            model={"name": options.own, "fingerprint": model.mark()},
            data={
                "digest": digest, "samples": len(batch), "kind": batch.kind, "size": list(batch.size),
                "channels": batch.x.shape[1], "left_out": len(batch.left_out),
            },
            versions={"python": platform.python_version(), **versions(str(options.policy))},
            folder=audit.folder,
            reports=read_reports(audit.folder, finished),
        )  # fmt: skip
        result = replace(result, verdicts=tuple(judge(requirement, result) for requirement in options.requirements))
        result.write(audit.folder)
    return result


def _run_stages(audit: LoadedAudit, resume: Resume, tell: Tell) -> tuple[dict[str, StageRecord], dict[str, str]]:
    """Finished stages, and skipped stages with the reason."""
    finished, left_out, depends = dict[str, StageRecord](), dict[str, str](), marks(audit)
    for stage, mark in depends.items():  # before the first query
        if stage != "detect":  # which adds to what it has
            resume.refuse_other(stage, mark)
    earlier = {stage: _RECORDS.validate_python(value) for stage, value in resume.values()}
    for stage, record in earlier.items():
        if not record.note and not all(path.exists() for path in needed(resume.folder, stage)):
            resume.drop(stage)  # its report was deleted
    for stage, mark in depends.items():
        if why := _stopped(audit, finished):
            left_out[stage] = why
            continue
        before = resume.fingerprint(stage) == mark
        if not before:
            resume.create()  # marks the folder as an audit's before a stage writes into it
        make = partial(_timed, audit, stage, earlier.get(stage, StageRecord()))
        value = resume.step(stage, mark, make, "remake" if stage == "detect" else "refuse")
        finished[stage] = _RECORDS.validate_python(value)
        tell(stage, finished[stage], before)
    return finished, left_out


def _timed(audit: LoadedAudit, stage: str, earlier: StageRecord) -> dict[str, Any]:
    began = time.perf_counter()
    with stopped_at(stage):
        record = detect(audit, earlier) if stage == "detect" else STAGES[stage](audit)
    return asdict(replace(record, seconds=time.perf_counter() - began))


def _stopped(audit: LoadedAudit, finished: Mapping[str, StageRecord]) -> str:
    """Why the remaining stages are skipped, or ''."""
    if "doctor" not in finished or not audit.options.doctor or not audit.options.doctor.stop:
        return ""
    findings = Diagnosis.load(audit.folder / "doctor").findings
    wrong = [finding.name for finding in findings if finding.level is Severity.ERROR]
    return f"the doctor found errors ({', '.join(wrong)})" if wrong else ""
