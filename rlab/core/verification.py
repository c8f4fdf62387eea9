"""Verification of flips: one of them alone first, since the answers of some models depend on the other inputs of a batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlab.core.checks import same_answers
from rlab.core.goals import Goal
from rlab.core.outcome import SearchOutcome
from rlab.core.status import Status
from rlab.errors import give_notice


def verified(outcome: SearchOutcome, goal: Goal) -> SearchOutcome:
    """Predict every success again from the perturbed inputs that were read back from storage.

    An input with values outside the bounds of the data is no success.
    """
    status, scores, meter = list(outcome.status), outcome.scores.clone(), outcome.meter
    affordable = meter.left(outcome.rows) > 0  # a repeated query may have used up the budget
    for i in outcome.rows[~affordable].tolist():
        status[i] = Status.SPENT
    rows = outcome.rows[affordable]
    if len(rows):
        stored, answers = outcome.stored[rows], _answers(outcome, rows)
        scores[rows] = torch.where(meter.lost[rows][:, None], scores[rows], answers)
        low, high = outcome.batch.bounds
        inside = ((stored >= low) & (stored <= high)).flatten(1).all(1)
        aimed = goal.aim(outcome.clean, outcome.batch.y, outcome.batch.aims)
        reached = goal.reached(answers, aimed[rows]) & inside
        for i, holds in zip(rows.tolist(), reached.tolist(), strict=True):
            status[i] = Status.SUCCEEDED if holds else Status.UNVERIFIED
    for i in meter.lost.nonzero().flatten().tolist():
        status[i] = Status.LOST
    return replace(outcome, status=tuple(status), scores=scores)


def _answers(outcome: SearchOutcome, rows: Tensor) -> Tensor:
    """Answers (m, k) to the stored flips `rows` (m,).

    The first flip that was found shared its batch with the others. If its answer is another one alone, the others are queried
    one at a time as well.
    """
    meter, device = outcome.meter, outcome.meter.victim.device
    found = [flips[-1][0] if flips else 0 for flips in outcome.trace.improvements]
    first = rows == min(rows.tolist(), key=found.__getitem__)
    one, others = rows[first], rows[~first]
    alone = meter.query(outcome.stored[one].to(device), "verify", one).cpu()
    if not len(others):
        return alone
    depends = _depends(outcome, one, alone)
    whole = torch.empty(len(outcome.batch), alone.shape[1])
    whole[one] = alone
    for part in others.split(1) if depends else [others]:
        whole[part] = meter.query(outcome.stored[part].to(device), "verify", part).cpu()
    return whole[rows]


def _depends(outcome: SearchOutcome, one: Tensor, alone: Tensor) -> bool:
    """Whether the answer (1, k) to a flip `one` (1,) that was queried alone differs from the one it had in a batch."""
    victim = outcome.meter.victim
    shown = (victim.probabilities(each) for each in (outcome.scores[one], alone))
    if outcome.meter.lost[one].any() or same_answers(victim, *shown):
        return False
    if not torch.equal(outcome.stored[one], outcome.perturbed[one]):
        return False
    give_notice(
        "the model answers an input differently when it is queried alone: its answers are random, or depend on the other "
        "inputs of a batch, as with batch normalisation without running statistics. Each flip was verified alone; "
        "rlab doctor shows more"
    )
    return True
