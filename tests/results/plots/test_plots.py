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
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from rlab.errors import OptionError
from rlab.present.figures import save_drawings
from rlab.present.layers import Layers, to_colours
from rlab.present.sheet import BOX, lay_out
from rlab.present.style import HATCHES, HUES, flow, hatch, hue, plain
from rlab.results.pictures import choose, draw_sample, file_stem
from rlab.results.result import AttackResult, Status
from rlab.results.sample import OTHERS, Sample
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
    return result_of(name).plot()


def gids(figure: Figure, start: str) -> list[Artist]:
    return [artist for artist in figure.findobj(include_self=False) if str(artist.get_gid() or "").startswith(start)]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def header(figure: Figure) -> str:
    (ax,) = gids(figure, "header")
    assert isinstance(ax, Axes)
    return " ".join(" ".join(text.get_text() for text in ax.texts).split())


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
    figure = make_result(SMALL).plot()
    figure.text(0.02, 0.5, "over the edge " * 30)
    with pytest.raises(AssertionError):
        assert_legible(figure, monkeypatch)


@pytest.mark.parametrize("name", CASES)
def test_every_distorted_patch_has_one_mark_in_its_place_and_is_drawn(name: str) -> None:
    result, figure = result_of(name), picture_of(name)
    sample, grid = Sample.of(result, 0), result.setting.grid
    layers = sample.layers
    wanted = []
    for patch, entry in sample.touched:
        *when, last = ((each.start, each.stop - each.start) for each in grid.box(patch))
        look, frames = sample.looks[entry], (when[0][0], sum(when[0]) - 1) if len(when) > 1 else (0, 0)
        assert look.colour in {hue(entry), OTHERS}
        high = when[-1:] or [(lead, 1) for lead in range(len(layers.x))]
        wanted += [(look.name, frames, (last[0], top, last[1], tall)) for top, tall in high]
    assert sorted((mark.name, mark.frames, place) for mark in layers.marks for place in mark.places) == sorted(wanted)
    assert {mark.name for mark in layers.marks} <= {str(one.get_gid()) for one in figure.findobj(PolyCollection)}


def test_long_clips_show_their_distorted_frames() -> None:
    result = make_result(replace(CASES["video long"], n=1, share=0.0, status=(Status.SUCCEEDED,)))
    assert set(result.assignment[0].nonzero().flatten().tolist()) == {0}  # in frames 0..2 of 40 only
    assert Sample.of(result, 0).layers.weight.tolist() == [1] * 3 + [0] * 37
    figure = draw_sample(result, 0)
    assert "1 distorted patches, frame" in " ".join(texts(figure).split())
    assert len([one for one in figure.findobj(PolyCollection) if len(one.get_paths())]) == 1


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 700, 40), (2, 5, 600), (40, 17, 23)])
def test_any_size_of_clip_is_drawn(size: tuple[int, ...]) -> None:
    patch = tuple(min(side, 4) for side in size)
    assert isinstance(draw_sample(make_result(Recipe(size, patch, 1, n=1, status=(Status.SKIPPED,))), 0), Figure)


def test_lines_hold_the_original_and_the_perturbed_input_where_it_changed() -> None:
    result, figure = result_of("signal one lead"), picture_of("signal one lead")
    (after,), (before,) = gids(figure, "after"), gids(figure, "before")
    assert isinstance(after, Line2D)
    assert isinstance(before, Line2D)
    sheet = lay_out(Sample.of(result, 0).layers)
    (cell,) = sheet.cells
    shown = [
        cell.middle - (np.asarray(line.get_ydata()) - cell.top - sheet.high / 2) / sheet.unit
        for line in (before, after)
    ]
    np.testing.assert_allclose(shown[0], result.original[0, 0].numpy(), atol=1e-4)
    changed = (result.perturbed[0, 0] != result.original[0, 0]).numpy()
    np.testing.assert_allclose(shown[1][changed], result.perturbed[0, 0].numpy()[changed], atol=1e-4)
    assert np.isnan(shown[1]).sum() > 3000
    assert float(np.ptp(np.asarray(before.get_xdata()))) / sheet.point == pytest.approx(3599)


@pytest.mark.parametrize("leads", [1, 2, 3, 12])
@pytest.mark.parametrize("rate", [100.0, 500.0])
def test_leads_fit_their_places_and_ecg_paper_has_square_boxes(leads: int, rate: float) -> None:
    time = np.arange(1000) / rate
    x = np.stack([(1 + lead / 4) * np.sin(5 * time) for lead in range(leads)]).astype(np.float32)
    for unit, bounds in (("mV", (-np.inf, np.inf)), ("V", (-3.0, 3.0))):
        sheet = lay_out(Layers(x, bounds, rate=rate, unit=unit))
        assert len(sheet.cells) == leads
        assert ("as on paper of 25 mm/s" in sheet.note) == (unit == "mV")
        if unit == "mV":
            assert BOX[0] * rate * sheet.point == pytest.approx(BOX[1] * sheet.unit)
        for cell in sheet.cells:
            assert abs(x[cell.lead] - cell.middle).max() * sheet.unit <= sheet.high / 2
            assert cell.left + 1000 * sheet.point <= sheet.size[0] + 1e-6
            assert cell.top + sheet.high <= sheet.size[1]


