"""The learned agent as a policy and as a file."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlab.agents import parse_policy
from rlab.agents.learned import LearnedPolicy, read_agent, save_agent, write
from rlab.agents.qmap import QMap, QMapConfig
from rlab.errors import InputError
from rlab.loop import make_attack
from tests.helpers import PALETTE, PATCHES, RANKS, assert_same, exact_victim, labelled_by, make_batch


def network(rank: int, channels: int = 2) -> QMap:
    torch.manual_seed(0)
    return QMap(QMapConfig(rank, channels, width=16, blocks=1, shares=(0.5,))).eval()


def test_write_by_hand() -> None:
    before = torch.tensor([[0, 3, 0], [1, 1, 1]])
    after = write(before, torch.tensor([[2, 0], [4, -1]]), torch.tensor([[0, 1], [2, -1]]))
    assert after.tolist() == [[2, 0, 0], [1, 1, 4]]
    assert before.tolist() == [[0, 3, 0], [1, 1, 1]]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_an_agent_attacks_data_with_any_number_of_channels(rank: int, channels: int) -> None:
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 6))
    attack = make_attack(
        batch, palette=PALETTE, patch=PATCHES[rank], policy=LearnedPolicy(network(rank, channels)), budget=60
    )
    result = attack(victim, batch)
    assert int(result.queries.sum()) == sum(victim.rows.values())
    assert (result.queries.sum(1) <= 60).all()
    assert_same(attack(victim, batch), result)


def test_chance_grows_with_failures_until_everything_is_tried() -> None:
    """A network that always values the same change cannot keep a row from getting elsewhere."""
    victim = exact_victim(1)
    batch = labelled_by(victim, make_batch(1, 8))
    stubborn = LearnedPolicy(network(1), restraint=0.0)
    result = make_attack(batch, palette=PALETTE, patch=PATCHES[1], policy=stubborn, budget=400)(victim, batch)
    by_chance = make_attack(batch, palette=PALETTE, patch=PATCHES[1], policy="random", budget=400)(victim, batch)
    assert result.succeeded.sum() >= by_chance.succeeded.sum()


def test_most_bounds_the_patches_of_a_step() -> None:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 4))
    for most, limit in ((1, 1), (2, 2)):
        policy = LearnedPolicy(network(2), most=most)
        attack = make_attack(batch, palette=PALETTE, patch=PATCHES[2], policy=policy, budget=4, cleanup=False)
        changed = (attack(victim, batch).assignment != 0).sum(1)
        assert changed.max() <= 2 * limit  # two steps fit into a budget of four


def test_an_agent_file_round_trip(tmp_path: Path) -> None:
    made = network(2)
    save_agent(made, tmp_path / "a.safetensors", {"trained": "never"})
    back, about = read_agent(tmp_path / "a.safetensors")
    assert about == {"trained": "never"}
    assert back.config == made.config
    for name, value in made.state_dict().items():
        assert torch.equal(value.half().float(), back.state_dict()[name])
    policy = parse_policy(f"{tmp_path / 'a.safetensors'}(most=2)")
    assert isinstance(policy, LearnedPolicy)
    assert policy.most == 2


def test_an_agent_of_another_rank_is_refused() -> None:
    batch = make_batch(1, 2)
    victim = exact_victim(1)
    attack = make_attack(
        labelled_by(victim, batch), palette=PALETTE, patch=PATCHES[1], policy=LearnedPolicy(network(2))
    )
    with pytest.raises(InputError, match="was trained for images, but the data are signals"):
        attack(victim, labelled_by(victim, batch))


def test_files_that_are_no_agents(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(InputError, match="there is no agent file"):
        read_agent(path)
    path.write_bytes(b"not weights at all")
    with pytest.raises(InputError, match="cannot read the agent"):
        read_agent(path)
    save_file({"w": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="agent file of version None"):
        read_agent(path)
    save_file({"w": torch.zeros(1)}, path, metadata={"rlab": json.dumps({"version": 99})})
    with pytest.raises(InputError, match="of version 99, this rlab reads version 2"):
        read_agent(path)
    made = network(2)
    save_agent(made, path, {})
    shape = {"rank": 2, "channels": 3, "width": 16, "blocks": 1, "entry_width": 32, "shares": [0.5]}
    header = {"rlab": json.dumps({"version": 2, "network": shape, "about": {}})}
    save_file(dict(made.state_dict()), path, metadata=header)
    with pytest.raises(InputError, match="do not fit the network its header describes"):
        read_agent(path)
