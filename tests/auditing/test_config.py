"""The options of an audit: the attack equals that of `rlab attack`, sections inherit, requirements are fields."""

from __future__ import annotations

from typing import Any

import pytest

import rlab
from rlab.auditing import AuditOptions
from rlab.errors import InputError
from rlab.runs.options import RunOptions
from rlab.storage.config import check
from tests.auditing.cases import audit_options, declared, quick

PLAIN = {"model": "demo:digits", "data": {"path": "demo:digits", "limit": 4}, "budget": 50, "seed": 3}
REQUIRED = {"requirements": [{"metric": "clean_accuracy", "at_least": "90%"}]}


@pytest.mark.parametrize("more", [{}, {"l2_penalty": 0.3}, {"policy": "square", "patch": 2, "accept": "always"}])
def test_the_attack_equals_that_of_rlab_attack(more: dict[str, Any]) -> None:
    batch = rlab.load("demo:digits", limit=4)
    audit, run = check(AuditOptions, PLAIN | more | REQUIRED), check(RunOptions, PLAIN | more)
    assert audit.build(batch) == run.build(batch) == audit.shared_options().build(batch)
    assert audit.benchmark_options().build(batch) == run.build(batch)
    assert audit.l2_penalty == more.get("l2_penalty", 0.0)


def test_the_benchmark_inherits_attack_options() -> None:
    options = audit_options(declared(goal="targeted:3", benchmark={"budget": 7, "ladder": "l2:1"}))
    benchmark = options.benchmark_options()
    assert (benchmark.goal, benchmark.budget, benchmark.chunk, benchmark.ladder) == ("targeted:3", 7, 4, "l2:1")
    assert list(benchmark.models) == [options.own]
    again = audit_options(options.plain())
    assert again == options
    assert again.benchmark_options() == benchmark


def test_false_skips_a_stage() -> None:
    assert audit_options(quick()).steps == ("doctor", "attack")
    assert audit_options(declared(doctor=None, explain=True)).steps == ("doctor", "attack", "explain", "benchmark")
    assert audit_options(audit_options(quick(doctor=False)).plain()).steps == ("attack",)


def test_a_sentence_is_no_requirement() -> None:
    with pytest.raises(InputError, match="requirements"):
        audit_options(quick(requirements=["success below 20% at SNR 20 dB"]))


@pytest.mark.parametrize(("metric", "runs"), [("success", False), ("deletion", True)])
def test_an_explanation_that_nobody_asked_for_does_not_run(metric: str, runs: bool) -> None:
    values = declared(requirements=[{"metric": metric, "below": 0.5}])
    del values["explain"]
    options = audit_options(values)
    assert ("explain" in options.steps) == runs
    assert audit_options(options.plain()).steps == options.steps
