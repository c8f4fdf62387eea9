"""Progress: the counts, the time left, and where they are shown."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest

from rlab.progress import LINE, ProgressState, Tally, UnderWay, bar


class Finished:
    """A chunk of which half the samples flipped."""

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


def under_way(settled: int) -> UnderWay:
    return UnderWay(lambda: Tally(done=settled, flipped=1, queries=50, best=(0.25,)))


def test_counts_and_speed_leave_out_what_an_earlier_process_did() -> None:
    clock = Clock()
    state = ProgressState(20, clock)
    state.hear(Finished(4, recalled=True))
    assert state.left() is None
    clock.now = 10.0
    state.hear(under_way(2))
    assert (state.share(), state.left()) == ("6 of 20", None)
    assert "3 flipped, 2 held, 0 failed, median L2 0.5, 5 queries/s" in state.note()
    clock.now = 20.0
    state.hear(Finished(8))
    assert state.left() == pytest.approx(20 * 8 / 8)
    assert state.done == 12
    assert "4 queries/s" in state.note()


@pytest.mark.parametrize(
    "easy",
    [[30, 31, 32, 32], [0, 0, 0, 0], [8, 16, 24, 32]],
    ids=["most settle at once", "all settle at the end", "steadily"],
)
def test_the_time_left_never_grows_and_the_bar_never_jumps_back(easy: Sequence[int]) -> None:
    """Four chunks of 32 samples and 60 seconds; `easy` have settled after each quarter of a chunk."""
    clock, estimates, counts = Clock(), [], []
    state = ProgressState(128, clock)
    for _ in range(4):
        for settled in easy:
            clock.now += 15.0
            state.hear(under_way(settled))
            estimates.append(state.left())
            counts.append(state.done)
        state.hear(Finished(32))
    assert estimates[:4] == [None] * 4  # nothing is known before a chunk is finished
    assert estimates[4:] == [240 - 15 * quarter for quarter in range(5, 17)]
    assert counts == sorted(counts)
    assert state.left() == 0


def test_no_estimate_comes_from_too_few_samples_or_stays_when_its_time_is_over() -> None:
    clock = Clock()
    state = ProgressState(100, clock)
    clock.now = 1.0
    state.hear(Finished(5))
    assert state.left() is None
    clock.now = 2.0
    state.hear(Finished(45))
    assert state.left() == pytest.approx(2.0)
    clock.now = 5.0
    state.hear(under_way(10))
    assert state.left() is None
    assert "left" not in state.line("attacking")


@pytest.mark.parametrize(("seconds", "lines"), [(LINE / 4, 0), (LINE, 1), (60, 5), (3600, 30)])
def test_a_log_gets_few_lines(seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, written = Clock(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with bar(8, clock=clock) as progress:
        for _ in range(round(seconds / 2.5)):
            clock.now += 2.5
            progress(under_way(2))
    shown = written.getvalue().splitlines()
    assert (len(shown) > 0) == (lines > 0)
    assert len(shown) <= lines
    assert all(line.startswith("attacking 2 of 8, 1 flipped") for line in shown)


def test_quick_parts_are_all_counted_and_the_last_count_is_shown() -> None:
    clock = Clock()
    handle = mock.Mock()
    with (
        mock.patch("rich.console._is_jupyter", return_value=True),
        mock.patch("IPython.display.display", return_value=handle),
        bar(1000, clock=clock) as progress,
    ):
        for _ in range(1000):
            clock.now += 0.001
            progress(Finished(1))
    shown = [call.args[0]["text/plain"] for call in handle.update.call_args_list]
    assert 5 <= len(shown) <= 8
    assert "1,000 of 1,000" in shown[-1]


CELL = """
import time
from rlab.progress import bar
class Part(list):
    pass
with bar(20, 'a <b> &') as progress:
    for i in range(20):
        time.sleep(0.03)
        progress(Part([i]))
"""


def test_a_notebook_shows_one_bar_that_is_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    notebook = new_notebook(cells=[new_code_cell(CELL)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert "20 of 20" in output.data["text/plain"]
    assert '<progress value="20" max="20">' in output.data["text/html"]
    assert "a &lt;b&gt; &amp;" in output.data["text/html"]
    assert "stderr" not in json.dumps(notebook.cells[0].outputs)
