"""Policies by name: 'auto' (what ships for the data), 'belief', 'random', 'greedy', 'square', or a prior's or an agent's file.

Options stand in brackets: 'square(share=0.2)', "belief(prior='trained')", 'prior.safetensors(temperature=0.1)'.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlab.errors import InputError
from rlab.policies.agent_file import load_policy
from rlab.policies.auto import make_auto, make_belief
from rlab.policies.base import Policy
from rlab.policies.greedy import GreedyPolicy
from rlab.policies.random import RandomPolicy
from rlab.policies.square import SquarePolicy
from rlab.runs.aliases import renamed
from rlab.runs.config import did_you_mean, parse_call

BASELINES: dict[str, Callable[..., Policy]] = {
    "random": RandomPolicy,
    "greedy": GreedyPolicy,
    "square": SquarePolicy,
    "belief": make_belief,
}
NAMED: dict[str, Callable[..., Policy]] = {"auto": make_auto, **BASELINES}


def parse_policy(spec: str | Policy) -> Policy:
    """A name, or a file, with options -> a policy."""
    if isinstance(spec, Policy):
        return spec
    name, options = parse_call(spec, "a policy like 'random' or 'square(share=0.2)'")
    try:
        if name.endswith(".safetensors"):
            return load_policy(Path(name), **renamed(options))
        if name in NAMED:
            return NAMED[name](**renamed(options))
    except TypeError:
        raise InputError(f"the policy {name!r} does not take the options {', '.join(options)}") from None
    hint = did_you_mean(name, NAMED)
    raise InputError(f"unknown policy {name!r}.{hint} There are {', '.join(NAMED)}, or an agent's .safetensors file")


__all__ = ["BASELINES", "Policy", "load_policy", "parse_policy"]