def test_channels_that_changed_most_are_shown() -> None:
    result = result_of("signal many channels")
    figure = picture_of("signal many channels")
    assert len(gids(figure, "after")) == 16
    change = (result.perturbed[0] - result.original[0]).abs().sum(1)
    assert f"channel {int(change.argmax()) + 1}" in texts(figure).split("\n")
    assert "16 of 40 channels" in texts(figure)


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
    assert "L2, median" in texts(result.plot())


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


def test_untouched_signal_has_no_mark() -> None:
    figure = draw_sample(make_result(replace(CASES["signal beat"], n=1, status=(Status.SKIPPED,))), 0)
    assert "skipped because already wrong" in header(figure)
    assert not figure.findobj(PolyCollection)


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
    assert_legible(make_result(recipe).plot(), monkeypatch)


def test_difference_is_signed_and_magnified_by_a_round_factor() -> None:
    x = np.full((1, 2, 2), 0.5, dtype=np.float32)
    after = x.copy()
    after[0, 0, 0], after[0, 1, 1] = 0.53, 0.46
    layers = Layers(x, (0.0, 1.0), after)
    assert layers.factor == 20
    np.testing.assert_allclose(layers.seen("difference")[..., 0], [[0.8, 0.5], [0.5, 0.1]], atol=1e-5)
    assert "difference × " in texts(draw_sample(make_result(SMALL), 0))


def test_channels_become_colours() -> None:
    rgb = np.random.default_rng(0).random((3, 4, 5), dtype=np.float32)
    np.testing.assert_array_equal(to_colours(rgb), rgb.transpose(1, 2, 0))
    two = rgb[:2]
    np.testing.assert_allclose(to_colours(two)[..., 1], two.mean(0))
    assert "mean of 2 channels" in " ".join(texts(picture_of("image two channels")).split())


def test_the_overview_counts_samples_by_status() -> None:
    result = result_of("image digits")
    figure, s = overview_of("image digits"), result.summary()
    said = texts(figure)
    assert f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples flipped" in header(figure)
    assert f"the search stopped at {s['median_queries']:g} of" in header(figure)
    assert {"Where", *result.setting.palette} <= set(said.split("\n"))


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
    written = save_drawings(result.drawings(2), tmp_path / "new" / "folder", "png")
    assert len(written) == 3
    assert written[0].name == "overview.png"
    assert sorted(written) == sorted((tmp_path / "new" / "folder").iterdir())
    for path in written:
        with Image.open(path) as picture:
            picture.load()
            assert 900 <= picture.width <= 1900
            assert 400 <= picture.height <= 1600
    vectors = save_drawings({"overview": result.plot}, tmp_path, "svg", "pdf")
    assert [path.suffix for path in vectors] == [".svg", ".pdf"]
    assert "Flipped by queries" in vectors[0].read_text()


def test_unsafe_ids_give_safe_names(tmp_path: Path) -> None:
    ids = ("../../etc/passwd", "a:b*c?.png", "日本", "x" * 300, "..", "con", "a/b", "a:b")
    result = make_result(replace(SMALL, ids=ids))
    stems = [file_stem(result, i) for i in range(8)]
    assert len(set(stems)) == 8
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") and len(stem) < 90 for stem in stems)
    written = save_drawings(result.where(torch.tensor([0])).drawings(1), tmp_path, "png")
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


def test_invalid_requests_are_refused() -> None:
    with pytest.raises(OptionError):
        draw_sample(make_result(SMALL), 8)


def test_the_settings_of_matplotlib_do_not_change() -> None:
    before = dict(matplotlib.rcParams)
    make_result(SMALL).plot()
    draw_sample(make_result(SMALL), 0)
    assert dict(matplotlib.rcParams) == before
    assert "pyplot" not in Path(draw_sample.__code__.co_filename).read_text()


def test_looks_of_entries_differ() -> None:
    count = len(HUES) * len(HATCHES)
    assert len({(hue(entry), hatch(entry)) for entry in range(1, count + 1)}) == count


def test_text_is_measured_and_broken() -> None:
    assert flow(["one", "two"], 8) == ["one\u00a0\u00a0·  two"]
    lines = flow(["some words " * 20, "end"], 6)
    assert len(lines) > 2
    assert all(len(line) <= 63 for line in lines)
    assert plain("a" * 100, 21) == "a" * 10 + "…" + "a" * 10
    assert plain("tab\tand\nbreak") == "tab and break"


def test_waves_and_lead_names_are_shown_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of("signal beat")
    setting = replace(result.setting, leads=("MLII", "V5"))
    figure = draw_sample(replace(result, r_peaks=((-10, 90, 270),) * len(result), setting=setting), 0)
    assert len(gids(figure, "wave-QRS")) == 2
    assert {"MLII", "V5", "P", "QRS", "T"} <= set(texts(figure).split("\n"))
    assert_legible(figure, monkeypatch)
    assert "QRS" not in texts(picture_of("signal beat"))
