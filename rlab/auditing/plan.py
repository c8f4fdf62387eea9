"""The maximum number of queries of each stage of an audit."""

from __future__ import annotations

from collections.abc import Iterable

from rlab.auditing.load import LoadedAudit
from rlab.benchmarking.config import parse_ladder
from rlab.explanation import MethodJudge, parse_methods
from rlab.hardening.declared import HardeningJob
from rlab.hardening.options import EvaluationOptions
from rlab.storage.config import check


def explaining(audit: LoadedAudit) -> int | None:
    options, stage = audit.options, audit.options.explain
    assert stage is not None
    judge = MethodJudge(stage.steps, stage.checks)
    each = total(judge.most(m, audit.batch.size) for m in parse_methods(stage.methods, options.attack_options()))
    return None if each is None else min(stage.samples, len(audit.batch)) * each


def total(each: Iterable[int | None]) -> int | None:
    """The sum, None if a part is unknown."""
    rows = list(each)
    known = [count for count in rows if count is not None]
    return sum(known) if len(known) == len(rows) else None


def benchmarking(audit: LoadedAudit) -> int:
    """Making the sets, verifying them, and grading every model on them."""
    options, samples = audit.options, len(audit.batch)
    if audit.benchmark is not None:  # an existing one: only graded
        return (1 + len(audit.others)) * audit.benchmark.queries
    wanted, _ = options.benchmark_options().filled(audit.batch)
    victims, models = len(wanted.models), 1 + len(audit.others)
    levels = len(parse_ladder(wanted.ladder).names)
    files = samples * victims * levels
    most = samples * ((wanted.budget or 0) + (levels - 1) * (wanted.steps + 11))  # queries that make a set
    return victims * most + files + models * (samples + files)


def hardening_job(audit: LoadedAudit) -> HardeningJob:
    """The stage 'harden': train on its own data, measure on the audit's."""
    options = audit.options
    assert options.harden is not None
    assert audit.training is not None
    evaluation = check(EvaluationOptions, {"attack": options.attack_options(), "attacked": options.harden.attacked})
    return HardeningJob(audit.victim, audit.training, audit.batch, options.harden_options(), evaluation)
