"""When requests are sent: retries, rates, many at once; no row is lost, or counted other than as it was sent."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlab.errors import VictimError
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import chunk_size
from rlab.runs.options import make_attack
from rlab.victims import HttpVictim, QueryMeter
from rlab.victims.exchange import Flow, seconds_until
from tests.command import rlab_command
from tests.helpers import make_batch
from tests.victims.faults import Reply, Server

X = torch.linspace(0, 1, 96).view(24, 1, 4)  # the first values differ


def one_by_one(url: str, **options: Any) -> HttpVictim:
    return HttpVictim(url, **{"chunk": 1, "backoff": 0.01, **options})


def test_two_failures_then_an_answer_count_three_times(server: Server) -> None:
    server.fail(Reply(500), Reply(503))
    with HttpVictim(server.url, backoff=0.01) as victim:
        meter = QueryMeter(victim, samples=3)
        meter(X[:3], torch.arange(3), "search")
        assert victim.rows["search"] == server.rows == 9
    assert meter.counts[:, 0].tolist() == [3, 3, 3]


def test_a_budget_stops_the_retries(server: Server) -> None:
    server.fail(*[Reply(500)] * 9)
    with (
        HttpVictim(server.url, retries=9, backoff=0.01) as victim,
        pytest.raises(VictimError, match=r"status 500.*2 attempts"),
    ):
        QueryMeter(victim, samples=3, budget=2)(X[:3], torch.arange(3), "search")
    assert server.rows == 6


def test_rows_that_a_budget_cannot_repeat_are_lost_and_the_others_sent_again(server: Server) -> None:
    server.fail(Reply(), Reply(503))
    with HttpVictim(server.url, backoff=0.0) as victim:
        meter = QueryMeter(victim, samples=3, budget=2)
        meter(X[:2], torch.tensor([0, 1]), "search")
        answer = meter(X[:3], torch.tensor([0, 1, 2]), "search")
    assert answer.isnan().any(1).tolist() == meter.lost.tolist() == [True, True, False]
    assert [len(one.inputs) for one in server.received] == [2, 3, 1]
    assert meter.counts[:, 0].tolist() == [2, 2, 2]


def test_retries_wait_longer_each_time(server: Server) -> None:
    server.fail(*[Reply(500)] * 3)
    with HttpVictim(server.url, backoff=0.05) as victim:
        victim(X[:3])
    gaps = np.diff(server.times)
    assert all(gap >= least for gap, least in zip(gaps, (0.05, 0.1, 0.2), strict=True))


def test_retry_after_is_seconds_or_a_date() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert 25 < seconds_until(format_datetime(soon, usegmt=True)) <= 30
    assert seconds_until("7") == 7
    assert [seconds_until(text) for text in (None, "", "soon", "-3", "Wed, 21 Oct 2015 07:28:00 GMT")] == [0] * 5


@pytest.mark.parametrize(("request_number", "sent"), [(1, 25), (6, 25)])
def test_no_request_goes_before_the_time_a_server_set(server: Server, request_number: int, sent: int) -> None:
    busy = Reply(429, headers={"Retry-After": "1"})
    server.latency, server.plan = 0.02, lambda number, _: busy if number == request_number else Reply()
    with one_by_one(server.url) as victim:
        victim(X)
    assert max(np.diff(server.times)) > 0.5  # a busy server may note arrivals late
    assert server.rows == victim.rows["search"] == sent


def test_the_rate_is_that_of_all_requests_together(server: Server) -> None:
    server.latency = 0.05
    with one_by_one(server.url, rate=100) as victim:
        began = time.monotonic()
        victim(X)
        # by this side's clock: a busy server may note arrivals late
        assert time.monotonic() - began > 23 / 100
    assert server.most_busy > 1


def test_answers_do_not_depend_on_the_order_in_which_they_come(server: Server) -> None:
    server.latency = 0.02
    with one_by_one(server.url, concurrency=1) as one:
        alone = one(X)
    assert server.most_busy == 1
    with one_by_one(server.url, concurrency=8) as victim:
        began = time.monotonic()
        together = victim(X)
        victim(X)
    assert time.monotonic() - began < 2 * 24 * 0.02
    assert 4 < server.most_busy <= 8
    assert torch.equal(alone, together)
    assert set(server.counts(X.numpy()).values()) == {3}
    assert len(server.connections) <= 1 + 8  # which are kept


@pytest.mark.parametrize("code", [429, 500, 503])
@pytest.mark.parametrize("chunk", [1, 3])
def test_no_row_is_lost_or_miscounted(server: Server, code: int, chunk: int) -> None:
    server.latency, server.plan = 0.005, lambda number, busy: Reply(code if number % 5 == 2 else 200)
    with one_by_one(server.url, concurrency=1, chunk=chunk) as one:
        alone = one(X)
    before = server.counts(X.numpy())
    with one_by_one(server.url, concurrency=8, chunk=chunk) as victim:
        meter = QueryMeter(victim, samples=24, budget=9)
        answers = meter(X, torch.arange(24), "search")
    sent = server.counts(X.numpy()) - before
    assert torch.equal(alone, answers)
    assert meter.counts[:, 0].tolist() == [sent[row] for row in range(24)]
    assert victim.rows["search"] == sent.total() > 24
    assert not meter.lost.any()


def test_a_budget_is_kept_whatever_fails(server: Server) -> None:
    server.latency, server.plan = 0.005, lambda number, busy: Reply(503 if number % 2 else 200)
    with one_by_one(server.url, retries=9) as victim:
        meter = QueryMeter(victim, samples=24, budget=2)
        meter(X[:1], torch.tensor([0]), "search")
        answers = meter(X[1:], torch.arange(1, 24), "search")
    sent = server.counts(X.numpy())
    assert meter.counts[:, 0].tolist() == [sent[row] for row in range(24)]
    assert int(meter.counts.max()) <= 2
    assert torch.equal(answers.isnan().any(1), meter.lost[1:])
    assert meter.lost.any()


def test_a_server_that_bears_few_requests_at_once_gets_few(server: Server) -> None:
    server.latency, server.plan = 0.02, lambda number, busy: Reply(429 if busy > 6 else 200)
    with one_by_one(server.url, retries=20) as victim:
        for _ in range(6):
            victim(X)
        many = server.rows
        server.most_busy = 0
        victim(X)
        assert torch.isfinite(victim(X)).all()
    assert server.most_busy <= 9
    assert many < 6 * 24 * 1.25


def test_a_refusal_stops_everything_and_all_that_was_sent_is_counted(server: Server) -> None:
    server.latency, server.plan = 0.02, lambda number, busy: Reply(400 if number == 3 else 200)
    with one_by_one(server.url) as victim:
        with pytest.raises(VictimError, match="status 400"):
            victim(X)
        assert victim.rows["search"] == server.rows < 24


def answers(flow: Flow, seconds: list[float], alone: bool = False) -> None:
    """Answers to requests of one row, each while as many others wait as may go at once, or while none does."""
    for each in seconds:
        flow.under_way = 1 if alone else int(flow.limit)
        flow.answered(time.monotonic() - each, 1)


def test_more_go_while_answers_come_as_quickly_and_half_as_many_after_a_failure() -> None:
    flow = Flow(32, None)
    answers(flow, [0.05] * 100)
    assert flow.limit == 32
    began = flow.sent()
    assert flow.delay() == 0  # without a rate nothing waits
    flow.failed(began)
    flow.failed(began)  # sent before the limit was halved
    assert flow.limit == 16
    answers(flow, [0.05])
    assert 16 < flow.limit < 17
    lucky = Flow(32, None)
    answers(lucky, [0.05] + [0.5] * 100)
    assert lucky.limit == 32
    crowded = Flow(32, None)
    for _ in range(100):  # a server that works on four requests at once
        answers(crowded, [0.05 * max(1.0, crowded.limit / 4)])
    assert crowded.limit < 16
    idle = Flow(32, None)
    answers(idle, [0.05] * 100, alone=True)  # a single request shows nothing
    assert idle.limit == 4


def test_a_server_that_became_slower_gets_more_again_after_a_while() -> None:
    flow = Flow(32, None)
    answers(flow, [0.05] * 10 + [0.5] * 100)
    slower = flow.limit
    answers(flow, [0.5] * 200)
    assert slower < flow.limit == 32


def test_as_many_samples_step_together_as_requests_may_go_at_once() -> None:
    batch = make_batch(2, 100)
    attack = make_attack(batch, palette=["gaussian_noise@0.3"], patch=2, budget=100_000)
    several: list[dict[str, Any]] = [{}, {"concurrency": 1}, {"price": 0.01}]
    victims = [HttpVictim("http://host/x", **options) for options in several]
    assert [chunk_size(attack, victim, batch) for victim in victims] == [32, 8, 32]


def test_inference_mode_makes_no_difference(server: Server) -> None:
    server.fail(Reply(503))
    with one_by_one(server.url) as victim, torch.inference_mode():
        meter = QueryMeter(victim, samples=24, budget=2)
        assert torch.isfinite(meter(X, torch.arange(24), "search")).all()
    assert int(meter.counts.sum()) == server.rows == 25


def test_a_lost_answer_on_the_last_query_costs_its_sample_alone(server: Server, tmp_path: Path) -> None:
    server.plan = lambda number, busy: Reply(503 if 1 < number <= 5 else 200)
    np.savez(tmp_path / "data.npz", x=np.full((2, 1, 8, 8), 0.5, np.float32), y=np.zeros(2, np.int64))
    words: list[object] = ["--budget", 5, "--patch", 4, "-p", "gaussian_noise@0.3", "--chunk", 1, "--pictures", 0]
    words += ["-M", "retries=9", "-M", "backoff=0", "-o", tmp_path / "run"]
    said = rlab_command("attack", server.url, tmp_path / "data.npz", *words)
    assert said.code == 0, said.err
    result = AttackResult.load(tmp_path / "run")
    assert list(result.status) == [Status.LOST, Status.SPENT]
    assert int(result.queries.sum()) == server.rows
