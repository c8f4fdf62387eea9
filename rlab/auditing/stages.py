"""The stages of an audit. Each writes its own folder, goes on with what is there, and says how many rows it cost."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rlab.auditing.load import LoadedAudit
from rlab.auditing.results import DOCTOR, FIGURES, VERIFIED, Rows, StageRecord, explained_rows
from rlab.benchmarking import Benchmark, make_benchmark, run_benchmark, save_report, verify_benchmark
from rlab.benchmarking.answers import count_rows
from rlab.benchmarking.chunk import FinishedChunk
from rlab.benchmarking.make import NothingFlipped
from rlab.benchmarking.run import BenchmarkReport
from rlab.core.result import AttackResult
from rlab.diagnosis import examine
from rlab.explanation import MethodJudge, parse_methods
from rlab.explanation.save import save_comparison
from rlab.hardening.evaluation import measure_before_after
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.pictures import draw_robustness
from rlab.hardening.run import harden
from rlab.hardening.sections import write_before_after
from rlab.runs.attack import run_attack
from rlab.runs.config import check
from rlab.runs.files import write_json
from rlab.runs.fingerprint import model_fingerprint

CURVES = "robustness.png"
_COUNTS = ("queries_search", "queries_cleanup", "queries_verify")


def run_doctor(audit: LoadedAudit) -> StageRecord:
    stage = audit.options.doctor
    assert stage is not None
    palette = audit.options.build(audit.batch).palette
    diagnosis = examine(audit.victim, audit.batch, palette, samples=stage.samples, seed=audit.options.seed)
    findings = [{**asdict(finding), "level": finding.level.value} for finding in diagnosis.findings]
    figures = {"findings": findings, "queries": diagnosis.queries, "accuracy": diagnosis.accuracy}
    write_json(audit.folder / "doctor" / DOCTOR, figures)
    return StageRecord(Rows(model=diagnosis.queries))


def run_the_attack(audit: LoadedAudit) -> StageRecord:
    attack, progress = audit.options.build(audit.batch), audit.progress("attack", len(audit.batch))
    config = audit.options.run_options().plain()
    result = run_attack(attack, audit.victim, audit.batch, audit.folder / "attack", config, progress)
    return StageRecord(Rows(model=int(result.queries.sum())))


def run_explain(audit: LoadedAudit) -> StageRecord:
    stage, before = audit.options.explain, audit.victim.rows.total()
    assert stage is not None
    rows = explained_rows(AttackResult.load(audit.folder / "attack"), stage.samples)
    if not rows:
        return StageRecord(note="the model has none of the samples right, so there is no decision to explain")
    progress = audit.progress("explain", len(stage.methods))
    judge = MethodJudge(
        steps=stage.steps, stability=stage.checks, sanity=stage.checks, rule=stage.rule,
        tell=lambda name, scored: progress([name]),
    )  # fmt: skip
    methods = parse_methods(stage.methods, audit.options.attack_options())
    comparison = judge(audit.victim, audit.batch[rows], methods, seed=audit.options.seed)
    save_comparison(comparison, audit.folder / "explain", f"Where {audit.options.own} looks", len(rows))
    return StageRecord(Rows(model=audit.victim.rows.total() - before))


def run_the_benchmark(audit: LoadedAudit) -> StageRecord:
    options, stage, folder = audit.options, audit.options.benchmark, audit.folder / "benchmark"
    assert stage is not None
    victims = {options.own: audit.victim} | (dict(audit.others) if stage.against == "all" else {})
    wanted, _ = options.benchmark_options().filled(audit.batch)
    progress, chunks = audit.progress("benchmark", len(audit.batch) * len(victims)), list[FinishedChunk]()

    def advance(chunk: FinishedChunk) -> None:
        chunks.append(chunk)
        progress(chunk)

    try:
        benchmark = make_benchmark(victims, audit.batch, folder, wanted, advance)
    except NothingFlipped:
        spent = sum(row[name] for chunk in chunks for row in chunk.rows for name in _COUNTS)
        return StageRecord(Rows(model=spent), note="no sample was flipped, so there is nothing to grade models on")
    verified = verify_benchmark(benchmark, victims)
    mismatches = [str(mismatch) for mismatch in verified.mismatches]
    write_json(folder / "results" / VERIFIED, {**asdict(verified), "mismatches": mismatches})
    models = {options.own: audit.victim, **audit.others}
    configs = {name: model.plain() for name, model in {options.own: options.model, **stage.models}.items()}
    report = run_benchmark([benchmark], models, configs=configs, corruptions=stage.corruptions, seed=wanted.seed)
    save_report(report, folder / "results" / "report")
    fingerprints = {name: model_fingerprint(name, models[name], configs[name]) for name in models}
    return StageRecord(_benchmark_rows(options.own, benchmark, report, fingerprints))


def _benchmark_rows(own: str, benchmark: Benchmark, report: BenchmarkReport, fingerprints: dict[str, str]) -> Rows:
    """From what is stored, so that a stage that was stopped in between counts the same."""
    asked: dict[str, int] = {}
    for name in report.models:
        twin = any(fingerprints[other] == fingerprints[name] for other in asked)  # the same model is not asked twice
        mine = [row for row in report.corruptions if row["model"] == name and not math.isnan(row["uniform"])]
        asked[name] = 0 if twin else count_rows(benchmark) + sum(row["samples"] for row in mine)
    for row in benchmark.rows:
        if row["victim"]:
            asked[row["victim"]] += sum(row[name] for name in _COUNTS) + int(row["reached"])  # once more to verify
    model = asked.pop(own)
    return Rows(model=model, others=sum(asked.values()))


def run_harden(audit: LoadedAudit) -> StageRecord:
    stage, folder = audit.options.harden, audit.folder / "harden"
    assert stage is not None
    assert audit.training is not None
    chosen = audit.options.harden_options()
    progress = audit.progress("harden", chosen.total_epochs)
    hardened = harden(audit.victim, audit.training, chosen, out=folder, progress=progress)
    hardened.save(folder)
    evaluation = check(EvaluationOptions, {"attack": audit.options.attack_options(), "attacked": stage.attacked})
    measured = measure_before_after(hardened, audit.batch, evaluation, folder)
    write_before_after(folder / "before-after.html", hardened, measured)
    draw_robustness(measured).savefig(folder / CURVES)
    for when, measurement in measured.items():
        shutil.rmtree(folder / when, ignore_errors=True)  # of a try that was interrupted
        assert measurement.attack is not None
        measurement.attack.save(folder / when)
    figures: dict[str, Any] = {
        when: {name: asdict(estimate) for name, estimate in measurement.estimates().items()}
        for when, measurement in measured.items()
    }
    write_json(folder / FIGURES, {**figures, "training": hardened.summary(), "stopped": hardened.stopped})
    return StageRecord(Rows(copies=hardened.rows + sum(measurement.rows for measurement in measured.values())))


RUN: dict[str, Callable[[LoadedAudit], StageRecord]] = {
    "doctor": run_doctor,
    "attack": run_the_attack,
    "explain": run_explain,
    "benchmark": run_the_benchmark,
    "harden": run_harden,
}
