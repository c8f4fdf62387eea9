"""Notebook output is small, self-contained HTML without scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

import rlab
from rlab.data.batch import UNBOUNDED, Batch
from rlab.explanation.explanation import Explanation
from tests.results.plots.fixtures import Recipe, make_result

EVIL = "<script>alert(1)</script>"
RECIPES = {
    1: Recipe((256,), (16,), 2, n=4, unit="mV", rate=250.0, bounds=UNBOUNDED),
    2: Recipe((16, 24), (4, 4), 3, n=4),
    3: Recipe((6, 16, 24), (2, 8, 8), 3, n=4),
}
SIZES = {1: (2, 64), 2: (3, 8, 8), 3: (1, 4, 8, 8)}


class Seen(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.classes: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        self.tags.append(tag)
        self.ids += [held["id"]] if held.get("id") else []  # type: ignore[list-item]
        self.classes += (held.get("class") or "").split()

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: object) -> Seen:
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert len(html) < 400_000
    assert not re.search(r'(src|href)="(?!data:|#)', html)
    seen = Seen(html)
    assert "script" not in seen.tags
    return seen


@pytest.mark.parametrize("rank", RECIPES)
def test_a_result_shows_its_figures_a_curve_and_samples(rank: int) -> None:
    result = replace(make_result(RECIPES[rank]), ids=(EVIL, "b", "c", "d"))
    seen = shown(result)
    assert seen.classes.count("chart") == 2
    assert seen.classes.count("viewer") == 3
    assert "timeline" not in seen.classes
    assert "flipped, verified" in seen.text
    assert not set(seen.ids) & set(shown(result).ids)  # of two cells
    assert seen.ids


@pytest.mark.parametrize("rank", SIZES)
def test_a_batch_and_its_maps_have_notebook_output(rank: int) -> None:
    batch = Batch(
        torch.rand(4, *SIZES[rank]), torch.tensor([0, 1, 1, 0]), classes=(EVIL, "dog"), ids=(EVIL, "1", "2", "3")
    )
    seen = shown(batch)
    assert (seen.classes.count("chart"), seen.tags.count("img")) == ((3, 0) if rank == 1 else (0, 3))
    assert "dog 2" in seen.text
    maps = torch.rand(4, *SIZES[rank][1:])
    explanation = Explanation("rise", maps, maps > 0.5, batch.y, torch.full((4,), 20), "top half", 1.0)
    assert "rise" in shown(explanation).text  # its inputs were not kept, so there is nothing to lay the maps over


def test_comparisons_show_their_tables() -> None:
    batch = rlab.load("demo:digits", limit=2)
    model = rlab.demo_victim("digits")
    compared = shown(rlab.compare(model, batch, policies="random,square", budget=20))
    assert {"table", "svg"} <= set(compared.tags)
    assert "square" in compared.text
    judged = shown(rlab.explain(model, batch, compare=True, method="middle,occlusion", steps=2, checks=False))
    assert "occlusion" in judged.text
    assert judged.classes.count("viewer") == 4
    assert "timeline" not in judged.classes


def test_a_run_without_flips_has_notebook_output() -> None:
    result = make_result(RECIPES[2])
    none = replace(result, status=tuple(rlab.Status.SPENT for _ in result.ids))
    seen = shown(none)
    assert "chart" not in seen.classes
    assert "0%" in seen.text
