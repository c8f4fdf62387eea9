"""Policies from files: the pair of agents for clips, or the belief search with a prior that was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rlab.policies.belief import BeliefPolicy
from rlab.policies.video import Pair, PairConfig, PairPolicy
from rlab.policies.video.view import read_mobilenet
from rlab.priors.file import mismatch, read_header, read_prior, read_weights, write_weights
from rlab.runs.aliases import renamed

CLIPS = "clips"  # the kind of a pair's file


def save_pair(pair: Pair, path: Path, card: Mapping[str, Any]) -> None:
    write_weights(path, CLIPS, pair.state_dict(), asdict(pair.config), card)


def read_pair(path: Path) -> tuple[Pair, dict[str, Any]]:
    """The pair in evaluation mode, and its card: what it was trained on, how, and how it did on validation."""
    header, weights = read_weights(path)
    try:
        shape = renamed(header["network"], {field.name: field for field in fields(PairConfig)})
        pair = Pair(PairConfig(**shape))
        pair.load_state_dict(weights)
    except (KeyError, TypeError, RuntimeError) as error:
        raise mismatch(path) from error
    return pair.eval(), header["about"]


def load_policy(path: Path, mobilenet: str | None = None, **options: Any) -> BeliefPolicy | PairPolicy:
    """What a file proposes by; `mobilenet` names the weights of a pair's frame encoder where it uses one."""
    if read_header(path)["kind"] != CLIPS:
        if mobilenet is not None or "prior" in options:
            raise TypeError("mobilenet")
        return BeliefPolicy(prior=read_prior(path)[0], **options)
    pair, card = read_pair(path)
    options = {"l2_penalty": float(card.get("l2_penalty", 0.0)), "name": path.stem.removeprefix("agent_"), **options}
    return PairPolicy(pair, mobilenet=None if mobilenet is None else read_mobilenet(mobilenet), **options)
