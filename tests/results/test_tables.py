"""The tables of `rlab show`, and the line of distances of flipped samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlab.data.batch import UNBOUNDED
from rlab.present.table import number
from rlab.results.metrics import key_numbers
from rlab.results.result import AttackResult, Status
from rlab.results.tables import detail_table, run_facts, summary_facts, summary_table
from rlab.stats import Estimate
from tests.results.plots.fixtures import Recipe, make_result

CLIPS = Recipe((6, 16, 24), (2, 8, 8), 3, n=3, share=0.0, status=(Status.SUCCEEDED,))


REACH = ("MAP", "Linf", "frames")


def reach(result: AttackResult) -> dict[str, str]:
    return {name: value for name, value in run_facts(result).items() if name in REACH}


def test_clips_include_frames() -> None:
    result = make_result(CLIPS)  # one patch, in frames 0 and 1
    change = (result.perturbed - result.original).abs().flatten(1)
    medians = (float(change.mean(1).median()), float(change.amax(1).median()))
    assert reach(result) == {"MAP": f"{medians[0]:.3g}", "Linf": f"{medians[1]:.3g}", "frames": "2 of 6"}


def test_images_have_no_frames_and_signals_no_bounds() -> None:
    assert reach(make_result(replace(CLIPS, size=(16, 16), patch=(4, 4)))).keys() == {"MAP", "Linf"}
    assert not reach(make_result(replace(CLIPS, size=(64,), patch=(8,), bounds=UNBOUNDED)))


def test_only_flipped_samples_count() -> None:
    assert not reach(make_result(replace(CLIPS, status=(Status.SPENT,))))
    some = make_result(replace(CLIPS, n=2, status=(Status.SUCCEEDED, Status.SPENT)))
    assert reach(some) == reach(some.where(torch.tensor([0])))


def test_a_flip_is_bad_and_holding_is_good_for_the_models_owner() -> None:
    result = make_result(replace(CLIPS, n=len(Status), status=tuple(Status)))
    tones = {status: row[1].tone for status, row in zip(Status, detail_table(result).cells, strict=True)}
    assert (tones[Status.SUCCEEDED], tones[Status.SPENT], tones[Status.SKIPPED]) == ("fail", "pass", "")


def test_runs_with_different_distances_share_rows_that_name_neither() -> None:
    clips, images = make_result(CLIPS), make_result(replace(CLIPS, size=(16, 16), patch=(4, 4)))
    mixed = replace(clips, setting=replace(clips.setting, distance="map"))
    rows = {str(row[0]): row[1:] for row in summary_table({"clips": mixed, "images": images}).rows}
    assert list(rows["distance"]) == ["MAP", "L2"]
    assert not any(name.startswith(("L2", "MAP")) for name in rows)
    assert {"distance at first flip", "distance in the end"} <= rows.keys()
    alone = [str(row[0]) for row in summary_table({"clips": mixed}).rows]
    assert {"MAP at first flip", "MAP in the end"} <= set(alone)
    assert not any(name.startswith("L2") for name in alone)


def test_the_distance_in_the_end_is_one_number_everywhere() -> None:
    """Also if some samples resisted, which an audit's verdict.md once counted and its requirement did not."""
    statuses = (Status.SUCCEEDED, Status.SUCCEEDED, Status.SPENT, Status.SUCCEEDED, Status.SPENT)
    result = make_result(replace(CLIPS, n=len(statuses), status=statuses))
    required = result.final["l2"][result.succeeded].median()
    tile = next(each.value for each in key_numbers(result) if each.name == "L2 in the end")
    assert isinstance(tile, Estimate)
    assert tile.value == pytest.approx(float(required))
    assert summary_facts(result)["L2 in the end"].startswith(number(float(required)))
    assert result.summary()["median_l2"] == pytest.approx(float(required))
