"""An agent trained against the model at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlab.hardening.adaptive import adaptive_policy
from rlab.hardening.options import HardenOptions
from rlab.policies.learned import LearnedPolicy
from rlab.runs.config import check
from tests.hardening.toys import PALETTE, shortcut
from tests.helpers import PATCHES

SMALL = {
    "width": 8,
    "blocks": 1,
    "prior_minutes": 0.005,
    "prior_width": 8,
    "budget": 12,
    "horizon": 6,
    "validation_samples": 4,
    "learner": {"rows": 8, "rollout": 2, "updates": 1, "batch": 8, "buffer_size": 100},
}


def test_an_agent_is_trained_for_each_model(tmp_path: Path) -> None:
    pytest.importorskip("torchrl", reason="the extra 'train'")
    toy = shortcut(2, n=32)
    options = check(HardenOptions, {"palettes": [PALETTE], "patches": [list(PATCHES[2])], "entries": 2})
    train_against = adaptive_policy(toy.batch, options, tmp_path, 0.005, **SMALL)
    policies = [train_against(toy.victim) for _ in range(2)]
    assert all(isinstance(policy, LearnedPolicy) for policy in policies)
    assert {path.name for path in tmp_path.iterdir()} == {"agent-1", "agent-2"}
    assert toy.victim.rows["train"] > 0
