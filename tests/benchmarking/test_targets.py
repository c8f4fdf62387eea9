"""Sets against the agreement of several models, and sets without a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rlab
from rlab.benchmarking import Benchmark, make_benchmark, run_benchmark, verify_benchmark
from rlab.errors import ModelError, OptionError
from tests.benchmarking.cases import brightness, counted
from tests.benchmarking.test_ranking import OPTIONS, dark
from tests.command import rlab_command

LIGHT: dict[str, Any] = {"palette": ["illuminate+@0.1,0.3,0.6"], "patch": 2, "format": "npz"}
PAIR = {"low": 0.35, "high": 0.45}


@pytest.mark.slow
def test_a_file_of_an_agreement_fools_every_model_and_each_counts_its_queries(tmp_path: Path):
    models = {name: brightness(cut) for name, cut in PAIR.items()}
    data = replace(dark(), classes=("bright", "dark", "other"), numbered=True)  # as folders of classes give them
    made = make_benchmark(models, data, tmp_path / "b", sets="agreement", ladder="times:1.5", **OPTIONS)
    assert made.victims == ("agreement",)
    assert made.manifest.members == ("low", "high")
    assert made.manifest.outputs == 3
    for level in ("flip", "x1.5"):
        rows = made.stored("agreement", level)
        assert len(rows) >= 7
        for model in models.values():
            assert (model(made.read(rows), "train").argmax(1) == 1).all()
        sure = brightness(PAIR["high"])(made.read(rows))[:, 0].exp()  # the one that holds best
        assert sure.tolist() == pytest.approx([row["probability"] for row in rows], abs=1e-4)
    for model in models.values():
        model.rows.pop("train")
        assert counted(made) == {phase: model.rows.get(phase, 0) for phase in ("search", "cleanup", "verify")}
    checked = verify_benchmark(made, models)
    assert checked.holds
    assert checked.asked == 2 * (checked.files - len(made.originals()))
    wrong = verify_benchmark(made, {"high": brightness(0.9)})
    assert wrong.unasked == ("low",)
    assert len(wrong.mismatches) == len(made.stored("agreement")) + len(made.stored("agreement", "x1.5"))
    report = run_benchmark([made], {"a": brightness(0.35), "c": brightness(0.6)}, corruptions=False)
    assert {row["model"] for row in report.transfer if row["own"]} == {"a"}
    assert "low" in (made.folder / "README.md").read_text()


@pytest.mark.slow
def test_an_agreement_is_at_least_as_far_as_each_models_own_flip(tmp_path: Path):
    models = {name: brightness(cut) for name, cut in PAIR.items()}
    options = OPTIONS | {"budget": 200}
    both = make_benchmark(models, dark(), tmp_path / "both", sets="agreement", ladder="flip", **options)
    each = make_benchmark(models, dark(), tmp_path / "each", ladder="flip", **options)
    far = {name: {row["place"]: row["l2"] for row in each.stored(name)} for name in PAIR}
    agreed = {row["place"]: row["l2"] for row in both.stored("agreement")}
    assert sum(agreed.values()) > sum(far["low"].values())  # the harder of the two decides
    assert sum(agreed.values()) == pytest.approx(sum(far["high"].values()), rel=0.1)


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
    report = run_benchmark([free], {"low": brightness(0.35), "high": brightness(0.6)}, corruptions=True)
    by_level = {(row["model"], row["level"]): row["accuracy"] for row in report.levels}
    for model in ("low", "high"):
        falls = [by_level[model, level] for level in ("original", *free.levels)]
        assert falls == sorted(falls, reverse=True)
        assert (falls[0], falls[-1]) == (1.0, 0.0)
    assert [s.model for s in report.standings] == ["high", "low"]
    assert not any(row["own"] for row in report.transfer)
    assert report.matrix()[2].shape == (1, 2)


@pytest.mark.slow
def test_a_reference_errs_on_as_many_sixths_as_the_severity(tmp_path: Path):
    reference, same = brightness(0.45), brightness(0.45)
    batch = dark(48)
    batch.x.add_(torch.linspace(-0.1, 0.1, 48)[:, None, None, None])  # some need more light than others
    options = LIGHT | {"sets": "free", "ladder": "severity:1..5", "reference": "r"}
    made = make_benchmark({"r": reference}, batch, tmp_path / "b", **options)
    wrong = [
        1 - float((same(made.read(made.stored("free", level))).argmax(1) == 0).float().mean()) for level in made.levels
    ]
    assert wrong == pytest.approx([n / 6 for n in range(1, 6)], abs=0.1)
    assert set(reference.rows) == {"train"}
    assert f"{reference.rows['train']:,} queries" in made.manifest.reference
    assert "r (" in (made.folder / "README.md").read_text()


def test_severities_beyond_a_models_flip_end_at_their_distance(tmp_path: Path):
    made = make_benchmark({"m": brightness(0.45)}, dark(), tmp_path / "b", ladder="severity:4,5", steps=8, **OPTIONS)
    assert made.ladder.names == ("flip", "s4", "s5")
    for level, far in zip(("s4", "s5"), made.manifest.distances, strict=True):
        rows = made.stored("m", level)
        assert rows
        assert all(0.95 * far <= row["l2"] <= 1.0001 * far for row in rows)
    assert verify_benchmark(made, {"m": brightness(0.45)}).holds


def test_a_reference_that_never_errs_is_refused_and_nothing_is_written(tmp_path: Path):
    options = LIGHT | {"sets": "free", "ladder": "severity:1..5", "reference": "r"}
    with pytest.raises(ModelError):
        make_benchmark({"r": brightness(2.0)}, dark(), tmp_path / "b", **options)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("models", "options"),
    [
        ((), {}),
        ((), {"sets": "free"}),
        ((), {"sets": "free", "ladder": "confidence:0.9,flip"}),
        (("a",), {"sets": "free", "ladder": "severity:1..5"}),
        (("a",), {"sets": "agreement"}),
        (("a", "b"), {"sets": "agreement", "ladder": "confidence:0.9,flip"}),
        (("a",), {"reference": "b", "ladder": "severity:1..5"}),
        (("a",), {"reference": "a"}),
        (("free",), {}),
    ],
)
def test_impossible_sets_are_refused_before_any_query(models: tuple[str, ...], options: dict[str, Any], tmp_path: Path):
    victims = {name: brightness() for name in models}
    with pytest.raises(OptionError):
        make_benchmark(victims, dark(), tmp_path / "b", **OPTIONS | options)
    assert not any(victim.rows for victim in victims.values())
    assert not (tmp_path / "b").exists()


def test_confidences_are_refused_for_a_model_that_returns_only_labels(tmp_path: Path):
    victim = brightness(0.4)
    victim.outputs = "labels"
    with pytest.raises(ModelError):
        make_benchmark({"m": victim}, dark(), tmp_path / "b", ladder="confidence:0.9,flip,0.3", **OPTIONS)
    assert not (tmp_path / "b").exists()
    assert not victim.rows


def test_the_command_makes_a_set_without_a_model_and_grades_one_on_it(tmp_path: Path):
    words = ("demo:digits", "--limit", 4, "--patch", 2, "--palette", "dead_pixel", "--out", tmp_path / "b")
    made = rlab_command("benchmark", "make", "none", *words, "--ladder", "severity:1..5")
    assert made.code == 0, made.err
    assert rlab_command("benchmark", "verify", tmp_path / "b").code == 0
    graded = rlab_command("benchmark", "run", tmp_path / "b", "-m", "d=demo:digits", "--no-corruptions")
    assert graded.code == 0, graded.err
    planned = rlab_command("benchmark", "make", "none", *words, "--ladder", "severity:1..5", "--dry-run")
    assert planned.code == 0, planned.err
    refused = rlab_command("benchmark", "make", "none", *words[:-1], tmp_path / "c", "--ladder", "times:2")
    assert refused.code == 2
    assert not (tmp_path / "c").exists()
