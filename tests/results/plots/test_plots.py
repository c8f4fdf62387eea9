"""Pictures: every rank and edge case renders without warnings, shows the result, and no texts overlap."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from rlab.errors import OptionError
from rlab.present.colours import to_colours
from rlab.present.style import HATCHES, HUES, flow, hatch, hue, plain, width_of
from rlab.results.breakdown import class_members
from rlab.results.plots import choose, draw_overview, draw_sample, save_pictures
from rlab.results.plots.pixels import magnify
from rlab.results.plots.sample import OTHERS
from rlab.results.plots.save import file_stem
from rlab.results.plots.signal import BOX, on_paper
from rlab.results.result import AttackResult, Status
from tests.results.plots.fixtures import CASES, Recipe, make_result

OVERVIEWS = ("signal beat", "image digits", "image long palette", "video", "nothing flipped", "nothing attacked")
SMALL = Recipe((16, 16), (4, 4), 3, n=8)
CLIP = Recipe((6, 16, 24), (2, 8, 8), 3, n=4, share=0.2)


@pytest.fixture(autouse=True)
def _loud() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # garbage collection may bring up one of another test
        yield


@cache
def result_of(name: str) -> AttackResult:
    return make_result(CASES[name])


@cache
def picture_of(name: str) -> Figure:
    """Draw once for several tests."""
    return draw_sample(result_of(name), 0)


@cache
def overview_of(name: str) -> Figure:
    return draw_overview(result_of(name))


def gids(figure: Figure, start: str) -> list[Artist]:
    return [artist for artist in figure.findobj(include_self=False) if str(artist.get_gid() or "").startswith(start)]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def header(figure: Figure) -> str:
    (ax,) = gids(figure, "header")
    assert isinstance(ax, Axes)
    return "\n".join(text.get_text() for text in ax.texts)


def drawn_texts(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Bbox]]:
    """Return the texts that are visible, with their boxes in pixels."""
    seen: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def record(self, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text().strip():
            seen.append((self.get_text(), self.get_window_extent(renderer)))
        draw(self, renderer, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Text, "draw", record)
        figure.draw_without_rendering()
    return seen


def assert_legible(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    found = drawn_texts(figure, monkeypatch)
    assert len(found) > 1
    for i, (text, box) in enumerate(found):
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
        assert inside, f"{text!r} leaves the page"
        for other, its in found[:i]:
            across = min(box.x1, its.x1) - max(box.x0, its.x0)
            along = min(box.y1, its.y1) - max(box.y0, its.y0)
            assert across < 2 or along < 4, f"{text!r} covers {other!r}"


@pytest.mark.parametrize("name", CASES)
def test_samples_render_legibly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_legible(picture_of(name), monkeypatch)


@pytest.mark.parametrize("name", [*OVERVIEWS, "one sample"])
def test_overviews_render_legibly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = overview_of(name)
    assert figure.get_figwidth() * figure.dpi == 1600
    assert_legible(figure, monkeypatch)


def test_legibility_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = draw_overview(make_result(SMALL))
    figure.text(0.02, 0.5, "over the edge " * 30)
    with pytest.raises(AssertionError):
        assert_legible(figure, monkeypatch)


GREY = matplotlib.colors.to_rgb(OTHERS)  # entries that hardly count


@pytest.mark.parametrize("name", ["image digits", "image wide", "image fine", "video short", "one sample"])
def test_every_distorted_patch_is_outlined_once(name: str) -> None:
    result = result_of(name)
    found = gids(picture_of(name), "patch-")
    wanted = result.assignment[0].nonzero().flatten().tolist()
    assert sorted(str(artist.get_gid()) for artist in found) == sorted(f"patch-{patch}" for patch in wanted)
    for artist in found:
        assert isinstance(artist, Rectangle)
        patch = int(str(artist.get_gid()).removeprefix("patch-"))
        *_, rows, columns = result.setting.grid.box(patch)
        assert artist.get_edgecolor()[:3] in {matplotlib.colors.to_rgb(hue(int(result.assignment[0, patch]))), GREY}
        edges = (artist.get_x() + 0.5, artist.get_y() + 0.5, artist.get_width(), artist.get_height())
        box = (columns.start, rows.start, columns.stop - columns.start, rows.stop - rows.start)
        np.testing.assert_allclose(edges, box, atol=0.41)


def test_clip_outlines_follow_the_frames() -> None:
    """A patch of two frames is outlined in both, in the right column."""
    result = make_result(CLIP)
    figure = draw_sample(result, 0)
    counts = [len(gids(figure, f"patch-{patch}")) for patch in result.assignment[0].nonzero().flatten().tolist()]
    assert counts
    assert set(counts) == {2}
    for artist in gids(figure, "patch-"):
        (when, *_) = result.setting.grid.box(int(str(artist.get_gid()).removeprefix("patch-")))
        assert artist.axes is not None
        spec = artist.axes.get_subplotspec()
        assert spec is not None
        assert when.start <= spec.colspan.start < when.stop


def test_long_clips_show_their_distorted_frames() -> None:
    result = make_result(replace(CASES["video long"], n=1, share=0.0, status=(Status.SUCCEEDED,)))
    assert set(result.assignment[0].nonzero().flatten().tolist()) == {0}  # in frames 0..2 of 40 only
    figure = draw_sample(result, 0)
    assert len(gids(figure, "patch-0")) == 1
    (bars,) = {artist.get_gid() for artist in gids(figure, "entry-")}
    assert bars == f"entry-{int(result.assignment[0, 0])}"
    heights = [bar.get_height() for bar in gids(figure, "entry-") if isinstance(bar, Rectangle)]
    assert heights == [1] * 3 + [0] * 37


@pytest.mark.parametrize("name", ["signal beat", "signal twelve leads", "signal without rate"])
def test_spans_stand_at_the_right_times_in_every_lead(name: str) -> None:
    result = result_of(name)
    figure, rate, leads = picture_of(name), result.setting.rate or 1.0, result.original.shape[1]
    patches = result.assignment[0].nonzero().flatten().tolist()
    assert len(gids(figure, "patch-")) == leads * len(patches)
    for patch in patches:
        (box,) = result.setting.grid.box(patch)
        for span in gids(figure, f"patch-{patch}"):
            if span.get_gid() == f"patch-{patch}":
                assert isinstance(span, Rectangle)
                found = (span.get_x(), span.get_x() + span.get_width())
                assert found == pytest.approx((box.start / rate, box.stop / rate))


def test_traces_hold_the_perturbed_input_and_the_original_where_it_changed() -> None:
    result = result_of("signal one lead")
    figure = picture_of("signal one lead")
    (after,), (before,) = gids(figure, "after"), gids(figure, "before")
    np.testing.assert_array_equal(after.get_ydata(), result.perturbed[0, 0].numpy())  # type: ignore[attr-defined]
    np.testing.assert_allclose(after.get_xdata()[-1], 3599 / 360)  # type: ignore[attr-defined]
    shown = np.asarray(before.get_ydata())  # type: ignore[attr-defined]
    changed = (result.perturbed[0, 0] != result.original[0, 0]).numpy()
    np.testing.assert_array_equal(shown[changed], result.original[0, 0].numpy()[changed])
    assert np.isnan(shown).sum() > 3000


@pytest.mark.parametrize("boxes", range(2, 9))
@pytest.mark.parametrize("low", [-1.3, -0.52, -0.25, -0.05, 0.0, 0.2, 0.75])
def test_ecg_paper_holds_the_whole_trace_and_begins_with_a_large_box(low: float, boxes: int) -> None:
    """The trace is one large box lower than the paper, at any offset."""
    span, high = boxes * BOX[1], low + (boxes - 1) * BOX[1]
    bottom = on_paper((low + high) / 2, span) - span / 2
    assert bottom <= low + 1e-9
    assert high <= bottom + span + 1e-9
    assert bottom / BOX[1] == pytest.approx(round(bottom / BOX[1]))


@pytest.mark.parametrize(("name", "paper"), [("signal beat", True), ("signal one lead", True), ("signal long", False)])
def test_ecg_paper_has_square_boxes_where_they_fit(name: str, paper: bool) -> None:
    figure = picture_of(name)
    figure.canvas.draw()
    assert ("large box 0.2 s × 0.5 mV (paper of 25 mm/s, 10 mm/mV)" in texts(figure)) == paper
    (after, *_) = gids(figure, "after")
    ax = after.axes
    assert ax is not None
    (x0, y0), (x1, y1) = ax.transData.transform([(0, 0), (0.2, 0.5)])
    assert (abs((x1 - x0) / (y1 - y0) - 1) < 0.02) == paper


def test_channels_that_changed_most_are_shown() -> None:
    result = result_of("signal many channels")
    figure = picture_of("signal many channels")
    assert len(gids(figure, "after")) == 16
    change = (result.perturbed[0] - result.original[0]).abs().sum(1)
    assert f"channel {int(change.argmax()) + 1}\n" in texts(figure)
    assert "the 16 of 40 channels that changed most" in header(figure)


@pytest.mark.parametrize("name", ["signal beat", "image photo", "image digits", "video"])
def test_titles_contain_the_facts(name: str) -> None:
    result = result_of(name)
    said, i = header(picture_of(name)), 0
    names = result.setting.classes or tuple(f"class {k}" for k in range(result.before.shape[1]))
    before, after = int(result.before[i].argmax()), int(result.after[i].argmax())
    assert result.ids[i] in said
    assert f"true: {names[int(result.labels[i])]}" in said
    first, second = float(result.before[i, before]), float(result.after[i, after])
    assert f"predicted {names[before]} {first:.2f} → {names[after]} {second:.2f}" in said
    search, cleanup, verify = result.queries[i, :3].tolist()
    phases = f"({search} search, {cleanup} cleanup, {verify} verify)"
    assert f"{search + cleanup + verify} queries {phases}" in said
    unit = " mV" if result.setting.unit else ""
    assert f"L2 {float(result.final['l2'][i]):.3g}{unit} ({float(result.flip['l2'][i]):.3g} at the flip" in said
    assert f"{int((result.assignment[i] != 0).sum())} of {len(result.setting.grid)} patches" in said
    assert "flipped" in said


def test_bounded_distances_name_their_range() -> None:
    """Bounded data is scaled to [0, 1], whatever its unit."""
    result = make_result(replace(CASES["signal bounded"], unit="mV"))
    assert "values in [0, 1]" in header(draw_sample(result, 0))
    assert "L2, median" in texts(draw_overview(result))


def test_several_labels_are_all_named() -> None:
    result = result_of("image multilabel")
    labels = torch.zeros_like(result.labels)
    labels[0, 1] = labels[0, 3] = 1
    before = torch.full_like(result.before, 0.1)
    before[0, 1], before[0, 3] = 0.9, 0.8
    figure = draw_sample(replace(result, labels=labels, before=before, after=torch.full_like(before, 0.2)), 0)
    assert "true: dog + ship" in header(figure)
    assert "predicted dog + ship → nothing" in header(figure)
    assert {"dog ✓", "ship ✓", "cat"} <= set(texts(figure).split("\n"))


def test_untouched_signal_has_infinite_ratio_and_no_span() -> None:
    result = make_result(replace(CASES["signal beat"], n=1, status=(Status.SKIPPED,)))
    assert math.isinf(float(result.final["snr_db"][0]))
    figure = draw_sample(result, 0)
    assert "SNR ∞ dB" in header(figure)
    assert "skipped because already wrong" in header(figure)
    assert not gids(figure, "patch-")


def test_nan_predictions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = make_result(replace(SMALL, n=1, status=(Status.FAILED,)))
    figure = draw_sample(replace(result, after=torch.full_like(result.after, math.nan)), 0)
    assert "→ NaN" in header(figure)
    assert_legible(figure, monkeypatch)


def test_foreign_and_long_texts_are_shown_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = ("$x_{1}$ and $", "漢字", "W" * 90, "line\nbreak")
    recipe = replace(SMALL, classes=classes, ids=tuple(f"数/{i}/" + "long id " * 40 for i in range(8)))
    figure = draw_sample(make_result(recipe), 0)
    assert "$x_{1}$ and $ ✓" in texts(figure).replace("\n", " ")
    assert "??" in texts(figure)
    assert_legible(figure, monkeypatch)
    assert_legible(draw_overview(make_result(recipe)), monkeypatch)


def test_difference_is_signed_and_magnified_by_a_round_factor() -> None:
    change = np.zeros((1, 2, 2), dtype=np.float32)
    change[0, 0, 0], change[0, 1, 1] = 0.03, -0.04
    shown, factor = magnify(change)
    assert factor == 20
    np.testing.assert_allclose(shown[..., 0], [[0.8, 0.5], [0.5, 0.1]], atol=1e-6)
    assert "difference × " in texts(draw_sample(make_result(SMALL), 0))


def test_channels_become_colours() -> None:
    rgb = np.random.default_rng(0).random((3, 4, 5), dtype=np.float32)
    np.testing.assert_array_equal(to_colours(rgb), rgb.transpose(1, 2, 0))
    two = rgb[:2]
    np.testing.assert_allclose(to_colours(two)[..., 1], two.mean(0))
    assert "mean of 2 channels" in texts(picture_of("image two channels"))


def test_the_overview_counts_samples_by_status() -> None:
    result = result_of("image digits")
    figure, s = overview_of("image digits"), result.summary()
    said = texts(figure)
    assert f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples flipped" in header(figure)
    assert f"the search stopped at {s['median_queries']:g} of" in header(figure)
    for status in (Status.SUCCEEDED, Status.SPENT, Status.SKIPPED):
        assert f"{result.status.count(status)} {status.label}" in header(figure)
    assert {"Where", "Flipped by true class", *result.setting.palette} <= set(said.split("\n"))
    for name, held in class_members(result):
        assert f"{int((held & result.succeeded).sum())} of {int((held & result.attacked).sum())}" in said, name


def test_the_anytime_curve_shows_the_result() -> None:
    result, figure = result_of("image digits"), overview_of("image digits")
    share, distance = (ax for ax in figure.axes if "by queries" in ax.get_title("left"))
    attacked = result.attacked
    for ax, of in (
        (share, lambda best: float(best.isfinite().double().mean())),
        (distance, lambda best: float(np.median(best.double()))),
    ):
        queries, values = (np.asarray(v, float) for v in ax.lines[0].get_data())
        assert (queries[0], queries[-1]) == (1, result.setting.budget)
        assert values.tolist() == pytest.approx([of(result.best_within(int(q))[attacked]) for q in queries])
    lowest, highest = distance.get_ylim()
    assert lowest < result.summary()["median_within_200"] < highest < 1e12  # infinite medians are above the axis


def test_pictures_are_written(tmp_path: Path) -> None:
    result = make_result(SMALL)
    written = save_pictures(result, tmp_path / "new" / "folder", limit=2)
    assert len(written) == 3
    assert written[0].name == "overview.png"
    assert sorted(written) == sorted((tmp_path / "new" / "folder").iterdir())
    for path in written:
        with Image.open(path) as picture:
            picture.load()
            assert 900 <= picture.width <= 1900
            assert 400 <= picture.height <= 1600


def test_unsafe_ids_give_safe_names(tmp_path: Path) -> None:
    ids = ("../../etc/passwd", "a:b*c?.png", "日本", "x" * 300, "..", "con", "a/b", "a:b")
    result = make_result(replace(SMALL, ids=ids))
    stems = [file_stem(result, i) for i in range(8)]
    assert len(set(stems)) == 8
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") and len(stem) < 90 for stem in stems)
    written = save_pictures(result.where(torch.tensor([0])), tmp_path, limit=1)
    assert written[1:] == [tmp_path / "sample-00000-etc-passwd.png"]
    assert written[1].exists()


def test_telling_samples_are_chosen() -> None:
    won, spent, skipped = Status.SUCCEEDED, Status.SPENT, Status.SKIPPED
    status = (won, won, won, won, won, spent, skipped, spent)
    result = make_result(replace(SMALL, k=2, status=status))  # classes 0 1 0 1 0 1 0 1, read as the other one
    result = replace(result, final={**result.final, "l2": torch.tensor([9.0, 5.0, 2.0, 1.0, 1.5, 0.0, 0.0, 0.0])})
    assert choose(result, 6) == [3, 4, 2, 1, 0]  # the easiest of both classes, then the others
    assert choose(result, 1) == [3]
    assert choose(result, 0) == []
    without_flips = make_result(replace(SMALL, n=3, status=(skipped, Status.FAILED, spent)))
    assert choose(without_flips, 6) == [2, 1, 0]


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    result = make_result(SMALL)
    with pytest.raises(OptionError):
        draw_sample(result, 8)
    with pytest.raises(OptionError):
        save_pictures(result, tmp_path, limit=-1)
    assert list(tmp_path.iterdir()) == []


def test_the_settings_of_matplotlib_do_not_change() -> None:
    before = dict(matplotlib.rcParams)
    draw_overview(make_result(SMALL))
    draw_sample(make_result(SMALL), 0)
    assert dict(matplotlib.rcParams) == before
    assert not any("pyplot" in path.read_text() for path in Path(draw_sample.__code__.co_filename).parent.glob("*.py"))


def test_looks_of_entries_differ() -> None:
    count = len(HUES) * len(HATCHES)
    assert len({(hue(entry), hatch(entry)) for entry in range(1, count + 1)}) == count


def test_text_is_measured_and_broken() -> None:
    assert width_of("mm", 10) == pytest.approx(2 * width_of("m", 10), rel=0.1)
    assert flow(["one", "two"], 8) == ["one  ·  two"]
    lines = flow(["some words " * 20, "end"], 6)
    assert len(lines) > 2
    assert all(width_of(line, 9.5) <= 6 for line in lines)
    assert plain("a" * 100, 21) == "a" * 10 + "…" + "a" * 10
    assert plain("tab\tand\nbreak") == "tab and break"


def test_r_peaks_and_lead_names_are_shown_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of("signal beat")
    setting = replace(result.setting, leads=("MLII", "V5"))
    figure = draw_sample(replace(result, r_peaks=((-10, 90, 270, 365),) * len(result), setting=setting), 0)
    peaks = gids(figure, "r-peaks")
    assert len(peaks) == 2
    for peak in peaks:
        assert list(peak.get_xdata()) == pytest.approx([90 / 360, 270 / 360])  # type: ignore[attr-defined]
    assert {"MLII", "V5", "annotated R peak"} <= set(texts(figure).split("\n"))
    assert_legible(figure, monkeypatch)
    assert "annotated R peak" not in texts(picture_of("signal beat"))


def test_titles_of_signals_give_the_change_in_their_unit() -> None:
    result, said = result_of("signal beat"), header(picture_of("signal beat"))
    change = (result.perturbed[0] - result.original[0]).double()
    rms, share = change.square().mean().sqrt(), result.original[0].double().square().mean().sqrt()
    assert f"largest change {float(change.abs().max()):.2g} mV" in said
    assert f"RMS of the change {float(rms):.2g} mV ({float(rms / share):.0%} of the signal's)" in said
    assert f"SNR {float(result.final['snr_db'][0]):.1f} dB" in said
