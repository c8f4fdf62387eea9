"""The figures of the benchmark on clips, from curves written by hand."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.video_bench import FAR, Curve, area_ratio, keep, map_ratio, recall, write_page


def curve(attack: str, *reached: tuple[tuple[int, float], ...], seed: int = 0, section: str = "curves") -> Curve:
    return Curve(section, "c3d", attack, seed, 50, "two clips", 1.0, 4.0, 20.0, reached)


OURS = curve("auto", ((2, 8.0), (40, 4.0)), ((3, 8.0),))
SQUARE = curve("square", ((10, 16.0),), ((30, 16.0),))


def test_medians_take_the_best_flip_within_so_many_queries() -> None:
    assert OURS.first().value == 2.5
    assert OURS.median(10).value == 8
    assert OURS.median(50).value == 6
    assert math.isinf(SQUARE.median(20).value), "one of two clips has no flip yet"
    assert SQUARE.success(20).value == 0.5


def test_ratios_are_to_the_others_median() -> None:
    assert map_ratio(OURS, SQUARE, 50).value == 6 / 16
    assert map_ratio(OURS, SQUARE, 20).value == 0


def test_an_area_is_the_mean_of_log_map_and_no_flip_counts_as_far() -> None:
    never, at_once = curve("never", ()), curve("at once", ((1, FAR / 4),))
    assert area_ratio([at_once], [never], 50).value == pytest.approx(1 / 4)
    half = curve("half", ((26, FAR / 4),))
    assert area_ratio([half], [never], 50).value == pytest.approx(1 / 2)


def test_a_page_is_made_of_what_was_kept(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw" / "video.json", tmp_path / "video.md"
    keep(raw, [OURS, curve("square", ())])
    keep(raw, [SQUARE, replace(OURS, section="ablations"), replace(SQUARE, section="ablations")])
    assert [one.key for one in recall(raw)][:2] == [OURS.key, SQUARE.key], "the same attack again replaces the first"
    assert recall(raw)[1] == SQUARE
    write_page(raw, out, "Rules.", {"curves": "", "ablations": "Parts"}, 50)
    page = out.read_text(encoding="utf-8")
    assert "## C3D" in page
    assert "## Parts, C3D" in page
    assert "0.375" in page, "ours over square's within 50"
