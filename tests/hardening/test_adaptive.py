"""A prior trained against the model at hand."""

from __future__ import annotations

from pathlib import Path

from rlab.hardening.evaluation import adaptive_policy
from rlab.hardening.options import HardenOptions
from rlab.policies.belief import BeliefPolicy
from rlab.priors.trained import TrainedPrior
from rlab.storage.config import check
from tests.hardening.toys import PALETTE, shortcut
from tests.helpers import PATCHES

SMALL = {"prior_width": 8, "prior_levels": 1, "budget": 12, "validation_samples": 4}


def test_a_prior_is_trained_for_each_model(tmp_path: Path) -> None:
    toy = shortcut(2, n=32)
    options = check(HardenOptions, {"palettes": [PALETTE], "patches": [list(PATCHES[2])], "entries": 2})
    train_against = adaptive_policy(toy.batch, options, tmp_path, 0.005, **SMALL)
    policies = [train_against(toy.victim) for _ in range(2)]
    assert all(isinstance(policy, BeliefPolicy) and isinstance(policy.prior, TrainedPrior) for policy in policies)
    assert {path.name for path in tmp_path.iterdir()} == {"agent-1", "agent-2"}
    assert toy.victim.rows["train"] > 0
