"""Verification of flips: one of them alone first, since the answers of some models depend on the other inputs of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlab.core.checks import same_answers
from rlab.errors import give_notice

if TYPE_CHECKING:
    from rlab.core.attack import SearchOutcome


def answers_to_stored(outcome: SearchOutcome, stored: Tensor, rows: Tensor) -> Tensor:
    """Answers (m, k) to the flips `rows` (m,) of `stored` (n, c, *size).

    The first flip that was found shared its batch with the others. If its answer is another one alone, the others are queried
    one at a time as well.
    """
    meter = outcome.meter

    def answers(part: Tensor) -> Tensor:
        return meter(stored[part].to(meter.victim.device), part, "verify").cpu()

    if len(rows) == 1:
        return answers(rows)
    found = [flips[-1][0] if flips else 0 for flips in outcome.trace.improvements]
    first = rows == min(rows.tolist(), key=found.__getitem__)
    one, others = rows[first], rows[~first]
    alone = answers(one)
    shown = (meter.victim.probabilities(each) for each in (outcome.scores[one], alone))
    depends = not (meter.lost[one].any() or same_answers(meter.victim, *shown))
    depends = depends and torch.equal(stored[one], outcome.perturbed[one])
    if depends:
        give_notice(
            "the model answers an input differently when it is queried alone: its answers are random, or depend on the other "
            "inputs of a batch, as with batch normalisation without running statistics. Each flip was verified alone; "
            "rlab doctor shows more"
        )
    rest = torch.cat([answers(part) for part in others.split(1)]) if depends else answers(others)
    whole = torch.empty(len(rows), alone.shape[1])
    whole[first], whole[~first] = alone, rest
    return whole
