"""Every result draws itself, becomes a table, a page, a folder and a notebook cell, in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlab
from rlab.core.status import Status
from rlab.folders.kinds import finished_kind
from tests.auditing.cases import quick
from tests.results.plots.fixtures import CASES, Recipe, make_result

BATCH = rlab.load("demo:digits", limit=4)
NOISE = rlab.filters.GaussianNoise(0.5)


def victim() -> rlab.Victim:
    return rlab.demo_victim("digits")


MAKE: dict[str, Callable[[Path], rlab.Result]] = {
    "attack": lambda folder: rlab.attack(victim(), BATCH, policy="random", palette=NOISE, budget=20),
    "explain": lambda folder: rlab.explain(victim(), BATCH, method="occlusion"),
    "explain, compared": lambda folder: rlab.explain(
        victim(), BATCH, compare=True, method="middle,occlusion", steps=2, checks=False
    ),
    "compare": lambda folder: rlab.compare(victim(), BATCH, policies="random,square", palette=NOISE, budget=20),
    "benchmark": lambda folder: rlab.benchmark(
        victim(), BATCH, folder / "made", policy="random", palette=NOISE, budget=60
    ),
    "benchmark, graded": lambda folder: rlab.run_benchmark(
        [rlab.benchmark(victim(), BATCH, folder / "made", policy="random", palette=NOISE, budget=60)],
        {"digits": victim()},
    ),
    "harden": lambda folder: rlab.harden(
        victim(),
        BATCH,
        validation_split=0.25,
        epochs=1,
        rounds=1,
        adversary="random",
        adversary_budget=5,
        validation_attacked=1,
    ),
}
FAST = ("attack", "explain", "compare")
COLUMNS = {  # that the tables of people need
    "attack": {"id", "status", "succeeded", "label", "label_name", "predicted_after_name", "queries", "l2"},
    "explain": {"id", "method", "explained", "explained_name", "probability", "mask_share", "queries"},
    "explain, compared": {"method", "id", "deletion", "insertion", "queries"},
    "compare": {"attack", "id", "succeeded", "queries", "l2"},
    "benchmark": {"id", "level", "label", "label_name", "predicted", "predicted_name", "queries", "l2"},
    "benchmark, graded": {"set", "model", "level", "accuracy", "l2"},
    "harden": {"number", "clean", "robust"},
}


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in MAKE]
)
def test_every_result_has_the_same_verbs(name: str, tmp_path: Path) -> None:
    result = MAKE[name](tmp_path)
    check_verbs(result, tmp_path)
    table: Any = result.to_pandas()
    assert COLUMNS[name] <= set(table.columns)
    assert len(table) == len(result.records())
    assert not [column for column in table.columns if column.startswith("queries_")]


def check_verbs(result: rlab.Result, folder: Path) -> None:
    assert type(result).__name__ in rlab.PUBLIC
    figure: Any = result.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    page = result.report(folder / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    cell = result._repr_html_()
    assert "<script" not in cell
    assert "<table" in cell or "<svg" in cell or "<img" in cell
    saved = result.save(folder / "saved")
    assert finished_kind(saved).is_finished(saved)


@pytest.mark.slow
def test_an_audit_has_the_same_verbs(tmp_path: Path) -> None:
    result = rlab.audit(quick(), tmp_path / "audit")
    check_verbs(result, tmp_path)
    table: Any = result.to_pandas()
    assert {"requirement", "value", "limit", "passed"} <= set(table.columns)


def test_the_table_of_an_attack_names_classes_and_counts_queries_once() -> None:
    result = make_result(CASES["every way to end"])
    table: Any = result.to_pandas()
    assert list(table["queries"]) == result.effort.tolist()
    assert "r_peaks" not in table.columns
    assert [result.setting.classes[k] for k in table["label"]] == list(table["label_name"])
    for sample, (_, row) in zip(result, table.iterrows(), strict=True):
        assert row["succeeded"] == sample.succeeded == (sample.status is Status.SUCCEEDED)
        assert row["l2"] == sample.l2
        assert (row["predicted_after"], row["queries"]) == (sample.predicted_after, sample.queries)


def test_r_peaks_are_in_the_table_of_beats_only() -> None:
    beats = make_result(Recipe((256,), (16,), 1, n=2, rate=250.0))
    object.__setattr__(beats, "r_peaks", ((10,), (20, 200)))
    assert [row["r_peaks"] for row in beats.records()] == [[10], [20, 200]]
    assert "r_peaks" not in make_result(Recipe((256,), (16,), 1, n=2, rate=250.0)).records()[0]


def test_the_table_of_several_labels_names_all_of_them() -> None:
    result = make_result(Recipe((8, 8), (4, 4), n=3, multilabel=True))
    for record, sample in zip(result.records(), result, strict=True):
        assert record["label"] == sample.label
        assert all(result.setting.classes[k] in record["label_name"] for k in sample.label)  # type: ignore[union-attr]


def test_a_cell_lays_the_map_over_the_picture() -> None:
    """Each sample shows the input alone and under its map; both are pictures of the same size."""
    explanation = rlab.explain(victim(), BATCH, method="occlusion", limit=2)
    cell = explanation._repr_html_()
    assert len(re.findall(r'<figure[^>]*class="viewer', cell)) == 2 * len(explanation)
    named = [BATCH.label_name(int(label)) for label in explanation.labels]
    assert all(f"explained: {name}" in cell for name in named)
    assert cell.count('class="layer"') == len(explanation)
    assert f"{explanation.mask_share:.1%}" in cell
    assert set(re.findall(r'id="([0-9a-f]{8})', cell)).isdisjoint(
        re.findall(r'id="([0-9a-f]{8})', explanation._repr_html_())
    )
