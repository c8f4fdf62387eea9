"""Progress: the counts, the time left, and where they are shown."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from PIL import Image

import rlab
from rlab.errors import Notice
from rlab.progress import PATIENCE, ProgressState, Tally, UnderWay, bar, showing
from rlab.results.viewers import viewer_blocks
from tests.auditing.cases import quick
from tests.benchmarking.cases import made_once
from tests.comparison.planted import PLANTED, own_noise, plant
from tests.data.test_wfdb_records import write
from tests.helpers import exact_victim
from tests.learning.toys import small_students


class Finished:
    """A chunk of which half the samples flipped."""

    def __init__(self, samples: int, recalled: bool = False) -> None:
        self.samples, self.recalled = samples, recalled

    def __len__(self) -> int:
        return self.samples

    def tally(self) -> Tally:
        half = self.samples // 2
        return Tally(self.samples, half, self.samples - half)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def under_way(settled: int) -> UnderWay:
    return UnderWay(lambda: Tally(settled, flipped=settled))


def test_the_time_left_leaves_out_what_an_earlier_process_did() -> None:
    clock = Clock()
    state = ProgressState(20, clock)
    state.hear(Finished(4, recalled=True))
    assert state.left() is None
    clock.now = 10.0
    state.hear(under_way(2))
    assert (state.share(), state.left()) == ("6/20 samples", None)
    assert state.note() == "4 flipped, 2 held"
    clock.now = 20.0
    state.hear(Finished(8))
    assert state.left() == pytest.approx(20 * 8 / 8)
    assert state.done == 12


@pytest.mark.parametrize(
    ("tally", "line"),
    [
        (Tally(9, 8, 1), "attacking 9/12 samples, 8 flipped, 1 held, 0:12"),
        (
            Tally(12, 8, 2, skipped=1, failed=1),
            "attacking 12/12 samples, 8 flipped, 2 held, 1 skipped, 1 failed, 0:12",
        ),
        (Tally(3), "attacking 3/12 samples, 0:12"),
    ],
)
def test_the_line_of_a_bar(tally: Tally, line: str) -> None:
    clock = Clock()
    state = ProgressState(12, clock)
    clock.now = 12.0
    state.hear(UnderWay(lambda: tally))
    assert state.line("attacking") == line


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
    assert state.left() is None
    assert state.line("attacking") == "attacking 128/128 samples, 64 flipped, 64 held, 4:00"


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


def logged(total: int, parts: Sequence[int], monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[str]:
    """The lines that finished parts of these sizes leave in a log, one part a second."""
    clock, written = Clock(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with bar(total, clock=clock, **how) as progress:
        for samples in parts:
            clock.now += 1.0
            progress(Finished(samples))
    return written.getvalue().splitlines()


@pytest.mark.parametrize(
    ("total", "parts", "shares"),
    [
        (12, [1] * 12, [2, 3, 4, 5, 6, 8, 9, 10, 11, 12]),
        (1000, [1] * 1000, range(100, 1001, 100)),
        (3, [1, 1, 1], [1, 2, 3]),
        (40, [40], [40]),
    ],
)
def test_a_log_gets_a_line_every_tenth_and_ends_with_all(
    total: int, parts: Sequence[int], shares: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = logged(total, parts, monkeypatch)
    assert [line.partition(", ")[0] for line in lines] == [f"attacking {done:,}/{total:,} samples" for done in shares]


@pytest.mark.parametrize(("seconds", "lines"), [(1, 0), (PATIENCE - 1, 0), (PATIENCE + 8, 9)])
def test_a_bar_for_quick_work_waits_before_it_appears(
    seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [1] * int(seconds)
    assert len(logged(len(parts), parts, monkeypatch, patience=PATIENCE)) == lines


def test_no_bar_within_a_bar_and_none_if_you_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with showing(False), bar(1) as progress:
        progress(Finished(1))
    assert written.getvalue() == ""
    with bar(1, "outer") as outer:
        with bar(1, "inner") as inner:
            inner(Finished(1))
        outer(Finished(1))
    with bar(1, "later") as later:
        later(Finished(1))
    assert [line.split()[0] for line in written.getvalue().splitlines()] == ["outer", "later"]


DIGITS = ("demo:digits", "demo:digits")
ANY = {"metric": "clean_accuracy", "at_least": "0%"}


VERBS: dict[str, tuple[Callable[..., object], str]] = {
    "attack": (
        lambda folder, **how: rlab.attack(*DIGITS, limit=3, policy="random", budget=12, **how),
        "attacking",
    ),
    "explain": (lambda folder, **how: rlab.explain(*DIGITS, limit=2, method="middle", **how), "explaining by middle"),
    "compare": (lambda folder, **how: rlab.compare(*DIGITS, limit=3, budget=12, policies="random", **how), "random"),
    "compare, from a library": (
        lambda folder, **how: rlab.compare(*DIGITS, limit=3, budget=12, policies=(), attacks=PLANTED, **how),
        PLANTED,
    ),
    "compare, of your own": (
        lambda folder, **how: rlab.compare(*DIGITS, limit=3, budget=12, policies=(), attacks=own_noise, **how),
        "own_noise",
    ),
    "learn": (lambda folder, **how: rlab.learn(*DIGITS, limit=40, queries=100, **how), "querying"),
    "explain_batch": (
        lambda folder, **how: rlab.explain_batch(
            rlab.demo_victim("digits"), rlab.load("demo:digits", limit=2), "middle", **how
        ),
        "explaining by middle",
    ),
    "run_benchmark": (
        lambda folder, **how: rlab.run_benchmark([made_once(folder)], {"exact": exact_victim(2)}, **how),
        "grading",
    ),
    "verify_benchmark": (
        lambda folder, **how: rlab.verify_benchmark(made_once(folder), {"exact": exact_victim(2)}, **how),
        "verifying",
    ),
    "audit": (lambda folder, **how: rlab.audit(quick(doctor=False, requirements=[ANY]), folder, **how), "attack"),
    "benchmark": (
        lambda folder, **how: rlab.benchmark(
            *DIGITS, folder, limit=3, policy="random", budget=12, palette="dead_pixel@1", patch=4, **how
        ),
        "making",
    ),
    "harden": (
        lambda folder, **how: rlab.harden(*DIGITS, limit=24, epochs=1, entries=1, gradient_steps=0, **how),
        "hardening",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "harden")) for name in VERBS])
def test_every_verb_has_one_bar_that_can_be_switched_off(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for folder in ("shown", "hidden"):
        (tmp_path / folder).mkdir()
    call, title = VERBS[name]
    with small_students(steps=1):
        call(tmp_path / "shown")
    lines = capsys.readouterr().err.splitlines()
    done, total = re.fullmatch(rf"{title} (\d+)/(\d+) \w+,.*", lines[-1]).groups()  # type: ignore[union-attr]
    assert done == total
    assert all(line.startswith(title) for line in lines if re.search(r" \d+/\d+ \w+,", line))
    with small_students(steps=1):
        call(tmp_path / "hidden", progress=False)
    assert capsys.readouterr().err == ""


def test_the_doctor_prints_what_it_understood_unless_you_switch_it_off(capsys: pytest.CaptureFixture[str]) -> None:
    rlab.doctor(*DIGITS, limit=4)
    assert "10: 0, 1, 2" in capsys.readouterr().err
    rlab.doctor(*DIGITS, limit=4, progress=False)
    assert capsys.readouterr().err == ""


def test_progress_false_gives_no_notice_either(recwarn: pytest.WarningsRecorder) -> None:
    """A model that is wrong from the start is worth a notice, unless nothing is to be shown."""
    wrong = rlab.load("demo:digits", limit=3)
    wrong = replace(wrong, y=(wrong.y + 1) % 10)
    victim = rlab.demo_victim("digits")
    rlab.attack(victim, wrong, policy="random", budget=4, progress=False)
    assert not recwarn.list
    with pytest.warns(Notice, match="doctor"):
        rlab.attack(victim, wrong, policy="random", budget=4)


def test_reading_records_has_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("rlab.data.source", "rlab.data.wfdb_records"):
        monkeypatch.setattr(f"{module}.PATIENCE", 0.0)
    for name in ("100", "101", "102"):
        write(tmp_path, name)
    batch = rlab.load(tmp_path)
    lines = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["reading headers 3/3 files", f"reading {len(batch)}/{len(batch)} samples"]
    rlab.load(tmp_path, progress=False)
    assert capsys.readouterr().err == ""


def test_reading_and_drawing_have_a_bar_that_the_bar_of_an_attack_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("rlab.data.source", "rlab.results.viewers"):
        monkeypatch.setattr(f"{module}.PATIENCE", 0.0)
    for i in range(4):
        Image.new("L", (8, 8), 60 * i).save(tmp_path / f"{i}.png")
    (tmp_path / "labels.csv").write_text("".join(f"{i}.png,{i}\n" for i in range(4)))
    options: dict[str, Any] = {"labels": str(tmp_path / "labels.csv"), "channels": 1}
    rlab.load(tmp_path, **options)
    assert "reading 4/4 samples" in capsys.readouterr().err
    source = rlab.load(tmp_path, **options, stream=True)
    result = rlab.attack(lambda x: torch.eye(4)[:1].expand(len(x), 4), source, budget=4, chunk=2)
    assert "reading" not in capsys.readouterr().err
    viewer_blocks(result, range(4))
    assert "drawing 4/4 samples" in capsys.readouterr().err


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
    assert "1,000/1,000 samples" in shown[-1]


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
    assert "20/20 samples" in output.data["text/plain"]
    assert '<progress value="20" max="20">' in output.data["text/html"]
    assert "a &lt;b&gt; &amp;" in output.data["text/html"]
    assert "stderr" not in json.dumps(notebook.cells[0].outputs)
