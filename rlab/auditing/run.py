"""Run an audit: its stages, then the verdicts, `audit.json`, JUnit XML and the page.

Each stage writes a folder, resumes what it finds there, and counts its queries.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from matplotlib.figure import Figure
from pydantic import TypeAdapter

from rlab.auditing.config import DETECTION, FIGURES, VERIFIED, AuditOptions
from rlab.auditing.detection import Detection, detect
from rlab.auditing.load import Bars, LoadedAudit, load_audit, stopped_at
from rlab.auditing.measure import judge
from rlab.auditing.page import PAGE, VERDICT, audit_page, verdict_text
from rlab.auditing.plan import hardening_job
from rlab.auditing.results import GRADED, Rows, StageRecord, StageResults, explained_rows, read_results, write_audit
from rlab.benchmarking import Benchmark, BenchmarkReport, make_benchmark, run_benchmark, save_report, verify_benchmark
from rlab.benchmarking.answers import count_rows
from rlab.benchmarking.folder import MANIFEST, METADATA
from rlab.benchmarking.report import DEFAULT
from rlab.benchmarking.requirements import Verdict
from rlab.benchmarking.tables import queries_of
from rlab.benchmarking.whole import NothingFlipped
from rlab.diagnosis import examine
from rlab.diagnosis.report import DOCTOR, Severity, read_diagnosis
from rlab.errors import FolderError
from rlab.explanation import MethodJudge, parse_methods
from rlab.explanation.files import save_comparison
from rlab.filters.palette import by_gradient
from rlab.present.page import Page, write_page
from rlab.present.result import PathLike, Result
from rlab.progress import quiet
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import files_of, model_fingerprint
from rlab.runs.understood import Announce, show
from rlab.storage.files import copy_folder, write_atomically, write_json, write_text
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
    fingerprints = audit.fingerprints()
    asked = {name: fingerprints[name] for name in ("model", "data")} | files_of(options.plain())
    with open_run(audit.folder, {"command": "audit", **asked}) as resume:
        _check_stages(resume, fingerprints)
        finished, left_out = _run_stages(audit, resume, fingerprints, tell)
        declared = yaml.safe_dump(options.plain(), sort_keys=False, allow_unicode=True)
        write_text(audit.folder / DECLARED, declared)
        results = read_results(audit.folder, finished, left_out, options.explain.samples if options.explain else 0)
        verdicts = tuple(judge(requirement, results, options.own) for requirement in options.requirements)
        record = write_audit(audit, options, results, verdicts, fingerprints)
        page = audit_page(audit.folder, record, results)
        write_page(page, audit.folder / PAGE)
        write_text(audit.folder / VERDICT, verdict_text(page, record["requirements"]))
    return AuditResult(options, audit.folder, results, verdicts, record)


def _check_stages(resume: Resume, fingerprints: Mapping[str, str]) -> None:
    """Refuse the finished stages of another audit before the first query."""
    stages = {stage: mark for stage, mark in fingerprints.items() if stage in RUN and stage != "detect"}
    differs = [stage for stage, mark in stages.items() if resume.fingerprint(stage) not in (None, mark)]
    if differs:
        another = f"holds another audit ({', '.join(differs)} differ{'s' if len(differs) == 1 else ''})"
        raise FolderError(f"{resume.folder} {another}: name another folder with --out")


def _run_stages(
    audit: LoadedAudit, resume: Resume, fingerprints: Mapping[str, str], tell: Tell
) -> tuple[dict[str, StageRecord], dict[str, str]]:
    """Finished stages, and skipped stages with the reason."""
    finished: dict[str, StageRecord] = {}
    left_out: dict[str, str] = {}
    for stage in audit.options.steps:
        if why := _stopped(audit, finished):
            left_out[stage] = why
            continue
        before = resume.fingerprint(stage) == fingerprints[stage]
        if not before:
            resume.create()  # marks the folder as an audit's before a stage writes into it
        stale: Literal["refuse", "remake"] = "remake" if stage == "detect" else "refuse"  # it adds to what it has
        stored = resume.step(stage, fingerprints[stage], partial(_timed, audit, stage), stale)
        record = TypeAdapter(StageRecord).validate_python(stored)
        finished[stage] = record
        tell(stage, record, before)
    return finished, left_out


def _timed(audit: LoadedAudit, stage: str) -> dict[str, Any]:
    began = time.perf_counter()
    with stopped_at(stage):
        record = RUN[stage](audit)
    return asdict(replace(record, seconds=time.perf_counter() - began))


def _stopped(audit: LoadedAudit, finished: Mapping[str, StageRecord]) -> str:
    """Why the remaining stages are skipped, or ''."""
    if "doctor" not in finished or audit.options.doctor is None or not audit.options.doctor.stop:
        return ""
    findings = read_diagnosis(audit.folder / "doctor").findings
    wrong = [finding.name for finding in findings if finding.level is Severity.ERROR]
    return f"the doctor found errors ({', '.join(wrong)})" if wrong else ""


def run_doctor(audit: LoadedAudit) -> StageRecord:
    stage = audit.options.doctor
    assert stage is not None
    palette = audit.options.build(audit.batch).palette
    diagnosis = examine(audit.victim, audit.batch, palette, samples=stage.samples, seed=audit.options.seed)
    write_json(audit.folder / "doctor" / DOCTOR, diagnosis.plain())
    return StageRecord(Rows(model=diagnosis.queries))


def run_the_attack(audit: LoadedAudit) -> StageRecord:
    options, progress = audit.options.shared_options(), audit.progress("attack", len(audit.batch))
    workers, folder = Workers.of(options, options.model, audit.victim), audit.folder / "attack"
    result = run_attack(options, audit.victim, audit.batch, folder, options.plain(), progress, workers)
    return StageRecord(Rows(model=int(result.queries.sum())))


def run_detect(audit: LoadedAudit) -> StageRecord:
    """New requirements cost only the queries of their own distortions."""
    folder = audit.folder / "detect"
    found = detect(audit, Detection.read(folder) if (folder / DETECTION).exists() else Detection())
    found.save(folder)
    return StageRecord(Rows(model=found.rows))


def run_corrupt(audit: LoadedAudit) -> StageRecord:
    job = audit.corruption_job()
    config = {"model": audit.options.model.plain(), "data": audit.options.data.plain(), **job.options.plain()}
    report = job.run(audit.folder / "corrupt", config, audit.progress("corrupt", job.inputs))
    return StageRecord(Rows(model=report.rows))


def run_explain(audit: LoadedAudit) -> StageRecord:
    stage, before = audit.options.explain, audit.victim.rows.total()
    assert stage is not None
    rows = explained_rows(AttackResult.load(audit.folder / "attack"), stage.samples)
    if not rows:
        return StageRecord(note="the model classifies no sample correctly, so there is nothing to explain")
    progress = audit.progress("explain", len(stage.methods))
    compare = MethodJudge(stage.steps, stage.checks, rule=stage.rule, tell=lambda name, scored: progress([name]))
    methods = parse_methods(stage.methods, audit.options.attack_options())
    comparison = compare(audit.victim, audit.batch[rows], methods, seed=audit.options.seed)
    save_comparison(comparison, audit.folder / "explain", f"Where {audit.options.own} looks", len(rows))
    return StageRecord(Rows(model=audit.victim.rows.total() - before, copies=comparison.copy_rows))


def run_the_benchmark(audit: LoadedAudit) -> StageRecord:
    options, stage, folder = audit.options, audit.options.benchmark, audit.folder / "benchmark"
    assert stage is not None
    victims = {options.own: audit.victim} | (dict(audit.others) if stage.against == "all" else {})
    wanted, _ = options.benchmark_options().filled(audit.batch)
    models = {options.own: audit.victim, **audit.others}
    before = {name: victim.rows.total() for name, victim in models.items()}
    progress = audit.progress("benchmark", len(audit.batch) * len(victims))
    try:
        benchmark = audit.benchmark or make_benchmark(victims, audit.batch, folder, wanted, progress)
    except NothingFlipped as nothing:
        why = "no sample was flipped, so there is nothing to grade models on"
        return StageRecord(Rows(model=nothing.queries), note=why)
    if audit.benchmark:
        copied = folder / GRADED / benchmark.name
        copied.mkdir(parents=True, exist_ok=True)
        for name in (MANIFEST, METADATA):
            write_atomically(copied / name, (benchmark.folder / name).read_bytes())
    known = {} if audit.benchmark else victims  # the models of an existing benchmark are not loaded
    verified = verify_benchmark(benchmark, known, progress=False)
    mismatches = [str(mismatch) for mismatch in verified.mismatches]
    counts = {"files": verified.files, "asked": verified.asked, "unasked": verified.unasked}
    write_json(folder / "results" / VERIFIED, counts | {"mismatches": mismatches})
    configs = {name: model.plain() for name, model in {options.own: options.model, **stage.models}.items()}
    palette = () if audit.benchmark else tuple(spec for spec in wanted.palette or () if not by_gradient(spec))
    filters = (palette or True) if stage.corruptions else False  # declared: run_benchmark does not trust a folder
    report = run_benchmark([benchmark], models, configs=configs, corruptions=filters, seed=wanted.seed, progress=False)
    save_report(report, folder / DEFAULT)
    seen = {name: victim.rows.total() - before[name] for name, victim in models.items()}
    if audit.benchmark:
        rows = seen
    else:
        fingerprints = {name: model_fingerprint(name, models[name], configs[name]) for name in models}
        stored = _benchmark_rows(benchmark, report, fingerprints)
        rows = {name: max(seen[name], stored[name]) for name in models}  # repeated queries are not stored
    return StageRecord(Rows(model=rows.pop(options.own), others=sum(rows.values())))


def _benchmark_rows(benchmark: Benchmark, report: BenchmarkReport, fingerprints: dict[str, str]) -> dict[str, int]:
    """Queries by model from stored rows, so that an interrupted stage counts the same."""
    rows: dict[str, int] = {}
    for name in report.models:
        twin = any(fingerprints[other] == fingerprints[name] for other in rows)  # the same model is queried once
        mine = [row for row in report.corruptions if row["model"] == name and not math.isnan(row["uniform"])]
        rows[name] = 0 if twin else count_rows(benchmark) + sum(row["samples"] for row in mine)
    for row in benchmark.rows:
        if row["victim"]:
            rows[row["victim"]] += queries_of(row) + int(row["reached"])  # one more to verify
    return rows


def run_harden(audit: LoadedAudit) -> StageRecord:
    folder = audit.folder / "harden"
    progress = audit.progress("harden", audit.options.harden_options().total_epochs)
    run = hardening_job(audit).run(folder, progress)
    hardened, measured = run.hardened, run.measured
    for when, measurement in measured.items():
        shutil.rmtree(folder / when, ignore_errors=True)  # left by an interrupted try
        assert measurement.attack is not None
        measurement.attack.save(folder / when)
    estimates = {when: measurement.estimates() for when, measurement in measured.items()}
    figures = {when: {name: asdict(each) for name, each in by_name.items()} for when, by_name in estimates.items()}
    curves = {when: measurement.means for when, measurement in measured.items()}
    training = {"training": hardened.summary(), "stopped": hardened.stopped}
    write_json(folder / FIGURES, {**figures, "curves": curves, **training})
    return StageRecord(Rows(copies=run.rows))


RUN: dict[str, Callable[[LoadedAudit], StageRecord]] = {
    "doctor": run_doctor, "attack": run_the_attack, "detect": run_detect, "corrupt": run_corrupt, "explain": run_explain,
    "benchmark": run_the_benchmark, "harden": run_harden,
}  # fmt: skip
