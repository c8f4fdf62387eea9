"""Policies by name: 'auto' (the shipped agent that fits the data), 'random', 'greedy', 'square', or an agent's file.

Options stand in brackets: 'square(share=0.2)', 'agent.safetensors(most=2)'.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlab.errors import InputError
from rlab.policies.auto import auto
from rlab.policies.base import Policy
from rlab.policies.greedy import GreedyPolicy
from rlab.policies.learned import LearnedPolicy, load_policy
from rlab.policies.random import RandomPolicy
from rlab.policies.square import SquarePolicy
from rlab.policies.video import is_pair, load_pair

BASELINES: dict[str, Callable[..., Policy]] = {"random": RandomPolicy, "greedy": GreedyPolicy, "square": SquarePolicy}
NAMED: dict[str, Callable[..., Policy]] = {"auto": auto, **BASELINES}
_SPEC = re.compile(r"(?P<name>[^()]+?)\s*(\((?P<options>.*)\))?$")


def parse_policy(spec: str | Policy) -> Policy:
    """A name, or a file, with options -> a policy."""
    if isinstance(spec, Policy):
        return spec
    match = _SPEC.match(spec.strip())
    if match is None:
        raise _unclear(spec)
    name, options = match["name"], _options(match["options"] or "", spec)
    try:
        if name.endswith(".safetensors"):
            return (load_pair if is_pair(Path(name)) else load_policy)(Path(name), **options)
        if name in NAMED:
            return NAMED[name](**options)
    except TypeError:
        raise InputError(f"the policy {name!r} does not take the options {', '.join(options)}") from None
    near = difflib.get_close_matches(name, NAMED, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"unknown policy {name!r}.{hint} There are {', '.join(NAMED)}, or an agent's .safetensors file")


def _options(text: str, spec: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError(text)
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise _unclear(spec) from None


def _unclear(spec: str) -> InputError:
    return InputError(f"expected a policy like 'random' or 'square(share=0.2)', got {spec!r}")


__all__ = ["BASELINES", "LearnedPolicy", "Policy", "parse_policy"]
