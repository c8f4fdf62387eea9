"""The victim: any model behind one call that checks, chunks and counts: every row the model is asked about."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import Literal, TypedDict, final, get_args

import torch
from torch import Tensor

from rlab.errors import BudgetError, InputError, VictimError

Outputs = Literal["auto", "logits", "probabilities"]
PHASES = ("search", "cleanup", "verify", "train")
_TOLERANCE = 1e-3  # how far a row of probabilities may sum from 1, or a value lie outside the bounds by rounding
_CHUNK_BYTES = 2**27  # of inputs at once: long clips go a few at a time, whatever the chunk
# As torch on a GPU, torch on a CPU, ONNX Runtime, and cuDNN or cuBLAS say it.
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "failed to allocate memory", "alloc_failed")


class Common(TypedDict, total=False):
    """What every victim takes: the keywords of `Victim`."""

    bounds: tuple[float, float]
    outputs: Outputs
    multilabel: bool
    chunk: int | None


class Unanswered(VictimError):
    """The rows were sent but no usable answer came; the same rows may be sent again, and are counted again."""

    def __init__(self, sentence: str, wait: float = 0.0) -> None:
        """`wait`: seconds the model asked for before the next try."""
        super().__init__(sentence)
        self.wait = wait


class Victim(ABC):
    """Black box: inputs (b, c, *size) in `bounds` -> scores (b, k).

    Scores are log-probabilities where classes exclude each other, log-odds where they do not (`multilabel`).
    """

    device: torch.device = torch.device("cpu")  # where the attack keeps its tensors
    first_chunk: int = 256  # rows at once to begin with; running out of memory halves it
    retries: int = 0  # how often rows are sent again after `Unanswered`
    backoff: float = 0.5  # seconds before the first retry, doubled each time

    def __init__(
        self,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs = "auto",
        multilabel: bool = False,
        chunk: int | None = None,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise InputError(f"expected bounds (low, high) with low below high, got {tuple(bounds)}")
        if outputs not in get_args(Outputs):
            raise InputError(f"expected outputs to be one of {', '.join(get_args(Outputs))}, got {outputs!r}")
        if chunk is not None and chunk < 1:
            raise InputError(f"expected a chunk of at least 1 row, got {chunk}")
        self.bounds, self.outputs, self.multilabel = bounds, outputs, multilabel
        self.chunk = self.first_chunk if chunk is None else chunk
        self.classes: int | None = None  # known from the first answer
        self.rows: Counter[str] = Counter()  # by phase; every row that reached the model

    @abstractmethod
    def _predict(self, x: Tensor) -> Tensor:
        """x: (b, c, *size) -> raw outputs (b, k), in the order of the rows."""

    @final
    def __call__(self, x: Tensor, phase: str = "search", charge: Charge | None = None) -> Tensor:
        """x: (b, c, *size) -> scores (b, k) on x's device."""
        self._check(x)
        answers, at, most = [], 0, max(1, _CHUNK_BYTES // x[0].nbytes)
        while at < len(x):
            rows = slice(at, min(at + min(self.chunk, most), len(x)))
            try:
                answers.append(self._ask(x[rows], rows, phase, charge))
            except Exception as error:
                if not out_of_memory(error):
                    raise
                if rows.stop - at == 1:
                    shape = tuple(x.shape[1:])
                    raise VictimError(f"the model runs out of memory on a single input of shape {shape}") from error
                self.chunk = (rows.stop - at) // 2
                continue
            at = rows.stop
        return self._scores(torch.cat(answers)).to(x.device)

    def _check(self, x: Tensor) -> None:
        if x.dim() < 3 or not x.numel():
            raise InputError(f"expected inputs of shape (rows, channels, *size), at least one, got {tuple(x.shape)}")
        low, high = (float(end) for end in x.aminmax())
        slack = _TOLERANCE * min(1.0, self.bounds[1] - self.bounds[0])
        if not (self.bounds[0] - slack <= low and high <= self.bounds[1] + slack):
            raise InputError(f"the model expects values in {list(self.bounds)}, got {low:.4g} to {high:.4g}")

    def _ask(self, x: Tensor, rows: slice, phase: str, charge: Charge | None) -> Tensor:
        """One chunk, sent again while it goes unanswered; every sending is counted."""
        for attempt in range(self.retries + 1):
            if charge is not None:
                charge.check(rows)
            try:
                answer = self._run(x)
            except Unanswered as error:
                self._count(rows, phase, charge)
                if attempt == self.retries or (charge is not None and not charge.affords(rows)):
                    tries = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise VictimError(f"{error} (asked {tries})") from error
                time.sleep(max(self.backoff * 2**attempt, error.wait))
            except VictimError:
                self._count(rows, phase, charge)
                raise
            else:
                self._count(rows, phase, charge)
                return self._shaped(answer, len(x))
        raise AssertionError("unreachable")

    @final
    def _run(self, x: Tensor) -> Tensor:
        """`_predict`, with whatever the model raises as one sentence. Running out of memory is left to the caller."""
        try:
            return self._predict(x)
        except (InputError, VictimError):
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            raise VictimError(f"the model failed on inputs of shape {tuple(x.shape)}: {first_line(error)}") from error

    def _count(self, rows: slice, phase: str, charge: Charge | None) -> None:
        self.rows[phase] += rows.stop - rows.start
        if charge is not None:
            charge.add(rows)

    def _shaped(self, answer: Tensor, rows: int) -> Tensor:
        fewest = 1 if self.multilabel else 2
        if answer.dim() != 2 or len(answer) != rows or answer.shape[1] < fewest:
            wanted = f"one row of at least {fewest} scores for each of {rows} inputs"
            raise VictimError(f"expected the model to return {wanted}, got shape {tuple(answer.shape)}")
        if self.classes is None:
            self.classes = answer.shape[1]
        if answer.shape[1] != self.classes:
            raise VictimError(f"the model returned {answer.shape[1]} scores a row after {self.classes} before")
        return answer.detach().float()

    def _scores(self, answer: Tensor) -> Tensor:
        clear = answer[torch.isfinite(answer).all(1)]  # a row of NaN tells nothing
        if self.outputs == "auto" and len(clear):
            self.outputs = "probabilities" if looks_like_probabilities(clear, self.multilabel) else "logits"
        if self.outputs != "probabilities":
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
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def out_of_memory(error: Exception) -> bool:
    """Whether a model on this machine ran out of memory; what one elsewhere says of its own is no such error."""
    named = any(words in str(error).lower() for words in _MEMORY_WORDS)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (named and not isinstance(error, VictimError))


class QueryMeter:
    """A victim with a budget: counts rows per sample and phase and lets no row through beyond a sample's budget."""

    def __init__(self, victim: Victim, samples: int, budget: int | None = None) -> None:
        self.victim = victim
        self.budget = budget
        self.counts = torch.zeros(samples, len(PHASES), dtype=torch.int64)

    def __call__(self, x: Tensor, samples: Tensor, phase: str) -> Tensor:
        """x: (n, c, *size), samples: (n,) which sample each row belongs to -> scores (n, k)."""
        return self.victim(x, phase, Charge(self, samples.cpu(), PHASES.index(phase)))

    def spent(self, samples: Tensor) -> Tensor:
        """(n,) rows so far, all phases together."""
        return self.counts[samples.cpu()].sum(1).to(samples.device)

    def left(self, samples: Tensor) -> Tensor:
        """(n,) rows still allowed."""
        return (math.inf if self.budget is None else self.budget) - self.spent(samples)


class Charge:
    """The rows of one call to the victim, and whose they are."""

    def __init__(self, meter: QueryMeter, samples: Tensor, phase: int) -> None:
        self.meter, self.samples, self.phase = meter, samples, phase

    def affords(self, rows: slice) -> bool:
        if self.meter.budget is None:
            return True
        asked = torch.bincount(self.samples[rows], minlength=len(self.meter.counts))
        return bool((self.meter.counts.sum(1) + asked <= self.meter.budget)[asked > 0].all())

    def check(self, rows: slice) -> None:
        if not self.affords(rows):
            raise BudgetError(f"a row was about to go beyond the budget of {self.meter.budget} queries a sample")

    def add(self, rows: slice) -> None:
        chosen = self.samples[rows]
        self.meter.counts[:, self.phase].index_add_(0, chosen, torch.ones_like(chosen))
