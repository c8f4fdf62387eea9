"""Workers on the machines of a Ray cluster (extra `ray`); one process owns the results.

A worker is an actor. Tasks and results travel as bytes, since the machines share no folder. A worker that is lost, alone or with
its machine, is replaced, and its task runs again.
"""

from __future__ import annotations

import os
import pickle
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from rlab import __version__
from rlab.errors import InputError, MissingExtra, OptionError, VictimError, optional
from rlab.runs.messages import DONE, READY, Finished, Start, TaskQueue, Tasks, Worker, be_quiet, pack, pack_reply

HERE, FOUND = "local", "auto"  # a cluster that is started here, and the one that this machine belongs to
FIRST_WORKER_SECONDS = 600.0  # how long to wait for the first worker
_TRIES = 4  # starts of a task or worker that is lost: machines of a cluster come and go
_CONNECT_SECONDS, _POLL_SECONDS = 5.0, 1.0


class Actor:
    """The remote side of a worker; every answer is a packed reply."""

    def start(self, message: bytes) -> bytes:
        be_quiet()
        return pack_reply(READY, lambda: self._begin(*pickle.loads(message)))

    def _begin(self, version: str, start: Start) -> None:
        if version != __version__:
            raise InputError(f"the worker has rlab {__version__} and this process {version}: install the same version")
        self.work = start.make(*start.arguments)

    def do(self, message: bytes) -> bytes:
        return pack_reply(DONE, lambda: self.work(pickle.loads(message)))


@dataclass(eq=False, kw_only=True)
class RayWorker(Worker):
    """A worker with its actor."""

    actor: Any


def room(resources: Mapping[str, float], cpus: int, gpus: int) -> int:
    """Return the number of workers with so many CPUs and GPUs that fit the cluster."""
    kind, each = ("GPU", gpus) if gpus else ("CPU", cpus)
    count = int(resources.get(kind, 0)) // each
    if not count:
        raise OptionError(f"the cluster has no free {kind} for a worker: set --workers to wait for that many")
    return count


def hand_out_on_ray(
    address: str,
    workers: int | None,
    cpus: int,
    gpus: int,
    start: Callable[[int, int], Start],
    tasks: Tasks,
) -> Finished:
    """Like `rlab.runs.pool.hand_out` on a cluster, with `workers` or as many as fit; `start(number, count)` describes one.

    Results are sent back.
    """
    if not tasks:
        return
    with joined(address) as ray:
        count = min(workers or room(ray.cluster_resources(), cpus, gpus), len(tasks))
        placed = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}
        remote = ray.remote(Actor).options(max_restarts=0, **placed)
        try:
            yield from hand_out_to_actors(ray, remote, [start(number, count) for number in range(count)], tasks)
        except ConnectionError as error:
            raise VictimError(f"the cluster {address} stopped answering: run the same command again") from error


def hand_out_to_actors(ray: Any, remote: Any, starts: Sequence[Start], tasks: Tasks) -> Finished:
    """Hand out tasks with the package `ray`, whose `remote` makes actors."""
    queue, losses, answered = TaskQueue(tasks), Counter[str](), monotonic()
    workers, busy = list[RayWorker](), dict[Any, RayWorker]()  # busy workers by the reference of their next reply
    try:
        for start in starts:
            _begin(remote, start, workers, busy)
        while queue.unfinished:
            ended, _ = ray.wait(list(busy), num_returns=1, timeout=_POLL_SECONDS)
            idle = not ended and not any(worker.ready for worker in workers)
            if idle and monotonic() - answered > FIRST_WORKER_SECONDS:
                within = f"within {FIRST_WORKER_SECONDS:.0f} s: check it with `ray status`"
                raise InputError(f"the cluster started none of {len(starts)} workers {within}")
            for reference in ended:
                worker, answered = busy.pop(reference), monotonic()
                try:
                    message = ray.get(reference)
                except ray.exceptions.RayError as error:
                    _count_loss(worker, losses, error)
                    _end(ray, worker, workers)
                    queue.take_back(worker)
                    _begin(remote, worker.start, workers, busy)
                    continue
                kind, key, value = queue.read(worker, message)
                if kind == DONE:
                    yield key, value
            for worker in workers:
                if task := queue.assign(worker):
                    busy[worker.actor.do.remote(task)] = worker
    finally:
        for worker in list(workers):
            _end(ray, worker, workers)


def _end(ray: Any, worker: RayWorker, workers: list[RayWorker]) -> None:
    workers.remove(worker)
    with suppress(Exception):  # the worker or the cluster is gone
        ray.kill(worker.actor)


def _begin(remote: Any, start: Start, workers: list[RayWorker], busy: dict[Any, RayWorker]) -> None:
    workers.append(worker := RayWorker(start=start, actor=remote.remote()))
    busy[worker.actor.start.remote(pack((__version__, start)))] = worker


def _count_loss(worker: Worker, losses: Counter[str], error: Exception) -> None:
    """Count a lost worker; VictimError after too many losses."""
    at = worker.task or worker.start.name
    losses[at] += 1
    if losses[at] == _TRIES:
        why = str(error).strip().splitlines()[-1][:300]
        doing = f"at {worker.task}" if worker.task else "before it was ready"
        again = "Run the same command again to continue"
        raise VictimError(f"{worker.start.name} was lost {doing} for the {_TRIES}th time: {why}. {again}")


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """Yield the package `ray`, connected; an existing connection is used and stays open."""
    ray = optional("ray", MissingExtra("ray", "ray"))
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
        raise OptionError(
            f"cannot join the cluster {address}: {why} (if it needs a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN)"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Check that the address accepts connections; Ray itself would try for half a minute."""
    parts = urlsplit(address)
    if parts.hostname and parts.port:
        try:
            socket.create_connection((parts.hostname, parts.port), _CONNECT_SECONDS).close()
        except OSError as error:
            raise OptionError(
                f"the cluster {address} does not answer ({error}): check that it runs and that its client port, usually "
                "10001, is open to this machine"
            ) from error
