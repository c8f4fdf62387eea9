"""Options of hardening: percentages, defaults from the attack, and one attack per file."""

from __future__ import annotations

from typing import Any

import pytest

from rlab.errors import InputError
from rlab.hardening.adversaries import GradientAdversary, PolicyAdversary
from rlab.hardening.baselines import ProjectedGradient
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.trainable import goal_of
from rlab.runs.options import RunOptions
from rlab.storage.config import Options, check
from tests.hardening.toys import PALETTE, shortcut


def test_clean_accuracy_can_be_a_percentage() -> None:
    assert check(HardenOptions, {"max_clean_drop": "1%"}).max_clean_drop == 0.01
    assert check(HardenOptions, {"max_clean_drop": "0.5 %"}).max_clean_drop == 0.005


def test_one_file_is_one_attack_here_and_elsewhere() -> None:
    """A section 'harden' does not change the attack that measures before and after."""
    batch = shortcut(2, n=4).batch
    values = {"model": "demo:digits", "data": "demo:digits", "palette": PALETTE, "patch": 2, "budget": 70, "seed": 3}
    run = check(
        HardenRunOptions, values | {"l2_penalty": 0.2, "harden": {"adversary": "random", "adversary_budget": 12}}
    )
    assert run.build(batch) == check(RunOptions, values | {"l2_penalty": 0.2}).build(batch)
    assert run.evaluation_options().attack.build(batch) == run.build(batch)


def test_palette_patch_and_seed_default_to_those_of_the_attack() -> None:
    values = {"model": "m", "data": "d", "palette": PALETTE, "patch": [2, 2], "seed": 3}
    run = check(HardenRunOptions, values)
    section = run.harden.following(run)
    assert (section.palettes, section.patches, section.seed) == ((tuple(PALETTE),), ((2, 2),), 3)
    own = check(HardenOptions, {"patches": [1], "seed": 5}).following(run)
    assert (own.palettes, own.patches, own.seed) == ((tuple(PALETTE),), (1,), 5)


def test_the_generator_of_samples() -> None:
    toy = shortcut(1, n=4)
    goal = goal_of(toy.victim)
    assert isinstance(check(HardenOptions, {"adversary": "gradient"}).generator(toy.batch, goal), GradientAdversary)
    assert isinstance(check(HardenOptions, {"adversary": "random"}).generator(toy.batch, goal), PolicyAdversary)
    own = ProjectedGradient(toy.batch.bounds, goal, 0.1)
    options = check(HardenOptions, {"adversary": own})
    assert options.generator(toy.batch, goal) is own
    assert "radius=0.1" in options.plain()["adversary"]


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        *((HardenOptions, {"max_clean_drop": wrong}, "max_clean_drop") for wrong in ("one%", "-1%", "200%", "%")),
        (HardenOptions, {"adversary": 3}, "adversary"),
        (HardenOptions, {"step": "my_step"}, "step"),
        (
            HardenRunOptions,
            {"model": "m", "data": "d", "evaluation": {"attack": {"budget": 3}}},
            "declare the attack once",
        ),
    ],
)
def test_invalid_options_are_named(kind: type[Options], values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check(kind, values)
