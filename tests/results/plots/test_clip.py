"""Contact sheets of clips."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from rlab.results.plots import draw_sample
from rlab.results.plots.clip import clip_facts
from rlab.results.plots.sample import Sample
from rlab.results.result import Status
from tests.results.plots.fixtures import Recipe, make_result

CLIP = Recipe((6, 16, 24), (2, 8, 8), 3, n=4, share=0.2)


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


@pytest.mark.parametrize("size", [(1, 8, 8), (3, 700, 40), (2, 5, 600), (40, 17, 23)])
def test_any_size_of_clip_is_drawn(size: tuple[int, ...]) -> None:
    patch = tuple(min(side, 4) for side in size)
    figure = draw_sample(make_result(Recipe(size, patch, 1, n=1, status=(Status.SKIPPED,))), 0)
    assert isinstance(figure, Figure)
