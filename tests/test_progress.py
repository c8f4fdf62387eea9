"""What is told of something long: the counts, the speed, the time left, and where it is told."""

from __future__ import annotations

import io
import sys
from unittest import mock

import pytest

from rlab.progress import LINE, ProgressState, Tally, UnderWay, bar


class Finished:
    """So many samples, half of them flipped."""

    def __init__(self, samples: int, recalled: bool = False) -> None:
        self.samples, self.recalled = samples, recalled

    def __len__(self) -> int:
        return self.samples

    def tally(self) -> Tally:
        half = self.samples // 2
        return Tally(self.samples, half, self.samples - half, 0, 10 * self.samples, (0.5,) * half)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_estimate_moves_within_a_chunk_and_knows_what_was_there() -> None:
    clock = Clock()
    standing = ProgressState(20, clock)
    standing.hear(Finished(4, recalled=True))
    assert standing.left() is None  # nothing was made yet
    clock.now = 10.0
    standing.hear(UnderWay(lambda usual: Tally(done=(usual or 0) / 5, flipped=1, queries=50, best=(0.25,))))
    assert standing.left() == pytest.approx(10 * 14 / 2)
    assert "3 flipped, 2 held, 0 failed, median L2 0.5, 5 queries/s" in standing.note()
    clock.now = 20.0
    standing.hear(Finished(8))
    assert standing.left() == pytest.approx(20 * 8 / 8)
    assert standing.finished.done == 12
    assert "4 queries/s" in standing.note()


@pytest.mark.parametrize(("notebook", "wait", "lines"), [(False, LINE, 2), (False, LINE / 4, 0), (True, 1.0, 2)])
def test_where_there_is_no_terminal_a_line_comes_now_and_then(notebook: bool, wait: float, lines: int) -> None:
    clock, written = Clock(), io.StringIO()
    with (
        mock.patch("rlab.progress.time.monotonic", clock),
        mock.patch("rlab.progress.ProgressState.__init__.__defaults__", (clock,)),
        mock.patch("rich.console._is_jupyter", return_value=notebook),
        mock.patch.object(sys, "stderr", written),
        bar(8) as progress,
    ):
        for _ in range(2):
            clock.now += wait
            progress(Finished(4))
    told = [line for line in written.getvalue().replace("\r", "\n").splitlines() if line]
    assert len(told) == lines
    assert all("flipped" in line and "of 8" in line for line in told)
    assert ("\r" in written.getvalue()) is notebook
