"""Tasks handed out to processes and actors, some of which die, fail or cannot start; without torch, so that they start quickly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from rlab.errors import InputError, MissingExtra, OptionError, VictimError
from rlab.runs import cluster
from rlab.runs.cluster import RayCrew
from rlab.runs.local import LocalCrew
from rlab.runs.worker import Crew, Remote, Start, Work, hand_out

FAILURES: dict[str, Exception] = {
    "input": InputError("expected something else"),
    "victim": VictimError("the model fell silent"),
    "disk": OSError(28, "No space left on device", "there"),
    "extra": MissingExtra("thing", "things"),
}
SQUARES = [f"square {number}" for number in range(7)]
DONE = {f"task {number}": str(number**2) for number in range(7)}


def worker(number: int, folder: str) -> Work:
    if number == int(os.environ.get("UNABLE", -1)):
        raise InputError("there is no such model")

    def work(keyed: tuple[str, str]) -> tuple[str, str]:
        """Do 'square 3', 'interrupt', 'die once', 'die', or raise a failure by its name."""
        key, task = keyed
        word, _, rest = task.partition(" ")
        if word in FAILURES:
            raise FAILURES[word]
        if word == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        mark = Path(folder) / "died"
        if word == "die" and not (rest == "once" and mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with (Path(folder) / "written").open("a") as file:
            file.write(f"{task}\n")
        return key, str(int(rest) ** 2) if word == "square" else task

    return work


class LostActor(Exception):
    """Stands for the package's RayError."""


class FakeRay:
    """Stands for the package `ray`, in this process; `lose(call)` says which calls, counted from 0, end their actor."""

    exceptions = SimpleNamespace(RayError=LostActor)

    def __init__(self, lose: Callable[[int], bool] = lambda call: False) -> None:
        self.lose, self.calls, self.made, self.killed = lose, 0, 0, 0

    def remote(self, *kind: Any) -> Any:
        if kind:
            return SimpleNamespace(options=lambda **_: self)
        self.made += 1
        return SimpleNamespace(do=SimpleNamespace(remote=partial(self._call, Remote().do)))

    def _call(self, method: Callable[[bytes], bytes], message: bytes) -> Any:
        self.calls += 1
        future: Future[bytes] = Future()
        if self.lose(self.calls - 1):
            future.set_exception(LostActor("the node is gone"))
        else:
            with mock.patch.object(sys, "stdout"), warnings.catch_warnings():
                future.set_result(method(message))
        return SimpleNamespace(future=lambda: future)

    def kill(self, actor: Any) -> None:
        self.killed += 1


def run(folder: Path, tasks: list[str], workers: int = 2, ray: FakeRay | None = None) -> dict[str, Any]:
    """Hand out tasks to processes, or to the actors of `ray`."""
    starts = [Start(f"worker {number}", worker, (number, str(folder))) for number in range(workers)]
    keyed = ((f"task {at}", (f"task {at}", task)) for at, task in enumerate(tasks))
    return dict(hand_out(crew(ray), starts, keyed))


def crew(ray: FakeRay | None) -> Crew:
    return LocalCrew() if ray is None else RayCrew(ray, 1, 0)


@pytest.fixture(params=["processes", "actors"])
def ray(request: pytest.FixtureRequest) -> FakeRay | None:
    return FakeRay() if request.param == "actors" else None


@pytest.mark.parametrize("workers", [1, 3])
def test_every_task_is_done_once(workers: int, ray: FakeRay | None, tmp_path: Path) -> None:
    assert run(tmp_path, SQUARES, workers, ray) == DONE
    assert sorted((tmp_path / "written").read_text().splitlines()) == SQUARES
    assert ray is None or (ray.made, ray.killed) == (workers, workers)  # no actor is left behind


