"""Models of known order: the one that needs more distortion ranks first, whatever its own set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlab.benchmarking import Benchmark, make_benchmark, run_benchmark
from rlab.benchmarking.run import graded_set
from rlab.benchmarking.scores import GradedSet, axes_of, ranking
from rlab.data.batch import Batch
from tests.benchmarking.cases import brightness

CUTS = {"weak": 0.35, "middle": 0.45, "strong": 0.6}  # dark images: the higher the cut, the more light it takes
OPTIONS: dict[str, Any] = {
    "palette": ["illuminate@0.1,0.3,0.6"],
    "patch": 2,
    "policy": "square",
    "budget": 120,
    "format": "npz",
}


def dark(n: int = 8, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        0.2 + 0.1 * torch.rand(n, 1, 8, 8, generator=rng),
        torch.zeros(n, dtype=torch.int64),
        ids=tuple(map(str, range(n))),
    )


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    victims = {name: brightness(cut) for name, cut in CUTS.items()}
    return make_benchmark(victims, dark(), tmp_path_factory.mktemp("ranks") / "all", ladder="flip", **OPTIONS)


def test_the_harder_to_flip_ranks_higher_though_its_own_set_goes_farther(sets: Benchmark):
    report = run_benchmark([sets], {name: brightness(cut) for name, cut in CUTS.items()})
    assert [s.model for s in report.standings] == ["strong", "middle", "weak"]
    assert [(s.rank, s.best, s.worst) for s in report.standings] == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    medians = [s.flip_distance.value for s in report.standings]
    assert medians == sorted(medians, reverse=True)
    for standing in report.standings:
        flips = [row["l2"] for row in sets.of(standing.model)]
        assert standing.flip_distance.value <= np.median(flips)  # another set may have found a nearer error
        assert standing.quartiles[0] <= standing.flip_distance.value <= standing.quartiles[1]


def test_an_answer_turned_right_never_lowers_a_rank_or_score(sets: Benchmark):
    rng = np.random.default_rng(0)
    right = {row["sha256"]: bool(rng.random() < 0.5) for row in sets.rows}
    mended = {key: value or bool(rng.random() < 0.5) for key, value in right.items()}
    rights = {"a": lambda row: right[row["sha256"]], "b": lambda row: mended[row["sha256"]]}
    whole = [graded_set(sets, name, (), rights) for name, _ in sets.manifest.victims]
    first, second = ranking(whole, ("a", "b"), seed=0)
    assert (first.model, first.best, first.worst) == ("b", 1, 1)
    assert first.area.value > second.area.value


def graded(benchmark: Benchmark) -> list[GradedSet]:
    return [graded_set(benchmark, name, (), {}) for name, _ in benchmark.manifest.victims]


@pytest.mark.slow
def test_the_reach_is_the_palettes_and_no_models(sets: Benchmark, tmp_path: Path):
    own = make_benchmark({"weak": brightness(0.35)}, dark(), tmp_path / "own", ladder="times:1.5", **OPTIONS)
    assert own.reach == sets.reach
    assert own.reach == pytest.approx(0.6 * 8, rel=1e-4)  # 64 values, each lighter by 0.6
    assert f"L2 {own.reach:.4g}" in (own.folder / "README.md").read_text()
    fixed = make_benchmark({"weak": brightness(0.35)}, dark(), tmp_path / "fixed", reach=2.5, **OPTIONS)
    assert Benchmark.load(fixed.folder).reach == 2.5
    report = run_benchmark([sets, own], {"weak": brightness(0.35)})
    assert {row["reach"] for row in report.areas} == {own.reach}
    assert report.sets[0].curve("weak")[0].max() == own.reach


@pytest.mark.slow
def test_sets_share_an_axis_where_they_share_palette_and_samples(sets: Benchmark, tmp_path: Path):
    few = make_benchmark({"weak": brightness(0.35)}, dark()[:4], tmp_path / "few", ladder="flip", **OPTIONS)
    other = make_benchmark({"weak": brightness(0.35)}, dark(seed=1), tmp_path / "other", ladder="flip", **OPTIONS)
    axes = axes_of([*graded(sets), *graded(few), *graded(other)])
    assert [axis.sets for axis in axes] == [(0, 1, 2, 3), (4,)]
    assert [len(axis.samples) for axis in axes] == [4, 8]
    report = run_benchmark([sets, other], {"weak": brightness(0.35), "strong": brightness(0.6)})
    assert [s.model for s in report.standings] == ["strong", "weak"]
    assert np.isnan(report.standings[0].flip_distance.value)  # no one median of two axes
