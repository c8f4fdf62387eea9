"""Names that changed. Files written with the old ones (configurations, run folders, agents) are still read, through here alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RENAMED = {
    "price": "l2_penalty",
    "keep": "accept",
    "prices": "l2_penalties",
    "validation_price": "validation_l2_penalty",
    "marks": "r_peaks",
    "storage": "format",
    "guide": "prior",
    "compass_minutes": "prior_minutes",
    "compass_width": "prior_width",
    "compass_levels": "prior_levels",
    "burden": "distortion_cost",
    "thrift": "distortion_weight",
    "haste": "query_cost",
    "restraint": "retry_penalty",
    "heat": "temperature",
    "rate": "learning_rate",
    "settle": "epsilon_decay",
    "replay": "buffer_size",
    "evaluate": "validation_interval",
    "decay": "weight_decay",
    "together": "batch_size",
    "anchor": "distillation_weight",
    "average": "ema_decay",
    "drop": "max_clean_drop",
    "judged": "validation_attacked",
    "hold_out": "validation_split",
    "beyond": "overshoot",
    "reach": "radius_range",
    "found": "flipped",
}


def renamed(values: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The same values under today's names; with `known`, only where the old name is unknown there and the new one is not."""
    return {_today(key, known): value for key, value in values.items()}


def _today(key: str, known: Mapping[str, Any] | None) -> str:
    new = RENAMED.get(key, key)
    return new if known is None or (key not in known and new in known) else key
