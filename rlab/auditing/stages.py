"""The stages of an audit: each runs a command in its folder, which resumes by itself, and says what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlab.auditing.detection import Detection, detect
from rlab.auditing.load import LoadedAudit
from rlab.auditing.record import Rows, StageRecord
from rlab.auditing.report import VERIFIED
from rlab.benchmarking import Benchmark, BenchmarkReport, make_benchmark, run_benchmark, verify_benchmark
from rlab.benchmarking.folder import queries_of
from rlab.benchmarking.make import NothingFlipped
from rlab.benchmarking.report import DEFAULT
from rlab.diagnosis import examine
from rlab.explanation import MethodJudge, parse_methods
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.run import Splits, run_hardening
from rlab.present.report import REPORT
from rlab.progress import bar
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint
from rlab.storage.config import check
from rlab.storage.contents import Contents
from rlab.storage.digest import digest


def _doctor(audit: LoadedAudit) -> StageRecord:
    stage = audit.options.doctor
    assert stage is not None
    palette = audit.options.build(audit.batch).palette
    diagnosis = examine(audit.victim, audit.batch, palette, samples=stage.samples, seed=audit.options.seed)
    diagnosis.save(audit.folder / "doctor")
    return StageRecord(Rows(model=diagnosis.queries))


def _attack(audit: LoadedAudit) -> StageRecord:
    options, folder = audit.options.shared_options(), audit.folder / "attack"
    workers = Workers.of(options, options.model, audit.victim)
    with bar(len(audit.batch), "attack") as progress:
        result = run_attack(options, audit.victim, audit.batch, folder, options.plain(), progress, workers)
    return StageRecord(Rows(model=int(result.queries.sum())))


def _detect(audit: LoadedAudit) -> StageRecord:
    """New requirements cost only the queries of their own distortions."""
    folder = audit.folder / "detect"
    found = detect(audit, Detection.load(folder) if (folder / REPORT).exists() else Detection())
    found.save(folder)
    return StageRecord(Rows(model=found.rows))


def _corrupt(audit: LoadedAudit) -> StageRecord:
    job = audit.corruption_job()
    config = {"model": audit.options.model.plain(), "data": audit.options.data.plain(), **job.options.plain()}
    with bar(job.inputs, "corrupt", unit="queries") as progress:
        return StageRecord(Rows(model=job.run(audit.folder / "corrupt", config, progress).rows))


def _explain(audit: LoadedAudit) -> StageRecord:
    """Explain the first samples that the model classifies correctly."""
    stage, before = audit.options.explain, audit.victim.rows.total()
    assert stage is not None
    right = AttackResult.load(audit.folder / "attack").attacked.nonzero().flatten()
    rows: list[int] = right[: stage.samples].tolist()
    if not rows:
        return StageRecord(note="the model classifies no sample correctly, so there is nothing to explain")
    methods = parse_methods(stage.methods, audit.options.attack_options())
    judge = MethodJudge(stage.steps, stage.checks, rule=stage.rule)
    comparison = judge(audit.victim, audit.batch[rows], methods, seed=audit.options.seed)
    comparison.save(audit.folder / "explain", len(rows))
    return StageRecord(Rows(model=audit.victim.rows.total() - before, copies=comparison.copy_rows))


def _benchmark(audit: LoadedAudit) -> StageRecord:
    """Make the sets unless the file names an existing benchmark, verify them, and grade all models on them."""
    options, stage, folder = audit.options, audit.options.benchmark, audit.folder / "benchmark"
    assert stage is not None
    models = {options.own: audit.victim, **audit.others}
    victims = models if stage.against == "all" else {options.own: audit.victim}
    wanted, _ = options.benchmark_options().filled(audit.batch)
    before = {name: victim.rows.total() for name, victim in models.items()}
    try:
        with bar(len(audit.batch) * len(victims), "benchmark") as progress:
            made = audit.benchmark or make_benchmark(victims, audit.batch, folder, wanted, progress)
    except NothingFlipped as nothing:
        why = "no sample was flipped, so there is nothing to grade models on"
        return StageRecord(Rows(model=nothing.queries), note=why)
    known = {} if audit.benchmark else victims  # the models of an existing benchmark are not loaded
    verify_benchmark(made, known, progress=False).save(folder / VERIFIED)
    report = run_benchmark([made], models, seed=wanted.seed, progress=False)
    report.save(folder / DEFAULT)
    rows = {name: victim.rows.total() - before[name] for name, victim in models.items()}
    if not audit.benchmark:  # repeated queries are not stored
        rows = {name: max(rows[name], stored) for name, stored in _stored_rows(made, report, models).items()}
    return StageRecord(Rows(model=rows.pop(options.own), others=sum(rows.values())))


def _stored_rows(benchmark: Benchmark, report: BenchmarkReport, models: Mapping[str, Any]) -> dict[str, int]:
    """Queries by model from stored rows, so that an interrupted stage counts the same."""
    rows: dict[str, int] = {}
    marks = {name: Contents(model).mark() for name, model in models.items()}
    for name in report.models:  # the same model is queried once
        rows[name] = 0 if marks[name] in [marks[other] for other in rows] else benchmark.queries
    for row in benchmark.rows:
        if row["victim"]:
            rows[row["victim"]] += queries_of(row) + int(row["reached"])  # one more to verify
    return rows


def _harden(audit: LoadedAudit) -> StageRecord:
    options = audit.options
    assert options.harden is not None
    assert audit.training is not None
    evaluation = check(EvaluationOptions, {"attack": options.attack_options(), "attacked": options.harden.attacked})
    data = Splits(audit.training, audit.batch)
    report = run_hardening(audit.victim, data, options.harden_options(), evaluation, audit.folder / "harden")
    return StageRecord(Rows(copies=report.queries))


STAGES: dict[str, Callable[[LoadedAudit], StageRecord]] = {
    "doctor": _doctor,
    "attack": _attack,
    "detect": _detect,
    "corrupt": _corrupt,
    "explain": _explain,
    "benchmark": _benchmark,
    "harden": _harden,
}


def fingerprints(audit: LoadedAudit) -> dict[str, str]:
    """Fingerprints of the data and each stage; a changed option changes the fingerprint of its stages."""
    options, stored = audit.options, audit.benchmark
    attack = [options.attack_options().plain(), agent_fingerprint(str(options.policy))]
    others = [Contents(model).mark() for model in audit.others.values()]
    about: dict[str, list[Any]] = {
        "doctor": [list(map(str, options.palette or ())), options.seed],
        "attack": attack,
        "detect": [options.conditions, attack],
        "corrupt": [options.seed],
        "explain": [attack],
        "benchmark": [stored.manifest.hash if stored else attack, others],
        "harden": [attack, data_fingerprint(audit.training) if audit.training else ""],
    }
    sections = options.plain()
    return {
        "data": data_fingerprint(audit.batch),
        **{stage: digest([sections.get(stage), *about[stage]]) for stage in options.steps},
    }