@pytest.mark.parametrize("kind", FAILURES)
def test_an_error_in_a_worker_is_raised_here(kind: str, ray: FakeRay | None, tmp_path: Path) -> None:
    with pytest.raises(InputError if kind == "extra" else type(FAILURES[kind])) as caught:
        run(tmp_path, [kind], ray=ray)
    assert str(caught.value) == str(FAILURES[kind])
    assert ray is None or ray.killed == ray.made


def test_a_stop_ends_all_workers(ray: FakeRay | None, tmp_path: Path) -> None:
    def tasks() -> Iterator[tuple[str, Any]]:
        yield "first", ("first", "square 1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(hand_out(crew(ray), [Start("worker", worker, (0, str(tmp_path)))], tasks()))
    assert ray is None or ray.killed == ray.made == 1


def test_a_worker_that_cannot_start(ray: FakeRay | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABLE", "0")
    with pytest.raises(InputError, match="worker 0 cannot start: there is no such model"):
        run(tmp_path, SQUARES, 1, ray=ray)
    assert not (tmp_path / "written").exists()


def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(VictimError, match=r"worker 0 was lost at task 7 .*SIGKILL.*Run the same command again"):
        run(tmp_path, [*SQUARES, "die once"], 1)
    assert run(tmp_path, [*SQUARES, "die once"]) == DONE | {"task 7": "die once"}


def test_processes_ignore_an_interrupt(tmp_path: Path) -> None:
    assert run(tmp_path, ["interrupt"], 1) == {"task 0": "interrupt"}


def test_objects_that_cannot_be_pickled_are_refused() -> None:
    with pytest.raises(OptionError):
        list(
            hand_out(LocalCrew(), [Start("worker", worker, (0, lambda: None))], iter([("task", ("task", "square 1"))]))
        )
    with pytest.raises(OptionError):
        list(hand_out(LocalCrew(), [Start("worker", worker, (0, ""))], iter([("task", lambda: None)])))


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (0, "worker 0 was lost before it was ready"),
        (5, r"worker \d was lost at task \d \(the node is gone\)"),
    ],
)
def test_an_actor_that_is_lost_ends_the_run(lost: int, sentence: str, tmp_path: Path) -> None:
    ray = FakeRay(lost.__eq__)
    with pytest.raises(VictimError, match=sentence):
        run(tmp_path, SQUARES, ray=ray)
    assert ray.killed == ray.made == 2


def test_a_cluster_that_starts_no_worker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "FIRST_WORKER_SECONDS", 0.01)
    ray = FakeRay()
    monkeypatch.setattr(ray, "_call", lambda method, message: SimpleNamespace(future=Future))
    with pytest.raises(InputError, match="started none of 2 workers"):
        run(tmp_path, SQUARES, ray=ray)
    assert ray.killed == 2


ORPHANS = """
import sys
from rlab.runs.local import LocalCrew
from rlab.runs.worker import Start, hand_out
from tests.runs.test_worker import querying
starts = [Start(f"worker {n}", querying, (sys.argv[1],)) for n in range(2)]
list(hand_out(LocalCrew(), starts, iter([(str(n), str(n)) for n in range(4)])))
"""


def querying(path: str) -> Work:
    """Work that queries a model for ever, a batch every few milliseconds."""

    def work(task: str) -> str:
        while True:
            with Path(path).open("a") as file:
                file.write(".")
            time.sleep(0.02)

    return work


def test_workers_end_with_their_owner(tmp_path: Path, root: Path) -> None:
    """After kill -9 of the owner, each of two workers sends at most the batch it is at."""
    queries = tmp_path / "queries"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen([sys.executable, "-c", ORPHANS, str(queries)], env=environment) as owner:
        until = time.monotonic() + 60
        while not queries.exists() or queries.stat().st_size < 6:
            assert time.monotonic() < until
            time.sleep(0.01)
        owner.kill()
        killed = queries.stat().st_size
    time.sleep(0.5)
    settled = queries.stat().st_size
    time.sleep(0.1)
    assert queries.stat().st_size == settled
    assert settled - killed <= 10  # without a watch it would be fifty
