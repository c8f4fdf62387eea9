"""Grading: every figure agrees with the files or a hand computation, and no query is repeated."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rlab.benchmarking import (
    Benchmark,
    BenchmarkReport,
    check_requirements,
    parse_requirement,
    run_benchmark,
    verify_benchmark,
)
from rlab.benchmarking.manifest import Edited
from rlab.benchmarking.run import graded_set
from rlab.benchmarking.scores import GradedSet, ranking
from rlab.errors import FolderError, InputError, ModelError, OptionError, VictimError
from rlab.storage.contents import Contents
from rlab.victims import CallableVictim, Victim
from tests.benchmarking.cases import Brightness, Case, brightness, made_once, reached
from tests.helpers import exact_victim


def test_accuracy_is_what_the_files_say(tmp_path: Path):
    benchmark, model = made_once(tmp_path), exact_victim(2, seed=5)
    report = run_benchmark([benchmark], {"victim": exact_victim(2), "other": model})
    flips = reached(benchmark, "flip")
    y = torch.tensor([row["label"] for row in flips])
    right = float((model(benchmark.read(flips)).argmax(1) == y).double().mean())
    cells = {(row["model"], row["level"]): row for row in report.levels}
    assert cells["other", "flip"]["accuracy_stored"] == pytest.approx(right)
    assert cells["victim", "flip"]["accuracy_stored"] == 0
    assert cells["victim", "original"]["accuracy"] == 1
    assert cells["victim", "flip"]["samples"] == 5  # the sample that was wrong from the start does not count
    assert cells["victim", "flip"]["l2"] == pytest.approx(np.mean([row["l2"] for row in flips]))
    sets, models, matrix = report.matrix()
    assert (sets, models) == (["b/exact"], ["victim", "other"])
    assert matrix.tolist() == [[0.0, pytest.approx(right)]]


def the_set(benchmark: Benchmark) -> GradedSet:
    return graded_set(benchmark, "exact", (), {})


def test_a_sample_without_a_level_counts_with_the_one_before(tmp_path: Path):
    benchmark = made_once(tmp_path)
    graded = the_set(benchmark)
    tried = [at for at, right in enumerate(graded.tried) if right]
    for place, counted in zip(tried, graded.counted.tolist(), strict=True):
        for at, level in enumerate(graded.points[1:], 1):
            row = benchmark.of("exact", level)[place]
            assert (counted[at] == at) == bool(row["reached"])
            if row["reached"]:
                assert graded.l2[place][at] == row["l2"]
        assert (np.diff([graded.l2[place][at] for at in counted]) >= 0).all()


def test_on_an_absolute_ladder_a_flip_beyond_the_level_leaves_the_sample_clean(tmp_path: Path):
    benchmark = Case().make(tmp_path / "b", ladder="l2:0.4,3")
    graded = the_set(benchmark)
    assert graded.points == ("original", "l2-0.4", "l2-3")
    tried = [at for at, right in enumerate(graded.tried) if right]
    for place, counted in zip(tried, graded.counted.tolist(), strict=True):
        flip = benchmark.of("exact", "flip")[place]
        assert (graded.levels[counted[1]] == "original") == (flip["l2"] > 0.4)
        assert graded.l2[place][counted[1]] <= 0.4


def hand_made(*models: str) -> GradedSet:
    """Two samples, three levels at mean L2 0, 1 and 3. "weak" and "same" are right, right, wrong / right, wrong, wrong."""
    levels = ("original", "flip", "x2")
    weak, best = ((True, True, False), (True, False, False)), ((True,) * 3,) * 2
    return GradedSet(
        "b/v", ("weak",), levels, levels, (0.0,) * 3, ("a", "b"), (True, True), ((0.0, 0.5, 2.0), (0.0, 1.5, 4.0)),
        (("", "blur", "blur"),) * 2, 5.0, "image", {model: best if model == "best" else weak for model in models},
    )  # fmt: skip


def test_the_area_by_hand():
    graded = hand_made("weak")
    assert graded.severity == (0.0, 1.0, 3.0)
    row = graded.area("weak", seed=0)
    assert row["area"] == pytest.approx((2 + 1.5) / 2 / 5)
    assert (row["flip_distance"], row["quartile_low"], row["quartile_high"]) == (1.75, 1.625, 1.875)
    assert (row["never"], row["samples"]) == (0, 2)
    drawn = {round(l2, 3): accuracy for l2, accuracy, *_ in graded.curve("weak").T.tolist()}
    assert (drawn[0], drawn[1.375], drawn[1.5], drawn[2.0], drawn[5.0]) == (1.0, 1.0, 0.5, 0.0, 0.0)
    report = BenchmarkReport((graded,), {"weak": 0})
    assert [row["accuracy"] for row in report.levels] == [1.0, 0.5, 0.0]


def test_the_ranking_puts_the_better_model_first_with_its_interval():
    first, second = ranking([hand_made("weak", "best")], ("weak", "best"), seed=0)
    assert (first.model, first.rank, first.best, first.worst) == ("best", 1, 1, 1)
    assert first.area.value == first.area.low == first.area.high == 1
    assert second.model == "weak"
    assert second.area.low <= second.area.value <= second.area.high < 1
    assert (second.best, second.worst) == (2, 2)
    assert (first.victim_of, second.victim_of) == ((), ("b/v",))
    same = ranking([hand_made("weak", "same")], ("weak", "same"), seed=0)
    assert [each.best for each in same] == [1, 1]


def test_adding_a_model_costs_only_its_own_rows(tmp_path: Path):
    benchmark = made_once(tmp_path)
    one, two = brightness(0.5), brightness(0.45)
    first = run_benchmark([benchmark], {"one": one})
    assert first.asked == {"one": benchmark.queries}
    assert sum(one.rows.values()) == benchmark.queries == sum(bool(row["reached"]) for row in benchmark.rows)
    one.rows.clear()
    both = run_benchmark([benchmark], {"one": one, "two": two})
    assert both.asked == {"one": 0, "two": benchmark.queries}
    assert not one.rows
    assert both.levels[: len(first.levels)] == first.levels
    again = run_benchmark([benchmark], {"one": one}, fresh=True)
    assert again.asked["one"] == benchmark.queries


def test_a_model_is_known_by_its_weights_not_its_name():
    one, same, other = (Contents(brightness(level)).mark() for level in (0.5, 0.5, 0.4))
    assert one == same != other


def test_an_edited_file_is_never_graded(tmp_path: Path):
    benchmark = made_once(tmp_path)
    path = benchmark.folder / reached(benchmark, "flip")[0]["file"]
    pixels = np.asarray(Image.open(path)).copy()
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    with pytest.raises(Edited, match=path.name):
        run_benchmark([benchmark], {"victim": exact_victim(2)})


def nine_classes(benchmark: Benchmark) -> Benchmark:
    folder = benchmark.folder.parent / "c"
    return Benchmark(folder, replace(benchmark.manifest, outputs=9), benchmark.rows)


def named(*classes: str) -> Victim:
    victim = exact_victim(2)
    victim.own_classes = classes
    return victim


REFUSED: list[tuple[Callable[[Benchmark], object], type[InputError], str]] = [
    (
        lambda b: run_benchmark([b], {"wide": brightness(classes=7)}),
        ModelError,
        "the model 'wide' has 7 classes, but the benchmark b has 3",
    ),
    (
        lambda b: run_benchmark([replace(b, folder=b.folder.parent / "d"), b, b], {"a": brightness()}),
        FolderError,
        "two benchmark folders have the same name 'b'",
    ),
    (lambda b: run_benchmark([b, nine_classes(b)], {"a": brightness()}), FolderError, "has 3 classes and .* has 9"),
    (
        lambda b: run_benchmark(
            [replace(b, manifest=replace(b.manifest, classes=("a", "b", "c")))], {"m": named("b", "a", "c")}
        ),
        ModelError,
        "'m' lists the benchmark's classes in another order: list them as 'a, b, c'",
    ),
    (lambda b: run_benchmark([b], {}), OptionError, "at least one benchmark and one model"),
]


@pytest.mark.parametrize(("use", "error", "sentence"), REFUSED)
def test_invalid_input_is_refused(
    use: Callable[[Benchmark], object], error: type[InputError], sentence: str, tmp_path: Path
):
    with pytest.raises(error, match=sentence):
        use(made_once(tmp_path))


def test_an_error_names_the_model(tmp_path: Path):
    def broken(x: object) -> object:
        raise KeyError("weights")

    models = {"good": exact_victim(2), "bad": CallableVictim(broken)}
    benchmark = made_once(tmp_path)
    with pytest.raises(VictimError, match="model 'bad': the model failed on inputs of shape"):
        run_benchmark([benchmark], models)
    with pytest.raises(VictimError, match="model 'exact': the model failed on inputs of shape"):
        verify_benchmark(benchmark, {"exact": models["bad"]})


def test_distortions_are_counted_by_their_files(tmp_path: Path):
    benchmark = made_once(tmp_path)
    report = run_benchmark([benchmark], {"m": exact_victim(2, seed=5)})
    names = {row["distortion"] for row in report.distortions}
    assert names <= {"gaussian_noise", "dead_pixel"}
    assert sum(row["samples"] for row in report.distortions) == sum(
        bool(r["reached"] and r["victim"]) for r in benchmark.rows
    )


def test_requirements_pass_fail_or_are_refused(tmp_path: Path):
    report = run_benchmark([made_once(tmp_path)], {"m": exact_victim(2)})
    wanted = [parse_requirement(text) for text in ("original=1", "flip=0.5", "m:x2=0")]
    assert [each.passed for each in check_requirements(report, wanted)] == [True, False, True]
    some = report.distortions[0]["distortion"]
    assert [each.passed for each in check_requirements(report, [parse_requirement(f"{some}=0.1")])] == [False]
    empty = replace(report, sets=(replace(report.sets[0], tried=(False,) * 6),))
    (unmeasured,) = check_requirements(empty, [parse_requirement("flip=0")])
    assert not unmeasured.passed
    assert "no set has samples" in str(unmeasured)
    for text in ("fog=0.5", "other:flip=0.5"):  # no such level or distortion, no such model
        with pytest.raises(OptionError):
            check_requirements(report, [parse_requirement(text)])


def test_a_report_is_saved_and_shows_every_table(tmp_path: Path):
    report = run_benchmark([made_once(tmp_path)], {"victim": exact_victim(2), "m": brightness()})
    folder = report.save(tmp_path / "report")
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(report.levels) == 2 * 4
    assert float(rows[1]["accuracy"]) == report.levels[1]["accuracy"]
    again = BenchmarkReport.load(folder)
    assert (again, again.levels, again.standings) == (report, report.levels, report.standings)
    assert {row["model"]: row["own"] for row in again.levels} == {"victim": True, "m": False}
    assert len(report.tables()) == 5  # ranking, distances, one set, transfer, distortions
    assert all(table.rows for table in report.tables())
    metrics = report.metrics()
    assert {"area of m", "flip distance of m", "accuracy of m at flip", "queries to m"} <= metrics.keys()
    with pytest.raises(OptionError):
        report.matrix("x9")


def test_a_models_own_set_is_marked(tmp_path: Path):
    case = Case()
    model = brightness()
    case.batch = replace(case.batch, y=model(case.batch.x).argmax(1))
    benchmark = case.make(tmp_path / "b", victim=model, palette=["illuminate@0.5"], budget=100)
    report = run_benchmark([benchmark], {"same": brightness(), "other": brightness(0.2)})
    own = {(row["model"], row["own"]) for row in report.levels}
    assert own == {("same", True), ("other", False)}
    assert isinstance(model.model, Brightness)
