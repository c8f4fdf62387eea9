"""A model behind an address as the victim. Inputs go to that address and nowhere else: redirects are not followed."""

from __future__ import annotations

import io
import json
import math
import time
import warnings
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Unpack, final

import numpy as np
import torch
from torch import Tensor

from rlab.errors import InputError, MissingExtra, Notice, VictimError
from rlab.redact import address_secrets, remember, split_address, stored
from rlab.runs.config import SECRET, expand
from rlab.victims.base import Common, Unanswered, Victim
from rlab.victims.callables import as_array
from rlab.victims.options import PLAIN_HEADERS

Body = Literal["json", "npy"]
NPY = "application/x-npy"
_LONGEST_WAIT = 60.0  # seconds; a model that asks for more is not waited for
_LARGEST_ANSWER = 2**28  # bytes


@final
class HttpVictim(Victim):
    """Posts {"inputs": [...]} and reads {"outputs": [[...]]}, null for NaN; or .npy both ways.

    Address and headers may hold `${NAME}` of the environment: a secret that is given so is neither printed nor stored.
    `rate` is the most requests a second; `retries` and `backoff` (seconds, doubled each time) are for missing answers.
    """

    first_chunk = 64

    def __init__(
        self,
        url: str,
        *,
        body: Body = "json",
        timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.5,
        rate: float | None = None,
        headers: Mapping[str, str] | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        _check(body, timeout, retries, backoff, rate)
        given = {name: str(value) for name, value in (headers or {}).items()}
        _warn_of_secrets(url, given)
        query = split_address(url)[3].split("&")  # of it, what tells models apart and is no secret by its name
        self.query = tuple(part for part in query if part and not SECRET.search(part.partition("=")[0]))
        self.url, self.name = _address(expand(url))
        given = {name: expand(value) for name, value in given.items()}
        for name, value in given.items():
            if name.lower() not in PLAIN_HEADERS:
                remember(value)
        self.body, self.timeout, self.retries, self.backoff = body, timeout, retries, backoff
        self._pace = Pace(rate)
        kind = "application/json" if body == "json" else NPY
        asked = {"Content-Type": kind, "Accept": f"{kind}, application/json", **given}
        self._client = _httpx().Client(timeout=timeout, headers=asked, follow_redirects=False)
        self._closed = weakref.finalize(self, self._client.close)

    def _predict(self, x: Tensor) -> Tensor:
        self._pace.wait()
        status, headers, content = self._post(as_array(x))
        if status == 429 or status >= 500:
            raise self._busy(status, headers.get("retry-after"))
        if not 200 <= status < 300:
            text = content[:1000].decode("utf-8", "replace")[:200].strip()
            where = f" to {headers['location']}: name that address" if "location" in headers else f": {text}"
            raise VictimError(f"the model at {self.name} refused the request with status {status}{where}")
        try:
            return _scores(content, headers.get("content-type", ""), len(x))
        except ValueError as error:
            raise Unanswered(f"the model at {self.name} answered with something else than scores: {error}") from error

    def _post(self, array: np.ndarray[Any, Any]) -> tuple[int, Mapping[str, str], bytes]:
        httpx = _httpx()
        late = Unanswered(f"the model at {self.name} did not answer within {self.timeout:g} s")
        until, content = time.monotonic() + self.timeout, bytearray()
        try:
            with self._client.stream("POST", self.url, content=encode(array, self.body)) as response:
                for part in response.iter_bytes():  # httpx limits the wait for each part, not for the whole
                    content += part
                    if time.monotonic() > until:
                        raise late
                    if len(content) > _LARGEST_ANSWER:
                        raise VictimError(f"the model at {self.name} answered with more than {_LARGEST_ANSWER} bytes")
                return response.status_code, response.headers, bytes(content)
        except httpx.TimeoutException as error:
            raise late from error
        except httpx.RequestError as error:
            reason = error or type(error).__name__
            raise Unanswered(f"the model at {self.name} could not be reached: {reason}") from error

    def _busy(self, status: int, after: str | None) -> VictimError:
        wait = seconds_until(after)
        if wait > _LONGEST_WAIT:
            return VictimError(f"the model at {self.name} asks to wait {wait:.0f} s (status {status}): lower the rate")
        return Unanswered(f"the model at {self.name} answered with status {status}", wait)

    def close(self) -> None:
        """Ends the connection; the victim cannot be asked after that."""
        self._closed()

    def __enter__(self) -> HttpVictim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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
    except (TypeError, ValueError):
        return 0.0


def _scores(content: bytes, kind: str, rows: int) -> Tensor:
    """An answer -> (rows, k), or ValueError with what is wrong."""
    array = _from_json(content) if "json" in kind else _from_npy(content)
    if array.ndim != 2 or len(array) != rows:
        raise ValueError(f"expected {rows} rows of scores, got shape {array.shape}")
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
    return np.array(rows, dtype=np.float64)


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


def _check(body: str, timeout: float, retries: int, backoff: float, rate: float | None) -> None:
    if body not in ("json", "npy"):
        raise InputError(f"expected body 'json' or 'npy', got {body!r}")
    if not timeout > 0 or retries < 0 or backoff < 0 or (rate is not None and not rate > 0):
        got = f"timeout={timeout}, rate={rate}, retries={retries}, backoff={backoff}"
        raise InputError(f"expected timeout and rate above 0, retries and backoff of at least 0, got {got}")


def _address(url: str) -> tuple[str, str]:
    """The address to send to, and the same without user, password and query, for sentences."""
    httpx = _httpx()
    for secret in address_secrets(url):
        remember(secret)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InputError(f"cannot read the address {url!r}: expected one like http://host:8000/predict") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"expected an address like http://host:8000/predict, got {url!r}")
    port = "" if parsed.port is None else f":{parsed.port}"
    return url, f"{parsed.scheme}://{parsed.host}{port}{parsed.path}"


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
