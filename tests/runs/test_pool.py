"""Tasks handed out to processes, some of which die, fail or cannot start; without torch, so that they start quickly."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlab.errors import InputError, MissingExtra, OptionError, VictimError
from rlab.runs.messages import Agree, Start, Work
from rlab.runs.pool import hand_out

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
        """Do 'square 3', 'interrupt', 'die once', 'die', or raise a failure by its name."""
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
def test_every_task_is_done_once(workers: int, tmp_path: Path) -> None:
    agreed: list[str] = []
    assert run(tmp_path, workers, SQUARES, agreed.append) == DONE
    assert sorted((tmp_path / "written").read_text().splitlines()) == SQUARES
    assert sorted(agreed) == sorted(DONE)


def test_another_worker_does_the_task_of_one_that_died(tmp_path: Path) -> None:
    assert run(tmp_path, 2, [*SQUARES, "die once"]) == DONE | {"task 7": "die once"}
    assert (tmp_path / "died").exists()
    assert (tmp_path / "written").read_text().count("die once") == 1


def test_workers_ignore_an_interrupt(tmp_path: Path) -> None:
    assert run(tmp_path, 1, ["interrupt"]) == {"task 0": "interrupt"}


@pytest.mark.parametrize(
    ("tasks", "unable", "kind", "sentence"),
    [
        (["die"], "-1", VictimError, "worker 0 was ended by SIGKILL at task 0"),
        (SQUARES, "0", InputError, "worker 0 cannot start: there is no such model"),
    ],
)
def test_a_worker_that_fails_for_good(
    tasks: list[str], unable: str, kind: type[Exception], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNABLE", unable)
    with pytest.raises(kind) as caught:
        run(tmp_path, 1, tasks)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("kind", FAILURES)
def test_an_error_in_a_worker_is_raised_here(kind: str, tmp_path: Path) -> None:
    before = FAILURES[kind]
    with pytest.raises(InputError if kind == "extra" else type(before)) as caught:
        run(tmp_path, 1, [kind])
    assert str(caught.value) == str(before)


def test_a_refused_write_leaves_nothing(tmp_path: Path) -> None:
    def refuse(key: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 1, ["square 1"], refuse)
    assert not (tmp_path / "written").exists()


def test_objects_that_cannot_be_pickled_are_refused() -> None:
    starts = [Start("worker", worker, (0, lambda: None))]
    with pytest.raises(OptionError):
        list(hand_out(starts, {"task": lambda: "square 1"}, lambda key: None))
