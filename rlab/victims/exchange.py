"""HTTP requests to a model: the event loop in which they run, and when the next one may be sent."""

from __future__ import annotations

import asyncio
import gzip
import io
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from heapq import nsmallest
from typing import Any, TypeVar

from rlab.errors import MissingExtra, optional
from rlab.victims.encodings import Sent

_FEW = 4  # concurrent requests at the start
_SLOWER, _JITTER = 2.0, 0.005  # the limit grows while answers take at most 2 times as long as fast ones, plus 5 ms
_RECENT, _LUCK = 200, 3  # a fast answer is the third fastest of so many recent ones
Result = TypeVar("Result")


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """The loop of all requests in this process; its own thread, because the caller's may have a loop, as in notebooks."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rlab requests", daemon=True).start()
    return loop


def begin(work: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Begin the work in the loop, without waiting."""
    return asyncio.run_coroutine_threadsafe(work, _event_loop())


def in_loop(work: Coroutine[Any, Any, Result]) -> Result:
    """Do the work in the loop, and stop it if the wait for it is interrupted."""
    future = begin(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class Clients:
    """One client of httpx for each concurrent request, because a client takes long to choose among many connections."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.free, self.every = make, list[Any](), list[Any]()

    @contextmanager
    def take(self) -> Iterator[Any]:
        """A client that nobody else uses meanwhile."""
        if self.free:
            client = self.free.pop()
        else:
            self.every.append(client := self.make())
        try:
            yield client
        finally:
            self.free.append(client)

    async def post(self, url: Any, sent: Sent, most: int) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request and read the status, headers and content of the answer; OverflowError beyond `most` bytes."""
        packed = bytearray()
        with self.take() as client:
            headers = {"Content-Type": client.headers.get("content-type", sent.kind)}
            async with client.stream("POST", url, content=sent.content, headers=headers) as response:
                async for part in response.aiter_raw():
                    packed += part
                    if len(packed) > most:
                        raise OverflowError
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding not in ("identity", "gzip"):
            raise gzip.BadGzipFile(f"expected content-encoding gzip or none, got {coding[:40]!r}")
        file = gzip.GzipFile(fileobj=io.BytesIO(packed)) if coding == "gzip" else io.BytesIO(packed)
        if len(content := file.read(most + 1)) > most:
            raise OverflowError
        return response.status_code, response.headers, content

    async def look_up(self, url: Any, timeout: float) -> object:
        """What the server says at an address, e.g. about a model, as JSON; None if it says nothing."""
        with self.take() as client, suppress(httpx_package().HTTPError, TimeoutError, ValueError):
            async with asyncio.timeout(timeout):
                return (await client.get(url)).json()
        return None

    async def close(self) -> None:
        for client in self.every:
            await client.aclose()


class Flow:
    """When the next request may be sent: at most `rate` a second, and not before a time that the server set.

    `limit`, the number of concurrent requests, starts small. It grows up to `most` while answers are about as fast as the
    fast ones of late, is halved after a failure, and grows slowly from then on.
    """

    def __init__(self, most: int, rate: float | None) -> None:
        self.most, self.gap = most, 0.0 if rate is None else 1 / rate
        self.limit = float(min(_FEW, most))
        self.under_way, self.missed = 0, 0  # requests, and failures in a row
        self.free, self.halved = -math.inf, -math.inf  # time of the next request, and of the last halving
        self.recent = defaultdict[int, deque[float]](lambda: deque(maxlen=_RECENT))  # rows of a request -> seconds
        self.room = asyncio.Event()  # there may be room for another request

    @property
    def is_stuck(self) -> bool:
        """Whether as many requests failed in a row as there may be at once."""
        return self.missed >= int(self.limit)

    def delay(self) -> float:
        """Seconds until the next request may be sent."""
        return max(0.0, self.free - time.monotonic())

    async def turn(self) -> None:
        """Wait until another request may be sent."""
        while (full := self.under_way >= int(self.limit)) or self.delay():
            self.room.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.room.wait(), None if full else self.delay())

    def sent(self) -> float:
        """Note that a request is sent; return the time."""
        now = time.monotonic()
        self.free, self.under_way = now + self.gap, self.under_way + 1
        return now

    def ended(self) -> None:
        """Note that a request has ended in any way."""
        self.under_way -= 1
        self.room.set()

    def answered(self, began: float, rows: int) -> None:
        """Note the answer to a request of `rows` rows that has not ended yet."""
        seconds, recent, self.missed = time.monotonic() - began, self.recent[rows], 0
        recent.append(seconds)
        fast = nsmallest(_LUCK, recent)[-1]
        if seconds < _SLOWER * fast + _JITTER and self.under_way >= int(self.limit):
            self.limit = min(self.limit + (1 if self.halved == -math.inf else 1 / self.limit), self.most)

    def failed(self, began: float, wait: float = 0.0) -> None:
        """Note a request without an answer, and the seconds the server asked for; the limit is halved once for all
        requests that were sent before."""
        now = time.monotonic()
        self.free, self.missed = max(self.free, now + wait), self.missed + 1
        if began > self.halved:
            self.limit, self.halved = max(1.0, self.limit / 2), now


def seconds_until(after: str | None) -> float:
    """A Retry-After header, seconds or a date -> seconds from now; 0 if it is missing or unreadable."""
    if after is None:
        return 0.0
    try:
        if after.strip().isdecimal():
            return float(after)
        return max(0.0, (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0


@cache
def certificates() -> Any:
    """The authorities that connections trust, which are slow to read."""
    return httpx_package().create_ssl_context()


def httpx_package() -> Any:
    return optional("httpx", MissingExtra("httpx", "http"))
