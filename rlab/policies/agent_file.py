"""Policies from files: the belief search with a trained prior, or the agent of a paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from rlab.policies.base import Policy
from rlab.policies.belief import BeliefPolicy
from rlab.priors.file import read_header, read_prior
from rlab.storage.config import check_options

# The agents of papers come with their training, which needs this package: they are entry points, loaded when a user names one.
PAPERS = {  # by the policy's name
    "dual_action": "rlab.papers.dual_action:make_policy",
    "two_agents": "rlab.papers.two_agents:make_policy",
}
PAPER_FILES = {  # by the kind in a file's header
    "dual_action": "rlab.papers.dual_action:load_policy",
    "two_agents": "rlab.papers.two_agents:load_policy",
}


def load_paper(entry_point: str) -> Callable[..., Policy[Any]]:
    """The function behind an entry point."""
    function: Callable[..., Policy[Any]] = resolve_name(entry_point)
    return function


def load_policy(path: Path, **options: Any) -> Policy[Any]:
    """The policy in a file of `rlab train`."""
    kind = read_header(path).kind
    if kind in PAPER_FILES:
        return load_paper(PAPER_FILES[kind])(path, **options)
    what = f"the policy {str(path)!r}"
    check_options(BeliefPolicy, options, what, without=("prior",))
    return BeliefPolicy(prior=read_prior(path)[0], **options)
