"""An audit from one declared file: stage after stage, then the verdict, `audit.json`, JUnit XML and the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from rlab.auditing.config import AuditConfig
from rlab.auditing.found import Found, read_found
from rlab.auditing.job import Job, at, prepare
from rlab.auditing.judge import Outcome, judge
from rlab.auditing.known import stages_of
from rlab.auditing.manifest import Done, Manifest
from rlab.auditing.page import write_audit_page
from rlab.auditing.record import read_audit, write_audit
from rlab.auditing.stages import DOCTOR, RUN
from rlab.auditing.stored import read_json
from rlab.progress import Progress, quiet
from rlab.runs.files import write_atomically

DECLARED = "audit.yaml"
Tell = Callable[[str, Done, bool], None]  # a stage's name, what it cost, and whether it was finished before
Bars = Callable[[str, int], Progress]


def _silent(stage: str, done: Done, before: bool) -> None:
    """No word."""


@dataclass(frozen=True)
class Audit:
    """A finished audit."""

    config: AuditConfig
    folder: Path
    found: Found
    outcomes: tuple[Outcome, ...]
    page: Path

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.outcomes)


def run_audit(
    config: AuditConfig,
    folder: str | Path,
    *,
    tell: Tell = _silent,
    progress: Bars = lambda stage, total: quiet,
) -> Audit:
    """Runs what is not finished yet, judges, and writes everything into `folder`. Changed requirements cost nothing."""
    job = replace(prepare(config, Path(folder)), progress=progress)
    manifest = Manifest(job.folder, job.marks)
    done, left_out = _all_stages(job, manifest, tell)
    write_atomically(
        job.folder / DECLARED, yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True).encode()
    )
    found = read_found(config, job.folder, done, left_out)
    outcomes = judge(job.rules, found, config.own)
    write_audit(job.folder, config, found, outcomes, job.marks, job.batch)
    page = write_audit_page(job.folder, config, found, outcomes)
    return Audit(config, job.folder, found, tuple(outcomes), page)


def _all_stages(job: Job, manifest: Manifest, tell: Tell) -> tuple[dict[str, Done], dict[str, str]]:
    done: dict[str, Done] = {}
    left_out: dict[str, str] = {}
    for stage in stages_of(job.config):
        if why := _stopped(job, done):
            left_out[stage] = why
            continue
        before = manifest.finished(stage)
        done[stage] = before or _run_stage(job, manifest, stage)
        tell(stage, done[stage], before is not None)
    return done, left_out


def _run_stage(job: Job, manifest: Manifest, stage: str) -> Done:
    begun, began = manifest.begin(stage), time.perf_counter()
    with at(stage):
        done = RUN[stage](job)
    done = replace(done, seconds=time.perf_counter() - began, begun=begun)
    manifest.finish(stage, done)
    return done


def _stopped(job: Job, done: dict[str, Done]) -> str:
    """Why nothing further is spent; '' where nothing stands in the way."""
    if "doctor" not in done or job.config.doctor is None or not job.config.doctor.stop:
        return ""
    findings = read_json(job.folder / "doctor" / DOCTOR)["findings"]
    wrong = [one["name"] for one in findings if one["level"] == "error"]
    return f"the doctor found errors ({', '.join(wrong)}), so nothing further was spent" if wrong else ""


def report_audit(folder: Path, path: Path | None = None) -> Path:
    """The page of a finished audit once more, from what is stored; nothing is asked or judged anew."""
    config, done, left_out, outcomes = read_audit(folder)
    return write_audit_page(folder, config, read_found(config, folder, done, left_out), outcomes, path)
