"""The learned agent as a policy and as a file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.env import AttackEnv, State
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.options import make_attack
from rlab.policies import parse_policy
from rlab.policies.features import EFFECT, Features, fixed, pack, unpack
from rlab.policies.learned import LearnedPolicy, load_policy, read_agent, save_agent, write
from rlab.policies.qmap import QMap, QMapConfig
from rlab.victims import Victim
from tests.policies.states import Walk
from tests.helpers import PALETTE, PATCHES, RANKS, assert_same, exact_victim, labelled_by, make_batch, make_grid

LINE = PatchGrid((8,), (1,))


def network(rank: int, channels: int = 2, heads: int = 0) -> QMap:
    torch.manual_seed(0)
    shape = QMapConfig(
        rank, channels, width=16, blocks=1, shares=(0.5,), heads=heads, compass_width=8, compass_levels=1
    )
    return QMap(shape).eval()


def sinking(x: Tensor) -> Tensor:
    """Every distorted patch lowers the margin, never below zero: (n, size) -> (n,)."""
    return 100 - x.flatten(1).sum(1)


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


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("heads", [0, 3])
def test_fixed_features_travel_flat_and_come_back(rank: int, heads: int) -> None:
    made, grid = network(rank, heads=heads), make_grid(rank)
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 3))
    attack = make_attack(batch, palette=PALETTE, patch=PATCHES[rank], policy=LearnedPolicy(made), budget=9)
    state = _start(attack, victim, batch)
    with torch.no_grad():
        own = fixed(state, grid, 2, made.compass)
    assert own["projection"].shape == (3, 2, heads, *grid.shape)
    back = unpack(pack(own), attack.task, 2, heads)
    assert back.keys() == own.keys()
    assert all(torch.equal(back[key], own[key]) for key in own)
    assert torch.equal(state.memory[:, 2:], pack(own))  # and it is what `begin` keeps


def _start(attack: Attack, victim: Victim, batch: Batch) -> State:
    """The state before the first proposal."""
    env = AttackEnv(lambda x, sample, phase: victim(x), attack.task)
    everything = torch.ones(len(batch), dtype=torch.bool)
    return attack._start(env, batch.x, batch.y, batch.bounds, everything, torch.arange(len(batch)), victim(batch.x))


class Watched(QMap):
    """Remembers what it saw and answers as told: single changes and sets are worth the same everywhere."""

    def __init__(self, heads: int = 0, restore: float = 0.0, sets: float = 0.0) -> None:
        super().__init__(QMapConfig(1, 1, width=8, blocks=1, shares=(0.75,), heads=heads, compass_width=8))
        self.seen: list[Features] = []
        self.told = (restore, sets)
        self.eval()

    def forward(self, seen: Features) -> Tensor:
        self.seen.append(seen)
        n, f = seen["entries"].shape[:2]
        q = torch.zeros(n, self.config.planes, f + 1, seen["entries"].flatten(3).shape[3])
        q[:, 0, 0], q[:, 1:, 1:] = self.told[0], self.told[1]
        return q


@pytest.mark.parametrize(("most", "size"), [(None, 6), (3, 3), (1, 1)])
def test_most_caps_a_set(most: int | None, size: int) -> None:
    """Sets of three quarters of eight patches are what this network values most."""
    walk = Walk(LearnedPolicy(Watched(sets=1.0), noise=0.0, most=most), LINE, sinking)
    before = walk.step()
    assert int((walk.proposals[-1].assignment != before.assignment).sum()) == size


@pytest.mark.parametrize("most", [0, -2, 1.5, "two"])
def test_most_has_to_be_a_count(most: object) -> None:
    with pytest.raises(InputError, match="expected most, the patches a step may change, to be at least 1, got"):
        LearnedPolicy(network(1), most=most)  # type: ignore[arg-type]


@pytest.mark.parametrize("restore", [True, False])
def test_restore_false_never_takes_anything_back(restore: bool) -> None:
    """A network that likes nothing better than to restore."""
    policy = LearnedPolicy(Watched(restore=5.0), noise=0.0, restraint=0.0, restore=restore)
    walk = Walk(policy, LINE, sinking, n=3)
    taken_back = 0
    for _ in range(12):
        before = walk.step()
        taken_back += int(((before.assignment != 0) & (walk.proposals[-1].assignment == 0)).sum())
    assert (taken_back > 0) == restore


@pytest.mark.parametrize("feedback", [True, False])
def test_feedback_false_shows_the_network_nothing_of_what_was_tried(feedback: bool) -> None:
    net = Watched()
    walk = Walk(LearnedPolicy(net, feedback=feedback), LINE, sinking)
    for _ in range(3):
        before = walk.step()
    brought, tried = net.seen[-1]["entry_maps"][:, :, 1], net.seen[-1]["entry_maps"][:, :, 2]
    assert before.tried.sum() > 0
    if feedback:
        assert torch.equal(tried, before.tried[:, 1:].clamp(max=4) / 2)
        assert torch.allclose(brought, (before.feedback[:, 1:] / before.margin0 * EFFECT).clamp(-3, 3))
    else:
        assert not tried.any()
        assert not brought.any()
        assert not net.seen[-1]["patch_maps"][:, 1:].any()
    here = torch.stack([before.assignment == entry for entry in (1, 2)], 1)
    assert torch.equal(net.seen[-1]["entry_maps"][:, :, 0] > 0.5, here)  # what is there it sees either way


def test_worth_shares_what_the_margin_fell_by_along_the_compass() -> None:
    net = Watched(heads=2)
    walk = Walk(LearnedPolicy(net), LINE, sinking, n=2)
    for _ in range(4):
        walk.step()
    state = walk.state
    lean = torch.tensor([[3.0, 1.0, -2.0, 5.0, 0.0, 2.0, 4.0, 1.0], [6.0, 2.0, 2.0, 1.0, 0.0, 8.0, 0.5, 1.0]])
    own = walk.policy._fixed(state, walk.env.task)  # type: ignore[attr-defined]
    own["projection"] = lean.view(1, 2, 1, 8).repeat(2, 1, 2, 1)  # by hand, for either entry; the heads agree
    state = replace(
        state,
        assignment=torch.tensor([[1, 0, 1, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2, 2, 0]]),
        margin=torch.tensor([-1.0, 40.0]),
        memory=torch.cat([state.memory[:, :2], pack(own)], 1),
    )
    worth = walk.policy.contribution(state, walk.env.task)
    assert worth.sum(1).tolist() == pytest.approx([101.0, 60.0])
    assert (worth[state.assignment == 0] == 0).all()
    tiny = 1e-3  # what keeps a patch that leans the wrong way from being worth nothing at all
    shares = [3 + tiny, tiny, 1 + tiny]
    assert worth[0, [0, 2, 3]].tolist() == pytest.approx([101 * share / sum(shares) for share in shares])
    assert worth[1, [5, 6]].tolist() == pytest.approx(
        [60 * (8 + tiny) / (8.5 + 2 * tiny), 60 * (0.5 + tiny) / (8.5 + 2 * tiny)]
    )


def test_worth_without_a_compass_is_the_feedback() -> None:
    walk = Walk(LearnedPolicy(Watched()), LINE, sinking)
    for _ in range(3):
        walk.step()
    held = walk.state.assignment[0]
    expected = [float(walk.state.feedback[0, entry, patch]) for patch, entry in enumerate(held.tolist())]
    assert walk.policy.contribution(walk.state, walk.env.task)[0].tolist() == expected


def test_the_files_price_holds_where_the_user_names_none(tmp_path: Path) -> None:
    path = tmp_path / "agent_mine.safetensors"
    save_agent(network(1), path, {"l2_penalty": 0.25})
    batch = make_batch(1, 2)
    options: dict[str, Any] = {"palette": PALETTE, "patch": PATCHES[1]}
    assert make_attack(batch, policy=str(path), **options).task.l2_penalty == 0.25
    for l2_penalty in (0.0, 0.7):
        assert make_attack(batch, policy=str(path), l2_penalty=l2_penalty, **options).task.l2_penalty == l2_penalty
    assert make_attack(batch, policy=f"{path}(l2_penalty=0.5)", **options).task.l2_penalty == 0.5
    assert make_attack(batch, policy="random", **options).task.l2_penalty == 0.0
    assert load_policy(path).name == "mine"
    save_agent(network(1), path, {})
    assert load_policy(path).l2_penalty == 0.0


@pytest.mark.parametrize(
    "shape", [{"rank": 2, "shares": [0.5], "depth": 3}, {"rank": 4, "shares": [0.5]}, {"rank": 2}, {"shares": [0.5]}]
)
def test_a_header_that_describes_no_network(tmp_path: Path, shape: dict[str, object]) -> None:
    path = tmp_path / "x.safetensors"
    header = {"rlab": json.dumps({"version": 2, "network": shape, "about": {}})}
    save_file({"w": torch.zeros(1)}, path, metadata=header)
    with pytest.raises(InputError, match="do not fit the network its header describes"):
        read_agent(path)
