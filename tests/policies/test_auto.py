"""The agents that come with the package, and the policy that picks among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.options import make_attack
from rlab.policies import parse_policy
from rlab.policies import shipped as place
from rlab.policies.auto import SMALL, AutoPolicy, card, fitting, load_shipped, shipped
from rlab.policies.learned import LearnedPolicy, save_agent
from rlab.policies.qmap import QMap, QMapConfig
from rlab.policies.square import SquarePolicy
from rlab.policies.video import Pair, PairConfig, PairPolicy, save_pair
from tests.helpers import PALETTE, PATCHES, RANKS, PlantedVictim, inside, planted

HERE = Path(place.__file__).parents[1] / "assets"
RANK = {"signals": 1, "images": 2, "photos": 2, "clips": 3}
SIZE: dict[str, tuple[int, ...]] = {"signals": (200,), "images": (32, 32), "photos": (224, 224), "clips": (8, 32, 32)}
BUDGET = {"signals": 60, "images": 60, "photos": 60, "clips": 300}  # noise alone tells the agents of clips little
PATCH: dict[str, int | tuple[int, ...]] = {"signals": 8, "images": 4, "photos": 28, "clips": (2, 8, 8)}
MOST_BYTES = 8_000_000


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another folder of assets, empty at first."""
    folder = tmp_path / "assets"
    folder.mkdir()
    monkeypatch.setattr(place, "files", lambda package: tmp_path)
    load_shipped.cache_clear()
    yield folder
    load_shipped.cache_clear()


def ship(folder: Path, name: str, l2_penalty: float = 0.3) -> None:
    torch.manual_seed(0)
    if name == "clips":
        pair = Pair(PairConfig(3, width=8, entry_width=8, blocks=1, coarse=2))
        return save_pair(pair, folder / "agent_clips.safetensors", {"trained": name})
    shape = QMapConfig(RANK[name], 3, width=8, blocks=1, entry_width=8, shares=(0.1,), heads=1, compass_width=8)
    save_agent(QMap(shape), folder / f"agent_{name}.safetensors", {"l2_penalty": l2_penalty, "trained": name})


def test_names_come_from_the_files(assets: Path) -> None:
    (assets / "demo_digits.safetensors").touch()
    assert shipped() == []
    for name in ("signals", "images", "clips"):
        ship(assets, name)
    assert shipped() == ["clips", "images", "signals"]
    assert card("signals")["trained"] == "signals"
    assert card("clips")["trained"] == "clips"


@pytest.mark.parametrize(
    ("size", "name"),
    [((500,), "signals"), ((SMALL, SMALL), "images"), ((20, SMALL + 1), "photos"), ((SMALL + 1, 20), "photos")],
)
def test_the_agent_fits_rank_and_longer_side(assets: Path, size: tuple[int, ...], name: str) -> None:
    for one in RANK:
        ship(assets, one)
    assert SMALL == 96
    grid = PatchGrid.of(size, 4)
    assert fitting(grid) == name
    policy = AutoPolicy().suited(grid)
    assert isinstance(policy, LearnedPolicy)
    assert (policy.name, policy.l2_penalty) == (name, 0.3)
    again = AutoPolicy({"most": 2}).suited(grid)
    assert isinstance(again, LearnedPolicy)
    assert (policy.most, again.most, again.l2_penalty) == (None, 2, 0.3)
    assert again.network is policy.network  # read once


def test_clips_get_the_two_agents_with_their_own_options(assets: Path) -> None:
    ship(assets, "clips")
    grid = PatchGrid.of((4, 8, 8), 2)
    policy = parse_policy("auto(adapt=3)").suited(grid)
    assert isinstance(policy, PairPolicy)
    assert (policy.name, policy.adapt, str(policy)) == ("clips", 3, "agent clips")
    with pytest.raises(InputError, match="the agent 'clips' has no option 'most'"):
        parse_policy("auto(most=2)").suited(grid)
    one = planted(3, n=2)
    result = make_attack(one.batch, policy="auto", palette=PALETTE, patch=PATCHES[3], budget=60)(one.victim, one.batch)
    assert result.setting.policy == "auto -> agent clips"


@pytest.mark.parametrize("size", [(50,), (8, 8), (200, 8), (4, 8, 8)])
def test_where_no_agent_is_there_square_stands_in(assets: Path, size: tuple[int, ...]) -> None:
    grid = PatchGrid.of(size, 2)
    assert fitting(grid) is None
    assert AutoPolicy().suited(grid) == SquarePolicy()


