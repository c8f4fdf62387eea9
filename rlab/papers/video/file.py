"""The two agents as a file, and the pair that ships with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from rlab.errors import ModelError, OptionError
from rlab.papers.video.pair import Pair
from rlab.papers.video.policy import PairPolicy
from rlab.papers.video.view import PairConfig, read_mobilenet
from rlab.policies.auto import shipped, shipped_path
from rlab.priors.file import MOST_LEVELS, MOST_WIDTH, fill, read_weights, write_weights
from rlab.storage.config import check_options, did_you_mean

CLIPS = "clips"  # the kind in a file's header
_DEPTHS = ("blocks", "levels", "prior_levels")


def save_pair(pair: Pair, path: Path, card: Mapping[str, Any]) -> None:
    write_weights(path, CLIPS, pair.state_dict(), asdict(pair.config), card)


def read_pair(path: Path) -> tuple[Pair, dict[str, Any]]:
    """The pair in evaluation mode, and its card: training data, models, options and validation results."""
    header, weights = read_weights(path)
    shape = header.network
    check_options(PairConfig, shape, f"the network in the header of {path}")
    for name, value in shape.items():
        least, most = name != "heads", MOST_LEVELS if name in _DEPTHS else MOST_WIDTH
        if type(value) is int and not least <= value <= most:
            raise ModelError(f"expected {name} from {least:d} to {most} in the header of {path}, got {value}")
    return fill(lambda: Pair(PairConfig(**shape)), weights, path), header.about


def load_agents(path: Path, mobilenet: str | None = None, **options: Any) -> PairPolicy:
    """The agents in a file; `mobilenet` names the weights of their frame encoder if they use one."""
    pair, card = read_pair(path)
    options = {"l2_penalty": card.get("l2_penalty", 0.0), "name": path.stem.removeprefix("agent_"), **options}
    check_options(PairPolicy, options, f"the policy {str(path)!r}")
    return PairPolicy(pair, mobilenet=None if mobilenet is None else read_mobilenet(mobilenet), **options)


@cache
def shipped_pair() -> PairPolicy:
    with shipped_path(CLIPS) as path:
        return load_agents(path)


def make_agents(**options: Any) -> PairPolicy:
    """The policy 'agents': the shipped pair for video, with these options."""
    known = sorted({option.name for option in fields(PairPolicy)} - {"network", "name", "mobilenet"})
    if unknown := sorted(set(options) - set(known)):
        hint = did_you_mean(unknown[0], known, 0.6)
        raise OptionError(
            f"the policy 'agents' does not take the options {unknown[0]}.{hint} It has {', '.join(known)}"
        )
    if CLIPS not in shipped():
        raise OptionError("this rlab ships no agents for video: name the file of a pair, agent.safetensors")
    check_options(PairPolicy, options, "the policy 'agents'")
    return replace(shipped_pair(), **options)
