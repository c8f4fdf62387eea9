"""Servers on this machine, which no proxy may hide."""

import os
from collections.abc import Iterator

import pytest

from tests.victims.faults import Server, fault_server

os.environ["NO_PROXY"] = "127.0.0.1,localhost"


@pytest.fixture
def server() -> Iterator[Server]:
    with fault_server() as server:
        yield server
