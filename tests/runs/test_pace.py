"""How many samples a chunk takes: little is lost at a stop, and little by small chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlab.core.result import AttackResult, Status
from rlab.options import make_attack
from rlab.runs.attack import run_attack
from rlab.runs.pace import SECONDS, Pace
from tests.helpers import PALETTE, PATCHES, assert_same, exact_victim, labelled_by, make_batch
from tests.runs.test_attack import Breaking


def sizes(seconds: Callable[[int], float], chunks: int = 8, most: int = 64) -> list[int]:
    """Of a run on a model that takes so long for a chunk of n samples."""
    pace, taken = Pace(most, paced=True), []
    for _ in range(chunks):
        taken.append(pace.size())
        each = seconds(taken[-1]) / taken[-1]
        pace.note(taken[-1], [{"status": Status.SPENT, "seconds": each}] * taken[-1])
    return taken


def test_a_quick_model_takes_full_chunks_from_the_second_on() -> None:
    assert sizes(lambda n: 0.01 * n, 3) == [4, 64, 64]


def test_a_slow_model_is_saved_as_often_as_can_be() -> None:
    assert sizes(lambda n: 2.0 * n, 4) == [4, 8, 4, 4]
    assert max(n * 0.25 for n in sizes(lambda n: 0.25 * n)) <= 2 * SECONDS


def test_where_many_rows_take_as_long_as_few_chunks_grow() -> None:
    assert sizes(lambda n: 5.0, 6) == [4, 8, 16, 32, 64, 64]


@pytest.mark.parametrize(("most", "first"), [(2, 2), (21, 4)])
def test_no_chunk_is_larger_than_memory_allows(most: int, first: int) -> None:
    taken = sizes(lambda n: 0.001 * n, 3, most)
    assert taken == [first, most, most]


def test_samples_that_were_wrong_from_the_start_tell_nothing() -> None:
    pace = Pace(64, paced=True)
    pace.note(4, [{"status": Status.SKIPPED, "seconds": 0.0}] * 4)
    assert pace.size() == 4


@pytest.mark.parametrize("calls", [10, 25, 60])
def test_a_paced_run_that_was_stopped_ends_as_an_unbroken_one(calls: int, tmp_path: Path) -> None:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 11), wrong=(1,))
    options: dict[str, Any] = {"patch": PATCHES[2], "palette": PALETTE, "budget": 30, "policy": "random"}
    attack = make_attack(batch, **options)
    assert attack.paced

    def run(folder: str, last: int = -1) -> tuple[AttackResult, int]:
        asked = Breaking(victim, last)
        return run_attack(attack, asked, batch, tmp_path / folder, {}), sum(asked.rows.values())

    whole, rows = run("whole")
    with pytest.raises(KeyboardInterrupt, match=r"\d+ of 11 samples are saved in .*stopped") as stopped:
        run("stopped", calls)
    saved = int(str(stopped.value).split()[0])
    resumed, asked = run("stopped")
    assert_same(resumed, whole)
    assert asked == int(whole.queries[saved:].sum()) <= rows
    assert_same(
        make_attack(batch, **options, chunk=3)(victim, batch), whole
    )  # chance belongs to a sample, not to a chunk
