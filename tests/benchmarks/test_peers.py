"""The peers' page: figures of planted curves by hand, and rows whose names cannot be taken for each other's."""

from __future__ import annotations

import math
import re

import pytest

from benchmarks.attacks import SURROGATES, flipped, median
from benchmarks.peers import run as peers
from benchmarks.peers.cases import (
    CASES,
    CLIP_SURROGATES,
    FREE_CIFAR,
    INSIDE_CIFAR,
    OURS,
    OURS_ALONE,
    OURS_INSIDE,
    PHOTO_SURROGATES,
)  # fmt: skip
from benchmarks.raw import Curves
from rlab.comparison import NAMES
from rlab.core.trace import Improvements

FAR: Improvements = ((1, 2.0), (4, 1.0))  # of an image: 2 with the first query, 1 with the fourth
NEVER: Improvements = ()


def test_figures_of_planted_curves_by_hand() -> None:
    near: Curves = (((1, 0.5), (3, 0.25)),) * 3
    far: Curves = (FAR,) * 3
    free: dict[str, list[Curves]] = {OURS: [near], "gfcs": [(FAR, FAR, NEVER)], OURS_ALONE: [near], "square_min": [far]}
    inside: dict[str, list[Curves]] = {OURS_INSIDE: [near], "gfcs+palette": [far]}
    inside |= {"bases+palette": [(((1, 0.5),),) * 3]}
    targeted = {"auto targeted": [near], "square targeted": [far]}
    assert peers.keyed(free, inside, targeted) == {
        "vgg_l2_at_3": 0.25, "vgg_gfcs_l2_at_4": 1.0, "vgg_ratio_gfcs_20": 0.25, "vgg_success_5": 1.0,
        "noprior_ratio_square_500": 0.25, "palette_ratio_best_peer_20": 0.5, "targeted_ratio_square_50": 0.25,
    }  # fmt: skip
    assert flipped(free["gfcs"], 5).value == pytest.approx(2 / 3)
    assert math.isinf(median([(NEVER, NEVER, FAR)], 500).value)
    assert all(math.isnan(value) for value in peers.keyed({}, {}, {}).values())


def test_a_section_names_the_best_peer_and_where_there_is_no_difference() -> None:
    rows = [row for row in FREE_CIFAR if row.name in (OURS, "gfcs", "bases@1")]
    same: dict[str, list[Curves]] = {OURS: [(FAR,) * 3], "gfcs": [(FAR,) * 3], "bases@1": [(NEVER,) * 3]}
    text = peers.section("VGG", rows, same, 500)
    assert "1 [1, 1] no difference, gfcs" in text
    assert "surrogates' gradients" in text


def test_rows_have_names_of_their_own_and_know_their_attacks() -> None:
    rows = [*FREE_CIFAR, *INSIDE_CIFAR]
    assert len({row.file("vgg", 0) for row in rows}) == len(rows)
    known = {re.split("[@ ]", row.name)[0] for row in rows} & NAMES.keys()
    assert known == NAMES.keys()  # every attack from a paper has its row
    assert not set(CASES) & {*SURROGATES, *CLIP_SURROGATES, *(f"lite{number}" for number in PHOTO_SURROGATES)}
