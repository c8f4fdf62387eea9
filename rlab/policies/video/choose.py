"""One decision of an agent: an option from logits by a given draw, or the judgement of an option taken before."""

from __future__ import annotations

import torch
from torch import Tensor

FORBIDDEN = -1e9  # the logit of an option that is not open; finite, so that no gradient turns NaN


def choose(logits: Tensor, draw: Tensor | None, given: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """logits (n, m) with draw (n,) in [0, 1), or given (n,) -> option (n,), its log-probability (n,), entropy (n,)."""
    log = logits.log_softmax(1)
    chance = log.exp()
    if given is None:
        assert draw is not None
        given = pick(chance, draw)
    return given, log.gather(1, given[:, None]).squeeze(1), -(chance * log.clamp(min=-50)).sum(1)


def pick(chance: Tensor, draw: Tensor) -> Tensor:
    """The option (n,) at which the summed chances (n, m) pass the draw (n,); never one without a chance."""
    total = chance.cumsum(1)
    return (total / total[:, -1:] <= draw[:, None]).sum(1).clamp(max=chance.shape[1] - 1)


def toss(logits: Tensor, draw: Tensor | None, given: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Yes or no for each of m: logits (n, m), draws (n, m) or given (n, m) -> yes (n, m) bool, log-probability, entropy (n,)."""
    yes = given if given is not None else _below(draw, logits.sigmoid())
    said = torch.where(yes, logits, -logits)
    chance = logits.sigmoid()
    spread = torch.nn.functional.softplus(logits) - chance * logits
    return yes, torch.nn.functional.logsigmoid(said).sum(1), spread.sum(1)


def _below(draw: Tensor | None, chance: Tensor) -> Tensor:
    assert draw is not None
    return draw < chance
