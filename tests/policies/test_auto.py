"""What comes with the package, and the policy that picks among it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.policies import auto, parse_policy
from rlab.policies.auto import SMALL, ShippedPrior, card, fitting, is_auto, shipped, shipped_prior
from rlab.policies.belief import Belief
from rlab.priors.base import NoPrior
from rlab.priors.file import save_prior
from rlab.priors.trained import DirectionPrior, TrainedPrior
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from tests.helpers import CHANNELS, PALETTE, PATCHES, RANKS, PlantedVictim, inside, planted

ASSETS = Path(auto.__file__).parents[1] / "assets"
RANK = {"signals": 1, "images": 2}
SHAPE: dict[str, tuple[int, ...]] = {"signals": (1, 200), "images": (3, 32, 32)}
PATCH = {"signals": 8, "images": 4}
MOST_BYTES = 8_000_000
PRIORS = [name for name in shipped() if card(name)["kind"] == "direction prior"]


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another folder of assets, empty at first."""
    folder = tmp_path / "assets"
    folder.mkdir()
    monkeypatch.setattr(auto, "files", lambda package: tmp_path)
    shipped_prior.cache_clear()
    yield folder
    shipped_prior.cache_clear()


def ship(folder: Path, name: str) -> None:
    torch.manual_seed(0)
    prior = DirectionPrior(RANK[name], CHANNELS[RANK[name]], 8, heads=1, levels=1)
    save_prior(prior, folder / f"prior_{name}.safetensors", {"trained": name})


def test_names_come_from_the_files(assets: Path) -> None:
    (assets / "demo_digits.safetensors").touch()
    assert shipped() == {}
    for name in RANK:
        ship(assets, name)
    assert sorted(shipped()) == ["images", "signals"]
    assert card("signals") == {"kind": "direction prior", "trained": "signals"}


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((2, 500), "signals"),
        ((3, SMALL, SMALL), "images"),
        ((3, 20, SMALL + 1), None),
        ((3, SMALL + 1, 20), None),
        ((3, 4, 8, 8), None),
        ((1, 8, 8), None),
        ((12, 500), None),
    ],
)
def test_a_prior_fits_rank_channels_and_longer_side(assets: Path, shape: tuple[int, ...], name: str | None) -> None:
    assert SMALL == 96
    assert fitting(shape) is None
    for each in RANK:
        ship(assets, each)
    assert fitting(shape) == name
    prior = ShippedPrior().suited(shape)
    assert isinstance(prior, NoPrior if name is None else TrainedPrior)
    assert name is None or prior is shipped_prior(name)  # read once


@pytest.mark.parametrize("rank", RANKS)
def test_a_result_says_whom_auto_took(assets: Path, rank: int) -> None:
    ship(assets, "images")
    batch = planted(rank, n=1).batch
    label = make_attack(batch, policy="auto", palette=PALETTE, patch=PATCHES[rank]).label
    assert label == f"auto -> belief with prior {'images' if rank == 2 else 'none'}"


def test_auto_attacks_as_the_belief_with_the_prior_it_stands_for(assets: Path) -> None:
    ship(assets, "images")
    case = planted(2, n=3)
    options: dict[str, Any] = {"palette": PALETTE, "patch": PATCHES[2], "budget": 20}
    file = assets / "prior_images.safetensors"
    results = [
        run_attack(make_attack(case.batch, policy=policy, **options), case.victim, case.batch)
        for policy in ("auto", "belief(prior='trained')", f"belief(prior='{file}')", str(file))
    ]
    assert results[0].setting.policy == "auto -> belief with prior images"
    for result in results[1:]:
        assert torch.equal(results[0].assignment, result.assignment)
        assert torch.equal(results[0].queries, result.queries)
    without = make_attack(case.batch, policy="belief(prior='none')", **options).policy
    assert isinstance(without, Belief)
    assert isinstance(without.prior, NoPrior)


def test_auto_takes_the_options_of_whom_it_stands_for(assets: Path) -> None:
    ship(assets, "images")
    policy = parse_policy("auto(temperature=0.1, rivals=3)")
    assert isinstance(policy, Belief)
    assert is_auto(policy)
    assert (policy.temperature, policy.rivals) == (0.1, 3)
    assert not is_auto(parse_policy("belief(prior='trained')"))
    for wrong in ("most", "network", "name", "prior", "adapt"):
        with pytest.raises(InputError, match=f"'auto' does not take the options {wrong}"):
            parse_policy(f"auto({wrong}=2)")
    with pytest.raises(InputError, match="expected bold"):
        parse_policy("auto(bold=0)")


def test_a_prior_that_is_none() -> None:
    with pytest.raises(InputError, match="expected prior to be none, trained or a"):
        parse_policy("belief(prior='compass')")
    with pytest.raises(InputError, match="there is no agent file"):
        parse_policy("belief(prior='none.safetensors')")
    file = ASSETS / "prior_signals.safetensors"
    with pytest.raises(InputError, match="'signals' was trained for signal data"):
        make_attack(planted(2, n=1).batch, policy=f"belief(prior='{file}')", palette=PALETTE)


@pytest.mark.parametrize("name", shipped())
def test_what_ships_is_small_and_says_what_it_was_trained_on(name: str) -> None:
    assert (ASSETS / shipped()[name]).stat().st_size < MOST_BYTES
    about = card(name)
    assert {"rlab", "kind", "for", "trained on", "models", "command", "never seen"} <= about.keys()
    assert all(about.values())


@pytest.mark.parametrize("name", PRIORS)
def test_a_prior_that_ships_fits_its_data(name: str) -> None:
    prior = shipped_prior(name)
    assert prior.fits(SHAPE[name])
    assert all(torch.isfinite(value).all() for value in prior.network.state_dict().values())


@pytest.mark.parametrize("name", PRIORS)
def test_auto_finds_a_planted_weak_patch(name: str) -> None:
    """One query in a few dozen would hit it by chance."""
    grid = PatchGrid.of(SHAPE[name][1:], PATCH[name])
    x = 0.1 + 0.8 * torch.rand(2, *SHAPE[name], generator=torch.Generator().manual_seed(0))
    x[inside(grid.box(len(grid) // 2))] = 0.5
    batch = Batch(x=x, y=torch.zeros(2, dtype=torch.int64))
    victim = PlantedVictim(grid, len(grid) // 2)
    attack = make_attack(batch, palette=PALETTE, patch=PATCH[name], policy="auto", budget=60)
    assert isinstance(attack.policy, Belief)
    assert name in str(attack.policy)
    result = run_attack(attack, victim, batch)
    assert int(result.queries.sum()) == sum(victim.rows.values())
    assert (result.queries.sum(1) <= 60).all()
    assert result.succeeded.all()
