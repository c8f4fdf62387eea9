"""A few seconds of `make fuzz` with a fixed seed, all requests to the server once, and every case that failed before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mutation.edits import Edit
from tests.mutation.fuzz import REQUESTS, Fuzzer, found, fuzzing


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Fuzzer]:
    with fuzzing() as fuzzer:
        yield fuzzer


def test_requests(fuzzer: Fuzzer) -> None:
    for name in REQUESTS:
        fuzzer.campaign(name, 1, 8)
    assert not fuzzer.bad


def test_cases_that_failed_before(fuzzer: Fuzzer) -> None:
    for name, damages in found():
        fuzzer.try_one(name, damages)


def test_a_failure_is_kept(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, damages: list[Edit]) -> None:
        assert not any(damage.kind == "flip" for damage in damages)

    monkeypatch.setattr(fuzzer, "send", fails)
    fuzzer.campaign("GET /", 1, 40)
    (damage,) = fuzzer.bad.pop("GET /")
    assert damage.kind == "flip"


@pytest.mark.slow
def test_thirty_seconds(fuzzer: Fuzzer) -> None:
    fuzzer.run(30, 1)
    assert not fuzzer.bad
