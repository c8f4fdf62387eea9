"""A model behind an address that does not answer: an error of at most three lines, exit code 2, and no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_bad_input import DIGITS, assert_refused, contents
from tests.command import rlab_command
from tests.victims.faults import Reply, fault_server

OPTIONS = ["--limit", "3", "-M", "timeout=0.3", "-M", "retries=1", "-M", "backoff=0.01"]
FAULTS: dict[str, tuple[Reply, str]] = {
    "slow": (Reply(wait=1.0), "did not answer within 0.3 s"),
    "down": (Reply(503), "status 503"),
    "refusing": (Reply(404, b"no such thing"), "status 404"),
    "garbage": (Reply(body=b"<html>hello</html>", kind="text/html"), "did not return scores"),
    "other JSON": (Reply(body=b'{"answer": 42}'), "did not return scores"),
    "wrong rows": (Reply(body=b'{"outputs": [[0.5, 0.5]]}'), "did not return scores"),
    "hanging up": (Reply(hang_up=True), "could not be reached"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_that_does_not_answer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reply, words = FAULTS[name]
    with fault_server() as server:
        server.plan = lambda number, busy: reply
        assert_refused(rlab_command("attack", server.url, DIGITS, *OPTIONS), words, lines=3)
    assert not contents(tmp_path)


def test_an_address_where_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = "http://127.0.0.1:9/predict"  # the discard port
    assert_refused(rlab_command("attack", address, DIGITS, *OPTIONS), "could not be reached")
    assert not contents(tmp_path)
