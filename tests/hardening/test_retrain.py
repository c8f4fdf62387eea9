"""An agent trained against the model at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlab.hardening import HardenConfig
from rlab.hardening.retrain import agent_for
from rlab.policies.learned import LearnedPolicy
from tests.hardening.toys import PALETTE, shortcut
from tests.helpers import PATCHES

SMALL = {
    "width": 8,
    "blocks": 1,
    "compass_minutes": 0.005,
    "compass_width": 8,
    "budget": 12,
    "horizon": 6,
    "validation_samples": 4,
    "learner": {"rows": 8, "rollout": 2, "updates": 1, "batch": 8, "replay": 100},
}


def test_an_agent_is_trained_for_each_model(tmp_path: Path) -> None:
    pytest.importorskip("torchrl", reason="the extra 'train'")
    toy = shortcut(2, n=32)
    config = HardenConfig.model_validate({"palettes": [PALETTE], "patches": [list(PATCHES[2])], "entries": 2})
    make = agent_for(toy.batch, config, tmp_path, minutes=0.005, **SMALL)
    first, second = make(toy.victim), make(toy.victim)
    assert isinstance(first, LearnedPolicy)
    assert isinstance(second, LearnedPolicy)
    assert {path.name for path in tmp_path.iterdir()} == {"agent-1", "agent-2"}
    assert toy.victim.rows["train"] > 0
