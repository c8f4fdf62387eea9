"""HTTP models. Inputs go to the given address only: redirects are not followed; proxies come from the environment."""

from __future__ import annotations

import asyncio
import gzip
import weakref
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, final

import torch
from torch import Tensor

from rlab.errors import OptionError, VictimError
from rlab.redact import SECRET_NAMES, redact, remember, split_address
from rlab.storage.config import check_keywords, takes
from rlab.storage.outside import expand
from rlab.victims.account import Call
from rlab.victims.address import HttpOptions, is_plain, shown_address, spoken_at, warn_of_secrets
from rlab.victims.base import Victim
from rlab.victims.bill import AnswerCache, Bill
from rlab.victims.encodings import Sent
from rlab.victims.exchange import Clients, Flow, begin, certificates, httpx_package, in_loop, seconds_until
from rlab.victims.failures import NoScores, Unanswered
from rlab.victims.limit import LimitReached
from rlab.victims.metadata import described, is_described
from rlab.victims.request import Writer
from rlab.victims.wire import Unreadable, decode, glimpse

if TYPE_CHECKING:
    from rlab.keywords import HttpKeywords

_ROOM, _SCORE = 2**22, 64  # bytes allowed for every answer, and for each score in it
_CLASSES = 2**13  # assumed until the number of classes is known
_TRANSIENT = (408, 425, 429)  # statuses below 500 after which another attempt may help
_LONGEST_PAUSE = 60.0  # seconds; if a server asks for more, the run stops


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

    first_chunk = 64
    first_timeout = 10.0
    watched = False  # each exchange has its own clock, which works in any thread
    reads = ("bounds", "outputs", "multilabel", "classes", "chunk", "timeout")

    @takes(HttpOptions)
    def __init__(self, url: str, **options: Unpack[HttpKeywords]) -> None:
        http = check_keywords(HttpVictim, HttpOptions, options)
        self.retries, self.backoff, self.concurrency = http.retries, http.backoff, http.concurrency
        warn_of_secrets(url, http.headers or {})
        url, self.template = spoken_at(url, http.template)
        super().__init__(**http.suited(self.template))
        if self.prediction not in ("classes", "numbers"):
            raise OptionError(f"an HTTP model returns numbers, not {self.outputs}: wrap the request in a function")
        self._flow, self.bill = Flow(self.concurrency, http.rate), Bill(http.price, http.max_cost)
        parts = [part for part in split_address(url)[3].split("&") if part]  # some identify a model, others are secret
        self.query = tuple(part for part in parts if not SECRET_NAMES.search(part.partition("=")[0]))
        self.url = expand(url)
        self.name = shown_address(self.url)
        headers = {name: expand(value) for name, value in {**self.template.headers, **(http.headers or {})}.items()}
        for name, value in headers.items():
            if not is_plain(name):
                remember(value)
        self.headers = {name: value for name, value in headers.items() if is_plain(name)}
        headers = {"Accept": "application/json, */*;q=0.5", "Accept-Encoding": "gzip"} | headers
        httpx = httpx_package()
        self._target = httpx.URL(self.url)
        client = partial(httpx.AsyncClient, timeout=None, headers=headers, verify=certificates())
        self._clients = Clients(client)  # without a timeout, because each exchange has its own clock
        self._closed = weakref.finalize(self, _close, self._clients)
        template, source = described(self.template, self._metadata(), self.name)
        self.chunk = 1 if source.shape[:1] == (1,) else self.chunk
        self.own_classes, self.inputs = template.classes, template.words
        self.writer = Writer(template, self.bounds, source)
        asked = f"{self.name}?{'&'.join(self.query)} {self.template!r} {self.bounds} {self.outputs} {self.multilabel}"
        self.cache = None if http.cache is None else AnswerCache(Path(http.cache), asked)

    def _metadata(self) -> object:
        """What the server says about the model, as JSON; None if it says nothing."""
        if not is_described(self.template):
            return None
        assert self.timeout is not None
        path = self._target.path.removesuffix("/infer")
        return in_loop(self._clients.look_up(self._target.copy_with(path=path), self.timeout))

    def _about(self) -> str:
        return self.name

    def _left(self, call: Call, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """Take what the cache knows, or else send all parts; cached rows count for a sample's budget, but are no queries."""
        rows = torch.cat(list(parts))
        if self.cache is not None and (known := self.cache.read(call.part(rows))):
            self.bill.cached += len(known)
            answers = torch.stack(list(known.values()))
            self.width = answers.shape[1]
            call.take(rows[list(known)], answers)
        elif problem := in_loop(self._exchange(call, parts)):
            raise problem
        return ()

    async def _exchange(self, call: Call, parts: Sequence[Tensor]) -> BaseException | None:
        """Send parts of a call, as many at once as the flow allows; return the first refusal, after which nothing is sent.

        After as many failures in a row as there may be concurrent requests, the other parts wait for the next turn.
        """
        refused = dict[int, BaseException]()  # by the first row
        self._flow.missed = 0
        async with asyncio.TaskGroup() as group:
            for rows in parts:
                await self._flow.turn()
                if refused or self._flow.is_stuck:
                    break
                try:
                    sent = self.writer.write(call.part(rows))
                    self.bill.check(len(rows))
                    call.count(rows)
                except (Exception, LimitReached) as error:
                    refused[int(rows[0])] = error
                    break
                self.bill.under_way += len(rows)
                task = group.create_task(self._query(call, rows, sent, self._flow.sent(), refused))
                task.add_done_callback(partial(self._ended, len(rows)))
        return refused[min(refused)] if refused else None

    def _ended(self, rows: int, task: object) -> None:
        self.bill.under_way -= rows
        self._flow.ended()

    async def _query(
        self, call: Call, rows: Tensor, sent: Sent, began: float, refused: dict[int, BaseException]
    ) -> None:
        """Send rows and note how that ended, for the call, the flow, the bill and the cache."""
        part = call.part(rows)
        try:
            answer = await self._answer(sent, part)
            self._flow.answered(began, len(rows))
            self.bill.answered += len(rows)
            call.put(rows, answer := self._shaped(answer, len(rows)))
            if self.cache is not None:
                self.cache.write(part, answer)
        except Unanswered as error:
            call.fail(rows, error)
            self._flow.failed(began, error.pause or 0.0)
            if error.pause is None:
                self.bill.lost += len(rows)
            else:
                self.bill.refused += len(rows)
        except Exception as error:  # raised by the waiting thread
            refused[int(rows[0])] = error

    def _predict(self, x: Tensor) -> Tensor:
        return in_loop(self._answer(self.writer.write(x), x))

    async def _answer(self, sent: Sent, x: Tensor) -> Tensor:
        """The answer to a request with the inputs x (b, c, *size), as numbers."""
        status, headers, content = await self._post(sent, len(x))
        where = f"the model at {self.name}"
        if 200 <= status < 300:
            try:
                answer = decode(content, self.template, len(x), self.outputs == "labels", self.declared.multilabel)
                return answer if answer.dim() > 1 else self._labels(answer)
            except Unreadable as error:
                sentence = f"{where} did not return scores: {self._quoted(str(error))}"
                raise Unanswered(sentence, self._shown(sent, x, content)) from None
            except ValueError as error:
                sentence = f"{where} did not return scores: {self._quoted(str(error))}"
                raise NoScores(f"{sentence}\n{self._shown(sent, x, content)}") from None
        if status in _TRANSIENT or status >= 500:
            if (pause := seconds_until(headers.get("retry-after"))) > _LONGEST_PAUSE:
                raise VictimError(f"{where} asks for a pause of {pause:.0f} s (status {status}): lower the rate")
            raise Unanswered(f"{where} answered with status {status}", self._shown(sent, x, content), pause)
        if "location" in headers:
            elsewhere = self._quoted(headers["location"].partition("?")[0])
            raise VictimError(f"{where} redirects to {elsewhere} (status {status}): pass that address")
        raise VictimError(f"{where} refused the request with status {status}\n{self._shown(sent, x, content)}")

    def _shown(self, sent: Sent, x: Tensor, content: bytes) -> str:
        """Two lines: what was sent, and what came back."""
        what = f"{len(x)} input{'s' * (len(x) > 1)} of shape {tuple(x.shape[1:])} {self.template.words}"
        start = self._quoted(sent.content) if sent.is_text else sent.content[:12].hex(" ")
        return f"sent: {what}, {len(sent.content):,} bytes of {sent.kind}: {start}\nreceived: {self._quoted(content)}"

    def _labels(self, numbers: Tensor) -> Tensor:
        """Class numbers (b,); the first ones decide that the model returns labels."""
        if self.outputs == "auto" and self.cache is None and not self.multilabel:
            self.reading = self.read_as(
                outputs="labels", classes=self.classes or len(self.template.classes) or None
            ).reading
        if self.outputs != "labels":
            raise ValueError("it names classes without scores: pass outputs='labels' (-M outputs=labels)")
        return numbers

    async def _post(self, sent: Sent, rows: int) -> tuple[int, Mapping[str, str], bytes]:
        httpx, most = httpx_package(), _ROOM + _SCORE * rows * (self.classes or _CLASSES)
        where = f"the model at {self.name}"
        try:
            async with asyncio.timeout(self.timeout):
                return await self._clients.post(self._target, sent, most)
        except TimeoutError:
            raise Unanswered(f"{where} did not answer within {self.timeout:g} s") from None
        except OverflowError:
            raise VictimError(f"{where} returned more than {most} bytes") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise Unanswered(f"{where} sent a response that cannot be decompressed: {error}") from None
        except httpx.RequestError as error:
            raise Unanswered(
                f"{where} could not be reached: {self._quoted(str(error) or type(error).__name__)}"
            ) from None

    def _quoted(self, text: str | bytes) -> str:
        """Text of a request or an answer, for an error: short, printable, and without the secrets in it."""
        text = text[:20_000].decode("utf-8", "replace") if isinstance(text, bytes) else text
        return glimpse(str(redact(text)))

    def close(self) -> None:
        """Close all connections and the cache; the victim cannot be used after that."""
        if self._closed.detach():
            in_loop(self._clients.close())
        if self.cache is not None:
            self.cache.close()

    def __enter__(self) -> HttpVictim:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _close(clients: Clients) -> None:
    """Close connections that nothing uses any longer, without waiting: this may run in the loop itself."""
    begin(clients.close())
