"""A model behind an address as the victim. Inputs go to that address and nowhere else: redirects are not followed.

Proxies are those the environment names, as for every other program of the user.
"""

from __future__ import annotations

import io
import json
import math
import queue
import re
import threading
import time
import warnings
import weakref
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Literal, Unpack, final

import numpy as np
import torch
from torch import Tensor

from rlab.errors import InputError, MissingExtra, Notice, VictimError
from rlab.redact import PLAIN_HEADERS, SECRET_NAMES, address_secrets, remember, split_address, stored
from rlab.runs.outside import expand
from rlab.victims.base import Common, Unanswered, Victim
from rlab.victims.callables import as_array

Body = Literal["json", "npy"]
Answer = tuple[int, Mapping[str, str], bytes]  # status, headers, content
NPY = "application/x-npy"
_LONGEST_WAIT = 60.0  # seconds; a model that asks for more is not waited for
_ROOM, _SCORE, _CLASSES = (
    2**22,
    64,
    2**13,
)  # bytes of any answer, of one score, and classes while their number is unknown


@final
class HttpVictim(Victim):
    """Posts {"inputs": [...]} and reads {"outputs": [[...]]}, null for NaN; or .npy both ways.

    Address and headers may hold `${NAME}` of the environment: a secret that is given so is neither printed nor stored.
    `timeout` is for a whole exchange, 10 seconds where it is None; `rate` is the most requests a second; `retries` and
    `backoff` (seconds, doubled each time) are for missing answers.
    """

    first_chunk = 64
    first_timeout = 10.0
    watched = False  # the exchange has a clock of its own, which runs in any thread

    def __init__(
        self,
        url: str,
        *,
        body: Body = "json",
        retries: int = 3,
        backoff: float = 0.5,
        rate: float | None = None,
        headers: Mapping[str, str] | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        _check(body, retries, backoff, rate, headers or {})
        given = dict(headers or {})
        _warn_of_secrets(url, given)
        query = split_address(url)[3].split("&")  # of it, what tells models apart and is no secret by its name
        self.query = tuple(part for part in query if part and not SECRET_NAMES.search(part.partition("=")[0]))
        self.url, self.name = _address(expand(url))
        given = {name: expand(value) for name, value in given.items()}
        for name, value in given.items():
            if name.lower() not in PLAIN_HEADERS:
                remember(value)
        self.body, self.retries, self.backoff = body, retries, backoff
        self._pace = Pace(rate)
        self._secrets = _secrets(self.url, given)
        kind = "application/json" if body == "json" else NPY
        asked = {"Content-Type": kind, "Accept": f"{kind}, application/json", "Accept-Encoding": "gzip"}
        client = partial(_httpx().Client, timeout=self.timeout, headers=asked | given)
        self._line = Line(client)
        self._closed = weakref.finalize(self, self._line.close)

    def _about(self) -> str:
        return self.name

    def _predict(self, x: Tensor) -> Tensor:
        self._pace.wait()
        status, headers, content = self._post(encode(as_array(x), self.body), len(x))
        if status == 429 or status >= 500:
            raise self._busy(status, headers.get("retry-after"))
        if not 200 <= status < 300:
            where = f": {self._told(content[:1000].decode('utf-8', 'replace'))}"
            if "location" in headers:
                where = f" to {self._told(headers['location'].partition('?')[0])}: name that address"
            raise VictimError(f"the model at {self.name} refused the request with status {status}{where}")
        try:
            return _scores(content, headers.get("content-type", ""), len(x))
        except ValueError as error:
            said = f"the model at {self.name} answered with something else than scores: {self._told(str(error))}"
            raise Unanswered(said) from None

    def _post(self, body: bytes, rows: int) -> Answer:
        """One exchange, given up as a whole when its time is over, however the time was spent."""
        httpx, most = _httpx(), _ROOM + _SCORE * rows * (self.classes or _CLASSES)
        try:
            return self._line.exchange(lambda client: _read(client, self.url, body, most), self.timeout)
        except (queue.Empty, httpx.TimeoutException):
            raise Unanswered(f"the model at {self.name} did not answer within {self.timeout:g} s") from None
        except OverflowError:
            raise VictimError(f"the model at {self.name} answered with more than {most} bytes") from None
        except (httpx.DecodingError, zlib.error) as error:
            raise Unanswered(f"the model at {self.name} sent what cannot be unpacked: {error}") from None
        except httpx.RequestError as error:
            reason = self._told(str(error)) or type(error).__name__
            raise Unanswered(f"the model at {self.name} could not be reached: {reason}") from None

    def _busy(self, status: int, after: str | None) -> VictimError:
        wait = seconds_until(after)
        if wait > _LONGEST_WAIT:
            return VictimError(f"the model at {self.name} asks to wait {wait:.0f} s (status {status}): lower the rate")
        return Unanswered(f"the model at {self.name} answered with status {status}", wait)

    def _told(self, text: str) -> str:
        """What a server said, for a sentence: short, printable, and without the secrets it was sent."""
        for secret in self._secrets:
            text = text.replace(secret, "(hidden)")
        return "".join(c if c.isprintable() else " " for c in text)[:200].strip()

    def close(self) -> None:
        """Ends the connection; the victim cannot be asked after that."""
        self._closed()

    def __enter__(self) -> HttpVictim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Line:
    """The connection, shared by copies of a victim, and made anew after an exchange that was given up."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.client = make, make()

    def exchange(self, run: Callable[[Any], Answer], seconds: float | None) -> Answer:
        """`run` with the client, in a thread that is left to itself when the time is over: `queue.Empty`."""
        answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()

        def work(client: Any) -> None:
            try:
                answers.put(run(client))
            except Exception as error:  # told to the thread that waits
                answers.put(error)

        threading.Thread(target=work, args=(self.client,), daemon=True).start()
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            given_up, self.client = self.client, self.make()
            given_up.close()  # so that the thread ends at its next byte
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.client.close()


def _read(client: Any, url: str, body: bytes, most: int) -> Answer:
    """A request and its answer, unpacked once and to no more than `most` bytes: OverflowError beyond them."""
    with client.stream("POST", url, content=body) as response:
        packing, content = response.headers.get("content-encoding", "identity").lower(), bytearray()
        if packing not in ("identity", "gzip"):
            raise _httpx().DecodingError(f"expected gzip or nothing as content-encoding, got {packing[:40]!r}")
        unpack = zlib.decompressobj(31)  # 31: a gzip header and the largest window
        for part in response.iter_raw():
            content += part if packing == "identity" else unpack.decompress(part, most + 1 - len(content))
            if len(content) > most:
                raise OverflowError
        return response.status_code, response.headers, bytes(content)


class Pace:
    """At most `rate` calls a second, evenly spaced."""

    def __init__(self, rate: float | None) -> None:
        self.gap = 0.0 if rate is None else 1 / rate
        self.free = -math.inf  # when the next call may go

    def wait(self) -> None:
        time.sleep(max(0.0, self.free - time.monotonic()))
        self.free = time.monotonic() + self.gap


def encode(array: np.ndarray[Any, Any], body: Body) -> bytes:
    """(b, c, *size) -> the request's body."""
    if body == "json":
        return json.dumps({"inputs": array.tolist()}, separators=(",", ":"), allow_nan=False).encode()
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def seconds_until(after: str | None) -> float:
    """A Retry-After header, seconds or a date -> seconds from now; 0 where there is none or it cannot be read."""
    if after is None:
        return 0.0
    try:
        if after.strip().isdecimal():
            return float(after)
        return max(0.0, (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _scores(content: bytes, kind: str, rows: int) -> Tensor:
    """An answer -> (rows, k), or ValueError with what is wrong."""
    array = _from_json(content) if "json" in kind else _from_npy(content)
    if array.ndim != 2 or len(array) != rows:
        raise ValueError(f"expected {rows} rows of scores, got shape {array.shape}")
    with np.errstate(over="ignore"):  # what no float32 can hold is infinite
        return torch.from_numpy(array.astype(np.float32))


def _from_json(content: bytes) -> np.ndarray[Any, Any]:
    try:
        rows = json.loads(content)["outputs"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise ValueError(f'expected {{"outputs": [[...]]}}, got {_glimpse(content)}') from None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError("expected outputs to be a list of lists")
    if not all(value is None or type(value) in (int, float) for row in rows for value in row):
        raise ValueError("expected outputs to be numbers")
    if len({len(row) for row in rows}) > 1:
        raise ValueError("expected rows of one length")
    try:
        return np.array(rows, dtype=np.float64)
    except OverflowError:
        raise ValueError("expected numbers that a float can hold") from None


def _from_npy(content: bytes) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # bytes of any kind may come, and raise anything
        raise ValueError(f"expected JSON or .npy, got {_glimpse(content)}") from None
    if array.dtype.kind not in "fiu":
        raise ValueError("expected an array of numbers")
    return array


def _glimpse(content: bytes) -> str:
    return repr(content[:60].decode("utf-8", "replace")) if content else "nothing"


def _check(body: str, retries: int, backoff: float, rate: float | None, headers: Mapping[str, str]) -> None:
    if body not in ("json", "npy"):
        raise InputError(f"expected body 'json' or 'npy', got {body!r}")
    numbers = all(type(value) in (int, float) for value in (backoff, 1 if rate is None else rate))
    if type(retries) is not int or not numbers or retries < 0 or backoff < 0 or (rate is not None and not rate > 0):
        got = f"rate={rate!r}, retries={retries!r}, backoff={backoff!r}"
        raise InputError(f"expected a rate above 0, retries and backoff of at least 0, got {got}")
    if not isinstance(headers, Mapping):
        raise InputError(f"expected headers by name, got {type(headers).__name__}")
    for name, value in headers.items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", str(name), re.ASCII):
            raise InputError("expected names of headers to be words like Authorization, got one that is not")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise InputError(f"expected the header {name!r} to be one line of ASCII text, and it is not: quote it")


def _address(url: str) -> tuple[str, str]:
    """The address to send to, and the same without user, password and query, for sentences; what cannot be one is refused
    without repeating it."""
    httpx, form = _httpx(), "expected an address like http://host:8000/predict"
    for secret in address_secrets(url):
        remember(secret)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise InputError(f"cannot read the address of the model: {form}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise InputError(f"{form}, got one without http(s)://, a host or a port below 65536")
    port = "" if parsed.port is None else f":{parsed.port}"
    return url, f"{parsed.scheme}://{parsed.host}{port}{parsed.path}"


def _secrets(url: str, headers: Mapping[str, str]) -> list[str]:
    """Words that no sentence may repeat, longest first: of the headers, the password and the query."""
    parsed = _httpx().URL(url)
    words = [word for value in headers.values() for word in (value, *value.split())]
    words += [parsed.password, *(value for _, value in parsed.params.multi_items())]
    return sorted({word for word in words if len(word) > 3}, key=len, reverse=True)


def _warn_of_secrets(url: str, headers: Mapping[str, str]) -> None:
    """A secret that stands in the open works, and must be given again to go on with a run."""
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
            f"{' and '.join(open_ones)} may hold a secret, so it is not stored, and must be given again to go on with a run: "
            "write ${NAME} and export NAME to have the reference stored", Notice, stacklevel=3,
        )  # fmt: skip


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("httpx", "http") from error
    return httpx
