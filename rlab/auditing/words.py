"""The words of a requirement: figures by stage, and what may be said of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Stage = Literal["doctor", "attack", "explain", "benchmark", "harden", "audit"]
STAGES: tuple[Stage, ...] = get_args(Stage)
Detail = Literal["class", "distortion", "what", "name", "within", "moment"]


@dataclass(frozen=True)
class Figure:
    """What can be required: its key in `audit.json`, whether it is a share of one, and which details it takes."""

    stage: Stage
    key: str
    share: bool = False
    details: tuple[Detail, ...] = ()
    worst: float = float("nan")  # what a median is where nothing flipped: farther than any attack went


_EACH: tuple[Detail, ...] = ("class", "distortion")
_FAR = float("inf")
FIGURES: dict[str, Figure] = {
    "errors": Figure("doctor", "errors"),
    "warnings": Figure("doctor", "warnings"),
    "success": Figure("attack", "success", True, (*_EACH, "within")),
    "clean accuracy": Figure("attack", "clean_accuracy", True, ("class",)),
    "median queries": Figure("attack", "median_queries", False, _EACH, _FAR),
    "median l2": Figure("attack", "median_l2", False, _EACH, _FAR),
    "median snr": Figure("attack", "median_snr", False, _EACH, -_FAR),
    "median patches": Figure("attack", "median_patches", False, _EACH, _FAR),
    "accuracy": Figure("benchmark", "accuracy", True, ("what", "name")),
    "area": Figure("benchmark", "area", True, ("name",)),
    "mismatches": Figure("benchmark", "mismatches"),
    **{
        name: Figure("explain", name, name != "sanity", ("name",))
        for name in ("dice", "iou", "pointing", "energy", "deletion", "insertion", "stability", "sanity")
    },
    "queries": Figure("audit", "queries"),
}
# The same words mean a hardened model where 'after hardening', 'before hardening', 'gained' or 'lost by hardening' follows.
HARDEN_FIGURES: dict[str, Figure] = {
    "clean accuracy": Figure("harden", "clean", True, ("moment",)),
    "accuracy under attack": Figure("harden", "agent", True, ("moment",)),
    "accuracy under square": Figure("harden", "square", True, ("moment",)),
    "accuracy under pgd": Figure("harden", "pgd", True, ("moment",)),
    "accuracy under corruptions": Figure("harden", "corruptions", True, ("moment",)),
    "accuracy under held-out filters": Figure("harden", "held_out", True, ("moment",)),
    "median l2": Figure("harden", "agent_l2", False, ("moment",), _FAR),
}
EXAMPLES = (
    "'success below 20% at SNR 20 dB', 'median L2 at least 1.0', 'accuracy at flip x1.5 at least 40%', "
    "'clean accuracy at least 90%' or 'doctor: no errors'"
)
