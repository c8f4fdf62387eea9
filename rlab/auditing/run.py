"""An audit from one declared file: stage after stage, then the verdicts, `audit.json`, JUnit XML and the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rlab.auditing.config import AuditOptions
from rlab.auditing.load import Bars, LoadedAudit, load_audit, stopped_at
from rlab.auditing.measure import judge
from rlab.auditing.page import PAGE, audit_page
from rlab.auditing.record import write_audit
from rlab.auditing.results import DOCTOR, StageRecord, StageResults, read_results
from rlab.auditing.stages import RUN
from rlab.benchmarking.requirements import Verdict
from rlab.errors import InputError
from rlab.present.page import write_page
from rlab.progress import quiet
from rlab.runs.files import read_json, write_atomically
from rlab.runs.resume import PARTS, Resume

DECLARED = "audit.yaml"
Tell = Callable[[str, StageRecord, bool], None]  # a stage's name, what it cost, and whether it was finished before


@dataclass(frozen=True)
class AuditResult:
    """A finished audit."""

    options: AuditOptions
    folder: Path
    stages: StageResults
    verdicts: tuple[Verdict, ...]
    record: Mapping[str, Any]  # the content of `audit.json`

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def page(self) -> Path:
        return self.folder / PAGE


def run_audit(
    options: AuditOptions,
    folder: str | Path,
    *,
    tell: Tell = lambda stage, record, before: None,
    progress: Bars = lambda stage, total: quiet,
) -> AuditResult:
    """Runs what is not finished yet, judges, and writes everything into `folder`. Changed requirements cost nothing."""
    audit = load_audit(options, Path(folder), progress)
    fingerprints = audit.fingerprints()
    finished, left_out = _run_stages(audit, _resume(audit.folder, fingerprints), fingerprints, tell)
    declared = yaml.safe_dump(options.plain(), sort_keys=False, allow_unicode=True)
    write_atomically(audit.folder / DECLARED, declared.encode())
    results = read_results(audit.folder, finished, left_out, options.explain.samples if options.explain else 0)
    verdicts = judge(options.requirements, results, options.own)
    record = write_audit(audit, options, results, verdicts, fingerprints)
    write_page(audit_page(audit.folder, record, results), audit.folder / PAGE)
    return AuditResult(options, audit.folder, results, tuple(verdicts), record)


def _resume(folder: Path, fingerprints: Mapping[str, str]) -> Resume:
    """The folder's finished stages; those of another audit are refused before anything is spent."""
    asked = {name: fingerprints[name] for name in ("model", "data")}
    resume = Resume(folder, {"command": "audit", **asked})
    stages = [name for name in fingerprints if name not in asked]
    differs = [stage for stage in stages if resume.fingerprint(stage) not in (None, fingerprints[stage])]
    if differs:
        raise InputError(f"{folder} holds another audit ({', '.join(differs)} differs): name another folder with --out")
    return resume


def _run_stages(
    audit: LoadedAudit, resume: Resume, fingerprints: Mapping[str, str], tell: Tell
) -> tuple[dict[str, StageRecord], dict[str, str]]:
    """Finished stages, and those left out with the reason why."""
    finished: dict[str, StageRecord] = {}
    left_out: dict[str, str] = {}
    for stage in audit.options.stages:
        if why := _stopped(audit, finished):
            left_out[stage] = why
            continue
        before = resume.fingerprint(stage) is not None
        if not before:
            resume.create()  # a stage writes into the folder, which is to be known as an audit's from then on
        record = StageRecord.of(resume.step(stage, fingerprints[stage], partial(_timed, audit, stage)))
        finished[stage] = replace(record, begun=resume.begun(stage))
        tell(stage, finished[stage], before)
    with suppress(OSError):
        (audit.folder / PARTS).rmdir()  # stages have folders of their own
    return finished, left_out


def _timed(audit: LoadedAudit, stage: str) -> dict[str, Any]:
    began = time.perf_counter()
    with stopped_at(stage):
        record = RUN[stage](audit)
    return asdict(replace(record, seconds=time.perf_counter() - began))


def _stopped(audit: LoadedAudit, finished: Mapping[str, StageRecord]) -> str:
    """Why nothing further is spent; '' where nothing stands in the way."""
    if "doctor" not in finished or audit.options.doctor is None or not audit.options.doctor.stop:
        return ""
    findings = read_json(audit.folder / "doctor" / DOCTOR)["findings"]
    wrong = [finding["name"] for finding in findings if finding["level"] == "error"]
    return f"the doctor found errors ({', '.join(wrong)}), so nothing further was spent" if wrong else ""
