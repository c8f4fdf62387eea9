"""Policies by name: 'auto' (the belief search with a shipped prior), 'belief', 'random', 'greedy', 'square', or a file.

Options follow in brackets: 'square(share=0.2)', "belief(prior='trained')", 'prior.safetensors(temperature=0.1)'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlab.errors import OptionError
from rlab.policies.agent_file import PAPERS, load_paper, load_policy
from rlab.policies.auto import make_auto, make_prior
from rlab.policies.base import Policy
from rlab.policies.belief import BeliefPolicy
from rlab.policies.greedy import GreedyPolicy
from rlab.policies.random import RandomPolicy
from rlab.policies.square import SquarePolicy
from rlab.storage.config import check_options, did_you_mean, parse_call
from rlab.storage.outside import short

BASELINES: dict[str, type[Policy[Any]]] = {
    "random": RandomPolicy,
    "greedy": GreedyPolicy,
    "square": SquarePolicy,
    "belief": BeliefPolicy,
}
NAMED = ("auto", *PAPERS, *BASELINES)
_GONE = {"ways": "rivals"}  # options with a new name


def parse_policy(spec: str | Policy[Any]) -> Policy[Any]:
    """A name or a file, with options -> a policy."""
    if isinstance(spec, Policy):
        return spec
    name, options = parse_call(spec, "a policy like 'random' or 'square(share=0.2)'")
    for old in _GONE.keys() & options.keys():
        raise OptionError(f"the policy option {old!r} is now called {_GONE[old]!r}")
    if name.endswith(".safetensors"):
        return load_policy(Path(name), **options)
    if name == "auto":
        return make_auto(**options)
    if name == "agents":
        raise OptionError("the policy 'agents' of rlab 0.2.0 is gone: use two_agents(agent='agent.safetensors')")
    if name in PAPERS:
        return load_paper(PAPERS[name])(**options)
    if name not in BASELINES:
        hint = did_you_mean(name, NAMED)
        raise OptionError(
            f"unknown policy {short(name)}.{hint} There are {', '.join(NAMED)}, or an agent's .safetensors file"
        )
    if name == "belief" and isinstance(prior := options.get("prior"), str):
        options["prior"] = make_prior(prior)
    check_options(BASELINES[name], options, f"the policy {name!r}")
    return BASELINES[name](**options)


__all__ = ["BASELINES", "NAMED", "Policy", "load_policy", "parse_policy"]
