"""The hardening benchmark on a toy: jobs, their raw files, and the page made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harden import jobs, page
from benchmarks.harden.cases import CHOOSING_PATIENTS, Section
from benchmarks.harden.jobs import Job, run
from benchmarks.raw import Origin, Raw, Store
from rlab.hardening.run import Splits
from tests.hardening.toys import options, shortcut


def test_jobs_make_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlab.hardening.evaluation.LEVELS", 2)
    monkeypatch.setattr(jobs, "BUDGETS", (5, 12))
    toy, store = shortcut(2, n=32), Store(tmp_path)
    config = options(2, epochs=2, adversary="gradient", radius_range=(0.1, 0.4))
    section = Section(toy.victim, Splits(toy.batch, toy.test[:16], toy.test[16:]), config, attacked=6)
    for method in ("unchanged", "ours"):
        job = Job("cifar", method, 0)
        raw, weights = run(job, section)
        assert weights.keys() == toy.victim.model.state_dict().keys()
        points = raw.numbers["points"]
        assert len(points) == (1 if method == "unchanged" else len({raw.numbers["share"], 0.4, 0.7, 1.0}))
        assert raw.facts["maker"] == ("" if method == "unchanged" else "gradient")
        for point in points.values():
            point |= {"l2_50": point["l2_5"], "l2_200": point["l2_12"]}
        store.write(job.name, raw, Origin(settings=job.settings))
    assert set(page.figures(store)) == {"cifar_ours_times"}
    assert "| unchanged | – | 1 |" in page.section(store, "cifar")
    marked = "| ours (1 of 1 kept the unchanged net) | gradient | 1 |"
    for kept, row in ((2, "| ours | gradient | 1 |"), (0, marked)):
        store.write(job.name, Raw(raw.numbers, {**raw.facts, "kept_epoch": kept}), Origin())
        assert row in page.section(store, "cifar")


def test_patients_that_choose_leave_some_to_report_on() -> None:
    assert set(CHOOSING_PATIENTS) < {"100", "103", "111", "200", "212", "213", "222", "228", "233"}
