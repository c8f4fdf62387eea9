"""Servers on this machine, which no proxy may hide; certificates are read once for all clients."""

import os
from collections.abc import Iterator
from functools import cache

import httpx._transports.default
import pytest

from tests.victims.faults import Server, fault_server

os.environ["NO_PROXY"] = "127.0.0.1,localhost"


@pytest.fixture(scope="session", autouse=True)
def shared_certificates() -> Iterator[None]:
    """Reading the authorities' certificates takes 50 ms a client; here it is done once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture
def server() -> Iterator[Server]:
    with fault_server() as server:
        yield server
