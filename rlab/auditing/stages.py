"""The stages of an audit. Each writes its own folder, goes on with what is there, and says how many rows it cost."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlab.auditing.job import Job
from rlab.auditing.manifest import Done, Rows
from rlab.benchmarking import Benchmark, make_benchmark, run_benchmark, save_report, verify_benchmark
from rlab.benchmarking.answers import count_rows
from rlab.benchmarking.make import NothingFlipped
from rlab.benchmarking.marks import model_mark
from rlab.benchmarking.run import Report
from rlab.core.result import AttackResult
from rlab.diagnosis import examine
from rlab.explanation import Judge, parse_methods
from rlab.explanation.save import save_comparison
from rlab.filters.palette import Palette
from rlab.hardening import HardenConfig, Measured, Trial, harden, measure, write_page
from rlab.hardening.estimates import over_seeds
from rlab.hardening.pictures import draw_robustness
from rlab.runs.attack import Ledger, run_attack
from rlab.runs.files import write_atomically

DOCTOR, VERIFIED, FIGURES, CURVES = "doctor.json", "verified.json", "figures.json", "robustness.png"
_COUNTS = ("queries_search", "queries_cleanup", "queries_verify")


def finite(value: Any) -> Any:
    """As JSON can hold it: no NaN (null), and infinity in words."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(finite(value), indent=1, ensure_ascii=False) + "\n").encode())


def run_doctor(job: Job) -> Done:
    section = job.config.doctor
    assert section is not None
    batch = job.batch
    palette = Palette.of(job.run.palette or [], batch.rank, batch.x.shape[1], batch.rate, batch.unit)
    report = examine(job.victim, batch, palette, samples=section.samples, seed=job.run.seed)
    found = [{**asdict(one), "level": one.level.value} for one in report.findings]
    write_json(
        job.folder / "doctor" / DOCTOR, {"findings": found, "queries": report.queries, "accuracy": report.accuracy}
    )
    return Done(Rows(model=report.queries))


def run_the_attack(job: Job) -> Done:
    progress = job.progress("attack", len(job.batch))
    folder = job.folder / "attack"
    made = run_attack(job.run.attack(job.batch), job.victim, job.batch, folder, job.run.plain(), job.run.seed, progress)
    return Done(Rows(model=int(made.queries.sum())))


def explained(result: AttackResult, samples: int) -> list[int]:
    """The first samples the model has right."""
    found: list[int] = result.attacked.nonzero().flatten()[:samples].tolist()
    return found


def run_explain(job: Job) -> Done:
    section, before = job.config.explain, job.victim.rows.total()
    assert section is not None
    rows = explained(AttackResult.load(job.folder / "attack"), section.samples)
    if not rows:
        return Done(note="the model has none of the samples right, so there is no decision to explain")
    heard = job.progress("explain", len(section.methods))
    judge = Judge(
        steps=section.steps, stability=section.checks, sanity=section.checks, rule=section.rule,
        tell=lambda name, one: heard([name]),
    )  # fmt: skip
    comparison = judge(job.victim, job.batch[rows], parse_methods(section.methods), seed=job.run.seed)
    save_comparison(comparison, job.folder / "explain", f"Where {job.config.own} looks", len(rows))
    return Done(Rows(model=job.victim.rows.total() - before))


def run_the_benchmark(job: Job) -> Done:
    section, folder = job.config.benchmark, job.folder / "benchmark"
    assert section is not None
    config, _ = job.config.benchmark_config().filled(job.batch)
    made_against = {job.config.own: job.victim} | (dict(job.others) if section.against == "all" else {})
    try:
        made = make_benchmark(
            made_against, job.batch, folder, storage=config.format, config=config.plain(),
            progress=job.progress("benchmark", len(job.batch) * len(made_against)), **config.options(),
        )  # fmt: skip
    except NothingFlipped:
        spent = sum(row[name] for row in Ledger(folder).rows() for name in _COUNTS)
        return Done(Rows(model=spent), note="no sample was flipped, so there is nothing to grade models on")
    verified = verify_benchmark(made, made_against)
    write_json(
        folder / "results" / VERIFIED, {**asdict(verified), "mismatches": [str(one) for one in verified.mismatches]}
    )
    configs = {job.config.own: job.config.model, **section.models}
    plain = {name: one.model_dump(exclude_none=True) for name, one in configs.items()}
    models = {job.config.own: job.victim, **job.others}
    report = run_benchmark([made], models, configs=plain, corruptions=section.corruptions, seed=job.run.seed)
    save_report(report, folder / "results" / "report")
    return Done(
        _benchmark_rows(job, made, report, {name: model_mark(name, models[name], plain[name]) for name in models})
    )


def _benchmark_rows(job: Job, made: Benchmark, report: Report, marks: Mapping[str, str]) -> Rows:
    """From what is stored, so that a stage that was stopped in between counts the same."""
    asked: dict[str, int] = {}
    for name in report.models:
        twin = any(marks[one] == marks[name] for one in asked)  # the same model under another name is not asked again
        uniform = [
            row["samples"] for row in report.corruptions if row["model"] == name and not math.isnan(row["uniform"])
        ]
        asked[name] = 0 if twin else count_rows(made) + sum(uniform)
    for row in made.rows:
        if row["victim"]:
            asked[row["victim"]] += sum(row[name] for name in _COUNTS) + int(row["reached"])  # once more to verify
    own = asked.pop(job.config.own)
    return Rows(model=own, others=sum(asked.values()))


def run_harden(job: Job) -> Done:
    section, folder = job.config.harden, job.folder / "harden"
    assert section is not None
    assert job.training is not None
    said = section.model_dump(exclude={"data", "attacked"}, exclude_unset=True)
    usual = {"palettes": [job.run.palette], "patches": [job.run.patch], "seed": job.run.seed}
    chosen = HardenConfig.model_validate(usual | said)
    found = harden(job.victim, job.training, config=chosen, out=folder, progress=job.progress("harden", chosen.total))
    found.save(folder)
    trial = Trial(
        job.run.palette,
        job.run.patch,
        job.run.policy,
        job.run.budget,
        job.run.chunk,
        section.attacked,
        seed=job.run.seed,
    )
    start = found.original.rows.total() + found.victim.rows.total()
    before = measure(found.original, job.batch, trial)
    after = measure(found.victim, job.batch, trial, before.attack)
    write_page(folder / "before-after.html", found, before, after)
    draw_robustness({"before": before, "after": after}).savefig(folder / CURVES)
    for name, one in (("before", before), ("after", after)):
        shutil.rmtree(folder / name, ignore_errors=True)  # of a try that was interrupted
        assert one.attack is not None
        one.attack.save(folder / name)
    said_of = {
        "before": _estimates(before),
        "after": _estimates(after),
        "training": found.summary(),
        "stopped": found.stopped,
    }
    write_json(folder / FIGURES, said_of)
    measured = found.original.rows.total() + found.victim.rows.total() - start
    return Done(Rows(copies=found.rows + measured))


def _estimates(one: Measured) -> dict[str, dict[str, float]]:
    """Figures with their 95% bootstrap intervals over samples."""
    estimates = {name: over_seeds(name, values[None]) for name, values in one.figures.items()}
    return {name: {"value": e.value, "low": e.low, "high": e.high} for name, e in estimates.items()}


RUN: dict[str, Callable[[Job], Done]] = {
    "doctor": run_doctor,
    "attack": run_the_attack,
    "explain": run_explain,
    "benchmark": run_the_benchmark,
    "harden": run_harden,
}
