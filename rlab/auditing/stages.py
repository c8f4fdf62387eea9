"""The stages of an audit: each runs a command in its folder, which resumes by itself, and says what it cost."""

from __future__ import annotations

from collections.abc import Callable

from rlab.auditing.load import LoadedAudit
from rlab.auditing.record import Rows, StageRecord
from rlab.auditing.report import VERIFIED
from rlab.benchmarking import make_benchmark, run_benchmark, verify_benchmark
from rlab.benchmarking.folder import queries_of
from rlab.benchmarking.make import NothingFlipped
from rlab.benchmarking.report import DEFAULT
from rlab.diagnosis import examine
from rlab.explanation import MethodJudge, parse_methods
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.run import Splits, run_hardening
from rlab.progress import bar
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import data_fingerprint
from rlab.storage.config import check
from rlab.storage.digest import digest


def _doctor(audit: LoadedAudit) -> StageRecord:
    stage, palette = audit.options.doctor, audit.options.build(audit.batch).palette
    assert stage
    diagnosis = examine(audit.victim, audit.batch, palette, samples=stage.samples, seed=audit.options.seed)
    diagnosis.save(audit.folder / "doctor")
    return StageRecord(Rows(model=diagnosis.queries))


def _attack(audit: LoadedAudit) -> StageRecord:
    options, folder = audit.options.shared_options(), audit.folder / "attack"
    workers = Workers.of(options, options.model, audit.victim)
    with bar(len(audit.batch), "attack") as progress:
        result = run_attack(options, audit.victim, audit.batch, folder, options.plain(), progress, workers)
    return StageRecord(Rows(model=int(result.queries.sum())))


def _corrupt(audit: LoadedAudit) -> StageRecord:
    job = audit.corruption_job()
    config = {"model": audit.options.model.plain(), "data": audit.options.data.plain(), **job.options.plain()}
    with bar(job.inputs, "corrupt", unit="queries") as progress:
        return StageRecord(Rows(model=job.run(audit.folder / "corrupt", config, progress).rows))


def _explain(audit: LoadedAudit) -> StageRecord:
    """Explain the first samples that the model classifies correctly."""
    stage = audit.options.explaining
    assert stage is not None
    right = AttackResult.load(audit.folder / "attack").attacked.nonzero().flatten()
    rows: list[int] = right[: stage.samples].tolist()
    if not rows:
        return StageRecord(note="the model classifies no sample correctly, so there is nothing to explain")
    methods = parse_methods(stage.methods, audit.options.attack_options())
    judge = MethodJudge(stage.steps, stage.checks, rule=stage.rule)
    comparison = judge(audit.victim, audit.batch[rows], methods, seed=audit.options.seed)
    comparison.save(audit.folder / "explain", len(rows))
    return StageRecord(Rows(model=comparison.rows, copies=comparison.copy_rows))


def _benchmark(audit: LoadedAudit) -> StageRecord:
    """Make a set, verify it, and grade the model on it."""
    options, folder, before = audit.options, audit.folder / "benchmark", audit.victim.rows.total()
    models, (wanted, _) = {options.own: audit.victim}, options.benchmark_options().filled(audit.batch)
    try:
        with bar(len(audit.batch), "benchmark") as progress:
            made = make_benchmark(models, audit.batch, folder, wanted, progress)
    except NothingFlipped as nothing:
        why = "no sample was flipped, so there is nothing to grade models on"
        return StageRecord(Rows(model=nothing.queries), note=why)
    verify_benchmark(made, models, progress=False).save(folder / VERIFIED)
    run_benchmark([made], models, seed=wanted.seed, progress=False).save(folder / DEFAULT)
    # An interrupted stage counts the same; repeated queries are not stored, and one more verifies each flip.
    attacked = sum(queries_of(row) + int(row["reached"]) for row in made.rows if row["victim"])
    return StageRecord(Rows(model=max(audit.victim.rows.total() - before, made.queries + attacked)))


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
    "corrupt": _corrupt,
    "explain": _explain,
    "benchmark": _benchmark,
    "harden": _harden,
}


def marks(audit: LoadedAudit) -> dict[str, str]:
    """What each stage depends on beside the model, the data and the attack: its options, and what only it loads."""
    about = {
        "detect": audit.options.conditions,
        "explain": audit.options.explaining and audit.options.explaining.plain(),
        "harden": audit.training and data_fingerprint(audit.training),
    }
    declared = audit.options.plain()
    return {stage: digest([declared.get(stage), about.get(stage)]) for stage in audit.options.steps}
