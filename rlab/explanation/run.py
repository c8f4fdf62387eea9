"""The two ways in: explain a victim's decisions on a batch, or an attack that has been run already."""

from __future__ import annotations

from torch import Tensor

from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Explanation, Method
from rlab.explanation.methods import DEFAULT, parse_method
from rlab.victims.base import Victim


def explain_batch(
    victim: Victim,
    batch: Batch,
    method: str | Method = DEFAULT,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    rule: str = "otsu",
) -> Explanation:
    """A map and a mask for every sample; `labels` (n,) None explains the predicted class."""
    return parse_method(method)(victim, batch, labels, seed, rule)


def explain_result(
    result: AttackResult,
    victim: Victim | None = None,
    method: str | Method = DEFAULT,
    *,
    seed: int = 0,
    rule: str = "otsu",
) -> Explanation:
    """An attack's own answer: the patches that had to change; with the victim, the map of a method on the same inputs.

    Samples the attack did not flip have an empty mask; with the victim, all inputs are explained as it predicts them.
    """
    if victim is not None:
        s = result.setting
        inputs = Batch(x=result.original, y=result.labels, ids=result.ids, bounds=s.bounds, classes=s.classes)
        return explain_batch(victim, inputs, method, seed=seed, rule=rule)
    if result.labels.dim() > 1:
        raise InputError("an attack on several labels at once has no one class to explain: pass the victim")
    mask = result.masks & result.succeeded.view(-1, *(1,) * len(result.setting.size))
    return Explanation(
        method="mask",
        maps=mask.float(),
        mask=mask,
        labels=result.labels,
        queries=result.queries.sum(1),
        rule="the attack's own set",
        seconds=float(result.seconds.sum()),
    )
