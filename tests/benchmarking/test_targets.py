"""Severities, and sets without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlab
from rlab.benchmarking import Benchmark, make_benchmark, run_benchmark, verify_benchmark
from rlab.errors import OptionError
from tests.benchmarking.cases import brightness
from tests.benchmarking.test_ranking import OPTIONS, dark
from tests.command import rlab_command

LIGHT: dict[str, Any] = {"palette": ["illuminate+@0.1,0.3,0.6"], "patch": 2, "format": "npz"}


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return rlab.benchmark(None, dark(24), tmp_path_factory.mktemp("free") / "b", **LIGHT)


def test_severities_without_a_model_are_sixths_of_the_reach(free: Benchmark):
    assert free.levels == ("s1", "s2", "s3", "s4", "s5")
    assert free.manifest.distances == pytest.approx([n / 6 * free.reach for n in range(1, 6)])
    for number, level in enumerate(free.levels):
        rows = free.stored("free", level)
        assert len(rows) == 24
        assert all(0.95 <= row["l2"] / free.manifest.distances[number] <= 1.0001 for row in rows)
        assert all(row["queries_search"] == row["queries_verify"] == 0 and row["predicted"] is None for row in rows)
        assert len({tuple(row["assignment"]) for row in rows}) > 12  # every sample has its own random placement
    assert verify_benchmark(free).holds
    assert verify_benchmark(free).unasked == ()
    with pytest.raises(OptionError):
        verify_benchmark(free, {"m": brightness()})


def test_any_model_can_be_graded_on_a_set_without_a_model(free: Benchmark):
    report = run_benchmark([free], {"low": brightness(0.35), "high": brightness(0.6)})
    by_level = {(row["model"], row["level"]): row["accuracy"] for row in report.levels}
    for model in ("low", "high"):
        falls = [by_level[model, level] for level in ("original", *free.levels)]
        assert falls == sorted(falls, reverse=True)
        assert (falls[0], falls[-1]) == (1.0, 0.0)
    assert [s.model for s in report.standings] == ["high", "low"]
    assert not any(row["own"] for row in report.levels)
    assert report.matrix()[2].shape == (1, 2)


def test_severities_beyond_a_models_flip_end_at_their_distance(tmp_path: Path):
    made = make_benchmark({"m": brightness(0.45)}, dark(), tmp_path / "b", ladder="severity:4,5", steps=8, **OPTIONS)
    assert made.ladder.names == ("flip", "s4", "s5")
    for level, far in zip(("s4", "s5"), made.manifest.distances, strict=True):
        rows = made.stored("m", level)
        assert rows
        assert all(0.95 * far <= row["l2"] <= 1.0001 * far for row in rows)
    assert verify_benchmark(made, {"m": brightness(0.45)}).holds


@pytest.mark.parametrize(
    ("models", "options"),
    [
        ((), {}),
        ((), {"sets": "free"}),
        (("a",), {"sets": "free", "ladder": "severity:1..5"}),
        ((), {"sets": "free", "ladder": "severity:1..5", "workers": 2}),
        (("free",), {}),
    ],
)
def test_impossible_sets_are_refused_before_any_query(models: tuple[str, ...], options: dict[str, Any], tmp_path: Path):
    victims = {name: brightness() for name in models}
    with pytest.raises(OptionError):
        make_benchmark(victims, dark(), tmp_path / "b", **OPTIONS | options)
    assert not any(victim.rows for victim in victims.values())
    assert not (tmp_path / "b").exists()


def test_the_command_makes_a_set_without_a_model_and_grades_one_on_it(tmp_path: Path):
    words = ("demo:digits", "--limit", 4, "--patch", 2, "--palette", "dead_pixel", "--out", tmp_path / "b")
    made = rlab_command("benchmark", "make", "none", *words, "--ladder", "severity:1..5")
    assert made.code == 0, made.err
    assert rlab_command("benchmark", "verify", tmp_path / "b").code == 0
    graded = rlab_command("benchmark", "run", tmp_path / "b", "-m", "d=demo:digits")
    assert graded.code == 0, graded.err
    planned = rlab_command("benchmark", "make", "none", *words, "--ladder", "severity:1..5", "--dry-run")
    assert planned.code == 0, planned.err
    refused = rlab_command("benchmark", "make", "none", *words[:-1], tmp_path / "c", "--ladder", "times:2")
    assert refused.code == 2
    assert not (tmp_path / "c").exists()
