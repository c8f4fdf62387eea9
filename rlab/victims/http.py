"""HTTP models. Inputs go to the given address only: redirects are not followed; proxies come from the environment."""

from __future__ import annotations

import math
import queue
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, final

import torch
from torch import Tensor

from rlab.errors import InputError, OptionError, VictimError
from rlab.redact import PLAIN_HEADERS, SECRET_NAMES, remember, split_address
from rlab.storage.outside import expand
from rlab.victims.account import Call
from rlab.victims.address import (
    check_headers,
    check_sending,
    secret_words,
    shown_address,
    spoken_at,
    suited,
    warn_of_secrets,
)
from rlab.victims.base import Victim
from rlab.victims.bill import AnswerCache, Bill, per_query, per_second
from rlab.victims.callables import as_array
from rlab.victims.exchange import Answer, Clients, Flow, certificates, httpx_package, read
from rlab.victims.limit import LimitReached
from rlab.victims.metadata import described, is_described
from rlab.victims.sending import NoScores, Request, Unanswered
from rlab.victims.template import Sent, Template, Writer
from rlab.victims.wire import Unreadable, check_status, decode, glimpse

if TYPE_CHECKING:
    from rlab.victims.address import Sending

_ROOM, _SCORE = 2**22, 64  # bytes allowed for every answer, and for each score in it
_CLASSES = 2**13  # assumed until the number of classes is known
Results = queue.SimpleQueue[tuple[threading.Thread, Tensor | Exception]]


