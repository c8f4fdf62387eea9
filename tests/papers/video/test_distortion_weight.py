"""What a change costs, and that an agent goes by it."""

from __future__ import annotations

import torch

from rlab.core.env import render
from rlab.papers.video import Pair, view
from rlab.papers.video.policy import fixed_view
from tests.papers.video.tubes import GRID, TINY, sampler, tubes


def test_costs_are_what_single_changes_do_to_the_map() -> None:
    """Against rendering them, from an untouched clip and from one that holds something."""
    torch.manual_seed(0)
    pair, made = Pair(TINY), sampler(tubes(64)[0])
    state = made.fresh(3)
    fixed = fixed_view(pair, state, made.task)
    for held in (0, 1):
        state.assignment[:] = 0
        state.assignment[:, 7] = held
        known = view.costs(fixed.seen(state, made.task)).transpose(1, 2).flatten(2)
        now = (render(state.bank, state.assignment, GRID) - state.x0).abs().flatten(1).mean(1)
        for patch, entry in ((7, 0), (7, 1), (40, 1)):
            changed = state.assignment.clone()
            changed[:, patch] = entry
            after = (render(state.bank, changed, GRID) - state.x0).abs().flatten(1).mean(1)
            torch.testing.assert_close(known[:, entry, patch], 255 * (after - now), atol=1e-4, rtol=1e-4)


def test_thrift_makes_what_is_dear_less_worth_and_leaves_what_is_foreseen() -> None:
    torch.manual_seed(0)
    pair, made = Pair(TINY), sampler(tubes(64)[0])
    state = made.fresh(2)
    seen = fixed_view(pair, state, made.task).seen(state, made.task)
    free, dear = pair.spatial.see(seen, 0.0), pair.spatial.see(seen, 2.0)
    assert torch.equal(free.effect, dear.effect)
    assert torch.equal(free.net_effect, free.effect)
    torch.testing.assert_close(free.net_effect - dear.net_effect, 2.0 * view.EFFECT * view.costs(seen))
    assert (free.effect[:, :, 0] == 0).all()  # nothing is held, so nothing can be restored
