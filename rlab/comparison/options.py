"""Options of `rlab compare`, and the policies and attacks that they name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_serializer, field_validator
from torch import Tensor

from rlab.comparison.libraries import LIBRARIES, parse_library
from rlab.comparison.outcome import FREE_PIXELS, PALETTE, SURROGATES, AttackOutcome, Contender
from rlab.comparison.own import OWN, own_attack, own_name
from rlab.comparison.recorder import QueryRecorder, RecordedContender
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters.palette import PIXELS
from rlab.policies import parse_policy
from rlab.policies.auto import is_auto
from rlab.policies.base import Policy
from rlab.policies.belief import Belief
from rlab.policies.resolve import guided
from rlab.priors.base import NoPrior
from rlab.progress import Progress, quiet
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.options import AttackOptions, RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import Accepts
from rlab.storage.contents import parts_of
from rlab.victims.base import Victim

Named = str | Policy[Any]
Own = Named | Callable[[QueryRecorder, Tensor], object]


@dataclass(frozen=True)
class PolicyContender(Contender):
    """A policy in the attack loop, with cleanup and verification."""

    options: AttackOptions
    workers: Workers | None = None  # None attacks in this process

    @property
    def needs(self) -> tuple[str, ...]:
        return ("scores", *self._models(), FREE_PIXELS if self.options.palette == (PIXELS,) else PALETTE)

    def _models(self) -> tuple[str, ...]:
        """What the policy needs beside the victim: surrogates, a prior, or agents."""
        policy = parse_policy(self.options.policy)
        if self.options.surrogate:
            return (SURROGATES,)
        if is_auto(policy):
            return ("a trained prior if one ships",)
        if isinstance(policy, Belief) and not isinstance(policy.prior, NoPrior):
            return ("a trained prior",)
        return policy.needs

    def check(self, batch: Batch, budget: int) -> None:
        self.options.model_copy(update={"budget": budget}).build(batch)

    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        before = victim.rows.total()
        options = self.options.model_copy(update={"budget": budget, "seed": seed})
        result = run_attack(options, victim, batch, progress=progress, workers=self.workers)
        return outcome_of(result, victim.rows.total() - before)


@parts_of.register
def _parts(contender: PolicyContender) -> Mapping[str, object]:
    return {"options": contender.options}  # who does the work decides nothing


def outcome_of(result: AttackResult, rows: int) -> AttackOutcome:
    """The result of a policy as an outcome; `rows` is the total that reached the model."""
    return AttackOutcome(
        attacked=result.attacked,
        succeeded=result.succeeded,
        queries=result.effort,
        l2=result.final["l2"].double().masked_fill(~result.succeeded, math.nan),
        budget=result.setting.budget,
        rows=rows,
        improvements=result.improvements,
        distance=result.setting.distance,
    )


class CompareOptions(WorkerOptions, RunOptions):
    """Policies of rlab and attacks from elsewhere on the same model, samples and budget."""

    policies: Annotated[tuple[Any, ...], Accepts(Named | Sequence[Named])] = Field(
        ("auto", "square", "random"), description="search policies, separated by commas: auto,square,agent.safetensors"
    )
    attacks: Annotated[tuple[Any, ...], Accepts(Own | Sequence[Own])] = Field(
        (),
        description="attacks of other libraries and of your own, separated by commas or spaces: art:simba,my_module:my_attack",
    )
    reduce: bool = Field(
        False,
        description="after the flip, bisect towards the original in attacks that would stop there; counted as queries",
    )

    @field_validator("policies", "attacks", mode="before")
    @classmethod
    def _split(cls, value: Any, info: ValidationInfo) -> Any:
        """Split policies at commas outside of brackets, attacks at commas or spaces."""
        separator = r"[,\s]+" if info.field_name == "attacks" else r",(?![^(]*\))"
        listed = value if isinstance(value, list | tuple) else [value]
        parts = [re.split(separator, each) if isinstance(each, str) else [each] for each in listed]
        words = [each.strip() if isinstance(each, str) else each for part in parts for each in part]
        if wrong := [each for each in words if not isinstance(each, str | Policy) and not callable(each)]:
            raise ValueError(f"expected names, policies or functions, got {type(wrong[0]).__name__}")
        return [each for each in words if each != ""]

    @field_serializer("policies", "attacks")
    def _named(self, listed: tuple[Any, ...]) -> list[str]:
        return [each if isinstance(each, str) else own_name(each) for each in listed]

    def attack_options(self) -> AttackOptions:
        """Options of each policy; beside attacks from elsewhere, every policy minimises L2."""
        return super().attack_options().model_copy(update={"distance": "l2"} if self.attacks else {})

    def settings(self) -> dict[str, Any]:
        """The options that every attack shares, as plain values."""
        return {key: value for key, value in self.plain().items() if key not in ("policies", "attacks", "policy")}

    def contenders(self, workers: Workers | None = None) -> dict[str, Contender]:
        """The attacks by name, policies first; only policies can share work among the workers."""
        theirs, instead = "attacks of libraries and of your own are", "leave out the attacks or the"
        if self.attacks and str(self.goal or "untargeted") != "untargeted":
            raise OptionError(f"{theirs} untargeted, got the goal {self.goal}: {instead} goal")
        if self.attacks and self.distance not in (None, "l2"):
            raise OptionError(f"{theirs} compared by L2, got {self.distance}: {instead} distance")
        options, named = self.attack_options(), dict[str, Contender]()
        free = tuple(self.palette or ()) == (PIXELS,) and "policies" not in self.model_fields_set

        def policy_of(policy: Policy[Any]) -> PolicyContender:
            more = {"policy": policy} if guided(policy) else {"policy": policy, "surrogate": None}
            return PolicyContender(options.model_copy(update=more), workers)

        for each in ("auto",) if free else self.policies:  # free pixels have only one search
            known = isinstance(each, str) and not OWN.fullmatch(each)
            made = parse_policy(each) if known else own_attack(each)
            if isinstance(made, RecordedContender):
                raise OptionError(f"{made.name} is a function: name it among the attacks, not among the policies")
            named[own_name(each) if isinstance(each, Policy) else str(each)] = policy_of(made)
        for each in self.attacks:
            if isinstance(each, str) and (not OWN.fullmatch(each) or each.partition(":")[0] in LIBRARIES):
                named[each] = parse_library(each, self.reduce)
                continue
            made = own_attack(each)
            name = each if isinstance(each, str) else own_name(each)
            named[name] = policy_of(made) if isinstance(made, Policy) else made
        return named