@final
class HttpVictim(Victim):
    """A model behind an address. `template` says how to ask it and where its answer holds the scores (docs/endpoints.md).

    By default it posts {"inputs": [...]} and reads {"outputs": [[...]]}; an address such as kserve://host:8080/MODEL names a
    protocol. The address and headers may contain `${NAME}` for environment variables: such secrets are neither printed nor
    stored. Each request has up to `chunk` rows. Up to `concurrency` requests run at once, fewer if the server slows down, and
    at most `rate` (10 or '600/min') start per second. `timeout` (default: 10 seconds) limits a whole exchange. Requests without
    an answer are sent again up to `retries` times, first after `backoff` seconds, then after twice as long each time.
    `price` is that of a query; no request is sent that could raise the cost above `max_cost`. `cache` is a file of answers by
    input: known inputs are not sent again.
    """

    remote = True
    first_chunk = 64
    first_timeout = 10.0
    watched = False  # each exchange has its own clock, which works in any thread
    reads = ("bounds", "outputs", "multilabel", "classes", "chunk", "timeout")

    def __init__(
        self,
        url: str,
        *,
        template: str | Template | None = None,
        headers: Mapping[str, str] | None = None,
        rate: float | str | None = None,
        price: float | str | None = None,
        max_cost: float | None = None,
        cache: str | Path | None = None,
        **sending: Unpack[Sending],
    ) -> None:
        self.retries, self.backoff = sending.pop("retries", 3), sending.pop("backoff", 0.5)
        self.concurrency = sending.pop("concurrency", 32)
        check_sending(self.retries, self.backoff, self.concurrency)
        check_headers(headers or {})
        warn_of_secrets(url, headers or {})
        url, self.template = spoken_at(url, template)
        check_headers(self.template.headers)
        super().__init__(**suited(sending, self.template))
        if self.prediction not in ("classes", "numbers"):
            raise OptionError(f"an HTTP model returns numbers, not {self.outputs}: wrap the request in a function")
        self._flow, self.bill = Flow(self.concurrency, per_second(rate)), Bill(per_query(price), max_cost)
        parts = [part for part in split_address(url)[3].split("&") if part]  # some identify a model, others are secret
        self.query = tuple(part for part in parts if not SECRET_NAMES.search(part.partition("=")[0]))
        self.url = expand(url)
        self.name = shown_address(self.url)
        given = {name: expand(value) for name, value in {**self.template.headers, **(headers or {})}.items()}
        for name, value in given.items():
            if name.lower() not in PLAIN_HEADERS:
                remember(value)
        self.headers = {name: value for name, value in given.items() if name.lower() in PLAIN_HEADERS}
        self._secrets = secret_words(self.url, given)
        fixed = {"Accept": "application/json, */*;q=0.5", "Accept-Encoding": "gzip"}
        httpx = httpx_package()
        self._target = httpx.URL(self.url)
        self._clients = Clients(
            partial(httpx.Client, timeout=self.timeout, headers=fixed | given, verify=certificates())
        )
        self._closed = weakref.finalize(self, self._clients.close)
        path = self._target.path.removesuffix("/infer")
        known = self._clients.look_up(self._target.copy_with(path=path)) if is_described(self.template) else None
        template, takes = described(self.template, known, self.name)
        self.chunk = 1 if takes[:1] == (1,) else self.chunk
        self.own_classes, self.inputs = template.classes, template.words
        self.writer = Writer(template, self.bounds, takes)
        asked = f"{self.name}?{'&'.join(self.query)} {self.template!r} {self.bounds} {self.outputs} {self.multilabel}"
        self.cache = None if cache is None else AnswerCache(Path(cache), asked)

    def _about(self) -> str:
        return self.name

    def _ask(self, call: Call, most: int) -> None:
        """Take what the cache knows and send the rest; cached rows count for a sample's budget, but did not reach the model."""
        if self.cache is not None:
            rows = call.waiting
            keys = self.cache.keys(call.x[rows])
            known = self.cache.read(keys)
            if hits := [at for at, key in enumerate(keys) if key in known]:
                self.bill.cached += len(hits)
                call.take(rows[hits], torch.stack([known[keys[at]] for at in hits]))
                self.width = known[keys[hits[0]]].shape[0]
        super()._ask(call, most)

    def _exchange(self, requests: Sequence[Request]) -> None:
        """Send requests and store the answers, also if some of the requests fail."""
        try:
            self._exchange_at_once(requests)
        finally:
            if self.cache is not None:
                for request in (each for each in requests if each.answered):
                    answers = request.call.result()[request.rows]
                    self.cache.write(dict(zip(self.cache.keys(request.part), answers, strict=True)))

    def _exchange_at_once(self, requests: Sequence[Request]) -> None:
        """Send as many requests at once as the flow allows; give up each when its whole time is over.

        After as many failures in a row as there may be concurrent requests, the remaining ones are left unsent.
        """
        waiting, on_their_way, missed = deque(requests), dict[threading.Thread, tuple[Request, float]](), 0
        ended, refused = Results(), dict[int, BaseException]()
        try:
            while waiting or on_their_way:
                room = waiting and len(on_their_way) < int(self._flow.limit)
                if room and self._flow.delay() == 0:
                    request = waiting.popleft()
                    try:
                        self.bill.check(len(request.rows) + sum(len(other.rows) for other, _ in on_their_way.values()))
                        request.count()
                    except (InputError, LimitReached) as error:
                        refused[int(request.rows[0])] = error
                        waiting.clear()
                        continue
                    thread = threading.Thread(target=self._work, args=(request.part, ended), daemon=True)
                    on_their_way[thread] = request, self._flow.sent()
                    thread.start()
                    continue
                who, result = self._next(ended, on_their_way, self._flow.delay() if room else math.inf)
                if who is None or result is None or who not in on_their_way:  # time to send, or a late answer
                    continue
                request, began = on_their_way.pop(who)
                wrong = self._noted(request, result, began, len(on_their_way))
                missed = missed + 1 if isinstance(wrong, Unanswered) else 0
                if isinstance(wrong, InputError):
                    request.refused()
                if wrong is not None and not isinstance(wrong, Unanswered):
                    refused[int(request.rows[0])] = wrong
                if refused or missed >= int(self._flow.limit):
                    waiting.clear()
        finally:
            for thread in on_their_way:
                self._clients.give_up(thread)
        if refused:
            raise refused[min(refused)]

    def _noted(self, request: Request, result: Tensor | Exception, began: float, others: int) -> Exception | None:
        """Note how a request ended, for the flow and the bill; return what went wrong."""
        rows = len(request.rows)
        if isinstance(result, Tensor):
            self._flow.answered(began, rows, others)
            self.bill.answered += rows
            try:
                request.put(self._shaped(result, rows))
            except VictimError as error:
                return error
            return None
        if isinstance(result, Unanswered):
            request.error = result
            self._flow.failed(began, result.pause or 0.0)
            if result.pause is None:
                self.bill.lost += rows
            else:
                self.bill.refused += rows
        return result

    def _next(
        self, ended: Results, on_their_way: Mapping[threading.Thread, tuple[Request, float]], delay: float
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

    def _work(self, x: Tensor, ended: Results) -> None:
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
        sent = self.writer.write(as_array(x))
        status, headers, content = self._post(sent, len(x))
        what = f"{len(x)} input{'s' * (len(x) > 1)} of shape {tuple(x.shape[1:])} {self.template.words}"
        start = self._quoted(sent.content) if sent.is_text else sent.content[:12].hex(" ")
        shown = f"sent: {what}, {len(sent.content):,} bytes of {sent.kind}: {start}\nreceived: {self._quoted(content)}"
        check_status(status, headers, self.name, shown)
        if "location" in headers and not 200 <= status < 300:
            elsewhere = self._quoted(headers["location"].partition("?")[0])
            raise VictimError(f"the model at {self.name} redirects to {elsewhere} (status {status}): pass that address")
        if not 200 <= status < 300:
            raise VictimError(f"the model at {self.name} refused the request with status {status}\n{shown}")
        try:
            answer = decode(content, self.template, len(x), self.outputs == "labels", self.declared.multilabel)
            return answer if answer.dim() > 1 else self._labels(answer)
        except ValueError as error:
            sentence = f"the model at {self.name} did not return scores: {self._quoted(str(error))}"
            if isinstance(error, Unreadable):
                raise Unanswered(sentence, shown) from None
            raise NoScores(f"{sentence}\n{shown}") from None

    def _labels(self, numbers: Tensor) -> Tensor:
        """Class numbers (b,); the first ones decide that the model returns labels."""
        if self.outputs == "auto" and self.cache is None and not self.multilabel:
            self.reading = self.read_as(
                outputs="labels", classes=self.classes or len(self.template.classes) or None
            ).reading
        if self.outputs != "labels":
            raise ValueError("it names classes without scores: pass outputs='labels' (-M outputs=labels)")
        return numbers

    def _post(self, sent: Sent, rows: int) -> Answer:
        httpx, most = httpx_package(), _ROOM + _SCORE * rows * (self.classes or _CLASSES)
        try:
            with self._clients.take() as client:
                return read(client, self._target, sent, most)
        except httpx.TimeoutException:
            raise self._late() from None
        except OverflowError:
            raise VictimError(f"the model at {self.name} returned more than {most} bytes") from None
        except (httpx.DecodingError, zlib.error) as error:
            raise Unanswered(f"the model at {self.name} sent a response that cannot be decompressed: {error}") from None
        except httpx.RequestError as error:
            reason = self._quoted(str(error) or type(error).__name__)
            raise Unanswered(f"the model at {self.name} could not be reached: {reason}") from None

    def _quoted(self, text: str | bytes) -> str:
        """Text of a request or an answer, for an error: short, printable, and without the secrets in it."""
        text = text[:20_000].decode("utf-8", "replace") if isinstance(text, bytes) else text
        for secret in self._secrets:
            text = text.replace(secret, "(hidden)")
        return glimpse(text)

    def close(self) -> None:
        """Close all connections and the cache; the victim cannot be used after that."""
        self._closed()
        if self.cache is not None:
            self.cache.close()

    def __enter__(self) -> HttpVictim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
