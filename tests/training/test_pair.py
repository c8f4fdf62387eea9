"""Training the two agents from a configuration: what it writes, that it resumes, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from rlab.cli.app import app
from rlab.errors import InputError
from rlab.policies import parse_policy
from rlab.policies.video import PairPolicy, read_pair
from rlab.training.pair import AGENT, CHECKPOINT, GUIDED, LOG, ClipsConfig, read_training, train

TINY: dict[str, Any] = {
    "kind": "clips",
    "models": [{"name": "demo:clips"}],
    "data": {"path": "demo:clips", "split": "train", "limit": 12},
    "palettes": [["gaussian_noise@0.1..0.5", "dead_pixel@1.0"]],
    "entries": 2,
    "patches": [8],
    "minutes": 0.01,
    "evaluate": 0.005,
    "validation_samples": 2,
    "budget": 20,
    "width": 8,
    "entry_width": 4,
    "blocks": 1,
    "levels": 2,
    "flips": True,
    "heads": 1,
    "compass_minutes": 0.01,
    "compass_width": 8,
    "compass_levels": 1,
    "guide": {"batch": 4},
    "learner": {"rows": 4, "rollout": 2, "epochs": 1, "batch": 8},
}


def test_training_writes_agents_a_log_and_a_checkpoint_and_resumes(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    config = ClipsConfig.model_validate(TINY | {"saliency": str(tmp_path / "maps.npz")})
    path = train(config, tmp_path / "out", told.append)
    assert path == tmp_path / "out" / AGENT
    pair, about = read_pair(path)
    assert (pair.config.width, pair.config.levels, pair.config.heads) == (8, 2, 1)
    assert about["config"]["entries"] == 2
    assert 0 <= about["validation"]["success"] <= 1
    assert isinstance(parse_policy(str(path)), PairPolicy)
    lines = (tmp_path / "out" / LOG).read_text().splitlines()
    assert [list(json.loads(line)) for line in lines] == [list(figures) for figures in told]
    assert (tmp_path / "maps.npz").exists()
    assert (tmp_path / "out" / CHECKPOINT).exists()
    again: list[dict[str, float]] = []
    train(config, tmp_path / "out", again.append)  # all its time is spent: one round to close, no more
    assert [figures["rounds"] for figures in again] == [1]
    with pytest.raises(InputError, match="a training of another configuration"):
        train(config.model_copy(update={"seed": 1}), tmp_path / "out")


def test_agents_may_begin_with_what_another_training_was_guided_to(tmp_path: Path) -> None:
    learner = TINY["learner"] | {"objectness": 0.0, "motion": 0.0}
    first = ClipsConfig.model_validate(TINY | {"learner": learner})
    train(first, tmp_path / "first")
    guided, _ = read_pair(tmp_path / "first" / GUIDED)
    values = TINY | {"learner": learner, "start": str(tmp_path / "first" / GUIDED), "compass_minutes": 0, "levels": 1}
    train(ClipsConfig.model_validate(values), tmp_path / "second")
    pair, _ = read_pair(tmp_path / "second" / AGENT)
    assert pair.config.levels == 1
    assert pair.compass is not None
    assert guided.compass is not None
    for mine, theirs in zip(pair.compass.parameters(), guided.compass.parameters(), strict=True):
        assert torch.equal(mine, theirs)  # rewards teach the compass nothing
    with pytest.raises(InputError, match="do not have the shape that the configuration says"):
        train(ClipsConfig.model_validate(values | {"width": 16}), tmp_path / "third")


def test_the_command_tells_the_two_trainings_apart(tmp_path: Path) -> None:
    path = tmp_path / "clips.yaml"
    learner = TINY["learner"] | {"objectness": 0.0, "motion": 0.0}  # then no OpenCV is needed
    path.write_text(json.dumps(TINY | {"learner": learner, "temporal": False}))
    done = CliRunner().invoke(app, ["train", str(path), "--out", str(tmp_path / "out"), "--minutes", "0.005"])
    assert done.exit_code == 0, done.output
    assert "Agents:" in done.output
    assert not read_pair(tmp_path / "out" / AGENT)[0].config.temporal


def test_a_configuration_file_with_the_device_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(TINY))
    made = read_training(path, minutes=3.0, device="cpu")
    assert (made.minutes, made.device, made.models[0].device) == (3.0, "cpu", "cpu")


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
def test_fields_that_will_not_do(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(TINY | change))
    with pytest.raises(InputError, match=sentence):
        read_training(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoder": "mobilenet"}, "the encoder 'mobilenet' needs weights"),
        (
            {"data": {"path": "demo:digits"}, "models": [{"name": "demo:digits"}]},
            "expected clips to train .* got image",
        ),
        ({"data": {"path": "demo:clips", "limit": 1}}, "at least two clips"),
        ({"patches": [64]}, "larger than the input"),
    ],
)
def test_what_training_refuses(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    learner = TINY["learner"] | {"objectness": 0.0, "motion": 0.0}
    with pytest.raises(InputError, match=sentence):
        train(ClipsConfig.model_validate(TINY | {"learner": learner} | change), tmp_path)
