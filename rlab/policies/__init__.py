"""Policies by name: 'auto' (what ships for the data), 'belief', 'random', 'greedy', 'square', or a prior's or an agent's file.

Options stand in brackets: 'square(share=0.2)', "belief(prior='trained')", 'prior.safetensors(temperature=0.1)'.
"""

from __future__ import annotations

from pathlib import Path

from rlab.errors import InputError
from rlab.policies.agent_file import load_policy
from rlab.policies.auto import make_agents, make_auto, make_prior
from rlab.policies.base import Policy
from rlab.policies.belief import BeliefPolicy
from rlab.policies.greedy import GreedyPolicy
from rlab.policies.random import RandomPolicy
from rlab.policies.square import SquarePolicy
from rlab.storage.config import check_options, did_you_mean, parse_call
from rlab.storage.outside import short

BASELINES: dict[str, type[Policy]] = {
    "random": RandomPolicy,
    "greedy": GreedyPolicy,
    "square": SquarePolicy,
    "belief": BeliefPolicy,
}
NAMED = ("auto", "agents", *BASELINES)


def parse_policy(spec: str | Policy) -> Policy:
    """A name, or a file, with options -> a policy."""
    if isinstance(spec, Policy):
        return spec
    name, options = parse_call(spec, "a policy like 'random' or 'square(share=0.2)'")
    if name.endswith(".safetensors"):
        return load_policy(Path(name), **options)
    if name == "auto":
        return make_auto(**options)
    if name == "agents":
        return make_agents(**options)
    if name not in BASELINES:
        hint = did_you_mean(name, NAMED)
        raise InputError(
            f"unknown policy {short(name)}.{hint} There are {', '.join(NAMED)}, or an agent's .safetensors file"
        )
    if name == "belief" and isinstance(prior := options.get("prior"), str):
        options["prior"] = make_prior(prior)
    check_options(BASELINES[name], options, f"the policy {name!r}")
    return BASELINES[name](**options)


__all__ = ["BASELINES", "NAMED", "Policy", "load_policy", "parse_policy"]
