"""Few samples, so every claim is weighed: how likely it is by chance."""

from __future__ import annotations

from math import comb

from torch import Tensor

from rlab.diagnosis.report import Severity

RISE = 0.3  # of accuracy, before a cause is named
FEWEST = 4  # samples that must change for the better, on balance
_SURE = 0.01  # below this chance, a rise is an error and not a suspicion


def at_least(hits: int, tries: int, chance: float) -> float:
    """The probability of `hits` or more in `tries`, each with probability `chance`."""
    return sum(comb(tries, n) * chance**n * (1 - chance) ** (tries - n) for n in range(hits, tries + 1))


def sign_test(before: Tensor, after: Tensor) -> float:
    """(b,), (b,) -> how likely so many of the changed samples rise, were it heads or tails."""
    up, down = int((after > before).sum()), int((after < before).sum())
    return at_least(up, up + down, 0.5)


def clear_rise(before: Tensor, after: Tensor) -> Severity | None:
    """Whether (b,) rights rise enough to name a cause, and how surely."""
    net = int((after > before).sum()) - int((after < before).sum())
    if float(after.mean() - before.mean()) < RISE or net < FEWEST:
        return None
    return Severity.ERROR if sign_test(before, after) < _SURE else Severity.WARNING
