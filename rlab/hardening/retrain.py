"""An agent trained against the hardened model itself: the honest test, where the attacker has learned of the defence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.errors import MissingExtra
from rlab.hardening.config import HardenConfig
from rlab.hardening.measure import PolicyFor
from rlab.policies.base import Policy
from rlab.policies.learned import load_policy
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.torch_module import TorchVictim


class _Here(ModelOptions):
    """A model that is at hand already."""

    _victim: Victim = PrivateAttr()

    def load(self, batch: Batch) -> Victim:
        return self._victim


class _Held(DataOptions):
    """Data that are at hand already."""

    _batch: Batch = PrivateAttr()

    def load(self) -> Batch:
        return self._batch


def agent_for(batch: Batch, config: HardenConfig, out: Path, minutes: float, **training: Any) -> PolicyFor:
    """A function that trains an agent against a model for so many minutes in all; `training` are fields of `TrainConfig`."""
    count = 0

    def make(victim: TorchVictim) -> Policy:
        nonlocal count
        count += 1
        return retrain(victim, batch, config, out / f"agent-{count}", minutes, **training)

    return make


def retrain(
    victim: TorchVictim, batch: Batch, config: HardenConfig, out: Path, minutes: float, **training: Any
) -> Policy:
    """Trains an agent on this model, palettes and patches as in the hardening; needs the extra 'train'."""
    try:
        from rlab.training.qmap import TrainConfig, train
    except ImportError as error:
        raise MissingExtra("torchrl", "train") from error
    model, data = _Here.model_validate({"name": "hardened"}), _Held.model_validate({"path": "here"})
    model._victim, data._batch = victim, batch
    made = TrainConfig(
        models=[model],
        data=data,
        palettes=config.palettes or [],
        patches=config.patches or [],
        entries=config.entries,
        evaluate=minutes,
        device=victim.device.type,
        seed=config.seed,
        **({"minutes": minutes / 2, "compass_minutes": minutes / 2} | training),
    )
    return load_policy(train(made, out))
