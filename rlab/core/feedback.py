"""What the changes that were tried did: feedback for searches, environments and agents that go by it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import State


@dataclass(frozen=True)
class Feedback(Rows):
    """Of n searches, by palette entry and patch; entry 0 restores."""

    drop: Tensor  # (n, f + 1, p) in margin when the entry was last tried there
    tried: Tensor  # (n, f + 1, p) number of tries
    before: Tensor  # (n, p) the assignment that the next query changes

    @classmethod
    def begin(cls, state: State) -> Feedback:
        none = torch.zeros(len(state), state.bank.shape[1], state.assignment.shape[1], device=state.bank.device)
        return cls(none, none.clone(), state.assignment)

    def after(self, state: State) -> Feedback:
        """With the last query in it, whose drop is divided among the patches that it changed."""
        changed = state.queried != self.before
        share = (state.drop / changed.sum(1).clamp(min=1))[:, None].expand_as(changed)
        at = state.queried[:, None]
        return Feedback(
            self.drop.scatter(1, at, torch.where(changed, share, self.of(state.queried))[:, None]),
            self.tried.scatter_add(1, at, changed[:, None].to(self.tried.dtype)),
            state.assignment,
        )

    def of(self, assignment: Tensor) -> Tensor:
        """(n, p): the drop by each patch's entry in an assignment (n, p)."""
        return self.drop.gather(1, assignment[:, None]).squeeze(1)
