"""Policies by name: 'auto' (the belief search with a shipped prior), 'belief', 'random', 'greedy', 'square', or a file.

Options follow in brackets: 'square(share=0.2)', "belief(prior='trained')", 'prior.safetensors(temperature=0.1)'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from rlab.errors import OptionError
from rlab.policies.auto import Auto, make_prior
from rlab.policies.base import Policy
from rlab.policies.belief import Belief
from rlab.policies.greedy import Greedy
from rlab.policies.random import Random
from rlab.policies.square import Square
from rlab.priors.file import read_header, read_prior
from rlab.storage.config import check_options, did_you_mean, parse_call
from rlab.storage.outside import short

BASELINES: dict[str, type[Policy[Any]]] = {
    "random": Random,
    "greedy": Greedy,
    "square": Square,
    "belief": Belief,
}
# Modules of rlab.papers, by the policy's name, which is also the kind in a file's header. The agents of papers come with their
# training, which needs this package: they are imported when a user names one.
PAPERS = ("dual_action", "two_agents")
NAMED = ("auto", *PAPERS, *BASELINES)


def parse_policy(spec: str | Policy[Any]) -> Policy[Any]:
    """A name or a file, with options -> a policy."""
    if isinstance(spec, Policy):
        return spec
    name, options = parse_call(spec, "a policy like 'random' or 'square(share=0.2)'")
    if name.endswith(".safetensors"):
        return load_policy(Path(name), **options)
    if name == "auto":
        check_options(Auto, options, "the policy 'auto'", without=("prior",))  # it picks its prior by the data
        return Auto(**options)
    if name in PAPERS:
        return _paper(name, "make_policy")(**options)
    if name not in BASELINES:
        hint = did_you_mean(name, NAMED)
        raise OptionError(
            f"unknown policy {short(name)}.{hint} There are {', '.join(NAMED)}, or an agent's .safetensors file"
        )
    if name == "belief" and isinstance(prior := options.get("prior"), str):
        options["prior"] = make_prior(prior)
    check_options(BASELINES[name], options, f"the policy {name!r}")
    return BASELINES[name](**options)


def load_policy(path: Path, **options: Any) -> Policy[Any]:
    """The policy in a file of `rlab train`: the agent of a paper, or the belief search with a trained prior."""
    kind = read_header(path).kind
    if kind in PAPERS:
        return _paper(kind, "load_policy")(path, **options)
    check_options(Belief, options, f"the policy {str(path)!r}", without=("prior",))
    return Belief(prior=read_prior(path)[0], **options)


def _paper(name: str, function: str) -> Callable[..., Policy[Any]]:
    found: Callable[..., Policy[Any]] = resolve_name(f"rlab.papers.{name}:{function}")
    return found


def policy_spec(policy: str | Policy[Any]) -> str:
    """The inverse of `parse_policy` for policies that a name with options describes; others describe themselves."""
    if isinstance(policy, str):
        return policy
    names = {kind: name for name, kind in BASELINES.items()} | {Auto: "auto"}
    if type(policy) not in names or (isinstance(policy, Belief) and policy.prior != type(policy)().prior):
        return str(policy)
    usual = type(policy)()
    set_here = [f.name for f in fields(policy) if getattr(policy, f.name) != getattr(usual, f.name)]  # type: ignore[arg-type]
    options = ", ".join(f"{name}={getattr(policy, name)!r}" for name in set_here)
    return f"{names[type(policy)]}({options})" if options else names[type(policy)]


__all__ = ["BASELINES", "NAMED", "Policy", "load_policy", "parse_policy", "policy_spec"]
