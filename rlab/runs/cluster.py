"""Tasks handed out to the machines of a Ray cluster, by the one process that keeps what they make (extra `ray`).

A worker is an actor. It gets its task as bytes and sends back what it made of it: the machines share no folder. One that is lost,
or whose machine is, is replaced, and its task is begun again.
"""

from __future__ import annotations

import os
import pickle
import socket
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from rlab.errors import InputError, MissingExtra, VictimError
from rlab.runs.pool import Made, Start, Tasks, be_quiet, packed, portable

HERE, FOUND = "local", "auto"
FORMS = f"ray://HOST:PORT, {FOUND} for the cluster this machine belongs to, or {HERE} for one started here"
_TRIES = 4  # how often a task is begun, or a worker started, that was lost: machines of a cluster come and go
_CONNECT, _LOOK, _PATIENCE = 5.0, 1.0, 600.0  # seconds: for an address to answer, between looks, for the first worker


class Actor:
    """A worker's life. What is told is ('ready' | 'done' | 'failed', value), as bytes."""

    def start(self, message: bytes) -> bytes:
        be_quiet()
        return self._told("ready", lambda: self._begin(*pickle.loads(message)))

    def _begin(self, version: str, start: Start) -> None:
        from rlab import __version__

        if version != __version__:
            raise InputError(f"rlab {__version__} is there, and {version} here: install the same")
        self.work = start.make(*start.arguments)

    def do(self, message: bytes) -> bytes:
        return self._told("done", lambda: self.work(pickle.loads(message), lambda: None))

    @staticmethod
    def _told(word: str, make: Callable[[], Any]) -> bytes:
        try:
            return packed((word, make()))
        except Exception as error:
            return packed(("failed", portable(error)))


@dataclass(eq=False)
class Worker:
    start: Start
    actor: Any
    ready: bool = False
    task: str | None = None


@dataclass(frozen=True)
class Need:
    """What a worker takes of a machine."""

    cpus: int
    gpus: int

    def room(self, resources: dict[str, float]) -> int:
        """How many workers a cluster has room for."""
        kind, each = ("GPU", self.gpus) if self.gpus else ("CPU", self.cpus)
        count = int(resources.get(kind, 0)) // each
        if not count:
            raise InputError(
                f"the cluster has no {kind} that is free for a worker: say with --workers how many are to be waited for"
            )
        return count


def hand_out_on_ray(
    address: str,
    workers: int | None,
    need: Need,
    start: Callable[[int, int], Start],
    tasks: Tasks,
    agree: Callable[[str], None],
) -> Made:
    """As `rlab.runs.pool.hand_out`, by `workers` of the cluster, or as many as it has room for; `start(number, count)` makes one.

    Whatever a task made is sent back; `agree` is called before the first is given out.
    """
    if not tasks:
        return
    with joined(address) as ray:
        count = min(workers or need.room(ray.cluster_resources()), len(tasks))
        remote = ray.remote(Actor).options(
            num_cpus=need.cpus, num_gpus=need.gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        try:
            yield from hand_out_to_actors(ray, remote, [start(number, count) for number in range(count)], tasks, agree)
        except ConnectionError as error:
            raise VictimError(f"the cluster {address} stopped answering: the same command goes on") from error


def hand_out_to_actors(
    ray: Any, remote: Any, starts: Sequence[Start], tasks: Tasks, agree: Callable[[str], None]
) -> Made:
    """`remote` makes actors of `ray`, the package."""
    waiting, lost, left, heard = deque(tasks), Counter[str](), len(tasks), monotonic()
    workers, busy = list[Worker](), dict[Any, Worker]()  # busy ones by what they will answer
    try:
        for start in starts:
            _begin(remote, start, workers, busy)
        while left:
            ended, _ = ray.wait(list(busy), num_returns=1, timeout=_LOOK)
            if not ended and not any(worker.ready for worker in workers):
                _be_patient(heard, starts)
            for ref in ended:
                worker, heard = busy.pop(ref), monotonic()
                try:
                    word, value = pickle.loads(ray.get(ref))
                except ray.exceptions.RayError as error:
                    _count_loss(worker, lost, error)
                    _end(ray, worker, workers)
                    waiting.extendleft([worker.task] if worker.task is not None else [])
                    _begin(remote, worker.start, workers, busy)
                    continue
                if word == "failed":
                    raise value if worker.ready else InputError(f"{worker.start.name} cannot start: {value}")
                if word == "done":
                    assert worker.task is not None
                    agree(worker.task)
                    yield worker.task, value
                    left -= 1
                worker.ready, worker.task = True, None
            for worker in workers:
                if waiting and worker.ready and worker.task is None:
                    worker.task = waiting.popleft()
                    busy[worker.actor.do.remote(packed(tasks[worker.task]()))] = worker
    finally:
        for worker in list(workers):
            _end(ray, worker, workers)


def _end(ray: Any, worker: Worker, workers: list[Worker]) -> None:
    workers.remove(worker)
    with suppress(Exception):  # it is gone, or the cluster is
        ray.kill(worker.actor)


def _begin(remote: Any, start: Start, workers: list[Worker], busy: dict[Any, Worker]) -> None:
    from rlab import __version__

    workers.append(worker := Worker(start, remote.remote()))
    busy[worker.actor.start.remote(packed((__version__, start)))] = worker


def _count_loss(worker: Worker, lost: Counter[str], error: Exception) -> None:
    """VictimError where it is of no use to try again."""
    at = worker.task or worker.start.name
    lost[at] += 1
    if lost[at] == _TRIES:
        why = str(error).strip().splitlines()[-1][:300]
        doing = f"at {worker.task}" if worker.task else "before it was ready"
        raise VictimError(
            f"{worker.start.name} was lost {doing}, the {_TRIES}th time: {why}; the same command goes on from what is finished"
        )


def _be_patient(heard: float, starts: Sequence[Start]) -> None:
    if monotonic() - heard > _PATIENCE:
        raise InputError(
            f"the cluster gave none of {len(starts)} workers within {_PATIENCE:.0f} s: look at its state with `ray status`"
        )


def check_address(address: str) -> str:
    """ValueError where it is none."""
    if address in (HERE, FOUND):
        return address
    parts = urlsplit(address)
    try:
        valid = parts.scheme == "ray" and bool(parts.hostname) and parts.port is not None
    except ValueError:  # a port that is no number
        valid = False
    if not valid:
        raise ValueError(f"expected {FORMS}")
    return address


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """The package `ray`, connected; a connection that was there already is used and left as it is."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    if ray.is_initialized():
        yield ray
        return
    _knock(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    more = {"include_dashboard": False} if address == HERE else {}
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address, log_to_driver=False, logging_level="ERROR", **more)
    except Exception as error:
        ray.shutdown()
        why = str(error).strip().splitlines()[0][:300]
        raise InputError(
            f"cannot join the cluster {address}: {why} (a cluster may ask for a token: RAY_AUTH_MODE=token, RAY_AUTH_TOKEN)"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Whether anybody is there; Ray itself would try for half a minute."""
    parts = urlsplit(address)
    if parts.hostname and parts.port:
        try:
            socket.create_connection((parts.hostname, parts.port), _CONNECT).close()
        except OSError as error:
            raise InputError(
                f"the cluster {address} does not answer ({error}): is it running, and does its port for clients, usually "
                "10001, let this machine in?"
            ) from error
