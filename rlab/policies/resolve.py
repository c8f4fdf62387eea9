"""The search that an attack uses: the policy as named, the kind of data and the surrogates decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlab.errors import OptionError
from rlab.policies import parse_policy, policy_spec
from rlab.policies.auto import Auto, ShippedPrior, is_auto
from rlab.policies.base import Policy
from rlab.policies.belief import Belief
from rlab.policies.imagine import ImaginePolicy
from rlab.policies.pixels import PixelPolicy, Values
from rlab.priors.base import NoPrior
from rlab.priors.surrogates import SurrogatePrior


def resolve(
    named: str | Policy[Any], shape: tuple[int, ...], prior: SurrogatePrior | None, given: bool, stepped: bool
) -> Policy[Any]:
    """The policy for inputs of this shape (c, *size), with its own prior or with the surrogates as prior.

    `given` says whether the user gave surrogates, not only students; `stepped` whether filters use the surrogates' gradients, so
    that any policy can use them.
    """
    policy = parse_policy(named)
    if prior is None or (stepped and not guided(policy)):
        return replace(policy, prior=policy.prior.suited(shape)) if isinstance(policy, Belief) else policy
    if not isinstance(policy, Belief):
        raise OptionError(f"surrogates guide the policies 'auto' and 'belief', not {named!r}: use either")
    if not guided(policy):
        raise OptionError(f"the policy {named!r} has a prior, and surrogates are one too: leave out one")
    search = replace(policy, prior=prior)
    if not is_auto(policy):
        return search
    trained = policy.prior.suited(shape)
    # Students know less than other trained models: their gradients are a worse prior than the one that ships.
    alone = not given and not isinstance(trained, NoPrior)
    return ImaginePolicy(replace(policy, prior=trained) if alone else search, prior, wary=not given)


def resolve_pixels(
    named: str | Policy[Any], shape: tuple[int, ...], prior: SurrogatePrior | None, values: Values
) -> PixelPolicy:
    """The policy for free pixels, with the surrogates as prior if there are any."""
    if parse_policy(named) != Auto():
        raise OptionError(f"the palette 'pixels' has its own search: leave out the policy {named!r}")
    return PixelPolicy(values, prior, ShippedPrior().suited(shape))


def guided(policy: Policy[Any]) -> bool:
    """Whether surrogates can be the policy's prior."""
    return is_auto(policy) or (isinstance(policy, Belief) and isinstance(policy.prior, NoPrior))


def label(named: str | Policy[Any], policy: Policy[Any], helpers: str) -> str:
    """Describe the policy: its name, what 'auto' chose, and the `helpers`, the surrogates and students in words."""
    spec = policy_spec(named)
    if helpers:
        kind = {PixelPolicy: "pixels", ImaginePolicy: "imagine"}.get(type(policy), "belief")
        return f"{f'auto -> {kind}' if spec.startswith('auto') else spec} with {helpers}"
    return f"{spec} -> {policy}" if spec.startswith("auto") else spec
