"""Training from a configuration: what it writes, that it resumes, what it refuses."""

import json
from pathlib import Path

import pytest

from rlab.agents.learned import read_agent
from rlab.errors import InputError
from rlab.train import AGENT, CHECKPOINT, LOG, TrainConfig, read_training, train

TINY = {
    "models": [{"name": "demo:digits"}],
    "data": {"path": "demo:digits", "split": "train", "limit": 60},
    "palettes": [["gaussian_noise@0.1..0.5", "dead_pixel@1.0"]],
    "entries": 2,
    "patches": [2],
    "minutes": 0.02,
    "evaluate": 0.01,
    "validation_samples": 6,
    "budget": 20,
    "width": 16,
    "blocks": 1,
    "shares": [0.1],
    "heads": 1,
    "compass_minutes": 0.01,
    "compass_width": 8,
    "compass_levels": 1,
    "learner": {"rows": 8, "rollout": 2, "updates": 1, "batch": 8, "replay": 100},
}


def test_training_writes_an_agent_a_log_and_a_checkpoint_and_resumes(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    config = TrainConfig.model_validate(TINY)
    path = train(config, tmp_path, told.append)
    assert path == tmp_path / AGENT
    network, about = read_agent(path)
    assert network.config.shares == (0.1,)
    assert about["config"]["entries"] == 2
    assert 0 <= told[-1]["success"] <= 1
    lines = (tmp_path / LOG).read_text().splitlines()
    assert [json.loads(line)["progress"] for line in lines] == [
        figures["progress"] for figures in told if "progress" in figures
    ]
    assert (tmp_path / CHECKPOINT).exists()
    again: list[dict[str, float]] = []
    train(config, tmp_path, again.append)  # all its time is spent: one round to close, no more
    assert [figures["rounds"] for figures in again] == [1]


def test_a_folder_of_another_training_is_refused(tmp_path: Path) -> None:
    train(TrainConfig.model_validate(TINY), tmp_path)
    with pytest.raises(InputError, match="a training of another configuration"):
        train(TrainConfig.model_validate(TINY | {"seed": 1}), tmp_path)


def test_a_configuration_file_with_the_device_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(TINY))
    made = read_training(path, minutes=3.0, device="cpu")
    assert (made.minutes, made.device, made.models[0].device) == (3.0, "cpu", "cpu")
    path.write_text(json.dumps(TINY | {"entriess": 2}))
    with pytest.raises(InputError, match="entriess"):
        read_training(path)
