"""Policies by name: 'random', 'greedy', 'square', or with options 'square(share=0.2)'."""

from __future__ import annotations

import ast
import difflib

from rlab.agents.base import Policy
from rlab.agents.greedy import GreedyPolicy
from rlab.agents.random import RandomPolicy
from rlab.agents.square import SquarePolicy
from rlab.errors import InputError

POLICIES: dict[str, type[Policy]] = {"random": RandomPolicy, "greedy": GreedyPolicy, "square": SquarePolicy}


def parse_policy(spec: str | Policy) -> Policy:
    """'name' or 'name(option=value, ...)' -> a policy."""
    if isinstance(spec, Policy):
        return spec
    try:
        tree = ast.parse(spec.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(func=tree, args=[], keywords=[])
        if not isinstance(call.func, ast.Name) or call.args:
            raise ValueError(spec)
        name = call.func.id
        options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise InputError(f"expected a policy like 'random' or 'square(share=0.2)', got {spec!r}") from None
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"unknown policy {name!r}.{hint} There are {', '.join(POLICIES)}")
    try:
        return POLICIES[name](**options)
    except TypeError:
        raise InputError(f"the policy {name!r} does not take the options {', '.join(options)}") from None
