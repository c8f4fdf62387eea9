"""The peers' page: figures of planted curves by hand, and rows whose names cannot be taken for each other's."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from benchmarks.attacks import SURROGATES, flipped, median, tails
from benchmarks.labels import cases as labels
from benchmarks.peers import run as peers
from benchmarks.peers.attacks import STRENGTHS
from benchmarks.peers.cases import (
    CASES,
    CLIP_SURROGATES,
    FREE_CIFAR,
    FREE_PHOTOS,
    OURS,
    OURS_ALONE,
    OURS_INSIDE,
    PHOTO_SURROGATES,
    TABLES,
)  # fmt: skip
from benchmarks.raw import Curves, Origin, Raw, Store, from_curves
from rlab.core.trace import Improvements

FAR: Improvements = ((1, 2.0), (4, 1.0))  # of an image: 2 with the first query, 1 with the fourth
NEVER: Improvements = ()


def test_figures_of_planted_curves_by_hand() -> None:
    near: Curves = (((1, 0.5), (3, 0.25)),) * 3
    far: Curves = (FAR,) * 3
    free: dict[str, list[Curves]] = {OURS: [near], "gfcs": [(FAR, FAR, NEVER)]}
    alone: dict[str, list[Curves]] = {OURS_ALONE: [near], "square_min": [far]}
    inside: dict[str, list[Curves]] = {OURS_INSIDE: [near], "gfcs+palette": [far]}
    inside |= {"bases+palette": [(((1, 0.5),),) * 3]}
    targeted = {"auto targeted": [near], "square targeted": [far]}
    photos: dict[str, list[Curves]] = {OURS: [near], "pbo@7": [far], OURS_ALONE: [near]}
    clips: dict[str, list[Curves]] = {OURS: [near], "vbad@2": [far], "geo_trap@5": [(NEVER,) * 3]}
    assert peers.keyed(free, alone, inside, targeted, photos=photos, clips=clips) == {
        "vgg_l2_at_3": 0.25, "vgg_gfcs_l2_at_4": 1.0, "vgg_ratio_gfcs_20": 0.25, "vgg_success_5": 1.0,
        "noprior_ratio_square_500": 0.25, "palette_ratio_best_peer_20": 0.5, "targeted_ratio_square_50": 0.25,
        "photos_ratio_20": 0.25, "clips_ratio_50": 0.25,
    }  # fmt: skip
    assert flipped(free["gfcs"], 5).value == pytest.approx(2 / 3)
    assert math.isinf(median([(NEVER, NEVER, FAR)], 500).value)
    assert all(math.isnan(value) for value in peers.keyed({}, {}, {}, {}, photos={}, clips={}).values())


def test_a_section_names_the_best_peer_and_where_there_is_no_difference() -> None:
    rows = [row for row in FREE_CIFAR if row.name in (OURS, "gfcs", "bases@1")]
    same: dict[str, list[Curves]] = {OURS: [(FAR,) * 3], "gfcs": [(FAR,) * 3], "bases@1": [(NEVER,) * 3]}
    text = peers.section("VGG", rows, same, 500)
    assert "1 [1, 1] no difference, gfcs" in text
    assert "surrogates' gradients" in text


def test_tails_count_samples_without_a_flip_except_in_means() -> None:
    far: Curves = (*(((q, 10.0 * q),) for q in range(1, 20)), NEVER)
    *_, row = tails({"gfcs": [far]}, 100).splitlines()
    assert row == "| gfcs | 95.0% | 10.5 | 10 | inf | 105 | 100 | inf |"
    *_, row = tails({"gfcs": [far]}, 5).splitlines()
    assert row == "| gfcs | 25.0% | inf | 3 | inf | inf | 30 | inf |"


def test_rows_have_names_of_their_own_and_know_their_attacks() -> None:
    tables = {victim: TABLES[victim] for victim in CASES}
    held = {victim: [row for rows in tables[victim].values() for row in rows] for victim in CASES}
    for victim, rows in held.items():
        assert len({row.file(victim, 0) for row in rows}) == len(rows)
    known = {re.split("[@ ,]", row.name)[0] for rows in held.values() for row in rows}
    known |= set(labels.ROWS)
    assert known >= STRENGTHS.keys()  # every attack from a paper has its row
    assert not set(CASES) & {*SURROGATES, *CLIP_SURROGATES}
    assert not any(victim in surrogates for victim, surrogates in PHOTO_SURROGATES.items())
    assert all(len({row.budget for row in rows}) == 1 for each in tables.values() for rows in each.values())


def test_parts_are_joined_from_the_first_and_seeds_with_fewer_samples_are_left_out(tmp_path: Path) -> None:
    store, row = Store(tmp_path), FREE_PHOTOS[2]
    for seed, part, far in ((0, 0, 1.0), (0, 1, 2.0), (0, 3, 4.0), (1, 0, 5.0)):
        store.write(row.file("mobilenet", seed, part), Raw(from_curves((((1, far),),))), Origin())
    assert peers.kept(store, FREE_PHOTOS, "mobilenet") == {row.name: [(((1, 1.0),), ((1, 2.0),))]}
    store.write(FREE_PHOTOS[0].file("mobilenet", 0), Raw(from_curves((((1, 3.0),),))), Origin())  # one part alone
    both = {FREE_PHOTOS[0].name: [(((1, 3.0),),)], row.name: [(((1, 1.0),),)]}
    assert peers.kept(store, FREE_PHOTOS, "mobilenet") == both
    (section,) = peers.paper_section(store)
    assert "pixels + surrogates | 1 of 1 | 3 | 3 | 3 |" in section
    assert "2.48" in section
