"""Models behind an address: what is sent, which answers are accepted, and what each fault of a server leads to."""

from __future__ import annotations

import gzip
import io
import socket
import subprocess
import sys
import time
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from rlab.cli.benchmark import ModelFlags
from rlab.errors import InputError, VictimError
from rlab.victims import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_victim
from tests.victims.faults import NPY, Reply, Server, linear_scores
from tests.victims.makers import example_server

X = torch.linspace(0, 1, 12).view(3, 1, 4)
SCORES = torch.from_numpy(linear_scores(X.numpy())).float().log_softmax(1)


def quick(url: str, **options: Any) -> HttpVictim:
    return HttpVictim(url, **{"backoff": 0.01, **options})


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def outputs(text: str, rest: str = "[1, 2], [1, 2]") -> bytes:
    return f'{{"outputs": [{text}, {rest}]}}'.encode()


ANSWERS = {
    "json": ({}, Reply()),
    "json for npy": ({"template": "npy"}, Reply()),
    "npy": ({"template": "npy"}, Reply(body=npy(linear_scores(X.numpy())), kind=NPY)),
    "gzip": ({}, Reply(body=gzip.compress(b'{"outputs": ' + str(SCORES.tolist()).encode() + b"}"),
                       headers={"Content-Encoding": "gzip"})),
    "gzip in two members": ({}, Reply(body=gzip.compress(b'{"outputs": ') + gzip.compress(str(SCORES.tolist()).encode() + b"}"),
                                      headers={"Content-Encoding": "gzip"})),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_inputs_arrive_unchanged_and_scores_come_back(server: Server, name: str) -> None:
    options, reply = ANSWERS[name]
    server.fail(reply)
    with quick(server.url.replace("http", "HTTP"), headers={"Authorization": "Bearer secret"}, **options) as victim:
        torch.testing.assert_close(victim(X), SCORES)
    (received,) = server.received
    assert np.array_equal(received.inputs.astype(np.float32), X.numpy())
    assert (received.path, received.headers["Authorization"]) == ("/predict", "Bearer secret")
    assert received.headers["Content-Type"] == (NPY if options else "application/json")


@pytest.mark.parametrize("number", ["null", "NaN", "Infinity", "1e999"])
def test_scores_that_are_not_finite_are_a_row_without_an_answer(server: Server, number: str) -> None:
    server.fail(Reply(body=outputs(f"[1, {number}]")))
    with quick(server.url, outputs="logits", retries=0) as victim:
        assert victim(X).isnan().any(1).tolist() == [True, False, False]


@cache
def compressed(times: int) -> bytes:
    """64 megabytes of zeros."""
    return gzip.compress(bytes(2**26) if times == 1 else compressed(times - 1), 1)


def coded(coding: str, times: int = 1) -> Reply:
    return Reply(body=compressed(times), headers={"Content-Encoding": coding})


HUGE = npy(np.zeros((3, 2))).replace(b"(3, 2), }           ", b"(3, 999999999999), }")
NO_SCORES = {
    "html": Reply(body=b"<html>oops</html>", kind="text/html"),
    "not json": Reply(body=b"{outputs"),
    "empty": Reply(body=b""),
    "no outputs": Reply(body=b'{"scores": [[1, 2]]}'),
    "a list": Reply(body=b"[[1, 2]]"),
    "one number": Reply(body=b'{"outputs": 3}'),
    "flat": Reply(body=b'{"outputs": [1, 2, 3]}'),
    "strings": Reply(body=outputs('["1", "2"]')),
    "booleans": Reply(body=outputs("[true, 2]")),
    "too deep": Reply(body=outputs("[[1], [2]]", "[[1], [2]], [[1], [2]]")),
    "objects": Reply(body=outputs("[1, {}]")),
    "ragged": Reply(body=outputs("[1, 2, 3]")),
    "two rows": Reply(body=outputs("[1, 2]", "[1, 2]")),
    "too large for a float": Reply(body=outputs("[1, 1" + "0" * 400 + "]")),
    "too long to parse": Reply(body=outputs("[1, 1" + "0" * 5000 + "]")),
    "bottomless": Reply(body=b"[" * 100_000),
    "a zip": Reply(body=b"PK\x03\x04 no zip", kind=NPY),
    "a truncated npy": Reply(body=b"\x93NUMPY\x01\x00v\x00{'descr'", kind=NPY),
    "an npy that claims to be huge": Reply(body=HUGE, kind=NPY),
    "an npy of strings": Reply(body=npy(np.array([["a", "b"]] * 3)), kind=NPY),
    "a complex npy": Reply(body=npy(np.array([[1 + 1j, 2]] * 3)), kind=NPY),
    "an npy of objects": Reply(body=npy(np.array([[{}, 1]] * 3, dtype=object)), kind=NPY),
}
UNREADABLE = (  # perhaps because something went wrong on the way; other answers would be the same the next time
    "html", "not json", "empty", "bottomless", "too long to parse", "a zip", "a truncated npy",
    "an npy that claims to be huge", "an npy of objects",
)  # fmt: skip
# fault: (reply, words of the error, whether the request is sent again)
FAULTS: dict[str, tuple[Reply, str, bool]] = {
    **{name: (reply, "did not return scores", name in UNREADABLE) for name, reply in NO_SCORES.items()},
    "server error": (Reply(500), "status 500", True),
    "overloaded": (Reply(503), "status 503", True),
    "hangs up": (Reply(hang_up=True), "could not be reached", True),
    "silent": (Reply(wait=1.2), "within 0.4 s", True),
    "drips its body": (Reply(drip=0.05), "within 0.4 s", True),
    "drips its header": (Reply(drip=0.05, drip_header=True), "within 0.4 s", True),
    "unknown coding": (coded("br"), "decompressed", True),
    "deflate": (coded("deflate"), "decompressed", True),
    "three times gzip": (coded("gzip, gzip, gzip", 3), "decompressed", True),
    "gzip bomb": (coded("gzip"), "more than", False),
    "endless": (Reply(endless=True, body=b""), "more than", False),
    "refuses": (Reply(400, b"inputs must be 28x28 " * 50, "text/plain"), "received: inputs must be 28x28", False),
    "refuses for lack of memory": (Reply(413, b"out of memory", "text/plain"), "received: out of memory", False),
    "redirects": (Reply(307, headers={"Location": "http://elsewhere.example/x"}), "to http://elsewhere", False),
    "asks for an hour": (Reply(429, headers={"Retry-After": "3600"}), "3600 s", False),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(server: Server, name: str) -> None:
    """Each is a one-line error; rows are counted as often as they were sent, and the victim can be used again."""
    reply, words, again = FAULTS[name]
    attempts = 2 if again else 1
    server.fail(*[reply] * attempts)
    victim = quick(server.url, retries=1, timeout=0.4 if "0.4" in words else 10)
    began = time.monotonic()
    tracemalloc.start()
    with pytest.raises(VictimError) as caught:
        victim(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = str(caught.value)
    assert words in said
    assert ("2 attempts" in said) == again
    assert len(said.splitlines()) <= 3
    assert len(said) < 700
    assert peak < 2**25 or name == "an npy that claims to be huge"  # memory that is never touched
    assert time.monotonic() - began < 8
    assert victim.rows["search"] == server.rows == 3 * attempts
    victim.timeout = 10
    torch.testing.assert_close(victim(X), SCORES)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("concurrency", [1, 32])
def test_a_server_that_is_down(concurrency: int) -> None:
    """Of many requests only a few are tried."""
    port, x = free_port(), torch.rand(24, 1, 4)
    with (
        quick(f"http://127.0.0.1:{port}/predict", retries=3, chunk=1, concurrency=concurrency) as victim,
        pytest.raises(VictimError, match=rf"http://127.0.0.1:{port}/predict could not be reached.*4 attempts"),
    ):
        victim(x)
    assert victim.rows["search"] <= 12


@pytest.mark.parametrize("status", [200, 302, 400])
def test_errors_quote_a_server_without_secrets_and_escapes(server: Server, status: int) -> None:
    body = b"\x1b[31m Bearer hunter2-abc and pass-word and query-secret"
    server.fail(Reply(status, body, headers={"Location": "https://me:pass-word@elsewhere/x?key=query-secret"}))
    address = server.url.replace("http://", "http://me:pass-word@") + "?key=query-secret"
    victim = quick(address, headers={"Authorization": "Bearer hunter2-abc"}, retries=0)
    with victim, pytest.raises(VictimError) as caught:
        victim(X)
    assert not [word for word in ("hunter2", "pass-word", "query-secret", "\x1b") if word in str(caught.value)]
    assert server.received[0].path == "/predict?key=query-secret"


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("ftp://host/x", {}, "an address like"),
        ("http://", {}, "an address like"),
        ("http://host:port", {}, "address"),
        ("http://me:hun/ter2@host", {}, "address"),
        ("http://host:99999/?k=hunter2", {}, "address"),
        ("http://host", {"template": "xml"}, "unknown protocol 'xml'"),
        ("smtp://host", {}, "kserve://"),
        ("kserve://host:8080", {}, "the model's name"),
        ("openai://host:8080/gpt", {}, "the classes to choose from"),
        ("http://host", {"max_cost": 5}, "price"),
        *[("http://host", {"price": value}, "0.0015/query") for value in ("x", "3/hour", -1)],
        *[("http://host", {"timeout": value}, "timeout") for value in (0, "x")],
        *[("http://host", {"rate": value}, "10/s") for value in (0, "x", "3/query", True)],
        *[("http://host", {"retries": value}, "retries") for value in (-1, "x")],
        ("http://host", {"backoff": "x"}, "backoff"),
        *[("http://host", {"concurrency": value}, "concurrency") for value in (0, -1, 2.5, True, "8")],
        ("http://host", {"headers": "x"}, "headers"),
        *[
            ("http://host", {"headers": {"Authorization": value}}, "header")
            for value in ("hunter2\nX: 1", "hunter2é", 5, None, ["hunter2"])
        ],
    ],
)
def test_invalid_options_are_refused_without_repeating_secrets(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        HttpVictim(url, **options)
    assert "hun" not in str(caught.value)


def test_a_server_is_described_without_a_device() -> None:
    assert load_victim("http://host/x").describe().startswith("http://host/x, takes values in [0.0, 1.0]")


def test_options_of_a_named_model() -> None:
    plain, own = load_victim("http://host/x"), load_victim("http://host/x", timeout=5, concurrency=8)
    assert (plain.timeout, own.timeout, plain.concurrency, own.concurrency) == (10, 5, 32, 8)
    # a run can be resumed with another concurrency
    assert ModelOptions(name="http://host/x", concurrency=8).plain() == ModelOptions(name="http://host/x").plain()
    with pytest.raises(InputError, match="concurrency"):
        load_victim("demo:digits", concurrency=8)


def test_an_address_may_contain_equal_signs_and_follow_a_name() -> None:
    address = "http://host/predict?key=a&other=b"
    models = ModelFlags([address, f"mine={address}", "twin=demo:digits", "/a=b/model.onnx"], None).named()
    assert [model.name for model in models.values()] == [address, address, "demo:digits", "/a=b/model.onnx"]
    assert list(models)[1:3] == ["mine", "twin"]


def test_closing_ends_the_connection(server: Server) -> None:
    with quick(server.url) as victim:
        victim(X)
    assert victim._clients.every[0].is_closed
    forgotten = quick(server.url)
    forgotten(X)
    client = forgotten._clients.every[0]
    del forgotten
    began = time.monotonic()
    while not client.is_closed:
        assert time.monotonic() - began < 20
        time.sleep(0.01)


def test_the_example_server_runs_by_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\ndef model(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))\n"
    )
    url = f"http://127.0.0.1:{(port := free_port())}/"
    command = [sys.executable, str(root / "examples/http_server.py"), "--model", "mine:model", "--port", str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, env={"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})
    try:
        while not listening(port):
            assert process.poll() is None
            time.sleep(0.05)
        with quick(f"{url}predict", retries=120, backoff=0.0) as victim:
            assert victim(X).shape == (3, 3)
        with (
            quick(f"{url}predict", headers={"Content-Type": NPY}) as victim,
            pytest.raises(VictimError, match=r"\.npy"),
        ):
            victim(X)
        assert httpx.get(url).json() == {"model": "TorchVictim", "bounds": [0, 1], "rows": 3}
    finally:
        process.terminate()
        process.wait()


def test_the_example_server_reports_a_missing_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["http_server.py", "--model", "nothing.onnx"])
    with pytest.raises(SystemExit) as ended:
        example_server().main()
    assert (ended.value.code, capsys.readouterr().err) == (2, "no such file: nothing.onnx\n")


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
