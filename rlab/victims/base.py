"""The victim: any model behind one call that checks, chunks and counts: every row the model is asked about."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, final, get_args

import torch
from torch import Tensor

from rlab.errors import InputError, VictimError
from rlab.guard import TimeUp, contained, time_limit
from rlab.victims.answers import LABELS, Score, check_reading, read_answer, told_classes
from rlab.victims.answers import Outputs as Outputs
from rlab.victims.meter import PHASES as PHASES
from rlab.victims.meter import Charge
from rlab.victims.meter import QueryMeter as QueryMeter

_TOLERANCE = 1e-3  # how far a row of probabilities may sum from 1, or a value lie outside the bounds by rounding
_LONGEST = 10**6  # seconds
_CHUNK_BYTES = 2**27  # of inputs at once: long clips go a few at a time, whatever the chunk
# As torch on a GPU, torch on a CPU, ONNX Runtime, and cuDNN or cuBLAS say it.
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "failed to allocate memory", "alloc_failed")


class Common(TypedDict, total=False):
    """What every victim takes: the keywords of `Victim`."""

    bounds: tuple[float, float]
    outputs: Outputs
    multilabel: bool
    classes: int | None
    output: str | int | None
    score: Score | None
    chunk: int | None
    timeout: float | None


class Unanswered(VictimError):
    """The rows were sent but no usable answer came; the same rows may be sent again, and are counted again."""


@final
@dataclass
class Request:
    """Rows of an input that are sent together, until there is an answer to them."""

    every: Tensor  # (m,) indices
    rows: Tensor  # of them, those the budget has room for
    sent: int = 0  # times
    answer: Tensor | None = None  # (len(rows), k)
    error: Unanswered | None = None  # why there is none

    def part(self, x: Tensor) -> Tensor:
        """Its rows of x; a slice is no copy."""
        return x[int(self.every[0]) : int(self.every[-1]) + 1] if len(self.rows) == len(self.every) else x[self.rows]


class Victim(ABC):
    """Black box: inputs (b, c, *size) in `bounds` -> scores (b, k).

    Scores are log-probabilities where classes exclude each other, log-odds where they do not (`multilabel`). Where the model
    tells only `labels`, or the `topk` likeliest, of `classes`, they say which class is told and nothing of how near others are.
    `output` names the part of an answer with several, `score` is a function that makes numbers of it.
    """

    device: torch.device = torch.device("cpu")  # where the attack keeps its tensors
    first_chunk: int = 256  # rows at once to begin with; running out of memory halves it
    first_timeout: float | None = None  # seconds for one answer where nobody says; None waits for ever
    watched: bool = True  # whether an answer that takes longer is cut short from here
    retries: int = 0  # how often rows are sent again after `Unanswered`
    backoff: float = 0.5  # seconds before the first retry, doubled each time
    concurrency: int = 1  # how many requests may be on their way at once

    def __init__(
        self,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs = "auto",
        multilabel: bool = False,
        classes: int | None = None,
        output: str | int | None = None,
        score: Score | None = None,
        chunk: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise InputError(f"expected bounds (low, high) with low below high, got {tuple(bounds)}")
        if outputs not in get_args(Outputs):
            raise InputError(f"expected outputs to be one of {', '.join(get_args(Outputs))}, got {outputs!r}")
        check_reading(outputs, multilabel, classes, output, score)
        if chunk is not None and chunk < 1:
            raise InputError(f"expected a chunk of at least 1 row, got {chunk}")
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST):
            raise InputError(f"expected a timeout above 0 and up to {_LONGEST} seconds, got {timeout!r}")
        self.bounds, self.outputs, self.multilabel = bounds, outputs, multilabel
        self.output, self.score = output, score
        self.chunk = self.first_chunk if chunk is None else chunk
        self.timeout = self.first_timeout if timeout is None else timeout
        self.classes = classes  # known from the first answer
        self.rows: Counter[str] = Counter()  # by phase; every row that reached the model

    @property
    def tells_labels(self) -> bool:
        """Whether answers say which class wins and not by how much."""
        return self.outputs in LABELS

    @abstractmethod
    def _predict(self, x: Tensor) -> Tensor:
        """x: (b, c, *size) -> raw outputs (b, k), in the order of the rows."""

    def __repr__(self) -> str:
        low, high = self.bounds
        asked = f"{self.rows.total():,} rows asked"
        return f"{type(self).__name__}({self._about()} of values in [{low:g}, {high:g}] on {self.device}, {asked})"

    def _about(self) -> str:
        """The model in a word or two."""
        return "a model"

    @final
    def __call__(self, x: Tensor, phase: str = "search", charge: Charge | None = None) -> Tensor:
        """x: (b, c, *size) -> scores (b, k) on x's device; NaN where an answer was lost that no budget is left to repeat."""
        self._check(x)
        if charge is not None:
            charge.check()
        answers, at, most = list[Tensor](), 0, max(1, _CHUNK_BYTES // x[0].nbytes)
        while at < len(x):
            size = min(self.chunk, most)
            stop = len(x) if self.concurrency > 1 else min(at + size, len(x))
            chunks = [slice(first, min(first + size, stop)) for first in range(at, stop, size)]
            try:
                answers.append(self._ask(x, chunks, phase, charge))
            except Exception as error:
                if not out_of_memory(error):
                    raise
                if size == 1 or stop - at == 1:
                    shape = tuple(x.shape[1:])
                    raise VictimError(f"the model runs out of memory on a single input of shape {shape}") from error
                self.chunk = min(size, stop - at) // 2
                continue
            at = stop
        return self._scores(torch.cat(answers)).to(x.device)

    def _check(self, x: Tensor) -> None:
        if x.dim() < 3 or not x.numel():
            raise InputError(f"expected inputs of shape (rows, channels, *size), at least one, got {tuple(x.shape)}")
        low, high = (float(end) for end in x.aminmax())
        slack = _TOLERANCE * min(1.0, self.bounds[1] - self.bounds[0])
        if not (self.bounds[0] - slack <= low and high <= self.bounds[1] + slack and math.isfinite(high - low)):
            raise InputError(f"the model expects values in {list(self.bounds)}, got {low:.4g} to {high:.4g}")

    def _ask(self, x: Tensor, chunks: Sequence[slice], phase: str, charge: Charge | None) -> Tensor:
        """Answers (m, k) to chunks of x, each asked again while there is none; every sending is counted.

        What failed goes again when all of them were sent, so that nothing depends on the order in which answers come.
        """
        requests = [Request(rows, rows) for rows in (torch.arange(chunk.start, chunk.stop) for chunk in chunks)]
        while unanswered := [request for request in requests if request.answer is None and len(request.rows)]:
            most = max(request.sent for request in unanswered)
            if most > self.retries:
                break
            if charge is not None:
                affordable = charge.affordable(torch.cat([request.rows for request in unanswered]))
                for request in unanswered:
                    request.rows = request.rows[torch.isin(request.rows, affordable)]
            unanswered = [request for request in unanswered if len(request.rows)]
            if not unanswered:
                break
            if most:
                time.sleep(self.backoff * 2 ** (most - 1))
            self._send(x, unanswered, partial(self._count, phase=phase, charge=charge))
        return torch.cat([self._placed(request, charge) for request in requests])

    def _send(self, x: Tensor, requests: Sequence[Request], count: Callable[..., None]) -> None:
        """Gives requests, at least the first, what came of sending them; `count` hears the rows of each as it is sent."""
        for request in requests:
            count(request.rows)
            request.sent += 1
            try:
                request.answer = self._run(request.part(x))
            except InputError:
                count(request.rows, times=-1)  # refused before the model saw them
                raise
            except Unanswered as error:
                request.error = error

    def _placed(self, request: Request, charge: Charge | None) -> Tensor:
        """The answers to a request among every row that was asked about: those the budget had no room for are lost."""
        answer, every, rows, error = request.answer, request.every, request.rows, request.error
        if answer is None and error is not None and (len(rows) or self.classes is None):
            times = "once" if request.sent == 1 else f"{request.sent} times"
            raise VictimError(f"{error} (asked {times})") from error
        if answer is None and self.classes is None:
            raise VictimError("the model runs out of memory, and the budget is too small to ask it with fewer inputs")
        if answer is not None and len(rows) == len(every):
            return answer
        assert charge is not None
        assert self.classes is not None
        answered = torch.isin(every, rows)
        charge.lose(every[~answered])
        whole = torch.full((len(every), self.classes), math.nan, device=self.device)
        if answer is not None:
            whole[answered] = answer
        return whole

    @final
    def _run(self, x: Tensor) -> Tensor:
        """`_predict`, with whatever the model does as one sentence. Running out of memory is left to the caller."""
        with self._sentences(x), time_limit(self.timeout if self.watched else None):
            return self._shaped(self._predict(x), len(x)).detach()

    @contextmanager
    def _sentences(self, x: Tensor) -> Iterator[None]:
        where = f"on inputs of shape {tuple(x.shape)}"
        try:
            with contained():
                yield
        except (InputError, VictimError):
            raise
        except TimeUp:
            raise VictimError(f"the model did not answer within {self.timeout:g} s {where}") from None
        except Exception as error:
            if out_of_memory(error):
                raise
            raise VictimError(f"the model failed {where}: {first_line(error)}") from error

    def _count(self, rows: Tensor, times: int = 1, *, phase: str, charge: Charge | None) -> None:
        self.rows[phase] += times * len(rows)
        if charge is not None:
            charge.add(rows, times)

    def _read(self, answer: object) -> Tensor:
        """What the model itself returned -> a tensor, its shape not looked at."""
        return read_answer(answer, self.output, self.score)

    def _shaped(self, answer: Tensor, rows: int) -> Tensor:
        """The answer, refused where it is not real scores (rows, k) of as many classes as before."""
        if answer.is_complex() or answer.is_meta or answer.layout != torch.strided:
            kind = f"{answer.dtype}, {answer.layout} on {answer.device}"
            raise VictimError(f"expected the model to return a tensor of real scores, got {kind}")
        if self.tells_labels and not self.multilabel:
            answer = told_classes(answer.to(self.device, torch.float32), rows, self.classes, self.outputs)
        fewest = 1 if self.multilabel else 2
        if answer.dim() != 2 or len(answer) != rows or answer.shape[1] < fewest:
            wanted = f"one row of at least {fewest} scores for each of {rows} inputs"
            numbers = (
                "" if answer.shape != (rows,) else ": if these are class numbers, pass outputs='labels' and classes="
            )
            raise VictimError(f"expected the model to return {wanted}, got shape {tuple(answer.shape)}{numbers}")
        if self.classes is None:
            self.classes = answer.shape[1]
        if answer.shape[1] != self.classes:
            raise VictimError(f"the model returned {answer.shape[1]} scores a row after {self.classes} before")
        return answer.to(self.device, torch.float32)

    def _scores(self, answer: Tensor) -> Tensor:
        if self.outputs == "auto":
            clear = answer[torch.isfinite(answer).all(1)]  # a row of NaN tells nothing
            if len(clear):
                self.outputs = "probabilities" if looks_like_probabilities(clear, self.multilabel) else "logits"
        if self.outputs not in ("probabilities", *LABELS):
            return answer if self.multilabel else answer.log_softmax(1)
        seen = answer[~answer.isnan()]
        if len(seen) and (seen.min() < -_TOLERANCE or seen.max() > 1 + _TOLERANCE):
            span = f"{seen.min():.4g} to {seen.max():.4g}"
            raise VictimError(f"expected probabilities, got values from {span}: declare outputs='logits'")
        sure = answer.clamp(1e-12, 1 - 1e-7) if self.multilabel else answer.clamp(1e-12, 1)
        return sure.logit() if self.multilabel else sure.log()

    def probabilities(self, scores: Tensor) -> Tensor:
        """Scores (b, k) -> probabilities (b, k)."""
        return scores.sigmoid() if self.multilabel else scores.exp()


def looks_like_probabilities(answer: Tensor, multilabel: bool) -> bool:
    """Whether rows (b, k) are probabilities already; rows that sum to 1 by chance are as good as impossible."""
    inside = bool(((answer >= -_TOLERANCE) & (answer <= 1 + _TOLERANCE)).all())
    return inside and (multilabel or bool((answer.sum(1) - 1).abs().max() < _TOLERANCE))


def first_line(error: Exception) -> str:
    """What went wrong elsewhere, in a line."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]


def out_of_memory(error: Exception) -> bool:
    """Whether a model on this machine ran out of memory; what one elsewhere says of its own is no such error."""
    named = any(words in str(error).lower() for words in _MEMORY_WORDS)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (named and not isinstance(error, VictimError))
