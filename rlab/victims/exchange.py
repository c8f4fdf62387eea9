"""HTTP requests to a model: the connections they use, and when the next one may be sent."""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from statistics import median
from typing import Any

from rlab.errors import MissingExtra, optional
from rlab.victims.template import Sent

Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, content
_FEW = 4  # concurrent requests at the start
_SLOWER, _JITTER = 2.0, 0.005  # the limit grows while answers take at most 2 times as long as the fastest, plus 5 ms
_LUCK, _RECENT = 5, 200  # the fastest is the least median of so many answers in a row, among so many recent ones


class Clients:
    """A pool of connections, one for each concurrent request; copies of a victim share it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.free = make, [make()]
        self.taken: dict[threading.Thread, Any] = {}

    @contextmanager
    def take(self) -> Iterator[Any]:
        """A client for the current thread."""
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
        """Close the connection of a thread that is too late, so that it stops at its next byte."""
        if (client := self.taken.pop(thread, None)) is not None:
            client.close()

    def look_up(self, url: Any) -> object:
        """What the server says at another address, e.g. about a model, as JSON; None if it says nothing."""
        with self.take() as client, suppress(httpx_package().HTTPError, ValueError):
            return client.get(url).json()
        return None

    def close(self) -> None:
        for client in (*self.free, *self.taken.values()):
            client.close()


def read(client: Any, url: Any, sent: Sent, most: int) -> Answer:
    """Send a request and read the answer; OverflowError if it is larger than `most` bytes after decompression."""
    kind = client.headers.get("content-type", sent.kind)
    with client.stream("POST", url, content=sent.content, headers={"Content-Type": kind}) as response:
        coding, content = response.headers.get("content-encoding", "identity").lower(), bytearray()
        if coding not in ("identity", "gzip"):
            raise httpx_package().DecodingError(f"expected content-encoding gzip or none, got {coding[:40]!r}")
        unpack = zlib.decompressobj(31)  # 31: a gzip header and the largest window
        for part in response.iter_raw():
            while part:
                if unpack.eof:  # the content may be in several parts, each compressed
                    unpack = zlib.decompressobj(31)
                content += part if coding == "identity" else unpack.decompress(part, most + 1 - len(content))
                if len(content) > most:
                    raise OverflowError
                part = unpack.unused_data.lstrip(b"\0")  # some pad with zeros
        return response.status_code, response.headers, bytes(content)


class Flow:
    """When the next request may be sent: at most `rate` a second, and not before a time that the server set.

    `limit`, the number of concurrent requests, starts small. It grows up to `most` while answers are about as fast as the
    fastest, is halved after a failure, and grows slowly from then on.
    """

    def __init__(self, most: int, rate: float | None) -> None:
        self.most, self.gap = most, 0.0 if rate is None else 1 / rate
        self.limit = float(min(_FEW, most))
        self.free, self.halved = -math.inf, -math.inf  # time of the next request, and of the last halving
        self.last = defaultdict[int, deque[float]](lambda: deque(maxlen=_LUCK))  # rows of a request -> seconds
        self.medians = defaultdict[int, deque[float]](
            lambda: deque(maxlen=_RECENT)
        )  # rows of a request -> medians of `last`

    def delay(self) -> float:
        """Seconds until the next request may be sent."""
        return max(0.0, self.free - time.monotonic())

    def sent(self) -> float:
        """Note that a request is sent; return the time."""
        now = time.monotonic()
        self.free = now + self.gap
        return now

    def answered(self, began: float, rows: int, others: int) -> None:
        """Note the answer to a request of `rows` rows, with `others` requests still waiting for theirs."""
        seconds = time.monotonic() - began
        last, medians = self.last[rows], self.medians[rows]
        last.append(seconds)
        if len(last) > 2:  # one or two answers may be fast by luck
            medians.append(median(last))
        if seconds < _SLOWER * min(medians, default=math.inf) + _JITTER and others + 1 >= int(self.limit):
            self.limit = min(self.limit + (1 if self.halved == -math.inf else 1 / self.limit), self.most)

    def failed(self, began: float, wait: float = 0.0) -> None:
        """Note a request without an answer, and the seconds the server asked for; the limit is halved once for all
        requests that were sent before."""
        now = time.monotonic()
        self.free = max(self.free, now + wait)
        if began > self.halved:
            self.limit, self.halved = max(1.0, self.limit / 2), now


@cache
def certificates() -> Any:
    """The authorities that connections trust, which are slow to read."""
    return httpx_package().create_ssl_context()


def httpx_package() -> Any:
    return optional("httpx", MissingExtra("httpx", "http"))
