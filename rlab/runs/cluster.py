"""Workers on the machines of a Ray cluster (extra `ray`): actors, which share no folder with this process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from rlab.errors import MissingExtra, OptionError, optional
from rlab.runs.worker import Remote

HERE, FOUND = "local", "auto"  # a cluster that is started here, and the one that this machine belongs to
FIRST_WORKER_SECONDS = 600.0  # how long to wait for the first worker


class RayCrew:
    """Actors with the package `ray`, each with so many CPUs and GPUs."""

    def __init__(self, ray: Any, cpus: int, gpus: int) -> None:
        self.ray, self.actors = ray, list[Any]()
        self.patience: float | None = FIRST_WORKER_SECONDS
        self.lost: tuple[type[Exception], ...] = (ray.exceptions.RayError, ConnectionError)
        self.remote = ray.remote(Remote).options(
            max_restarts=0, num_cpus=cpus, num_gpus=gpus, scheduling_strategy="SPREAD"
        )

    def send(self, number: int, message: bytes) -> Future[bytes]:
        if number == len(self.actors):
            self.actors.append(self.remote.remote())
        future: Future[bytes] = self.actors[number].do.remote(message).future()
        return future

    def why(self, error: Exception) -> str:
        return str(error).strip().splitlines()[-1][:300]

    def close(self) -> None:
        for actor in self.actors:
            with suppress(Exception):  # the worker or the cluster is gone
                self.ray.kill(actor)


def room(resources: Mapping[str, float], cpus: int, gpus: int) -> int:
    """Return the number of workers with so many CPUs and GPUs that fit the cluster."""
    kind, each = ("GPU", gpus) if gpus else ("CPU", cpus)
    count = int(resources.get(kind, 0)) // each
    if not count:
        raise OptionError(f"the cluster has no free {kind} for a worker: set --workers to wait for that many")
    return count


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """Yield the package `ray`, connected; an existing connection is used and stays open."""
    ray = optional("ray", MissingExtra("ray", "ray"))
    if ray.is_initialized():
        yield ray
        return
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
