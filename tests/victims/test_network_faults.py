"""A fault at any request to a model behind an address: one sentence, and the resumed run ends like an unbroken one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.victims.network import network_case


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one", "every"])
def test_a_fault_at_a_request(tmp_path: Path, every: bool, record_property: Callable[[str, object], None]) -> None:
    with network_case() as case:
        requests, outcome = case.unbroken(tmp_path / "unbroken")
        tried = [each for each in case.points(requests) if every or each.request == requests // 2]
        wrong = {each: said for each in tried if (said := case.faulty(each, tmp_path / str(each), requests, outcome))}
    record_property("faults", len(tried))
    assert not wrong
