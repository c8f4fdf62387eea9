"""Requests to a model behind an address: the connections they go over, and how many of them go when."""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlab.errors import MissingExtra

Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, content
_FEW = 4  # requests at once to begin with
_SLOWER, _JITTER = (
    2.0,
    0.005,
)  # times the quickest answer, and seconds beyond, that an answer may take for more to be sent


class Clients:
    """Connections that are kept for the next request, as many as were needed at once; shared by copies of a victim."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.free = make, [make()]
        self.taken: dict[threading.Thread, Any] = {}

    @contextmanager
    def take(self) -> Iterator[Any]:
        """A client for this thread alone."""
        try:
            client = self.free.pop()
        except IndexError:
            client = self.make()
        self.taken[threading.current_thread()] = client
        try:
            yield client
        finally:
            if self.taken.pop(threading.current_thread(), None) is not None:
                self.free.append(client)

    def give_up(self, thread: threading.Thread) -> None:
        """Ends the connection of a thread that is not waited for, so that it ends at its next byte."""
        if (client := self.taken.pop(thread, None)) is not None:
            client.close()

    def close(self) -> None:
        for client in (*self.free, *self.taken.values()):
            client.close()


def read(client: Any, url: Any, body: bytes, most: int) -> Answer:
    """A request and its answer, unpacked once and to no more than `most` bytes: OverflowError beyond them."""
    with client.stream("POST", url, content=body) as response:
        packing, content = response.headers.get("content-encoding", "identity").lower(), bytearray()
        if packing not in ("identity", "gzip"):
            raise httpx_package().DecodingError(f"expected gzip or nothing as content-encoding, got {packing[:40]!r}")
        unpack = zlib.decompressobj(31)  # 31: a gzip header and the largest window
        for part in response.iter_raw():
            content += part if packing == "identity" else unpack.decompress(part, most + 1 - len(content))
            if len(content) > most:
                raise OverflowError
        return response.status_code, response.headers, bytes(content)


class Flow:
    """When the next request may go: at most `rate` a second, none before a time the model asked for, and so many at once.

    How many at once is found out: from a few it grows to `most` while answers come about as quickly as they ever did,
    and is halved when one does not come, after which it grows slowly.
    """

    def __init__(self, most: int, rate: float | None) -> None:
        self.most, self.gap = most, 0.0 if rate is None else 1 / rate
        self.limit = float(min(_FEW, most))
        self.free, self.halved = -math.inf, -math.inf  # when the next may go, and when the limit was last halved
        self.fastest: dict[int, float] = {}  # seconds, by the rows of a request

    def delay(self) -> float:
        """Seconds until the next request may go."""
        return max(0.0, self.free - time.monotonic())

    def sent(self) -> float:
        """A request goes -> when."""
        now = time.monotonic()
        self.free = now + self.gap
        return now

    def answered(self, began: float, rows: int, others: int) -> None:
        """An answer came to a request of so many rows, while so many others were on their way."""
        seconds = time.monotonic() - began
        fastest = self.fastest[rows] = min(seconds, self.fastest.get(rows, math.inf))
        if seconds < _SLOWER * fastest + _JITTER and others + 1 >= int(self.limit):
            self.limit = min(self.limit + (1 if self.halved == -math.inf else 1 / self.limit), self.most)

    def failed(self, began: float, wait: float = 0.0) -> None:
        """No answer came, and the model may have asked to be left alone for a while; requests that were sent before the
        limit was halved say nothing new."""
        now = time.monotonic()
        self.free = max(self.free, now + wait)
        if began > self.halved:
            self.limit, self.halved = max(1.0, self.limit / 2), now


def httpx_package() -> Any:
    """The package, of an extra."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("httpx", "http") from error
    return httpx
