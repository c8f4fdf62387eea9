"""The benchmark on clips: figures from curves written by hand, and a long clip's cost in a process of its own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.raw import Origin, Raw, Store, from_curves
from benchmarks.video import memory as video_memory
from benchmarks.video.cases import cases
from benchmarks.video.curves import FAR, Curve, area_ratio, curves_section, kept, map_ratio, parts_section

OURS = Curve("auto", 50, [(((2, 8.0), (40, 4.0)), ((3, 8.0),))])
SQUARE = Curve("square", 50, [(((10, 16.0),), ((30, 16.0),))])


def test_medians_take_the_best_flip_within_the_queries() -> None:
    assert OURS.first().value == 2.5
    assert OURS.median(10).value == 8
    assert OURS.median(50).value == 6
    assert math.isinf(SQUARE.median(20).value), "one of two clips has no flip yet"
    assert SQUARE.success(20).value == 0.5


def test_ratios_are_to_the_others_median() -> None:
    assert map_ratio(OURS, SQUARE, 50).value == 6 / 16
    assert map_ratio(OURS, SQUARE, 20).value == 0


def test_seeds_count_alike(tmp_path: Path) -> None:
    """A second seed that never flips makes half of all flips infinite."""
    store, both = Store(tmp_path), Curve("auto", 50, [*OURS.seeds, ((), ())])
    assert (both.success(50).value, both.first().value, both.median(50).value) == (0.5, math.inf, math.inf)
    case = next(case for case in cases() if case.seeds > 1)
    for seed, reached in enumerate(both.seeds):
        store.write(
            case.file(seed),
            Raw(from_curves(reached) | {"frames": 4.0, "patches": 20.0}, {"about": ""}),
            Origin(settings={"budget": 50}),
        )
    (curve,) = kept(store, case.section, case.victim)
    assert curve.seeds == both.seeds


def test_an_area_is_the_mean_of_log_map_and_no_flip_counts_as_far() -> None:
    never, at_once, half = (Curve("", 50, [(flips,)]) for flips in ((), ((1, FAR / 4),), ((26, FAR / 4),)))
    assert area_ratio(at_once, never, 50).value == pytest.approx(1 / 4)
    assert area_ratio(half, never, 50).value == pytest.approx(1 / 2)


def test_sections_are_made_of_raw_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for case in cases():
        if case.victim == "c3d" and case.attack in ("auto", "square"):
            (reached,) = OURS.seeds if case.attack == "auto" else SQUARE.seeds
            numbers = from_curves(reached) | {"frames": 4.0, "patches": 20.0}
            store.write(case.file(), Raw(numbers, {"about": "two clips"}), Origin(settings={"budget": 50}))
    curves = kept(store, "curves", "c3d")
    assert [curve.attack for curve in curves] == ["auto", "square"]
    assert "0.375" in curves_section("c3d", curves), "ours over square's within 50"
    assert "## Parts, C3D" in parts_section("Parts", "c3d", curves, 50)
    assert len({case.file() for case in cases()}) == len(list(cases()))


@pytest.mark.slow
def test_figures_of_a_long_clip() -> None:
    found = video_memory.measure(frames=48, policy="random", net="slowfast", budget=4)
    assert (found["frames"], found["policy"], found["net"]) == (48, "random", "slowfast")
    assert found["clip_mib"] == pytest.approx(48 * 3 * 72 * 96 * 4 / 2**20, abs=1e-3)
    assert found["clip_mib"] <= found["decode_peak_mib"] <= 150  # 144 frames of 160 x 120 are in the file
    assert found["decode_peak_mib"] <= found["peak_mib"] <= 1500
    assert found["queries"] <= 4
    assert min(found[name] for name in ("decode_seconds", "answer_seconds", "clip_seconds")) > 0


def test_a_measurement_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "false")
    with pytest.raises(RuntimeError, match=r"nonsense .* failed"):
        video_memory.measure(frames=8, policy="nonsense", net="slowfast", budget=4)
