"""Training from a configuration: what it writes, that it resumes, what it refuses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import rlab.training.trainer
from rlab.errors import InputError, MissingExtra
from rlab.policies.learned import read_agent, save_agent
from rlab.policies.qmap import QMap
from rlab.priors.trained import DirectionPrior
from rlab.training.dqn import Learner
from rlab.training.prior import guide
from rlab.training.qmap import AGENT, CHECKPOINT, LOG, TrainConfig, _network, read_training, train
from rlab.training.trainer import divided
from rlab.victims import TorchVictim, demo_victim

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
    assert [json.loads(line) for line in lines] == told
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


def configured(**more: Any) -> TrainConfig:
    return TrainConfig.model_validate(TINY | more)


def fresh(config: TrainConfig, seed: int) -> QMap:
    torch.manual_seed(seed)
    return _network(config, divided(config)[0])


def same(one: torch.nn.Module, other: torch.nn.Module) -> list[bool]:
    """For every weight, whether it is the other's but for the file's half precision."""
    theirs = other.state_dict()
    return [torch.equal(value.half(), theirs[name].half()) for name, value in one.state_dict().items()]


def test_a_training_starts_from_a_whole_agent_or_from_its_compass(tmp_path: Path) -> None:
    path = tmp_path / "before.safetensors"
    before = fresh(configured(), seed=1)
    save_agent(before, path, {})
    assert not all(same(fresh(configured(), seed=2), before))
    assert all(same(fresh(configured(start=str(path)), seed=2), before))
    wider = fresh(configured(start=str(path), blocks=2), seed=2)
    assert wider.compass is not None
    assert before.compass is not None
    assert all(same(wider.compass, before.compass))
    assert not torch.equal(wider.place.weight, before.place.weight)
    other = fresh(configured(start=str(path), compass_width=16), seed=2)
    assert torch.equal(other.place.weight.half(), before.place.weight.half())


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"heads": 2, "blocks": 3}, "neither the compass nor the values"),
        ({"compass_width": 16, "blocks": 3}, "neither the compass nor the values"),
        ({"compass_levels": 2, "blocks": 3}, "neither the compass nor the values"),
        ({"heads": 0}, "neither the compass nor the values"),
    ],
)
def test_an_agent_that_nothing_can_be_taken_from(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    path = tmp_path / "before.safetensors"
    save_agent(fresh(configured(), seed=1), path, {})
    with pytest.raises(InputError, match=sentence):
        fresh(configured(start=str(path), **more), seed=1)


def test_an_agent_to_start_from_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no agent file"):
        fresh(configured(start=str(tmp_path / "none.safetensors")), seed=1)


class Stopped(Exception):
    """Ends a training early."""


def test_practice_takes_the_first_models_for_q_learning_and_all_for_the_compass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    practised: list[list[object]] = []

    def learner(network: QMap, samplers: list[Any], config: Any) -> Learner:
        practised.append([sampler.victim for sampler in samplers])
        return Learner(network, samplers, config)

    def stop(compass: DirectionPrior, lessons: list[Any], grids: list[Any], *rest: object) -> None:
        taught = [one.victim for one in lessons]
        assert len(grids) == len(taught) == 6  # three models, two patch sizes
        assert len(set(map(id, taught))) == 3
        assert set(map(id, practised[0])) == set(map(id, taught[:4]))
        raise Stopped

    monkeypatch.setattr(rlab.training.qmap, "Learner", learner)
    monkeypatch.setattr(rlab.training.trainer, "guide", stop)
    three = [{"name": "demo:digits"}] * 3
    with pytest.raises(Stopped):
        train(configured(models=three, practice=2, patches=[2, 4]), tmp_path)
    assert len(practised[0]) == 4


def plain() -> Any:
    """A model that is a function, which nobody can differentiate."""
    inner = demo_victim("digits")
    return lambda x: inner(torch.as_tensor(x)).numpy()


def test_a_compass_needs_a_model_that_can_be_differentiated(tmp_path: Path) -> None:
    models = [{"name": "tests.training.test_qmap:plain"}]
    with pytest.raises(InputError, match=r"a compass needs a training model.*set heads to 0"):
        train(configured(models=models), tmp_path / "with")
    path = train(configured(models=models, heads=0), tmp_path / "without")
    assert read_agent(path)[0].compass is None


def test_a_compass_is_taught_by_those_models_that_can_be_differentiated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(compass: DirectionPrior, lessons: list[Any], *rest: object) -> None:
        assert [type(one.victim) for one in lessons] == [TorchVictim]
        raise Stopped

    monkeypatch.setattr(rlab.training.trainer, "guide", stop)
    with pytest.raises(Stopped):
        train(configured(models=[{"name": "tests.training.test_qmap:plain"}, {"name": "demo:digits"}]), tmp_path)


def test_a_training_stopped_in_the_middle_of_the_compass_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(compass_minutes=0.05, evaluate=0.0005)

    def stop(figures: dict[str, float]) -> None:
        if figures.get("compass", 0.0) > 0.1:
            raise Stopped

    with pytest.raises(Stopped):
        train(config, tmp_path, stop)
    saved = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    assert 0.1 < saved["guided"] < 1
    assert not (tmp_path / AGENT).exists()
    kept = {
        name: value for name, value in saved["learner"]["loss"].items() if "compass" in name and "target" not in name
    }
    began: list[float] = []

    def from_there(
        compass: DirectionPrior, lessons: Any, grids: Any, bounds: Any, goal: Any, given: Any, *rest: Any
    ) -> None:
        progress, tell, *_ = rest
        began.append(progress())
        weights = {name.split("compass.")[-1].split("compass_")[-1]: value for name, value in kept.items()}
        for name, value in compass.state_dict().items():
            assert torch.equal(value, weights[name if name in weights else name.replace(".", "_")])
        guide(compass, lessons, grids, bounds, goal, given, progress, tell)

    monkeypatch.setattr(rlab.training.trainer, "guide", from_there)
    told: list[dict[str, float]] = []
    train(config, tmp_path, told.append)
    assert saved["guided"] <= began[0] < 1
    assert (tmp_path / AGENT).exists()
    monkeypatch.setattr(rlab.training.trainer, "guide", lambda *given: pytest.fail("the compass is trained already"))
    train(config, tmp_path)


def test_tensorboard_is_asked_for_before_any_time_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setattr(rlab.training.trainer, "guide", lambda *given: pytest.fail("the training began"))
    with pytest.raises(MissingExtra, match="tensorboard"):
        train(configured(tensorboard=True), tmp_path)


def test_the_file_says_what_it_was_trained_on_and_its_price(tmp_path: Path) -> None:
    about = read_agent(train(configured(heads=0, validation_l2_penalty=0.4, minutes=0.003), tmp_path))[1]
    assert about["l2_penalty"] == 0.4
    assert about["config"]["models"][0]["name"] == "demo:digits"
    assert 0 <= about["validation"]["success"] <= 1
