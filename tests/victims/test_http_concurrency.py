"""Several requests at once to a model behind an address: against a server that notes what came when, and fails as told."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import torch

from rlab.core.attack import Attack
from rlab.errors import InputError, VictimError
from rlab.runs.attack import chunk_size
from rlab.runs.options import make_attack
from rlab.victims import HttpVictim, QueryMeter, Victim
from rlab.victims.exchange import Flow
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_victim
from tests.helpers import make_batch

X = torch.linspace(0, 1, 96).view(24, 1, 4)  # 24 inputs, told apart by their values


@dataclass
class Seen:
    url: str = ""
    firsts: list[float] = field(default_factory=list)  # the first value of every row that came
    times: list[float] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    now: int = 0
    most: int = 0  # requests at once

    @property
    def rows(self) -> Counter[int]:
        return Counter(round(first * 95 / 4) for first in self.firsts)


Status = Callable[[int, int], int]  # of the number of the request and how many are being answered -> its status


@contextmanager
def serving(status: Status = lambda number, now: 200, seconds: float = 0.0, after: str = "") -> Iterator[Seen]:
    seen, lock = Seen(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            inputs = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
            with lock:
                seen.firsts += [row[0][0] for row in inputs]
                seen.times.append(time.monotonic())
                seen.connections.add(self.client_address)
                seen.now += 1
                seen.most = max(seen.most, seen.now)
                code = status(len(seen.times), seen.now)
            first = inputs[0][0][0]
            time.sleep(seconds * (1.5 - first))  # later rows are answered sooner
            with lock:
                seen.now -= 1
            body = json.dumps({"outputs": [[sum(row[0]), 1.0, row[0][0]] for row in inputs]}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if code == 429 and after:
                self.send_header("Retry-After", after)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    web.request_queue_size = 64
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    seen.url = f"http://127.0.0.1:{web.server_address[1]}/"
    try:
        yield seen
    finally:
        web.shutdown()
        web.server_close()
        thread.join()


def asking(url: str, **options: Any) -> HttpVictim:
    return HttpVictim(url, **{"chunk": 1, "backoff": 0.01, **options})


def test_answers_are_those_of_one_request_at_a_time_in_whatever_order_they_come() -> None:
    with serving(seconds=0.02) as seen:
        with asking(seen.url, concurrency=1) as one:
            alone = one(X)
        assert seen.most == 1
        with asking(seen.url, concurrency=8) as victim:
            began = time.monotonic()
            together = victim(X)
            victim(X)
        assert time.monotonic() - began < 2 * 24 * 0.02
        assert 4 < seen.most <= 8
    assert torch.equal(alone, together)
    assert set(seen.rows.values()) == {3}
    assert len(seen.connections) <= 1 + 8  # which are kept


@pytest.mark.parametrize("code", [429, 500, 503])
@pytest.mark.parametrize("chunk", [1, 3])
def test_no_row_is_lost_or_counted_other_than_it_was_sent(code: int, chunk: int) -> None:
    with serving(lambda number, now: code if number % 5 == 2 else 200, 0.005) as seen:
        with asking(seen.url, concurrency=1, chunk=chunk) as one:
            alone = one(X)
        before = seen.rows
        with asking(seen.url, concurrency=8, chunk=chunk) as victim:
            meter = QueryMeter(victim, samples=24, budget=9)
            answers = meter(X, torch.arange(24), "search")
        sent = seen.rows - before
    assert torch.equal(alone, answers)
    assert meter.counts[:, 0].tolist() == [sent[row] for row in range(24)]
    assert victim.rows["search"] == sent.total() > 24
    assert not meter.lost.any()


def test_a_budget_is_kept_whatever_fails() -> None:
    with serving(lambda number, now: 503 if number % 2 else 200, 0.005) as seen, asking(seen.url, retries=9) as victim:
        meter = QueryMeter(victim, samples=24, budget=2)
        meter(X[:1], torch.tensor([0]), "search")
        answers = meter(X[1:], torch.arange(1, 24), "search")
        assert meter.counts[:, 0].tolist() == [seen.rows[row] for row in range(24)]
    assert int(meter.counts.max()) <= 2
    assert torch.equal(answers.isnan().any(1), meter.lost[1:])
    assert meter.lost.any()


def test_a_model_that_bears_few_at_once_is_asked_few_at_once() -> None:
    with serving(lambda number, now: 429 if now > 6 else 200, 0.02) as seen, asking(seen.url, retries=20) as victim:
        for _ in range(6):
            victim(X)
        many = seen.rows.total()
        seen.most = 0
        victim(X)
        assert torch.isfinite(victim(X)).all()
    assert seen.most <= 9
    assert many < 6 * 24 * 1.25


def test_nobody_goes_before_the_time_the_model_asked_for() -> None:
    with serving(lambda number, now: 429 if number == 6 else 200, 0.02, after="1") as seen, asking(seen.url) as victim:
        victim(X)
    gaps = [later - time for time, later in zip(seen.times, seen.times[1:], strict=False)]
    assert max(gaps) > 0.9
    assert sum(seen.rows.values()) == victim.rows["search"] == 25


def test_the_rate_is_that_of_all_requests_together() -> None:
    with serving(seconds=0.05) as seen, asking(seen.url, rate=100) as victim:
        began = time.monotonic()
        victim(X)
        assert time.monotonic() - began > 23 / 100
    assert seen.most > 1


def test_a_model_that_is_down_is_not_asked_about_everything() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with asking(url) as victim, pytest.raises(VictimError, match=r"could not be reached.*asked 4 times"):
        victim(X)
    assert victim.rows["search"] <= 12


def test_a_refusal_ends_it_with_all_that_was_sent_counted() -> None:
    with serving(lambda number, now: 400 if number == 3 else 200, 0.02) as seen, asking(seen.url) as victim:
        with pytest.raises(VictimError, match="status 400"):
            victim(X)
        assert victim.rows["search"] == seen.rows.total() < 24


def test_more_go_while_answers_come_as_quickly_and_half_as_many_after_a_failure() -> None:
    flow = Flow(32, None)
    for _ in range(100):
        flow.answered(time.monotonic() - 0.05, 1, int(flow.limit) - 1)
    assert flow.limit == 32
    began = flow.sent()
    flow.failed(began)
    flow.failed(began)  # sent before the limit was halved
    assert flow.limit == 16
    flow.answered(time.monotonic() - 0.05, 1, 15)
    assert 16 < flow.limit < 17
    slow = Flow(32, None)
    slow.answered(time.monotonic() - 0.05, 1, 3)
    for _ in range(100):
        slow.answered(time.monotonic() - 0.5, 1, int(slow.limit) - 1)
    assert slow.limit == 5
    idle = Flow(32, None)
    for _ in range(100):
        idle.answered(time.monotonic() - 0.05, 1, 0)  # alone on its way, which tells nothing
    assert idle.limit == 4


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "8", None])
def test_a_concurrency_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="concurrency"):
        HttpVictim("http://host/x", concurrency=value)


def test_a_run_may_go_on_with_another_concurrency() -> None:
    assert ModelOptions(name="http://host/x", concurrency=8).plain() == ModelOptions(name="http://host/x").plain()
    assert load_victim("http://host/x", concurrency=8).concurrency == 8
    with pytest.raises(InputError, match="concurrency"):
        load_victim("demo:digits", concurrency=8)


def test_as_many_samples_step_together_as_requests_may_go_at_once() -> None:
    batch = make_batch(2, 100)
    attack: Attack = make_attack(batch, palette=["gaussian_noise@0.3"], patch=2, budget=100_000)
    with HttpVictim("http://host/x") as victim:
        local: Victim = HttpVictim("http://host/x", concurrency=1)
        assert (chunk_size(attack, victim, batch), chunk_size(attack, local, batch)) == (32, 8)
