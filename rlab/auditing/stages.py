"""The stages of an audit in one table: what each measures, costs, stores, and says about a requirement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rlab.auditing import measure
from rlab.auditing.config import DETECTION, VERIFIED
from rlab.auditing.detection import Detection, detect
from rlab.auditing.load import Bars, LoadedAudit
from rlab.auditing.needed import attack_files, benchmark_files
from rlab.auditing.results import AUDIT, GRADED, Rows, StageRecord, StageResults, explained_rows
from rlab.benchmarking import (
    Benchmark,
    BenchmarkReport,
    make_benchmark,
    run_benchmark,
    verify_benchmark,
)
from rlab.benchmarking.folder import queries_of
from rlab.benchmarking.manifest import MANIFEST, METADATA
from rlab.benchmarking.report import DEFAULT
from rlab.benchmarking.requirements import Requirement, Verdict
from rlab.benchmarking.whole import NothingFlipped
from rlab.corruptions.report import CorruptionReport
from rlab.diagnosis import examine
from rlab.diagnosis.report import Diagnosis
from rlab.explanation import MethodComparison, MethodJudge, parse_methods
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.report import Hardened
from rlab.hardening.run import Splits, run_hardening
from rlab.present.report import REPORT
from rlab.progress import Progress, bar
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint
from rlab.stats import NOTHING, share_estimate
from rlab.storage.config import check
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.files import read_json, read_result, write_atomically, write_json


@dataclass(frozen=True)
class Stage:
    """One stage of an audit."""

    run: Callable[[LoadedAudit], StageRecord]
    judge: Callable[[Requirement, StageResults, str], Verdict]
    asked: Callable[[LoadedAudit], list[Any]]  # what its fingerprint covers
    files: Callable[[Path], Iterable[str]]  # what its results need, within its folder
    read: Callable[[Path], Any] | None = None  # its results, unless they need those of other stages or several files
    unit: str = "samples"  # what its bar counts


def run_doctor(audit: LoadedAudit) -> StageRecord:
    stage = audit.options.doctor
    assert stage is not None
    palette = audit.options.build(audit.batch).palette
    diagnosis = examine(audit.victim, audit.batch, palette, samples=stage.samples, seed=audit.options.seed)
    diagnosis.save(audit.folder / "doctor")
    return StageRecord(Rows(model=diagnosis.queries))


def run_attack_stage(audit: LoadedAudit) -> StageRecord:
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
    compare = MethodJudge(stage.steps, stage.checks, rule=stage.rule, tell=lambda explanation: progress([explanation]))
    methods = parse_methods(stage.methods, audit.options.attack_options())
    comparison = compare(audit.victim, audit.batch[rows], methods, seed=audit.options.seed)
    comparison.save(audit.folder / "explain", len(rows))
    return StageRecord(Rows(model=audit.victim.rows.total() - before, copies=comparison.copy_rows))


def run_benchmark_stage(audit: LoadedAudit) -> StageRecord:
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
    report = run_benchmark([benchmark], models, seed=wanted.seed, progress=False)
    report.save(folder / DEFAULT)
    seen = {name: victim.rows.total() - before[name] for name, victim in models.items()}
    if audit.benchmark:
        rows = seen
    else:
        fingerprints = {name: Contents.of(model).mark() for name, model in models.items()}
        stored = _benchmark_rows(benchmark, report, fingerprints)
        rows = {name: max(seen[name], stored[name]) for name in models}  # repeated queries are not stored
    return StageRecord(Rows(model=rows.pop(options.own), others=sum(rows.values())))


def _benchmark_rows(benchmark: Benchmark, report: BenchmarkReport, fingerprints: dict[str, str]) -> dict[str, int]:
    """Queries by model from stored rows, so that an interrupted stage counts the same."""
    rows: dict[str, int] = {}
    for name in report.models:
        twin = any(fingerprints[other] == fingerprints[name] for other in rows)  # the same model is queried once
        rows[name] = 0 if twin else benchmark.queries
    for row in benchmark.rows:
        if row["victim"]:
            rows[row["victim"]] += queries_of(row) + int(row["reached"])  # one more to verify
    return rows


def run_harden(audit: LoadedAudit) -> StageRecord:
    options = audit.options
    assert options.harden is not None
    assert audit.training is not None
    evaluation = check(EvaluationOptions, {"attack": options.attack_options(), "attacked": options.harden.attacked})
    progress = audit.progress("harden", options.harden_options().epochs)
    data = Splits(audit.training, audit.batch)
    report = run_hardening(audit.victim, data, options.harden_options(), evaluation, audit.folder / "harden", progress)
    return StageRecord(Rows(copies=report.queries))


def asked_attack(audit: LoadedAudit) -> list[Any]:
    return [audit.options.attack_options().plain(), agent_fingerprint(str(audit.options.policy))]


def asked_benchmark(audit: LoadedAudit) -> list[Any]:
    stored, others = audit.benchmark, [Contents.of(model).mark() for model in audit.others.values()]
    return [audit.options.plain()["benchmark"], stored.manifest.hash if stored else asked_attack(audit), others]


STAGES = {
    "doctor": Stage(
        run_doctor, measure.doctor, files=lambda folder: (REPORT,), read=Diagnosis.load,
        asked=lambda a: [a.options.plain()["doctor"], list(map(str, a.options.palette or ())), a.options.seed],
    ),
    "attack": Stage(
        run_attack_stage, measure.attack, asked_attack, attack_files, AttackResult.load,
    ),
    "detect": Stage(
        run_detect, measure.detect,
        lambda audit: [audit.options.conditions, asked_attack(audit)], lambda folder: (DETECTION,), Detection.read,
        unit="queries",
    ),
    "corrupt": Stage(
        run_corrupt, measure.corrupt, lambda audit: [audit.options.seed],
        lambda folder: (REPORT,), CorruptionReport.load, unit="queries",
    ),
    "explain": Stage(
        run_explain, measure.explain,
        lambda audit: [audit.options.plain()["explain"], asked_attack(audit)], lambda folder: (REPORT,),
        MethodComparison.load, unit="methods",
    ),
    "benchmark": Stage(run_benchmark_stage, measure.benchmark, asked_benchmark, benchmark_files),
    "harden": Stage(
        run_harden, measure.harden,
        lambda a: [a.options.plain().get("harden"), asked_attack(a), data_fingerprint(a.training) if a.training else ""],
        lambda folder: (REPORT,), Hardened.load, unit="epochs",
    ),
}  # fmt: skip


@contextmanager
def stage_bars() -> Iterator[Bars]:
    """One bar at a time: a stage replaces the bar of the stage before."""
    with ExitStack() as stack:

        def begin(stage: str, total: int) -> Progress:
            stack.close()
            return stack.enter_context(bar(total, stage, unit=STAGES[stage].unit))

        yield begin


def fingerprints(audit: LoadedAudit) -> dict[str, str]:
    """Fingerprints of the data and each stage; a changed option changes the fingerprint of its stages."""
    return {
        "data": data_fingerprint(audit.batch),
        **{stage: digest(STAGES[stage].asked(audit)) for stage in audit.options.steps},
    }


def judge(requirement: Requirement, results: StageResults, own: str) -> Verdict:
    """`own` is the audited model's name in the benchmark."""
    stage = requirement.figure.stage
    if stage == "audit":
        return Verdict(requirement, results.rows.total)
    if stage in results.left_out:
        return Verdict(requirement, math.nan, note=results.left_out[stage])
    if stage in results.finished and (note := results.finished[stage].note):
        # without flips, every file of a benchmark would be an original, which the audited model classifies correctly
        unbroken = requirement.metric in ("accuracy", "area") and requirement.model in (None, own)
        right = 0 if results.attack is None else int(results.attack.attacked.sum())
        if requirement.metric == "flip_distance" and requirement.model in (None, own):
            return Verdict(requirement, math.inf, note=note)
        return Verdict.of(requirement, share_estimate(right, right) if unbroken else NOTHING, 0, note)
    return STAGES[stage].judge(requirement, results, own)


def read_results(folder: Path, finished: Mapping[str, StageRecord], left_out: Mapping[str, str]) -> StageResults:
    """Read the results of the finished stages."""
    stored = {stage: folder / stage for stage, record in finished.items() if not record.note}
    parts: dict[str, Any] = {}
    for stage, path in stored.items():
        if (read := STAGES[stage].read) is not None:
            parts[stage] = read(path)
    if "benchmark" in stored:
        graded = sorted((stored["benchmark"] / GRADED).glob("*"))
        parts["benchmark"] = Benchmark.load(graded[0] if graded else stored["benchmark"])
        parts["report"] = BenchmarkReport.load(stored["benchmark"] / DEFAULT)
        parts["verified"] = read_json(stored["benchmark"] / "results" / VERIFIED)
    return StageResults(dict(finished), dict(left_out), **parts)


def read_audit(folder: Path) -> tuple[dict[str, Any], StageResults]:
    """The content of `audit.json` and the results of the stages."""

    def read(record: dict[str, Any]) -> tuple[dict[str, Any], StageResults]:
        finished = TypeAdapter(dict[str, StageRecord]).validate_python(record["stages"])
        return record, read_results(folder, finished, record["left_out"])

    return read_result(folder / AUDIT, read)
