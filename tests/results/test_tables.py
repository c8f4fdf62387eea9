"""The tables of `rlab show`, and the line of distances of flipped samples."""

from __future__ import annotations

from dataclasses import replace

import torch
from matplotlib.colors import to_rgb

from rlab.data.batch import UNBOUNDED
from rlab.results.plots import draw_overview
from rlab.results.result import Status
from rlab.results.tables import detail_table, reach_line
from tests.results.plots.fixtures import Recipe, make_result

CLIPS = Recipe((6, 16, 24), (2, 8, 8), 3, n=3, share=0.0, status=(Status.SUCCEEDED,))


def test_clips_include_frames() -> None:
    result = make_result(CLIPS)  # one patch, in frames 0 and 1
    change = (result.perturbed - result.original).abs().flatten(1)
    said = reach_line(result)
    assert said.startswith(f"Medians over flipped samples: MAP {float(change.mean(1).median()):.3g}, ")
    assert f"Linf {float(change.amax(1).median()):.3g}" in said
    assert said.endswith("2 of 6 frames")


def test_images_have_no_frames_and_signals_no_bounds() -> None:
    image = make_result(replace(CLIPS, size=(16, 16), patch=(4, 4)))
    assert "MAP" in reach_line(image)
    assert "frames" not in reach_line(image)
    assert reach_line(make_result(replace(CLIPS, size=(64,), patch=(8,), bounds=UNBOUNDED))) == ""


def test_only_flipped_samples_count() -> None:
    none = make_result(replace(CLIPS, status=(Status.SPENT,)))
    assert reach_line(none) == ""
    some = make_result(replace(CLIPS, n=2, status=(Status.SUCCEEDED, Status.SPENT)))
    assert reach_line(some) == reach_line(some.where(torch.tensor([0])))


def test_a_flip_is_bad_and_holding_is_good_for_the_models_owner() -> None:
    result = make_result(replace(CLIPS, n=len(Status), status=tuple(Status)))
    tones = {status: row[1].tone for status, row in zip(Status, detail_table(result).cells, strict=True)}
    assert (tones[Status.SUCCEEDED], tones[Status.SPENT], tones[Status.SKIPPED]) == ("fail", "pass", "")
    bars = next(ax for ax in draw_overview(result).axes if "by status" in ax.get_title(loc="left")).patches
    drawn = dict(zip(Status, (to_rgb(bar.get_facecolor()) for bar in bars), strict=True))
    red, green, _ = drawn[Status.SUCCEEDED]
    assert red > 2 * green
    red, green, _ = drawn[Status.SPENT]
    assert green > 2 * red
    assert len(set(drawn.values())) == len(Status)
