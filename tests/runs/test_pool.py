"""Tasks handed out to processes, of which some die, fail or cannot start. No torch here, so that a process starts quickly."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlab.errors import InputError, MissingExtra, VictimError
from rlab.runs.pool import Agree, Start, Work, hand_out

FAILURES: dict[str, Exception] = {
    "input": InputError("expected something else"),
    "victim": VictimError("the model fell silent"),
    "disk": OSError(28, "No space left on device", "there"),
    "extra": MissingExtra("thing", "things"),
}


def worker(number: int, folder: str) -> Work:
    if number == int(os.environ.get("UNABLE", -1)):
        raise InputError("there is no such model")

    def work(task: str, agree: Agree) -> str:
        """'square 3', 'interrupt', 'die once', 'die', or the name of a failure."""
        word, _, rest = task.partition(" ")
        if word in FAILURES:
            raise FAILURES[word]
        if word == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        mark = Path(folder) / "died"
        if word == "die" and not (rest == "once" and mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        agree()
        with (Path(folder) / "written").open("a") as file:
            file.write(f"{task}\n")
        return str(int(rest) ** 2) if word == "square" else task

    return work


def run(
    folder: Path, workers: int, tasks: list[str], agree: Callable[[str], None] = lambda key: None
) -> dict[str, Any]:
    starts = [Start(f"worker {number}", worker, (number, str(folder))) for number in range(workers)]
    return dict(hand_out(starts, {f"task {at}": partial(str, task) for at, task in enumerate(tasks)}, agree))


SQUARES = [f"square {number}" for number in range(7)]
DONE = {f"task {number}": str(number**2) for number in range(7)}


@pytest.mark.parametrize("workers", [1, 3])
def test_every_task_is_done_once_whoever_does_it(workers: int, tmp_path: Path) -> None:
    agreed: list[str] = []
    assert run(tmp_path, workers, SQUARES, agreed.append) == DONE
    assert sorted((tmp_path / "written").read_text().splitlines()) == SQUARES
    assert sorted(agreed) == sorted(DONE)


def test_the_task_of_a_worker_that_died_is_done_by_another(tmp_path: Path) -> None:
    made = run(tmp_path, 2, [*SQUARES, "die once"])
    assert made == DONE | {"task 7": "die once"}
    assert (tmp_path / "died").exists()
    assert (tmp_path / "written").read_text().count("die once") == 1


def test_an_interrupt_is_not_for_the_workers(tmp_path: Path) -> None:
    assert run(tmp_path, 1, ["interrupt"]) == {"task 0": "interrupt"}


def test_a_task_that_ends_two_workers_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(VictimError, match=r"worker \d was ended by SIGKILL at task 0"):
        run(tmp_path, 1, ["die"])


def test_a_worker_that_cannot_start_says_which_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABLE", "0")
    with pytest.raises(InputError, match=r"^worker 0 cannot start: there is no such model$"):
        run(tmp_path, 1, SQUARES)


@pytest.mark.parametrize("kind", FAILURES)
def test_what_fails_in_a_worker_fails_here_as_it_would(kind: str, tmp_path: Path) -> None:
    before = FAILURES[kind]
    with pytest.raises(InputError if kind == "extra" else type(before)) as caught:
        run(tmp_path, 1, [kind])
    assert str(caught.value) == str(before)


def test_what_is_refused_before_something_is_written_leaves_nothing(tmp_path: Path) -> None:
    def refuse(key: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 1, ["square 1"], refuse)
    assert not (tmp_path / "written").exists()


def test_objects_that_live_in_this_process_are_refused() -> None:
    starts = [Start("worker", worker, (0, lambda: None))]
    with pytest.raises(InputError, match="by name"):
        list(hand_out(starts, {"task": lambda: "square 1"}, lambda key: None))
