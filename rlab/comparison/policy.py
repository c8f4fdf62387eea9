"""A policy of rlab as one of the attacks in a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlab.comparison.outcome import FREE_PIXELS, PALETTE, SURROGATES, AttackOutcome, Contender
from rlab.data.batch import Batch
from rlab.filters.palette import PIXELS
from rlab.policies import parse_policy
from rlab.policies.auto import is_auto
from rlab.policies.belief import BeliefPolicy
from rlab.priors.base import NoPrior
from rlab.progress import bar
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.options import AttackOptions
from rlab.victims.base import Victim


@dataclass(frozen=True)
class PolicyContender(Contender):
    """A policy in the attack loop, with cleanup and verification."""

    options: AttackOptions
    name: str = "attacking"  # label of the progress bar
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
            return ("a trained prior where one ships",)
        if isinstance(policy, BeliefPolicy) and not isinstance(policy.prior, NoPrior):
            return ("a trained prior",)
        return policy.needs

    def check(self, batch: Batch, budget: int) -> None:
        self.options.model_copy(update={"budget": budget}).build(batch)

    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        before = victim.rows.total()
        options = self.options.model_copy(update={"budget": budget, "seed": seed})
        with bar(len(batch), self.name) as progress:
            result = run_attack(options, victim, batch, progress=progress, workers=self.workers)
        return outcome_of(result, victim.rows.total() - before)


def outcome_of(result: AttackResult, rows: int) -> AttackOutcome:
    """The result of a policy as an outcome; `rows` is the total that reached the model."""
    return AttackOutcome(
        attacked=result.attacked,
        succeeded=result.succeeded,
        queries=result.effort,
        l2=result.final["l2"].double().masked_fill(~result.succeeded, math.nan),
        budget=result.setting.budget,
        rows=rows,
        seconds=float(result.seconds.sum()),
        improvements=result.improvements,
        distance=result.setting.distance,
    )
