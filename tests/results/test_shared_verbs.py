"""Every result draws itself, becomes a table, a page, a folder and a notebook cell, in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rlab
from rlab.core.status import Status
from rlab.folders.finished import load_report
from rlab.present.page import render
from tests.auditing.cases import quick
from tests.benchmarking.cases import made_once
from tests.helpers import exact_victim
from tests.results.plots.fixtures import CASES, Recipe, make_result

BATCH = rlab.load("demo:digits", limit=4)
NOISE = rlab.filters.Distortion("gaussian_noise", 0.5)


def victim() -> rlab.Victim:
    return rlab.demo_victim("digits")


def benchmark(folder: Path) -> rlab.Benchmark:
    return rlab.benchmark(victim(), BATCH, folder / "made", policy="random", palette=NOISE, budget=60)


MAKE: dict[str, Callable[[Path], rlab.Report]] = {
    "AttackResult": lambda folder: rlab.attack(victim(), BATCH, policy="random", palette=NOISE, budget=20),
    "AuditResult": lambda folder: rlab.audit(quick(), folder / "audit"),
    "Benchmark": benchmark,
    "BenchmarkReport": lambda folder: rlab.run_benchmark([benchmark(folder)], {"digits": victim()}),
    "Comparison": lambda folder: rlab.compare(victim(), BATCH, policies="random,square", palette=NOISE, budget=20),
    "CorruptionReport": lambda folder: rlab.corrupt(victim(), BATCH, kinds="fog,contrast", levels=[1, 5]),
    "Diagnosis": lambda folder: rlab.doctor(rlab.TorchVictim(victim().model, mean=[0.5], std=[0.1]), BATCH),  # type: ignore[attr-defined]
    "Explanation": lambda folder: rlab.explain(victim(), BATCH, method="occlusion"),
    "Hardened": lambda folder: rlab.harden(
        victim(),
        BATCH,
        validation_split=0.25,
        epochs=1,
        adversary="random",
        adversary_budget=5,
        validation_attacked=1,
    ),
    "MethodComparison": lambda folder: rlab.explain(
        victim(), BATCH, compare=True, method="middle,occlusion", steps=2, checks=False
    ),
    "Verification": lambda folder: rlab.verify_benchmark(damaged(folder), {"exact": exact_victim(2)}),
}
SLOW = ("AuditResult", "Benchmark", "BenchmarkReport", "Hardened", "MethodComparison")
COLUMNS = {  # that people need
    "AttackResult": {"id", "status", "succeeded", "label", "predicted_after", "queries", "l2"},
    "AuditResult": {"requirement", "value", "limit", "passed"},
    "Benchmark": {"id", "level", "label", "predicted", "queries", "l2"},
    "BenchmarkReport": {"set", "model", "level", "accuracy", "l2"},
    "Comparison": {"attack", "id", "succeeded", "queries", "l2"},
    "CorruptionReport": {"kind", "level", "accuracy", "ece", "samples"},
    "Diagnosis": {"check", "outcome", "observation", "change", "flag"},
    "Explanation": {"id", "method", "explained", "probability", "mask_share", "queries"},
    "Hardened": {"number", "clean", "robust"},
    "MethodComparison": {"method", "id", "explained", "deletion", "insertion", "queries"},
    "Verification": {"set", "level", "files", "wrong", "queries"},
}
CLASSES = {"label", "predicted", "predicted_after", "explained"}  # columns that hold numbers of classes


def damaged(folder: Path) -> rlab.Benchmark:
    made = made_once(folder)
    (made.folder / made.originals()[0]["file"]).unlink()
    return made


def test_every_public_result_is_in_the_table() -> None:
    public = {name: getattr(rlab, name) for name in rlab.PUBLIC if name != "Report"}
    results = {name for name, each in public.items() if isinstance(each, type) and issubclass(each, rlab.Report)}
    assert results == set(MAKE) == set(COLUMNS)


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MAKE])
def test_every_result_has_the_same_verbs(name: str, tmp_path: Path) -> None:
    result = MAKE[name](tmp_path)
    assert type(result).__name__ == name
    check_verbs(result, tmp_path)
    table: Any = result.to_pandas()
    assert COLUMNS[name] | {f"{column}_name" for column in COLUMNS[name] & CLASSES} <= set(table.columns)
    assert len(table) == len(result.records()) > 0
    assert not [column for column in table.columns if column.startswith("queries_")]


def check_verbs(result: rlab.Report, folder: Path) -> None:
    figure: Any = result.plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    page = result.report(folder / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    cell = result._repr_html_()
    assert "<script" not in cell
    assert "<table" in cell or "<svg" in cell or "<img" in cell
    saved = result.save(str(folder / "saved"))
    assert "<h1" in render(load_report(saved).view(24, saved))


def test_a_damaged_file_is_counted_where_it_belongs(tmp_path: Path) -> None:
    checked = rlab.verify_benchmark(damaged(tmp_path))
    assert [(row["level"], row["wrong"]) for row in checked.records() if row["wrong"]] == [("original", 1)]
    assert sum(row["files"] for row in checked.records()) == checked.files
    assert type(checked).load(checked.save(tmp_path / "saved")) == checked


def test_a_saved_diagnosis_is_read_back(tmp_path: Path) -> None:
    found = rlab.doctor(victim(), BATCH)
    assert type(found).load(found.save(tmp_path)) == found


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
        assert isinstance(sample.label, tuple)
        assert all(result.setting.classes[k] in record["label_name"] for k in sample.label)


def test_a_cell_lays_the_map_over_the_picture() -> None:
    """Each sample shows the input alone and under its map; both are pictures of the same size."""
    explanation = rlab.explain(victim(), BATCH, method="occlusion", limit=2)
    cell = explanation._repr_html_()
    assert len(re.findall(r'<figure[^>]*class="viewer', cell)) == len(explanation)
    named = [BATCH.label_name(int(label)) for label in explanation.labels]
    assert all(f"explained {name}" in cell for name in named)
    assert cell.count('class="layer"') == len(explanation)
    assert f"{explanation.mask_share:.1%}" in cell
    assert set(re.findall(r'id="([0-9a-f]{8})', cell)).isdisjoint(
        re.findall(r'id="([0-9a-f]{8})', explanation._repr_html_())
    )
