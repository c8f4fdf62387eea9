"""A model behind an address that lies, drips, swells or falls silent: against a bare socket that does as told."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.cli.benchmark import ModelFlags
from rlab.errors import InputError, VictimError
from rlab.results.result import AttackResult, Status
from rlab.victims import HttpVictim, QueryMeter
from rlab.victims.resolve import load_victim
from tests.command import rlab_command

X = torch.linspace(0, 1, 12).view(3, 1, 4)
Act = Callable[[socket.socket, int, int], None]  # the connection, the rows that were sent, the number of the request


def reply(body: bytes, *headers: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def scores(rows: int, top: int = 0) -> bytes:
    return json.dumps({"outputs": [[5.0 * (k == top) for k in range(10)]] * rows}).encode()


@contextmanager
def serving(act: Act) -> Iterator[tuple[str, list[int]]]:
    """-> the address, and the rows of every request that came whole."""
    asked: list[int] = []
    numbers = count(1)
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                head, _, body = connection.recv(2**16).partition(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                while len(body) < length:
                    body += connection.recv(2**16)
                asked.append(len(json.loads(body)["inputs"]))
                act(connection, asked[-1], next(numbers))
            except (OSError, IndexError):
                pass  # the client did not wait

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/predict", asked
    finally:
        listener.close()


def always(body: bytes, *headers: str, status: int = 200) -> Act:
    return lambda connection, rows, number: connection.sendall(reply(body, *headers, status=status))


def drip(connection: socket.socket, whole: bytes) -> None:
    for at in range(len(whole)):
        connection.sendall(whole[at : at + 1])
        time.sleep(0.02)


@pytest.mark.parametrize("header_too", [True, False])
def test_the_timeout_is_for_the_whole_exchange(header_too: bool) -> None:
    def act(connection: socket.socket, rows: int, number: int) -> None:
        whole = reply(scores(rows))
        if number == 1:
            at = 0 if header_too else whole.index(b"\r\n\r\n") + 4
            connection.sendall(whole[:at])
            drip(connection, whole[at:])
        connection.sendall(whole)

    with serving(act) as (url, asked), HttpVictim(url, timeout=0.3, retries=0) as victim:
        began = time.monotonic()
        with pytest.raises(VictimError, match=r"did not answer within 0.3 s"):
            victim(X)
        assert time.monotonic() - began < 1
        assert victim.rows["search"] == sum(asked) == 3
        assert victim(X).argmax(1).tolist() == [0, 0, 0]  # it may be asked again


@cache
def packed(times: int) -> bytes:
    """64 megabytes of zeros, packed so many times."""
    return gzip.compress(bytes(2**26) if times == 1 else packed(times - 1), 1)


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip, gzip", "br", "deflate"])
def test_a_packed_answer_is_not_unpacked_beyond_what_scores_need(coding: str) -> None:
    body = packed(3 if "," in coding else 1)
    tracemalloc.start()
    try:
        with (
            serving(always(body, f"Content-Encoding: {coding}")) as (url, _),
            HttpVictim(url, retries=0) as victim,
            pytest.raises(VictimError, match=r"more than \d+ bytes|cannot be unpacked"),
        ):
            victim(X)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_gzip_once_is_read() -> None:
    with (
        serving(always(gzip.compress(scores(3)), "Content-Encoding: gzip")) as (url, _),
        HttpVictim(url, retries=0) as victim,
    ):
        assert victim(X).argmax(1).tolist() == [0, 0, 0]


def test_an_endless_answer_ends() -> None:
    def act(connection: socket.socket, rows: int, number: int) -> None:
        connection.sendall(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n\r\n")
        while True:
            connection.sendall(b" " * 2**16)

    with serving(act) as (url, _), HttpVictim(url, retries=0) as victim, pytest.raises(VictimError, match="more than"):
        victim(X)


@pytest.mark.parametrize(
    "outputs",
    ["1" + "0" * 400, "1" + "0" * 5000, "true", '"1"', "[]", "{}"],
)
def test_numbers_that_are_none_are_one_sentence(outputs: str) -> None:
    body = f'{{"outputs": [[1, {outputs}], [1, 2], [1, 2]]}}'.encode()
    with (
        serving(always(body)) as (url, _),
        HttpVictim(url, retries=0) as victim,
        pytest.raises(VictimError, match="something else than scores"),
    ):
        victim(X)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_a_row_without_an_answer(number: str) -> None:
    body = f'{{"outputs": [[1, {number}], [1, 2], [1, 2]]}}'.encode()
    with serving(always(body)) as (url, _), HttpVictim(url, outputs="logits", retries=0) as victim:
        assert victim(X).isnan().any(1).tolist() == [True, False, False]


@pytest.mark.parametrize("status", [200, 302, 400])
def test_what_a_server_says_comes_without_secrets_and_escapes(status: int) -> None:
    body = b"\x1b[31m Bearer hunter2-abc and pass-word and query-secret"
    act = always(body, "Location: https://me:pass-word@elsewhere/x?key=query-secret", status=status)
    with serving(act) as (url, _):
        address = url.replace("http://", "http://me:pass-word@") + "?key=query-secret"
        victim = HttpVictim(address, headers={"Authorization": "Bearer hunter2-abc"}, retries=0)
        with victim, pytest.raises(VictimError) as caught:
            victim(X)
    assert not [word for word in ("hunter2", "pass-word", "query-secret", "\x1b") if word in str(caught.value)]


@pytest.mark.parametrize("value", ["hunter2\nX: 1", "hunter2é", 5, None, ["hunter2"]])
def test_headers_that_cannot_be_sent_are_refused_without_their_value(value: object) -> None:
    with pytest.raises(InputError, match="header") as caught:
        HttpVictim("http://host/x", headers={"Authorization": value})  # type: ignore[dict-item]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://me:hun/ter2@host", "http://host:99999/?k=hunter2"])
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(InputError) as caught:
        load_victim(url)
    assert "hun" not in str(caught.value)


@pytest.mark.parametrize("field", ["timeout", "retries", "rate", "backoff", "headers", "body"])
def test_options_of_the_wrong_type_are_one_sentence(field: str) -> None:
    with pytest.raises(InputError):
        load_victim("http://host/x", http={field: "x" if field != "body" else 5})


def test_the_timeout_of_a_model_is_that_of_its_requests() -> None:
    plain, own = load_victim("http://host/x"), load_victim("http://host/x", http={"timeout": 5})
    both = load_victim("http://host/x", http={"timeout": 5}, timeout=3)
    assert (plain.timeout, own.timeout, both.timeout) == (10, 5, 3)


def test_an_address_holds_equal_signs_and_a_name_may_stand_before() -> None:
    address = "http://host/predict?key=a&other=b"
    models = ModelFlags([address, f"mine={address}", "twin=demo:digits", "/a=b/model.onnx"], None).named()
    assert [model.name for model in models.values()] == [address, address, "demo:digits", "/a=b/model.onnx"]
    assert list(models)[1:3] == ["mine", "twin"]


def test_rows_that_a_budget_cannot_repeat_are_lost_and_the_others_asked_again() -> None:
    def act(connection: socket.socket, rows: int, number: int) -> None:
        connection.sendall(reply(b"", status=503) if number == 2 else reply(scores(rows)))

    with serving(act) as (url, asked), HttpVictim(url, backoff=0.0) as victim:
        meter = QueryMeter(victim, samples=3, budget=2)
        meter(X[:2], torch.tensor([0, 1]), "search")
        answer = meter(X, torch.tensor([0, 1, 2]), "search")
    assert answer.isnan().any(1).tolist() == meter.lost.tolist() == [True, True, False]
    assert asked == [2, 3, 1]
    assert meter.counts[:, 0].tolist() == [2, 2, 2]


def test_a_lost_answer_on_the_last_query_costs_its_sample_alone(tmp_path: Path) -> None:
    """The first sample's answers stop after a while; the second one's come."""
    sent: list[int] = []

    def act(connection: socket.socket, rows: int, number: int) -> None:
        sent.append(rows)
        connection.sendall(reply(b"", status=503) if 1 < number <= 5 else reply(scores(rows)))

    np.savez(tmp_path / "data.npz", x=np.full((2, 1, 8, 8), 0.5, np.float32), y=np.zeros(2, np.int64))
    with serving(act) as (url, _):
        words = ["--budget", 5, "--patch", 4, "-p", "gaussian_noise@0.3", "--chunk", 1, "--pictures", 0]
        http = "http={retries: 9, backoff: 0.0}"
        said = rlab_command("attack", url, tmp_path / "data.npz", *words, "-M", http, "-o", tmp_path / "run")
    assert said.code == 0, said.err
    result = AttackResult.load(tmp_path / "run")
    assert result.status[0] is Status.LOST
    assert result.status[1] is Status.SPENT
    assert int(result.queries.sum()) == sum(sent)
