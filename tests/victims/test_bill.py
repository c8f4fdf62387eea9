"""What queries cost: every answered row is paid once, whatever fails, and never again from a cache."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.errors import InputError, Notice
from rlab.victims import HttpVictim, QueryMeter
from rlab.victims.bill import AnswerCache, Bill, per_query, per_second
from tests.command import rlab_command
from tests.victims.faults import Reply, Server

X = torch.linspace(0, 1, 96).view(24, 1, 4)  # the first values differ


def asked(url: str, **options: Any) -> HttpVictim:
    return HttpVictim(url, **{"chunk": 1, "backoff": 0.01, **options})


def save_data(folder: Path, rows: int) -> str:
    np.savez(
        folder / "data.npz",
        x=np.linspace(0.1, 0.6, rows * 64, dtype=np.float32).reshape(rows, 1, 8, 8),
        y=np.zeros(rows, int),
    )
    return str(folder / "data.npz")


ATTACK = ("--budget", 6, "--patch", 4, "-p", "gaussian_noise@0.3", "--pictures", 0, "--no-page")


@pytest.mark.parametrize(
    ("text", "rate"), [(5, 5), (0.5, 0.5), ("10/s", 10), ("600/min", 10), ("7200 / hour", 2), (None, None)]
)
def test_rates(text: float | str | None, rate: float | None) -> None:
    assert per_second(text) == rate


@pytest.mark.parametrize(("text", "price"), [(None, 0), (0.5, 0.5), ("0.0015/query", 0.0015), ("1.5e-3", 0.0015)])
def test_prices(text: float | str | None, price: float) -> None:
    assert per_query(text) == price


def test_a_failing_server_loses_no_sample_and_is_paid_once_for_each_row(server: Server) -> None:
    """5% of connections drop, 5% are errors, some are put off, some are slow."""
    chance = random.Random(1)
    faults = (
        [Reply(hang_up=True)] * 5
        + [Reply(500)] * 5
        + [Reply(429, headers={"Retry-After": "0"})] * 5
        + [Reply(wait=0.05)] * 5
    )
    server.plan = lambda number, busy: chance.choice([*faults, *[Reply()] * 80])
    x = torch.linspace(0, 1, 800).view(200, 1, 4)
    with asked(server.url, retries=9, price=0.01) as victim:
        meter = QueryMeter(victim, samples=200)
        answers = meter(x, torch.arange(200), "search")
    with asked(server.url, retries=9, concurrency=1) as alone:
        assert torch.equal(answers[:20], alone(x[:20]))
    assert answers.isfinite().all()
    assert not meter.lost.any()
    bill = victim.bill
    assert bill.answered == 200
    assert bill.refused > 10
    assert bill.lost > 5
    assert victim.rows["search"] == bill.answered + bill.refused + bill.lost == int(meter.counts.sum())
    assert bill.cost == pytest.approx(2)


def test_nothing_is_sent_that_could_cost_too_much(server: Server) -> None:
    server.latency = 0.01
    with asked(server.url, price="0.01/query", max_cost=0.1) as victim:
        with pytest.raises(InputError, match="--max-cost"):
            victim(X)
        assert server.rows == victim.bill.answered == 10
        with pytest.raises(InputError, match=r"0\.1 for 10 queries"):
            victim(X[:1])
    assert server.rows == 10


def test_lost_answers_may_have_been_charged() -> None:
    bill = Bill(price=0.01, most=1, answered=60, lost=30)
    bill.check(10)
    with pytest.raises(InputError, match="above 1"):
        bill.check(11)


@pytest.mark.parametrize(
    ("bill", "words"),
    [
        (Bill(), []),
        (Bill(answered=5), []),
        (Bill(0.5, answered=5), ["5 answered queries cost 2.5"]),
        (Bill(0.5, answered=5, refused=1, lost=2), ["3 rows were sent again", "up to 1 more"]),
        (Bill(answered=5, lost=2, cached=1200), ["2 rows were sent again", "1,200 answers came from the cache"]),
    ],
)
def test_the_bill_in_words(bill: Bill, words: list[str]) -> None:
    assert bool(str(bill)) == bool(words)
    assert [word for word in words if word not in str(bill)] == []


def test_a_run_tells_at_its_end_what_it_cost(server: Server, tmp_path: Path) -> None:
    flags = ("--rate", "500/s", "--price", "0.5/query", *ATTACK)
    with pytest.warns(Notice) as notices:
        said = rlab_command("attack", server.url, save_data(tmp_path, 3), *flags, "-o", tmp_path / "run")
    assert said.code == 0, said.err
    told = " ".join(str(notice.message) for notice in notices)
    assert f"{server.rows} answered queries cost {server.rows / 2:g}" in told
    sent = server.rows
    plan = rlab_command("attack", server.url, save_data(tmp_path, 3), *flags, "--dry-run")
    assert "cost at most: 9" in plan.out
    assert server.rows == sent
    stopped = rlab_command(
        "attack", server.url, save_data(tmp_path, 3), *flags, "--max-cost", 3, "-o", tmp_path / "two"
    )
    assert (stopped.code, server.rows - sent) == (2, 6)
    assert "--max-cost" in stopped.err


def test_a_refusal_takes_three_lines_of_the_terminal(server: Server, tmp_path: Path) -> None:
    server.fail(Reply(422, b'{"detail": [{"msg": "Field required", "input": [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]]}]}'))
    said = rlab_command("attack", server.url, save_data(tmp_path, 2), *ATTACK, "-o", tmp_path / "run")
    first, sent, received = said.err.splitlines()[-3:]
    assert (said.code, server.rows) == (2, 2)
    assert first.endswith("refused the request with status 422")
    assert sent.startswith("sent: 2 inputs of shape (1, 8, 8) as JSON lists")
    assert received == 'received: {"detail": [{"msg": "Field required", "input": […}]}'


def test_a_known_input_is_neither_sent_nor_paid(server: Server, tmp_path: Path) -> None:
    server.fail(Reply(), Reply(503))
    file = tmp_path / "answers.db"
    with asked(server.url, chunk=8, price=1, cache=file) as victim:
        first = victim(X)
        assert (server.rows, victim.bill.answered, victim.bill.cached) == (32, 24, 0)
    with asked(server.url, chunk=7, price=1, cache=file) as victim:
        meter = QueryMeter(victim, samples=26)
        again = meter(torch.cat([X, torch.full((2, 1, 4), 0.3)]), torch.arange(26), "search")
        bill = victim.bill
        assert (server.rows, victim.rows["search"], bill.answered, bill.cached) == (34, 2, 2, 24)
        assert meter.counts[:, 0].tolist() == [1] * 26  # of the samples' budgets
    assert torch.equal(first, again[:24])


@pytest.mark.parametrize("change", [{"template": "npy"}, {"bounds": (0, 2)}, {"outputs": "labels"}])
def test_another_model_or_way_of_asking_has_answers_of_its_own(
    server: Server, tmp_path: Path, change: dict[str, Any]
) -> None:
    for options in ({}, change):
        with asked(server.url, cache=tmp_path / "answers.db", **options) as victim:
            victim(X[:2])
            assert victim.bill.cached == 0
    assert server.rows == 4


def test_the_result_does_not_depend_on_the_cache(server: Server, tmp_path: Path) -> None:
    data = (np.linspace(0.1, 0.6, 192, dtype=np.float32).reshape(3, 1, 8, 8), np.zeros(3, int))
    options: dict[str, Any] = {"budget": 6, "patch": 4, "palette": ["gaussian_noise@0.3"], "policy": "random"}
    found = []
    for cache in (None, tmp_path / "answers.db", tmp_path / "answers.db"):
        sent = server.rows
        with HttpVictim(server.url, cache=cache) as victim:
            found.append(rlab.attack(victim, data, progress=False, **options))
    assert server.rows == sent  # the third run pays nothing
    assert found[0].queries.tolist() == found[1].queries.tolist() == found[2].queries.tolist()
    assert torch.equal(found[0].perturbed, found[2].perturbed)
    with HttpVictim(server.url, cache=tmp_path / "answers.db") as victim, pytest.raises(InputError, match="noisy"):
        rlab.attack(victim, data, noisy=True, **options)


def test_a_file_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with pytest.raises(InputError, match="as a cache"):
        asked("http://host/", cache=tmp_path / "notes.txt")


def test_keys_in_a_template_or_an_address_of_any_protocol_stay_secret(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2-key")
    (tmp_path / "mine.yaml").write_text(
        'body: {inputs: "{list}"}\nbatch: true\nanswers: $.outputs\nheaders: {X-Api-Key: "${MY_KEY}"}\n'
    )
    address = server.url.replace("http://", "rlab://me:pass-word@").replace("/predict", "/predict?token=query-secret")
    model = ["-M", f"template={tmp_path / 'mine.yaml'}", "-M", f"cache={tmp_path / 'answers.db'}"]
    said = rlab_command("attack", address, save_data(tmp_path, 2), *ATTACK, *model, "-o", tmp_path / "run")
    assert said.code == 0, said.err
    assert {one.headers["X-Api-Key"] for one in server.received} == {"hunter2-key"}
    assert {one.path for one in server.received} == {"/predict?token=query-secret"}
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] + [
        said.out.encode(),
        said.err.encode(),
    ]
    assert not [word for word in (b"hunter2", b"pass-word", b"query-secret") for text in kept if word in text]


def test_known_answers_stay_when_the_others_are_lost(server: Server, tmp_path: Path) -> None:
    with asked(server.url, chunk=4, cache=tmp_path / "answers.db") as victim:
        known = victim(X[1:3])
        server.fail(Reply(503))
        meter = QueryMeter(victim, samples=4, budget=1)
        answers = meter(X[:4], torch.arange(4), "search")
    assert torch.equal(answers[1:3], known)
    assert answers.isnan().any(1).tolist() == meter.lost.tolist() == [True, False, False, True]
    assert meter.counts[:, 0].tolist() == [1] * 4
    assert server.rows == 4  # two of them in vain


def test_a_cache_that_is_full_for_a_moment_goes_on(tmp_path: Path) -> None:
    cache, x = AnswerCache(tmp_path / "answers.db", "model"), torch.rand(3, 1, 4)
    answers = torch.arange(3.0)[:, None].expand(3, 9000)
    cache.file.execute("pragma max_page_count = 4")
    with pytest.raises(InputError, match="cannot write to the cache"):
        cache.write(x, answers)
    cache.file.execute("pragma max_page_count = 4000")
    cache.write(x, answers)
    assert len(cache.read(x)) == 3
    cache.close()