@pytest.mark.parametrize("rank", RANKS)
def test_a_result_says_whom_auto_took(assets: Path, rank: int) -> None:
    ship(assets, "images")
    batch = planted(rank, n=1).batch
    label = make_attack(batch, policy="auto", palette=PALETTE, patch=PATCHES[rank]).label
    assert label == ("auto -> agent images" if rank == 2 else f"auto -> {SquarePolicy()}")


def test_auto_attacks_as_the_agent_it_stands_for(assets: Path) -> None:
    ship(assets, "images")
    one = planted(2, n=3)
    options: dict[str, Any] = {"palette": PALETTE, "patch": PATCHES[2], "budget": 40}
    by_name = make_attack(one.batch, policy="auto", **options)
    assert isinstance(by_name.policy, LearnedPolicy)
    assert by_name.l2_penalty == 0.3
    itself = make_attack(one.batch, policy=str(assets / "agent_images.safetensors"), **options)
    first, second = by_name(one.victim, one.batch), itself(one.victim, one.batch)
    assert first.setting.policy == "auto -> agent images"
    assert torch.equal(first.assignment, second.assignment)
    assert torch.equal(first.queries, second.queries)


def test_auto_works_as_a_policy_of_its_own(assets: Path) -> None:
    """Where nobody asks for the suited one, it hands everything on."""
    ship(assets, "images")
    one = planted(2, n=3)
    made = make_attack(one.batch, policy="auto", palette=PALETTE, patch=PATCHES[2], budget=40)
    expected, found = made(one.victim, one.batch), replace(made, policy=AutoPolicy())(one.victim, one.batch)
    assert torch.equal(found.assignment, expected.assignment)


def test_auto_takes_an_agents_options(assets: Path) -> None:
    ship(assets, "images")
    policy = parse_policy("auto(most=2, l2_penalty=0.7)").suited(PatchGrid.of((8, 8), 2))
    assert isinstance(policy, LearnedPolicy)
    assert (policy.most, policy.l2_penalty, policy.noise) == (2, 0.7, 0.1)
    assert str(parse_policy("auto")) == "auto"
    for wrong in ("mosst", "network", "name"):
        with pytest.raises(InputError, match=f"'auto' does not take the options {wrong}"):
            parse_policy(f"auto({wrong}=2)")
    with pytest.raises(InputError, match="expected most"):
        parse_policy("auto(most=0)").suited(PatchGrid.of((8, 8), 2))


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_agent_is_small_and_says_what_it_was_trained_on(name: str) -> None:
    assert name in RANK
    assert (HERE / f"agent_{name}.safetensors").stat().st_size < MOST_BYTES
    about = card(name)
    assert {"rlab", "l2_penalty", "for", "trained on", "models", "command", "never seen", "evaluated"} <= about.keys()
    assert all(value for key, value in about.items() if key != "l2_penalty")
    assert about["l2_penalty"] >= 0
    agent = load_shipped(name)
    network = agent.network
    assert RANK[name] == (3 if isinstance(agent, PairPolicy) else agent.network.config.rank)
    assert all(torch.isfinite(value).all() for value in network.state_dict().values())


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_agent_attacks_data_like_its_own(name: str) -> None:
    """A planted weak patch, which one query in a few dozen would hit by chance."""
    grid = PatchGrid.of(SIZE[name], PATCH[name])
    channels = load_shipped(name).network.config.channels
    x = 0.1 + 0.8 * torch.rand(2, channels, *grid.size, generator=torch.Generator().manual_seed(0))
    x[inside(grid.box(len(grid) // 2))] = 0.5
    batch = Batch(x=x, y=torch.zeros(2, dtype=torch.int64))
    victim = PlantedVictim(grid, len(grid) // 2)
    attack = make_attack(batch, palette=PALETTE, patch=PATCH[name], policy="auto", budget=BUDGET[name])
    assert isinstance(attack.policy, LearnedPolicy | PairPolicy)
    assert attack.policy.name == name
    result = attack(victim, batch)
    assert int(result.queries.sum()) == sum(victim.rows.values())
    assert (result.queries.sum(1) <= BUDGET[name]).all()
    assert result.succeeded.all()
