"""Policies from files: the pair of agents for clips, or the belief search with a prior that was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlab.errors import InputError
from rlab.policies.belief import BeliefPolicy
from rlab.policies.video import Pair, PairConfig, PairPolicy
from rlab.policies.video.view import read_mobilenet
from rlab.priors.file import MOST_LEVELS, MOST_WIDTH, fill, read_header, read_prior, read_weights, write_weights
from rlab.storage.config import check_options

CLIPS = "clips"  # the kind of a pair's file
_DEPTHS = ("blocks", "levels", "prior_levels")


def save_pair(pair: Pair, path: Path, card: Mapping[str, Any]) -> None:
    write_weights(path, CLIPS, pair.state_dict(), asdict(pair.config), card)


def read_pair(path: Path) -> tuple[Pair, dict[str, Any]]:
    """The pair in evaluation mode, and its card: what it was trained on, how, and how it did on validation."""
    header, weights = read_weights(path)
    shape = header.network
    check_options(PairConfig, shape, f"the network in the header of {path}")
    for name, value in shape.items():
        least, most = name != "heads", MOST_LEVELS if name in _DEPTHS else MOST_WIDTH
        if type(value) is int and not least <= value <= most:
            raise InputError(f"expected {name} from {least:d} to {most} in the header of {path}, got {value}")
    return fill(lambda: Pair(PairConfig(**shape)), weights, path), header.about


def load_policy(path: Path, mobilenet: str | None = None, **options: Any) -> BeliefPolicy | PairPolicy:
    """What a file proposes by; `mobilenet` names the weights of a pair's frame encoder where it uses one."""
    what = f"the policy {str(path)!r}"
    if read_header(path).kind != CLIPS:
        if mobilenet is not None or "prior" in options:
            raise InputError(f"{what} does not take the options {'prior' if mobilenet is None else 'mobilenet'}")
        check_options(BeliefPolicy, options, what)
        return BeliefPolicy(prior=read_prior(path)[0], **options)
    pair, card = read_pair(path)
    options = {"l2_penalty": card.get("l2_penalty", 0.0), "name": path.stem.removeprefix("agent_"), **options}
    check_options(PairPolicy, options, what)
    return PairPolicy(pair, mobilenet=None if mobilenet is None else read_mobilenet(mobilenet), **options)
