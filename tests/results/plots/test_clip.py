"""Films: what each frame shows, as mp4 and as GIF."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from rlab.present.style import hue
from rlab.results.kept import HeldInputs
from rlab.results.plots import choose, draw_sample, save_pictures, sheets
from rlab.results.plots.moving import GAP, can_encode, clip_facts, write_gif
from rlab.results.plots.sample import Sample
from rlab.results.result import AttackResult, Status
from tests.results.plots.fixtures import Recipe, make_result

CLIP = Recipe((6, 16, 24), (2, 8, 8), 3, n=4, share=0.2)
TIMES = 11  # how much larger the 24 pixels are drawn
WIDE, HIGH = 24 * TIMES, 16 * TIMES


def still() -> AttackResult:
    """A grey clip with the upper left patch of frames 0 and 1 distorted by the first entry."""
    result = make_result(replace(CLIP, n=1, share=0.0, status=(Status.SUCCEEDED,)))
    grey = torch.full_like(result.original, 0.5)
    return replace(result, inputs=HeldInputs(grey, grey))


def panels(sheet: Image.Image) -> list[NDArray[np.int64]]:
    """Return the three pictures (h, w, 3) of a sheet."""
    pixels = np.asarray(sheet.convert("RGB")).astype(int)
    return [pixels[:HIGH, left : left + WIDE] for left in range(0, 3 * (WIDE + GAP), WIDE + GAP)]


def near(pixels: NDArray[np.int64], entry: int = 1) -> NDArray[np.bool_]:
    colour = np.array([int(hue(entry)[at : at + 2], 16) for at in (1, 3, 5)])
    found: NDArray[np.bool_] = (np.abs(pixels - colour) <= 8).all(-1)
    return found


def test_regions_are_outlined_only_in_their_frames() -> None:
    shown = list(sheets(Sample.of(still(), 0)))
    assert len(shown) == 6
    assert len({sheet.size for sheet in shown}) == 1
    assert all(side % 2 == 0 for side in shown[0].size)
    for frame, sheet in enumerate(shown):
        original, perturbed, where = panels(sheet)
        assert not near(original).any()
        for outlined in (perturbed, where):
            marked = near(outlined)
            assert marked.any() == (frame < 2)
            assert not marked[8 * TIMES :].any()
            assert not marked[:, 8 * TIMES :].any()
        filled = np.abs(where[4 * TIMES, 4 * TIMES] - where[12 * TIMES, 12 * TIMES]).max()
        assert (filled > 20) == (frame < 2)
        assert np.abs(perturbed[4 * TIMES, 4 * TIMES] - 128).max() <= 2  # the perturbed clip itself is left as it is


def test_the_timeline_marks_the_frame() -> None:
    shown = list(sheets(Sample.of(still(), 0)))
    r_peaks = []
    for sheet in shown:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
        foot = pixels[-34:]
        touched = np.flatnonzero(near(foot).any(0))
        assert touched.min() == 0
        assert touched.max() == pytest.approx(sheet.width / 3, abs=4)  # 2 of 6 frames
        blue = np.flatnonzero((np.abs(foot - (0, 0x72, 0xB2)) <= 4).all(-1).any(0))
        r_peaks.append(float(blue.mean()) / sheet.width)
    assert r_peaks == pytest.approx([(frame + 0.5) / 6 for frame in range(6)], abs=0.01)


def test_facts_of_a_clip() -> None:
    result = make_result(replace(CLIP, n=1, share=0.0, status=(Status.SUCCEEDED,)))
    l2, size, linf, frames = clip_facts(Sample.of(result, 0))
    change = (result.perturbed[0] - result.original[0]).double()
    assert l2 == f"L2 {float(change.norm()):.3g}"
    assert size == f"MAP {float(change.abs().mean()):.3g}"
    assert linf == f"Linf {float(change.abs().max()):.3g}"
    assert frames == "2 of 6 frames"
    (first, *_) = [ax for ax in draw_sample(result, 0).axes if ax.get_gid() == "header"]
    said = " ".join(text.get_text() for text in first.texts)
    assert size in said
    assert frames in said
    assert said.count("L2") == 1


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty pictures beside the film, which other tests look at."""
    for name in ("draw_overview", "draw_sample"):
        monkeypatch.setattr(f"rlab.results.plots.save.{name}", lambda *given: Figure())


@pytest.mark.usefixtures("undrawn")
def test_clips_are_also_written_as_films(tmp_path: Path) -> None:
    assert can_encode()
    result = make_result(replace(CLIP, rate=12.5))
    written = save_pictures(result, tmp_path, limit=1)
    assert [path.suffix for path in written] == [".png", ".png", ".mp4"]
    with av.open(str(written[-1])) as film:
        stream = film.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.average_rate == 12.5
        assert stream.codec_context.pix_fmt == "yuv420p"  # what browsers play
        decoded = [frame.to_ndarray(format="rgb24").astype(int) for frame in film.decode(video=0)]
    for sheet, frame in zip(sheets(Sample.of(result, choose(result, 1)[0])), decoded, strict=True):
        assert np.abs(np.asarray(sheet).astype(int) - frame).mean() < 6


@pytest.mark.usefixtures("undrawn")
def test_without_an_encoder_the_film_is_a_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlab.results.plots.save.can_encode", lambda: False)
    recipe = replace(CLIP, made=torch.full((4, 3, 6, 16, 24), 0.5), rate=12.5)  # frames alike: none may be merged
    result = make_result(recipe)
    written = save_pictures(result, tmp_path, limit=1)
    assert [path.suffix for path in written] == [".png", ".png", ".gif"]
    with Image.open(written[-1]) as film:
        assert film.n_frames == 6  # type: ignore[attr-defined]
        assert film.width == 3 * WIDE + 2 * GAP
        for frame in range(6):
            film.seek(frame)
            assert film.info["duration"] == 80
            assert film.info["loop"] == 0
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "av", None)
    assert not can_encode()


def test_a_gif_shows_the_same(tmp_path: Path) -> None:
    write_gif(Sample.of(still(), 0), tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        for frame, outlined in ((0, True), (1, True), (2, False)):
            film.seek(frame)
            original, perturbed, _ = panels(film.convert("RGB"))
            assert not near(original).any()
            assert near(perturbed).any() == outlined


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 700, 40), (2, 5, 600), (40, 17, 23)])
def test_any_size_of_clip_is_drawn(size: tuple[int, ...]) -> None:
    patch = tuple(min(side, 4) for side in size)
    shown = list(sheets(Sample.of(make_result(Recipe(size, patch, 1, n=1, status=(Status.SKIPPED,))), 0)))
    assert len(shown) == size[0]
    assert len({sheet.size for sheet in shown}) == 1
    assert all(side % 2 == 0 for side in shown[0].size)
