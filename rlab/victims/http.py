"""HTTP models. Inputs go to the given address only: redirects are not followed; proxies come from the environment."""

from __future__ import annotations

import math
import queue
import re
import threading
import time
import warnings
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Unpack, final

from torch import Tensor

from rlab.errors import Notice, OptionError, VictimError
from rlab.redact import PLAIN_HEADERS, SECRET_NAMES, address_secrets, remember, split_address, stored
from rlab.storage.config import named_keywords
from rlab.storage.outside import expand
from rlab.victims.base import Common, Request, Unanswered, Victim
from rlab.victims.callables import as_array
from rlab.victims.exchange import Answer, Clients, Flow, httpx_package, read
from rlab.victims.wire import NPY, Body, decode, encode, seconds_until

_LONGEST_WAIT = 60.0  # seconds; if a server asks for more, the run stops
_MOST = 1024  # concurrent requests: each has a thread and a connection
_ROOM, _SCORE = 2**22, 64  # bytes allowed for every answer, and for each score in it
_CLASSES = 2**13  # assumed until the number of classes is known


@final
@named_keywords
class HttpVictim(Victim):
    """Posts {"inputs": [...]} and reads {"outputs": [[...]]}, with null for NaN; or .npy both ways.

    The address and headers may contain `${NAME}` for environment variables: such secrets are neither printed nor stored.
    Each request has up to `chunk` rows. Up to `concurrency` requests run at once, fewer if the server slows down, and at
    most `rate` start per second. `timeout` (default: 10 seconds) limits a whole exchange. Requests without an answer are
    sent again up to `retries` times, first after `backoff` seconds, then after twice as long each time.
    """

    first_chunk = 64
    first_timeout = 10.0
    watched = False  # each exchange has its own clock, which works in any thread

    def __init__(
        self,
        url: str,
        *,
        body: Body = "json",
        retries: int = 3,
        backoff: float = 0.5,
        rate: float | None = None,
        concurrency: int = 32,
        headers: Mapping[str, str] | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        if self.prediction not in ("classes", "numbers"):
            raise OptionError(
                f"an HTTP model returns rows of numbers, not outputs={self.outputs!r}: wrap the request in a function"
            )
        _check(body, retries, backoff, rate, concurrency, headers or {})
        given = dict(headers or {})
        _warn_of_secrets(url, given)
        query = split_address(url)[3].split("&")  # the parts that identify a model and are not secret
        self.query = tuple(part for part in query if part and not SECRET_NAMES.search(part.partition("=")[0]))
        self.url, self.name = _address(expand(url))
        given = {name: expand(value) for name, value in given.items()}
        for name, value in given.items():
            if name.lower() not in PLAIN_HEADERS:
                remember(value)
        self.body, self.retries, self.backoff = body, retries, backoff
        self.concurrency, self._flow = concurrency, Flow(concurrency, rate)
        self._secrets = _secrets(self.url, given)
        kind = "application/json" if body == "json" else NPY
        fixed = {"Content-Type": kind, "Accept": f"{kind}, application/json", "Accept-Encoding": "gzip"}
        httpx = httpx_package()
        self._target = httpx.URL(self.url)
        trust = httpx.create_ssl_context()  # slow, so all connections share it
        self._clients = Clients(partial(httpx.Client, timeout=self.timeout, headers=fixed | given, verify=trust))
        self._closed = weakref.finalize(self, self._clients.close)

    def _about(self) -> str:
        return self.name

    def _send(self, x: Tensor, requests: Sequence[Request], count: Callable[..., None]) -> None:
        """Send as many requests at once as the flow allows; give up each when its whole time is over.

        After as many failures in a row as there may be concurrent requests, the remaining ones are left unsent.
        """
        waiting, on_their_way, missed = deque(requests), dict[threading.Thread, tuple[Request, float]](), 0
        ended: queue.SimpleQueue[tuple[threading.Thread, Tensor | Exception]] = queue.SimpleQueue()
        refused: dict[int, Exception] = {}
        try:
            while waiting or on_their_way:
                room = waiting and len(on_their_way) < int(self._flow.limit)
                if room and self._flow.delay() == 0:
                    request = waiting.popleft()
                    count(request.rows)
                    request.sent += 1
                    thread = threading.Thread(target=self._work, args=(request.part(x), ended), daemon=True)
                    on_their_way[thread] = request, self._flow.sent()
                    thread.start()
                    continue
                who, result = self._next(ended, on_their_way, self._flow.delay() if room else math.inf)
                if who is None or result is None or who not in on_their_way:  # time to send, or a late answer
                    continue
                request, began = on_their_way.pop(who)
                if isinstance(result, Tensor):
                    request.answer, missed = result, 0
                    self._flow.answered(began, len(request.rows), len(on_their_way))
                elif isinstance(result, Unanswered):
                    request.error, missed = result, missed + 1
                    self._flow.failed(began, result.wait if isinstance(result, Busy) else 0.0)
                else:
                    refused[int(request.every[0])] = result
                if refused or missed >= int(self._flow.limit):
                    waiting.clear()
        finally:
            for thread in on_their_way:
                self._clients.give_up(thread)
        if refused:
            raise refused[min(refused)]
        for request in requests:
            if request.answer is not None:
                request.answer = self._shaped(request.answer, len(request.rows))

    def _next(
        self,
        ended: queue.SimpleQueue[tuple[threading.Thread, Tensor | Exception]],
        on_their_way: Mapping[threading.Thread, tuple[Request, float]],
        delay: float,
    ) -> tuple[threading.Thread | None, Tensor | Exception | None]:
        """The next result; a timeout if the oldest request is too late; (None, None) after `delay` seconds."""
        assert self.timeout is not None
        oldest, (_, began) = next(iter(on_their_way.items()), (None, (None, math.inf)))
        left = max(0.0, began + self.timeout - time.monotonic())
        try:
            return ended.get(timeout=min(left, delay))
        except queue.Empty:
            if delay <= left or oldest is None:
                return None, None
            self._clients.give_up(oldest)
            return oldest, self._late()

    def _work(self, x: Tensor, ended: queue.SimpleQueue[tuple[threading.Thread, Tensor | Exception]]) -> None:
        result: Tensor | Exception
        try:
            with self._sentences(x):
                result = self._predict(x)
        except Exception as error:  # raised by the waiting thread
            result = error
        ended.put((threading.current_thread(), result))

    def _late(self) -> Unanswered:
        return Unanswered(f"the model at {self.name} did not answer within {self.timeout:g} s")

    def _predict(self, x: Tensor) -> Tensor:
        status, headers, content = self._post(encode(as_array(x), self.body), len(x))
        if status == 429 or status >= 500:
            raise self._busy(status, headers.get("retry-after"))
        if not 200 <= status < 300:
            where = f": {self._quoted(content[:1000].decode('utf-8', 'replace'))}"
            if "location" in headers:
                where = f" and redirects to {self._quoted(headers['location'].partition('?')[0])}: pass that address"
            raise VictimError(f"the model at {self.name} refused the request with status {status}{where}")
        try:
            return decode(content, headers.get("content-type", ""), len(x), self.outputs == "labels")
        except ValueError as error:
            raise Unanswered(f"the model at {self.name} did not return scores: {self._quoted(str(error))}") from None

    def _post(self, body: bytes, rows: int) -> Answer:
        httpx, most = httpx_package(), _ROOM + _SCORE * rows * (self.classes or _CLASSES)
        try:
            with self._clients.take() as client:
                return read(client, self._target, body, most)
        except httpx.TimeoutException:
            raise self._late() from None
        except OverflowError:
            raise VictimError(f"the model at {self.name} returned more than {most} bytes") from None
        except (httpx.DecodingError, zlib.error) as error:
            raise Unanswered(f"the model at {self.name} sent a response that cannot be decompressed: {error}") from None
        except httpx.RequestError as error:
            reason = self._quoted(str(error)) or type(error).__name__
            raise Unanswered(f"the model at {self.name} could not be reached: {reason}") from None

    def _busy(self, status: int, after: str | None) -> VictimError:
        wait = seconds_until(after)
        if wait > _LONGEST_WAIT:
            return VictimError(
                f"the model at {self.name} asks for a pause of {wait:.0f} s (status {status}): lower the rate"
            )
        return Busy(f"the model at {self.name} answered with status {status}", wait)

    def _quoted(self, text: str) -> str:
        """Text from a server, for an error: short, printable, and without the secrets that it received."""
        for secret in self._secrets:
            text = text.replace(secret, "(hidden)")
        return "".join(c if c.isprintable() else " " for c in text)[:200].strip()

    def close(self) -> None:
        """Close all connections; the victim cannot be used after that."""
        self._closed()

    def __enter__(self) -> HttpVictim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Busy(Unanswered):
    """The server is overloaded; `wait` is the pause in seconds that it asked for."""

    def __init__(self, sentence: str, wait: float) -> None:
        super().__init__(sentence)
        self.wait = wait


def _check(
    body: str, retries: int, backoff: float, rate: float | None, concurrency: int, headers: Mapping[str, str]
) -> None:
    if body not in ("json", "npy"):
        raise OptionError(f"expected body 'json' or 'npy', got {body!r}")
    numbers = all(type(value) in (int, float) for value in (backoff, 1 if rate is None else rate))
    if type(retries) is not int or not numbers or retries < 0 or backoff < 0 or (rate is not None and not rate > 0):
        got = f"rate={rate!r}, retries={retries!r}, backoff={backoff!r}"
        raise OptionError(f"expected a rate above 0 and retries and backoff of at least 0, got {got}")
    if type(concurrency) is not int or not 1 <= concurrency <= _MOST:
        raise OptionError(f"expected a concurrency of 1 to {_MOST} requests, got {concurrency!r}")
    if not isinstance(headers, Mapping):
        raise OptionError(f"expected headers by name, got {type(headers).__name__}")
    for name, value in headers.items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", str(name), re.ASCII):
            raise OptionError("expected header names such as Authorization, got a name that is not valid")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise OptionError(f"expected the header {name!r} to be one line of ASCII text: put it in quotes")


def _address(url: str) -> tuple[str, str]:
    """The address, and the same without user, password and query for errors; an invalid address is not repeated."""
    httpx, form = httpx_package(), "expected an address like http://host:8000/predict"
    for secret in address_secrets(url):
        remember(secret)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise OptionError(f"cannot read the model's address: {form}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise OptionError(f"{form}, got an address without http(s)://, a host or a valid port")
    port = "" if parsed.port is None else f":{parsed.port}"
    return url, f"{parsed.scheme}://{parsed.host}{port}{parsed.path}"


def _secrets(url: str, headers: Mapping[str, str]) -> list[str]:
    """Words from the headers, the password and the query that no error may repeat, longest first."""
    parsed = httpx_package().URL(url)
    words = [word for value in headers.values() for word in (value, *value.split())]
    words += [parsed.password, *(value for _, value in parsed.params.multi_items())]
    return sorted({word for word in words if len(word) > 3}, key=len, reverse=True)


def _warn_of_secrets(url: str, headers: Mapping[str, str]) -> None:
    """Literal secrets are not stored, so they must be given again to resume a run."""
    _, user, _, query, _ = split_address(url)
    open_ones = [
        f"the header {name}"
        for name, value in headers.items()
        if name.lower() not in PLAIN_HEADERS and value != stored(value)
    ]
    if user and any(part != stored(part) for part in user.split(":", 1)):
        open_ones.append("the address's user or password")
    if any((value := part.partition("=")[2]) != stored(value) for part in query.split("&") if "=" in part):
        open_ones.append("the address's query")
    if open_ones:
        warnings.warn(
            f"{' and '.join(open_ones)} may contain a secret and will not be stored, so you must give it again to resume a run: "
            "write ${NAME} and export NAME to store only the reference", Notice, stacklevel=4,
        )  # fmt: skip
