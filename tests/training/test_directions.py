"""Training a prior from a configuration: what it writes, that it goes on, what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import rlab
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra
from rlab.policies import parse_policy
from rlab.policies.belief import Belief
from rlab.priors.file import read_prior, save_prior
from rlab.priors.trained import DirectionPrior
from rlab.storage.config import check
from rlab.training.directions import PriorOptions, make_network, train
from rlab.training.trainer import LOG, PRIOR, Tell, hold_out
from rlab.victims import CallableVictim, Victim, demo_victim

TINY: dict[str, Any] = {
    "models": ["demo:digits"], "data": {"path": "demo:digits", "split": "train", "limit": 40}, "entries": 2,
    "palettes": [["gaussian_noise@0.1..0.5", "dead_pixel@1.0"]], "patches": [2], "minutes": 0.005,
    "validations": 1, "validation_samples": 4, "budget": 20, "heads": 1, "prior_width": 8, "prior_levels": 1,
    "prior": {"batch": 16},
}  # fmt: skip


def configured(**more: Any) -> PriorOptions:
    return check(PriorOptions, TINY | more)


@pytest.fixture(scope="module")
def data() -> Batch:
    return configured().data.load()


def trained(options: PriorOptions, folder: Path, tell: Tell = lambda figures: None) -> Path:
    return train(*options.load(), options, folder, tell)


def test_training_writes_a_prior_and_a_log_goes_on_and_refuses_another_configuration(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    options, folder = configured(), tmp_path / "out"
    path = trained(options, folder, told.append)
    assert path == folder / PRIOR
    prior, card = read_prior(path)
    assert (prior.network.width, prior.network.channels) == (8, 1)
    assert (card["trained on"], card["models"], card["config"]["entries"]) == ("demo:digits", ["demo:digits"], 2)
    assert 0 <= card["validation"]["success"] <= 1
    assert [json.loads(line) for line in (folder / LOG).read_text().splitlines()] == told
    assert isinstance(parse_policy(str(path)), Belief)
    again: list[dict[str, float]] = []
    assert trained(options, folder, again.append) == path  # all its time is spent
    assert again == []
    with pytest.raises(InputError, match=r"another configuration \(seed differs\)"):
        trained(options.model_copy(update={"seed": 1}), folder)
    victims, batch, _ = options.load()
    with pytest.raises(InputError, match="the data differs"):
        train(victims, batch[:30], None, options, folder)
    with pytest.raises(InputError, match="the models differs"):
        train([demo_victim("ecg")], batch, None, options, folder)


def test_a_configuration_file_with_the_device_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(TINY))
    options = PriorOptions.read(path, minutes=3.0, device="cpu")
    assert (options.minutes, options.device, options.models[0].device) == (3.0, "cpu", "cpu")
    path.write_text(json.dumps(TINY | {"entriess": 2}))
    with pytest.raises(InputError, match="entriess"):
        PriorOptions.read(path)


def test_the_options_a_training_writes_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(check(PriorOptions, TINY).plain()))  # as a training writes it, with every default
    assert PriorOptions.read(path) == check(PriorOptions, TINY)


def test_the_configurations_of_the_repository_and_the_documentation_are_valid(root: Path) -> None:
    for name in ("images", "photos", "signals"):
        assert PriorOptions.read(root / "agents" / f"{name}.yaml").prior.learning_rate == 0.001
    text = (root / "docs" / "agents.md").read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    assert check(PriorOptions, yaml.safe_load(text)).entries == 4


def fresh(options: PriorOptions, batch: Batch, seed: int) -> DirectionPrior:
    torch.manual_seed(seed)
    return make_network(options, batch)


def test_a_training_starts_from_another_prior(tmp_path: Path, data: Batch) -> None:
    path = tmp_path / "before.safetensors"
    before = fresh(configured(), data, seed=1)
    save_prior(before, path, {})
    after = fresh(configured(start=str(path)), data, seed=2)
    for name, value in after.state_dict().items():
        assert torch.equal(value.half(), before.state_dict()[name].half())
    for more in ({"heads": 2}, {"prior_width": 16}, {"prior_levels": 2}):
        with pytest.raises(InputError, match="has other heads"):
            fresh(configured(start=str(path), **more), data, seed=1)
    with pytest.raises(InputError, match="there is no agent file"):
        fresh(configured(start=str(tmp_path / "none.safetensors")), data, seed=1)


def test_what_is_held_out(data: Batch) -> None:
    train_on, validate_with = hold_out(data, None, configured())
    assert (len(train_on), len(validate_with)) == (36, 4)
    assert not set(train_on.ids) & set(validate_with.ids)
    assert hold_out(data, data[:3], configured())[0] is data
    with pytest.raises(InputError, match="at least two samples"):
        hold_out(data[:1], None, configured())


def test_a_prior_needs_a_model_that_can_be_differentiated(tmp_path: Path, data: Batch) -> None:
    inner = demo_victim("digits")
    plain: Victim = CallableVictim(lambda x: inner(torch.as_tensor(x)).numpy())
    with pytest.raises(InputError, match="a prior needs a training model"):
        train([plain], data, None, configured(), tmp_path / "with")
    with pytest.raises(InputError, match="heads"):
        configured(heads=0)
    with pytest.raises(InputError, match="use validations"):
        configured(validation_interval=1.0)


class Stopped(Exception):
    """Ends a training early."""


def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    options = configured(updates=6, validations=3, keep="last")

    def stop(figures: dict[str, float]) -> None:
        if figures["updates"] == 4:
            raise Stopped

    whole = trained(options, tmp_path / "whole")
    with pytest.raises(Stopped):
        trained(options, tmp_path / "stopped", stop)
    told: list[dict[str, float]] = []
    again = trained(options, tmp_path / "stopped", told.append)
    weights = [read_prior(path)[0].network.state_dict() for path in (whole, again)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert [line["updates"] for line in told] == [6.0]


def test_tensorboard_is_asked_for_before_any_time_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match="tensorboard"):
        trained(configured(tensorboard=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_training_runs_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="without torchrun"):
        rlab.train(tmp_path / "train.yaml", tmp_path / "out")
    assert not (tmp_path / "out").exists()
