"""A network that several processes train: the step of the whole batch, and one file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlab.errors import InputError
from rlab.priors.file import read_prior
from rlab.priors.trained import DirectionPrior
from rlab.training.directions import PriorConfig, _freely, _loss, _written, train_prior
from rlab.training.ranks import ALONE, Ranks, join
from rlab.verbs import train
from tests.training.test_prior import COARSE, FINE, LEFT, RIGHT, Region, bumps, sampler

STEPS = 12
PRIOR = {
    "models": ["demo:digits"], "data": {"path": "demo:digits", "limit": 60}, "patches": [2], "minutes": 0.1,
    "palettes": [["gaussian_noise@0.1..0.4", "dead_pixel@1.0"]], "prior_width": 8, "prior_levels": 1, "budget": 10,
    "validation_samples": 4, "prior": {"batch": 8},
}  # fmt: skip


def trained(ranks: Ranks) -> DirectionPrior:
    """A prior after a few steps, free ones and some through a palette, with mirrors and cuts."""
    torch.manual_seed(0)
    prior, steps = DirectionPrior(1, 1, 8, 2, 2, 1), iter([*(i / STEPS for i in range(STEPS)), 1.0])
    config = PriorConfig(batch=16, mirror=True, zoom=0.8, cuts=4)
    samplers = [sampler(Region(LEFT)), sampler(Region(RIGHT), COARSE)]
    train_prior(prior, samplers, config, lambda: next(steps), ranks=ranks)
    return prior


def torchrun(*words: object) -> subprocess.CompletedProcess[str]:
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(started, capture_output=True, text=True, timeout=240, env=environment)


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    done = torchrun("-m", "tests.training.test_ranks", tmp_path)
    assert done.returncode == 0, done.stderr
    mine, theirs, x = trained(ALONE), trained(ALONE), bumps(32, seed=1)
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    theirs.load_state_dict(first)  # some biases have no effect and no gradient but rounding: what counts is the answer
    assert torch.allclose(theirs(x), mine(x), atol=1e-4)


@pytest.mark.parametrize("written", [True, False])
def test_the_mean_gradient_of_the_shares_is_that_of_the_whole_batch(written: bool) -> None:
    def gradients(ranks: Ranks) -> list[Tensor]:
        torch.manual_seed(0)
        prior, config = DirectionPrior(1, 1, 8, 2, 2, 1), PriorConfig(batch=16, mirror=True, zoom=0.8, cuts=4)
        drawn = sampler(Region(RIGHT), COARSE)
        moved, y = _written(prior, drawn, config, ranks) if written else _freely(prior, drawn, FINE, config, ranks)
        assert len(moved) == 16 // ranks.count
        _loss(drawn, moved, y, 0.2).backward(inputs=list(prior.parameters()))
        return [parameter.grad for parameter in prior.parameters() if parameter.grad is not None]

    for whole, one, other in zip(*map(gradients, (ALONE, Ranks(0, 2), Ranks(1, 2))), strict=True):
        assert torch.allclose((one + other) / 2, whole, atol=1e-5)


@pytest.mark.slow
def test_two_processes_write_one_file_and_go_on(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(PRIOR))
    words = ("-m", "rlab", "train", tmp_path / "train.yaml", "--out", tmp_path / "out")
    done = torchrun(*words)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "out" / "prior.safetensors"
    assert done.stdout.count(file.name) >= 1
    assert done.stdout.count("Prior:") == 1  # the first alone tells
    read_prior(file)
    before = file.read_bytes()
    assert torchrun(*words).returncode == 0  # finished: nothing is trained again
    assert file.read_bytes() == before


def test_a_batch_is_shared_evenly_and_alone_everything_is_ones_own() -> None:
    assert Ranks(1, 4).share(8) == slice(2, 4)
    with pytest.raises(InputError, match="multiple"):
        Ranks(1, 3).share(8)
    network = torch.nn.Linear(2, 1)
    network(torch.ones(1, 2)).sum().backward()
    ALONE.average(network.parameters())
    assert network.weight.grad is not None
    assert network.weight.grad.tolist() == [[1.0, 1.0]]
    assert (ALONE.share(5), ALONE.same(0.3, "cpu")) == (slice(0, 5), 0.3)


def test_what_torchrun_cannot_do_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "99"}.items():
        monkeypatch.setenv(name, value)
    for device in ("cuda:1", "cuda"):
        with pytest.raises(InputError, match="torchrun"), join(device):
            pass
    (tmp_path / "agent.yaml").write_text("kind: dual_action")
    with pytest.raises(InputError, match="one process"):
        train(tmp_path / "agent.yaml", tmp_path / "out")


if __name__ == "__main__":
    with join("cpu") as ranks:
        whole = trained(ranks).state_dict()
        save_file(whole, f"{sys.argv[1]}/{ranks.rank}.safetensors")
