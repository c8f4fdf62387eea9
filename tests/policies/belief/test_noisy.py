"""Models with noise in their answers: how much is told from two clean queries, and flips are trusted beyond it only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlab.core.attack import Attack
from rlab.errors import InputError
from rlab.results.result import Status
from tests.policies.belief.planted import LinearVictim, make_case

NOISE = 0.7  # of each score; the margin of two classes varies by sqrt(2) times that


def started(noise: float, n: int = 400, classes: int = 2, **options: Any) -> Any:
    """The state a noisy search starts from."""
    case = make_case(1, n=n, budget=9, noisy=True, **options)
    victim = LinearVictim(1, classes)
    kept: list[Any] = []

    class Watching(type(case.attack.policy)):  # type: ignore[misc]
        def begin(self, state: Any, task: Any) -> Any:
            kept.append(state)
            return super().begin(state, task)

    victim.noise = noise
    made = Attack(**{**vars(case.attack), "policy": Watching(), "chunk": n})
    found = made.search(victim, case.batch)
    return kept[0], found


def test_the_deviation_is_told_from_two_clean_queries() -> None:
    state, found = started(NOISE)
    expected = NOISE * 2**0.5
    assert float(state.noise.square().mean().sqrt()) == pytest.approx(expected, rel=0.15)
    assert (state.slack == 2 * state.noise).all()
    assert (state.margin0 >= state.noise).all()  # the unit of drops is never lost in the noise
    attacked = torch.tensor([status is not Status.SKIPPED for status in found.status])
    assert (found.meter.counts[attacked, 0] >= 2).all()
    assert (found.meter.counts[~attacked, 0] == 1).all()  # what is wrong already is not asked again


def test_several_classes_tell_it_better() -> None:
    spread = [started(NOISE, 200, classes)[0].noise for classes in (2, 8)]
    assert spread[1].std() < spread[0].std()
    assert float(spread[1].square().mean().sqrt()) == pytest.approx(NOISE * 2**0.5, rel=0.2)


def test_a_model_that_repeats_itself_is_searched_as_ever() -> None:
    calm, noisy = make_case(2, n=4, budget=20).run(), make_case(2, n=4, budget=21, noisy=True).run()
    torch.testing.assert_close(noisy.best_within(21), calm.best_within(20))
    assert torch.equal(noisy.assignment, calm.assignment)
    assert (noisy.queries.sum(1) == calm.queries.sum(1) + 1).all()  # the second clean query is counted


@pytest.mark.parametrize("policy", ["belief", "random"])
def test_flips_of_a_noisy_model_hold_when_they_are_verified(policy: str) -> None:
    """Without it, the nearest of many lucky flips is taken, and most are gone when asked again."""
    options: dict[str, Any] = {"n": 60, "budget": 40, "noise": NOISE, "policy": policy}
    plain, asked = (make_case(2, noisy=noisy, **options).run() for noisy in (False, True))

    def held(result: Any) -> float:
        claimed = [status for status in result.status if status in (Status.SUCCEEDED, Status.UNVERIFIED)]
        return sum(status is Status.SUCCEEDED for status in claimed) / len(claimed)

    assert held(asked) > 0.8
    assert held(asked) > held(plain) + 0.1
    assert asked.succeeded.sum() >= plain.succeeded.sum()
    assert (asked.queries.sum(1) <= 40).all()


def test_a_noisy_search_needs_one_query_more() -> None:
    make_case(2, n=1, budget=4, noisy=True).run()
    with pytest.raises(InputError, match="below the cost of one step, which is 4"):
        make_case(2, n=1, budget=3, noisy=True)
