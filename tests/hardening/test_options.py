"""Options of hardening: percentages, defaults from the attack, and one attack per file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import InputError
from rlab.filters.base import snr_db
from rlab.hardening.adversaries import GradientAdversary, PolicyAdversary
from rlab.hardening.baselines import ProjectedGradient
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.trainable import goal_of
from rlab.runs.options import RunOptions
from rlab.storage.config import Options, check
from tests.hardening.toys import PALETTE, shortcut
from tests.noise import write_noise


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


def test_a_method_sets_the_generator_and_the_loss() -> None:
    toy = shortcut(1, n=4)
    goal = goal_of(toy.victim)
    pgd = check(HardenOptions, {"method": "pgd_l2@0.5"})
    ball = pgd.generator(toy.batch, goal)
    assert isinstance(ball, ProjectedGradient)
    assert (ball.radius, ball.norm, ball.steps, ball.random_start) == (0.5, "l2", 5, True)
    assert (pgd.views, pgd.consistency_weight) == (1, 0.0)
    assert check(HardenOptions, {"method": "ours"}).generator(toy.batch, goal) == (
        check(HardenOptions, {}).generator(toy.batch, goal)
    )
    augmix = check(HardenOptions, {"method": "augmix", "consistency_weight": 3.0})
    assert (augmix.views, augmix.distorted_weight, augmix.consistency, augmix.consistency_weight) == (
        2,
        0.0,
        "jsd",
        3.0,
    )
    trades = check(HardenOptions, {"method": "trades"}).generator(toy.batch, goal)
    assert isinstance(trades, GradientAdversary)
    assert trades.from_clean


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        *((HardenOptions, {"max_clean_drop": wrong}, "max_clean_drop") for wrong in ("one%", "-1%", "200%", "%")),
        (HardenOptions, {"adversary": 3}, "adversary"),
        (HardenOptions, {"method": "magic"}, "unknown method 'magic'"),
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


def ecg() -> Batch:
    x = torch.randn(3, 4, 720, generator=torch.Generator().manual_seed(0))
    leads = ("I", "II", "III", "V1")
    return Batch(x, torch.tensor([0, 1, 0]), bounds=UNBOUNDED, unit="mV", rate=360.0, leads=leads)


def test_an_ecg_is_hardened_with_the_clinical_palette_in_millivolts() -> None:
    batch, goal = ecg(), goal_of(shortcut(1, n=4).victim)
    space, named = (check(HardenOptions, values).space(batch, goal) for values in ({}, {"palettes": [["clinical"]]}))
    assert space.palettes == named.palettes
    hum = check(HardenOptions, {"palettes": [["powerline_hum50@0.1..0.4mV"]], "entries": 1}).space(batch, goal)
    peaks = [float((bank[:, 1] - batch.x).abs().max()) for _, bank in (hum.draw(batch.x, seed) for seed in range(8))]
    assert 0.09 < min(peaks) < max(peaks) < 0.41
    assert max(peaks) > 1.2 * min(peaks)  # a range, not one severity


def test_recorded_noise_hardens_at_its_ratio_to_the_signal(tmp_path: Path) -> None:
    batch, goal = ecg(), goal_of(shortcut(1, n=4).victim)
    values = {"palettes": [[f"nstdb:{write_noise(tmp_path)}@12dB"]], "entries": 2}
    _, bank = check(HardenOptions, values).space(batch, goal).draw(batch.x, 0)
    ratios = torch.stack([snr_db(batch.x, bank[:, entry]) for entry in (1, 2)])
    assert torch.allclose(ratios, torch.full((2, 3), 12.0, dtype=ratios.dtype), atol=0.1)
