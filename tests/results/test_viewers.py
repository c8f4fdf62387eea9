"""Viewers of samples show what is stored, for any rank."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from rlab.data.batch import UNBOUNDED
from rlab.present import viewer as stages
from rlab.present.layers import outline
from rlab.present.viewer import Viewer, spread
from rlab.results.result import Status
from rlab.results.sample import Sample
from rlab.results.viewers import make_viewer
from tests.results.plots.fixtures import Recipe, make_result

WON = (Status.SUCCEEDED,)
IMAGE = Recipe((16, 24), (4, 4), 3, n=2, status=WON)
CLIP = Recipe((6, 16, 24), (2, 8, 8), 3, n=2, status=WON)
BEAT = Recipe((256,), (16,), 2, n=2, status=WON, unit="mV", rate=250.0, bounds=UNBOUNDED)


def viewer_of(recipe: Recipe, among: int = 1) -> tuple[Viewer, Sample]:
    sample = Sample.of(replace(make_result(recipe), r_peaks=((100,),) * recipe.n), 0)
    return make_viewer(sample, "sample-0", among), sample


def decoded(src: str, mode: str) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(src.partition(",")[2]))).convert(mode))


@pytest.mark.parametrize("recipe", [IMAGE, CLIP])
def test_original_and_layer_give_the_stored_input(recipe: Recipe) -> None:
    viewer, sample = viewer_of(recipe)
    x0, x = (
        (v.reshape(3, -1, 24).numpy().transpose(1, 2, 0) * 255).round() for v in (sample.x, sample.perturbed)
    )  # frames in a strip
    before, layer = decoded(viewer.stage.before, "RGB"), decoded(viewer.stage.layer, "RGBA")
    assert (before == x0).all()
    assert (np.where(layer[..., 3:] > 0, layer[..., :3], before) == x).all()
    assert 0 < (layer[..., 3] > 0).mean() < 0.5  # clear where nothing changed


def test_marks_cover_the_distorted_patches() -> None:
    viewer, sample = viewer_of(IMAGE)
    covered = np.zeros((16, 24), dtype=bool)
    for mark in viewer.stage.marks:
        for left, top, wide, high in _boxes(mark.path):
            covered[top : top + high, left : left + wide] = True
    mask = sample.setting.grid.expand(torch.as_tensor(sample.entries != 0)[None])[0].numpy()
    assert (covered == mask).all()


def _boxes(path: str) -> Iterator[tuple[int, ...]]:
    for found in re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-\d+z", path):
        yield tuple(map(int, found))


def test_a_strip_holds_frames_of_the_whole_clip_and_the_one_that_changed_most() -> None:
    timeline = viewer_of(CLIP)[0].stage.timeline
    assert timeline is not None
    assert list(timeline.frames) == list(range(6))
    assert timeline.length == 6
    assert spread(500, 123)[:2] == [0, 16]
    assert spread(500, 123)[-1] == 499
    assert 123 in spread(500, 123)
    assert len(spread(500, 123)) == 33


def test_a_still_of_a_clip_is_its_most_distorted_frame() -> None:
    sample = viewer_of(CLIP)[1]
    stage = make_viewer(sample, "cell", still=True).stage
    assert stage.timeline is None
    assert decoded(stage.before, "RGB").shape == (16, 24, 3)


def test_beats_are_on_paper_with_named_waves() -> None:
    viewer, sample = viewer_of(BEAT)
    stage = viewer.stage
    assert "as on paper of 25 mm/s" in stage.note
    assert re.findall(r">(\w+)</text>", stage.before)[-3:] == ["P", "QRS", "T"]
    assert "var(--paper)" in stage.before
    assert "var(--paper)" not in stage.layer + stage.change
    boxes = [place for mark in stage.marks for place in mark.places]
    assert len(boxes) == 2 * len(sample.touched)
    plain = viewer_of(replace(BEAT, unit="V"))[0].stage
    assert "var(--paper)" not in plain.before
    assert "QRS" not in plain.before


def test_long_signals_keep_their_extremes() -> None:
    long = torch.zeros(1, 1, 20_000)
    long[0, 0, 12_345] = 1.0
    viewer, _ = viewer_of(replace(BEAT, size=(20_000,), patch=(2000,), channels=1, n=1, made=long, share=0.0))
    (line,) = re.findall(r'd="([^"]*)"[^>]*stroke: var\(--c0\)', viewer.stage.before)
    numbers = [float(number) for number in re.findall(r"[\d.]+", line)]
    assert len(numbers) < 8000
    assert max(numbers[1::2]) - min(numbers[1::2]) > 0.5 * viewer.stage.height * 0.5


def test_many_large_pictures_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "PIXELS", 16 * 24 * 2.0)
    monkeypatch.setattr(stages, "LOSSLESS", 100.0)
    stage = viewer_of(IMAGE, among=8)[0].stage
    assert decoded(stage.before, "RGB").shape == (8, 12, 3)
    assert stage.before.startswith("data:image/jpeg")
    assert (stage.width, stage.height) == (24, 16)  # marks stay in the input's own pixels


def test_an_outline_follows_every_edge_of_a_mask() -> None:
    mask = np.zeros((4, 5), bool)
    mask[1:3, 2:4] = True
    assert outline(mask) == [(2, 1, 2, 0), (2, 3, 2, 0), (2, 1, 0, 2), (4, 1, 0, 2)]
    assert outline(np.ones((2, 3), bool)) == [(0, 0, 3, 0), (0, 2, 3, 0), (0, 0, 0, 2), (3, 0, 0, 2)]
    assert outline(np.zeros((2, 3), bool)) == []
