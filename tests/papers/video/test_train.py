"""Training the two agents from a configuration: what it writes, that it resumes, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlab.errors import InputError
from rlab.papers.video import PairPolicy
from rlab.papers.video.file import read_pair
from rlab.papers.video.loop import AGENT
from rlab.papers.video.train import PairOptions, _pair, train
from rlab.policies import parse_policy
from rlab.priors.file import read_prior
from rlab.storage.config import check
from rlab.training.trainer import LOG, PRIOR
from tests.command import rlab_command

TINY: dict[str, Any] = {
    "kind": "clips",
    "models": [{"name": "demo:clips"}],
    "data": {"path": "demo:clips", "split": "train", "limit": 6},
    "palettes": [["gaussian_noise@0.1..0.5", "dead_pixel@1.0"]],
    "entries": 2,
    "patches": [8],
    "minutes": 0.005,
    "validation_interval": 0.005,
    "validation_samples": 1,
    "budget": 6,
    "width": 8,
    "entry_width": 4,
    "blocks": 1,
    "levels": 2,
    "flips": True,
    "heads": 1,
    "prior_minutes": 0.005,
    "prior_width": 8,
    "prior_levels": 1,
    "prior": {"batch": 4},
    "learner": {"rows": 4, "rollout": 2, "epochs": 1, "batch": 8},
}


SILENT = {"objectness": 0.0, "motion": 0.0}  # rewards that need OpenCV


def options_of(**more: Any) -> PairOptions:
    return check(PairOptions, TINY | more)


def test_training_writes_agents_and_a_log_and_goes_on(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    options, folder = options_of(saliency=str(tmp_path / "maps.safetensors")), tmp_path / "out"
    path = train(*options.load(), options, folder, told.append)
    assert path == folder / AGENT
    pair, about = read_pair(path)
    assert (pair.config.width, pair.config.levels, pair.config.heads) == (8, 2, 1)
    assert about["config"]["entries"] == 2
    assert 0 <= about["validation"]["success"] <= 1
    assert isinstance(parse_policy(str(path)), PairPolicy)
    lines = (folder / LOG).read_text().splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(figures) for figures in told]
    assert (tmp_path / "maps.safetensors").exists()
    again: list[dict[str, float]] = []
    train(*options.load(), options, folder, again.append)  # all its time is spent: one round to close, no more
    assert [figures["rounds"] for figures in again] == [1]
    with pytest.raises(InputError, match="another configuration"):
        train(*options.load(), options.model_copy(update={"seed": 1}), folder)


@pytest.mark.slow
def test_agents_may_begin_with_what_another_training_came_to_by_its_prior(tmp_path: Path) -> None:
    learner = TINY["learner"] | SILENT
    first = options_of(learner=learner)
    train(*first.load(), first, tmp_path / "first")
    start = tmp_path / "first" / PRIOR
    before, _ = read_prior(start)
    second = options_of(learner=learner, start=str(start), prior_minutes=0, levels=1)
    train(*second.load(), second, tmp_path / "second")
    pair, _ = read_pair(tmp_path / "second" / AGENT)
    assert pair.config.levels == 1
    assert pair.compass is not None
    for mine, theirs in zip(pair.compass.parameters(), before.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)  # rewards teach the prior nothing
    whole = options_of(learner=learner, start=str(tmp_path / "second" / AGENT), prior_minutes=0, levels=1)
    assert torch.equal(_pair(whole, 3).temporal.keep.bias, pair.temporal.keep.bias)
    third = second.model_copy(update={"prior_width": 16})
    with pytest.raises(InputError, match="do not have the shape"):
        train(*third.load(), third, tmp_path / "third")


def test_the_command_tells_the_two_trainings_apart(tmp_path: Path) -> None:
    path = tmp_path / "clips.yaml"
    path.write_text(json.dumps(TINY | {"learner": TINY["learner"] | SILENT, "temporal": False}))
    said = rlab_command("train", path, "--out", tmp_path / "out", "--minutes", 0.005)
    assert said.code == 0, said.err
    assert "Agents:" in said.out
    assert not read_pair(tmp_path / "out" / AGENT)[0].config.temporal


def test_the_configuration_file_of_the_repository_is_read(root: Path) -> None:
    options = PairOptions.read(root / "agents" / "clips.yaml", device="cpu")
    costs = options.distortion_weight, options.learner.query_cost, options.learner.distortion_cost
    assert costs == (0.015, 0.03, 0.015)
    assert options.models[0].device == "cpu"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"levels": 4}, "levels"),
        ({"entriess": 2}, "entriess"),
        ({"encoder": "resnet"}, "encoder"),
        ({"learner": {"rowss": 3}}, "rowss"),
        ({"models": []}, "models"),
    ],
)
def test_fields_that_are_not_valid(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(TINY | change))
    with pytest.raises(InputError, match=sentence):
        PairOptions.read(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoder": "mobilenet"}, "the encoder 'mobilenet' needs weights"),
        (
            {"data": {"path": "demo:digits"}, "models": [{"name": "demo:digits"}]},
            "expected clips to train .* got image",
        ),
        ({"data": {"path": "demo:clips", "limit": 1}}, "at least two samples"),
        ({"patches": [64]}, "larger than the input"),
    ],
)
def test_what_training_refuses(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    options = options_of(**({"learner": TINY["learner"] | SILENT} | change))
    with pytest.raises(InputError, match=sentence):
        train(*options.load(), options, tmp_path / "out")
