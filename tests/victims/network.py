"""A small attack on a model behind an address, with a fault at any request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlab.core.attack import Attack
from rlab.data.batch import Batch
from rlab.errors import InputError, VictimError
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.http import HttpVictim
from tests.helpers import PALETTE, PATCHES, exact_victim, fields_of, labelled_by, make_batch
from tests.victims.faults import Array, Reply, Server, fault_server

HALF = json.dumps({"outputs": [[0.1, 0.2, 0.7]]}).encode()
NETWORK: dict[str, Reply] = {
    "reset": Reply(hang_up=True),
    "timeout": Reply(wait=1.2),
    "half an answer": Reply(body=HALF[: len(HALF) // 2]),
    "wrong length": Reply(body=HALF, headers={"Content-Length": str(2 * len(HALF))}),
    "too many requests": Reply(status=429, body=b"{}"),
    "server error": Reply(status=500, body=b"oops"),
    "another model": Reply(body=json.dumps({"outputs": [[0.5] * 7] * 2}).encode()),
}


class Point(NamedTuple):
    fault: str
    request: int  # counted from 1

    def __str__(self) -> str:
        return f"{self.fault} at {self.request}"


class NetworkCase:
    """An attack whose requests all reach one server; a fault ends the command, which is then repeated."""

    def __init__(self, server: Server) -> None:
        self.server, victim = server, exact_victim(2)
        self.batch: Batch = labelled_by(victim, make_batch(2, 4), wrong=(1,))
        self.attack: Attack = make_attack(
            self.batch, patch=PATCHES[2], palette=PALETTE, budget=6, chunk=2, policy="random"
        )
        server.model = lambda inputs: _scores(victim, inputs)

    def run(self, folder: Path) -> Any:
        victim = HttpVictim(self.server.url, retries=0, timeout=0.6, bounds=self.batch.bounds, chunk=2)
        run_attack(self.attack, victim, self.batch, folder, {"model": {"name": self.server.url}})
        return {name: str(value) for name, value in fields_of(AttackResult.load(folder)).items()}

    def unbroken(self, folder: Path) -> tuple[int, Any]:
        """The number of requests, and the outcome."""
        before = len(self.server.received)
        outcome = self.run(folder)
        return len(self.server.received) - before, outcome

    def points(self, requests: int) -> list[Point]:
        """Every fault at every request; the first answer decides how many classes there are, so it is nobody else's."""
        every = [Point(fault, at) for fault in NETWORK for at in range(1, requests + 1)]
        return [point for point in every if point != Point("another model", 1)]

    def faulty(self, point: Point, folder: Path, requests: int, outcome: Any) -> str:
        """Let the fault answer a request, then resume; return what is wrong, or an empty string.

        `requests` and `outcome` are those of an unbroken run.
        """
        at = len(self.server.received) + point.request
        self.server.plan = lambda number, busy: NETWORK[point.fault] if number == at else Reply()
        try:
            self.run(folder)
            return "nothing was noticed"
        except (VictimError, InputError) as error:
            if str(error).count("\n") > 2:
                return f"more than three lines: {error}"
        if self.run(folder) != outcome:
            return "another outcome"
        sent = len(self.server.received) - at + point.request
        return "" if sent <= requests + 2 else f"{sent - requests} requests were sent again"  # the fault's, and a check


def _scores(victim: Any, inputs: Array) -> Any:
    return victim(torch.tensor(inputs, dtype=torch.float32)).exp().numpy()


@contextmanager
def network_case() -> Iterator[NetworkCase]:
    with fault_server() as server:
        yield NetworkCase(server)
