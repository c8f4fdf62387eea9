"""The hardening benchmark on a toy: one job, its file, and the page made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import common, harden_page
from benchmarks.harden_bench import CHOOSING_PATIENTS, Job, Section, run
from rlab.hardening.comparison import Splits
from tests.hardening.toys import options, shortcut


def test_jobs_make_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlab.hardening.evaluation.LEVELS", 2)
    monkeypatch.setattr("benchmarks.harden_bench.BUDGETS", (5, 12))
    monkeypatch.setattr("benchmarks.harden_page.RAW", tmp_path / "harden.json")
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    toy = shortcut(2, n=32)
    config = options(2, epochs=2, adversary="gradient", radius_range=(0.1, 0.4))
    section = Section(toy.victim, Splits(toy.batch, toy.test[:16], toy.test[16:]), config, attacked=6)
    for method in ("unchanged", "ours"):
        job = Job("cifar", method, 0)
        figures, weights = run(job, section)
        assert weights.keys() == toy.victim.model.state_dict().keys()
        assert len(figures["points"]) == (1 if method == "unchanged" else len({figures["share"], 0.4, 0.7, 1.0}))
        assert figures["maker"] == ("" if method == "unchanged" else "gradient")
        for point in figures["points"]:
            point |= {"l2_50": point["l2_5"], "l2_200": point["l2_12"]}
        (tmp_path / f"{job.name}.json").write_text(json.dumps(figures))
    assert harden_page.collect(tmp_path) == 2
    reached = harden_page.write_page("Rules.")
    assert set(reached) == {"cifar_ours_times"}
    page = (tmp_path / "harden.md").read_text()
    assert "| unchanged | – | 1 |" in page
    marked = "| ours (1 of 1 kept the unchanged net) | gradient | 1 |"
    for kept, row in ((2, "| ours | gradient | 1 |"), (0, marked)):
        (tmp_path / f"{job.name}.json").write_text(json.dumps(figures | {"kept_epoch": kept}))
        harden_page.collect(tmp_path)
        harden_page.write_page("Rules.")
        assert row in (tmp_path / "harden.md").read_text()


def test_patients_that_choose_are_of_the_second_half_and_leave_some_to_report_on() -> None:
    there = {"100", "103", "111", "200", "212", "213", "222", "228", "233"}
    assert set(CHOOSING_PATIENTS) < there
