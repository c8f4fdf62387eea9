"""What the papers' agents share: losses by hand, files that are refused, and a training that goes on where it stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rlab.errors import InputError, ModelError, OptionError
from rlab.papers import common
from rlab.papers.common import NetworkShape, PaperOptions
from rlab.policies import parse_policy
from rlab.priors.file import read_network, write_weights
from rlab.storage.config import check
from rlab.storage.resume import open_run
from rlab.training.loop import Learner, TrainingLoop
from rlab.training.trainer import AGENT, LOG, Figures

TINY: dict[str, Any] = {
    "models": ["demo:digits"], "data": {"path": "demo:digits"}, "palettes": [["dead_pixel"]], "patches": [2],
    "updates": 6, "validations": 3,
}  # fmt: skip


def test_a_double_q_target_stops_at_the_end() -> None:
    target = common.double_q_target(
        torch.tensor([1.0, 2.0]), torch.tensor([False, True]), torch.tensor([10.0, 10.0]), 0.5
    )
    assert target.tolist() == [6.0, 2.0]


def test_generalized_advantages_by_hand() -> None:
    reward, value = torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([[0.5], [0.5], [0.5]])
    later, over = torch.tensor([[0.5], [0.5], [2.0]]), torch.tensor([[False], [True], [False]])
    # deltas: 1 + 0.5 * 0.5 - 0.5 = 0.75; 1 - 0.5 = 0.5 (over); 1 + 0.5 * 2 - 0.5 = 1.5; each step back counts half of a half
    got = common.generalized_advantages(reward, value, later, over, gamma=0.5, smoothing=0.5)
    assert got.flatten().tolist() == [0.75 + 0.25 * 0.5, 0.5, 1.5]


def test_a_clipped_loss_ignores_what_has_moved_too_far() -> None:
    before = torch.zeros(4)
    log_prob = torch.tensor([1.5, 1.5, 0.5, 0.5]).log()
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    # ratios 1.5, 1.5, 0.5, 0.5, clipped to 1.2 and 0.8: min(1.5, 1.2), min(-1.5, -1.2), min(0.5, 0.8), min(-0.5, -0.8)
    assert float(common.clipped_loss(log_prob, before, advantage, 0.2)) == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)
    assert float(common.policy_gradient_loss(torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 1.0]))) == 2.5


def make(shape: NetworkShape) -> nn.Linear:
    return nn.Linear(shape.width, 1, bias=False)


def test_an_agent_comes_back_from_its_file(tmp_path: Path) -> None:
    path, network = tmp_path / "agent.safetensors", nn.Linear(4, 1, bias=False)
    write_weights(path, "toy", network.state_dict(), {"width": 4}, {"about": "it"})
    again, _, card = read_network(path, "toy", NetworkShape, make)
    assert card == {"about": "it"}
    assert torch.equal(again.weight, network.weight.half().float())


def header(**changes: Any) -> dict[str, str]:
    return {"rlab": json.dumps({"version": 2, "kind": "toy", "network": {"width": 4}, "about": {}} | changes)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "prior"}, "to hold the kind 'toy', got kind 'prior'"),
        ({"network": {"width": -1}}, "not valid: width"),
        ({"network": {"width": 4, "more": 1}}, "not valid: more"),
        ({"network": {"width": 5}}, "do not fit"),
        ({"version": 1}, "of version 1"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_a_sentence(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "agent.safetensors"
    save_file({"weight": torch.ones(1, 4)}, path, metadata=header(**changes))
    with pytest.raises(ModelError, match=said) as error:
        read_network(path, "toy", NetworkShape, make)
    assert "\n" not in str(error.value)
    path.write_bytes(b"no weights")
    with pytest.raises(ModelError, match="cannot read"):
        read_network(path, "toy", NetworkShape, make)


def test_a_paper_without_weights_says_how_to_train_them() -> None:
    with pytest.raises(OptionError, match=r"needs the file of a trained agent.*rlab train.*kind: dual_action"):
        parse_policy("dual_action")
    with pytest.raises(InputError, match="there is no agent file"):
        parse_policy("dual_action(agent='missing.safetensors')")


@dataclass
class Toy(Learner):
    """Adds random numbers to its weights; breaks at the update `until`."""

    until: int = 10**6
    network: nn.Linear = field(default_factory=lambda: nn.Linear(4, 1, bias=False))
    done: int = 0

    def begin(self, seed: int) -> None:
        """Nothing to begin."""

    def update(self, progress: float) -> Figures:
        if self.done == self.until:
            raise KeyboardInterrupt
        self.done += 1
        with torch.no_grad():
            self.network.weight += torch.rand(1, 4)
        return {"reward": progress, "loss": math.nan}

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "done": self.done}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.network.load_state_dict(saved["network"])
        self.done = saved["done"]


def run(folder: Path, toy: Toy, scores: Sequence[float], **options: Any) -> list[Figures]:
    told: list[Figures] = []
    torch.nn.init.zeros_(toy.network.weight)
    given = ({"success": score, "median_l2": 1.0} for score in scores)
    with open_run(folder, {"command": "train"}) as resume:
        declared = check(PaperOptions, TINY | options)
        TrainingLoop(AGENT, "toy", NetworkShape(width=4), declared, toy, given.__next__, resume, told.append).run()
    return told


def weights(folder: Path) -> torch.Tensor:
    return read_network(folder / AGENT, "toy", NetworkShape, make)[0].weight.detach()


@pytest.mark.parametrize("until", [1, 2, 3, 5])
def test_a_training_that_was_stopped_anywhere_ends_with_the_same_weights(tmp_path: Path, until: int) -> None:
    scores, finished = [0.1, 0.2, 0.3], until // 2  # pieces of two updates
    told = run(tmp_path / "whole", Toy(), scores)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", Toy(until), scores)
    again = run(tmp_path / "stopped", Toy(), scores[finished:])
    assert torch.equal(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))
    assert [line["updates"] for line in told] == [2.0, 4.0, 6.0]
    assert len(again) == 3 - finished
    assert len((tmp_path / "stopped" / LOG).read_text().splitlines()) == 3


def test_the_best_or_the_last_weights_are_kept(tmp_path: Path) -> None:
    best, last = tmp_path / "best", tmp_path / "last"
    run(best, Toy(), [0.5, 0.9, 0.1])
    run(last, Toy(), [0.5, 0.9, 0.1], keep="last")
    assert float(weights(best).sum()) < float(weights(last).sum())
    assert run(best, Toy(), []) == []  # all of it is done


def test_minutes_end_in_time_and_the_first_update_tells_its_cost(tmp_path: Path) -> None:
    """An update that takes longer than the training is the only one, and no share exceeds 100%."""
    told = run(tmp_path, Toy(), [0.1, 0.2, 0.3], updates=None, minutes=1e-9)
    first, last = told
    assert first["update_seconds"] > 0
    assert (last["updates"], last["progress"]) == (1.0, 1.0)
    assert len((tmp_path / LOG).read_text().splitlines()) == 2
