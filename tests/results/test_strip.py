"""The first screen of a run's page: its title, and the most telling flips as original, difference and perturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.data.batch import UNBOUNDED
from rlab.present.page import Picture, Strip, render
from rlab.results.charts import place_panels
from rlab.results.kept import HeldInputs
from rlab.results.page import attack_page
from rlab.results.pictures import SHOWN, telling
from rlab.results.result import Status
from rlab.results.titles import title_of
from tests.results.plots.fixtures import Recipe, make_result

RECIPES = {
    "signal": Recipe((256,), (16,), 2, n=12, unit="mV", rate=250.0, bounds=UNBOUNDED),
    "image": Recipe((16, 24), (4, 4), 3, n=18),
    "clip": Recipe((6, 16, 24), (2, 8, 8), 3, n=8),
}


@pytest.mark.parametrize(
    ("model", "data", "size", "title"),
    [
        ("demo:digits", "demo:digits", (8, 8), "digits CNN: 12 handwritten digits"),
        ("timm:resnet18", "sets/photos", (224, 224), "resnet18: 12 images from photos"),
        ("my_module:net", "beats.npz", (256,), "my_module:net: 12 signals from beats.npz"),
        ("nets/small.onnx", "clips", (8, 32, 32), "small.onnx: 12 clips from clips"),
        ("https://user:word@models.example/v1?key=1", "photos", (8, 8), "models.example: 12 images from photos"),
        ("", "", (8, 8), "Attack: 12 images"),
    ],
)
def test_the_title_names_model_and_data(
    model: str, data: str, size: tuple[int, ...], title: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {{name: '{model}'}}\ndata: {{path: '{data}'}}\n")
    assert title_of(config, 12, size) == title


@pytest.mark.parametrize("kind", RECIPES)
def test_the_page_opens_with_six_flips(kind: str) -> None:
    result = make_result(RECIPES[kind])
    page = attack_page(result, samples=1)
    (strip,) = [block for block in page.sections[0].blocks if isinstance(block, Strip)]
    assert page.sections[0].blocks[0] is strip
    assert len(strip.triples) == min(SHOWN, int(result.succeeded.sum()))
    for triple in strip.triples:
        before, change, after = triple.pictures
        assert len({before.src, change.src, after.src}) == 3
        assert before.size == change.size == after.size
        assert triple.read in after.about
        assert {triple.label, triple.read} <= set(result.setting.classes)
    text = render(page)
    assert all(f'id="{triple.link}"' in text for triple in strip.triples if triple.link)


def test_the_flips_shown_first_differ_in_their_confusion() -> None:
    result = make_result(Recipe((16, 24), (4, 4), 3, n=40, status=(Status.SUCCEEDED,)))
    pairs = [(int(result.labels[i]), int(result.after[i].argmax())) for i in telling(result, len(result))]
    several = len(set(pairs))
    assert several > 1
    assert len(set(pairs[:several])) == several
    l2 = result.final["l2"].numpy()
    nearest = telling(result, len(result))[0]
    assert l2[nearest] == np.min(l2)


def test_a_run_without_flips_has_no_strip() -> None:
    result = make_result(Recipe((16, 24), (4, 4), 3, n=4, status=(Status.SPENT,)))
    assert not any(isinstance(block, Strip) for block in attack_page(result).sections[0].blocks)


@pytest.mark.parametrize(
    ("kind", "often"), [("image", "% of flipped samples"), ("clip", "patches of a flipped sample")]
)
def test_the_map_of_places_has_a_legend_and_lies_over_the_inputs(kind: str, often: str) -> None:
    dark = make_result(RECIPES[kind])
    bright = replace(dark, inputs=HeldInputs(torch.ones_like(dark.original), dark.perturbed))
    over_dark, over_bright = (place_panels(result)[0] for result in (dark, bright))
    assert isinstance(over_dark, Picture)
    assert isinstance(over_bright, Picture)
    assert over_dark.ramp is not None
    assert often in over_dark.ramp.high
    assert over_dark.src != over_bright.src
