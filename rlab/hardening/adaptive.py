"""An agent trained against the hardened model itself: the honest test, where the attacker has learned of the defence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlab.data.batch import Batch
from rlab.errors import MissingExtra
from rlab.hardening.evaluation import PolicyFor
from rlab.hardening.options import HardenOptions
from rlab.policies import parse_policy
from rlab.policies.base import Policy
from rlab.victims.torch_module import TorchVictim


def adaptive_policy(batch: Batch, options: HardenOptions, folder: Path, minutes: float, **training: Any) -> PolicyFor:
    """A function that trains an agent against a model, palettes and patches as in the hardening; needs the extra 'train'.

    `minutes` are of each agent, half of them for its prior; `training` are further fields of `QMapOptions`.
    """
    try:
        from rlab.training.qmap import QMapOptions, train
    except ModuleNotFoundError as error:
        raise MissingExtra("torchrl", "train") from error
    filled, count = options.filled(batch), 0
    values = {
        "models": ["hardened"],
        "data": "training samples",  # both are in memory; the names are only written down
        "palettes": filled.palettes,
        "patches": filled.patches,
        "entries": filled.entries,
        "validation_interval": minutes,
        "minutes": minutes / 2,
        "prior_minutes": minutes / 2,
        "seed": filled.seed,
    }

    def train_against(victim: TorchVictim) -> Policy:
        nonlocal count
        count += 1
        chosen = QMapOptions.model_validate(values | {"device": victim.device.type} | training)
        return parse_policy(str(train([victim], batch, None, chosen, folder / f"agent-{count}")))

    return train_against
