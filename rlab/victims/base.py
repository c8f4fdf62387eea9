"""The victim: any model behind one call that checks, chunks and counts: every row the model is asked about."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypedDict, final, get_args

import torch
from torch import Tensor

from rlab.errors import BudgetError, InputError, VictimError
from rlab.guard import TimeUp, contained, time_limit

Outputs = Literal["auto", "logits", "probabilities"]
PHASES = ("search", "cleanup", "verify", "train")
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
    chunk: int | None
    timeout: float | None


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
    first_timeout: float | None = None  # seconds for one answer where nobody says; None waits for ever
    watched: bool = True  # whether an answer that takes longer is cut short from here
    retries: int = 0  # how often rows are sent again after `Unanswered`
    backoff: float = 0.5  # seconds before the first retry, doubled each time

    def __init__(
        self,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs = "auto",
        multilabel: bool = False,
        chunk: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise InputError(f"expected bounds (low, high) with low below high, got {tuple(bounds)}")
        if outputs not in get_args(Outputs):
            raise InputError(f"expected outputs to be one of {', '.join(get_args(Outputs))}, got {outputs!r}")
        if chunk is not None and chunk < 1:
            raise InputError(f"expected a chunk of at least 1 row, got {chunk}")
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST):
            raise InputError(f"expected a timeout above 0 and up to {_LONGEST} seconds, got {timeout!r}")
        self.bounds, self.outputs, self.multilabel = bounds, outputs, multilabel
        self.chunk = self.first_chunk if chunk is None else chunk
        self.timeout = self.first_timeout if timeout is None else timeout
        self.classes: int | None = None  # known from the first answer
        self.rows: Counter[str] = Counter()  # by phase; every row that reached the model

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
            stop = min(at + min(self.chunk, most), len(x))
            try:
                answers.append(self._ask(x, slice(at, stop), phase, charge))
            except Exception as error:
                if not out_of_memory(error):
                    raise
                if stop - at == 1:
                    shape = tuple(x.shape[1:])
                    raise VictimError(f"the model runs out of memory on a single input of shape {shape}") from error
                self.chunk = (stop - at) // 2
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

    def _ask(self, x: Tensor, chunk: slice, phase: str, charge: Charge | None) -> Tensor:
        """Answers (m, k) to a chunk of x, asked again while there is none; every sending is counted."""
        every = rows = torch.arange(chunk.start, chunk.stop)
        error: Unanswered | None = None
        for attempt in range(self.retries + 1):
            rows = rows if charge is None else charge.affordable(rows)
            if not len(rows):
                break
            if error is not None:
                time.sleep(max(self.backoff * 2 ** (attempt - 1), error.wait))
            self._count(rows, phase, charge)
            part = x[chunk] if len(rows) == len(every) else x[rows]  # a slice is no copy
            try:
                return self._placed(self._run(part), rows, every, charge)
            except InputError:
                self._count(rows, phase, charge, -1)  # refused before the model saw them
                raise
            except Unanswered as none:
                error, asked = none, "once" if attempt == 0 else f"{attempt + 1} times"
        if error is not None and (len(rows) or self.classes is None):
            raise VictimError(f"{error} (asked {asked})") from error
        if self.classes is None:
            raise VictimError("the model runs out of memory, and the budget is too small to ask it with fewer inputs")
        return self._placed(torch.empty(0, self.classes, device=self.device), rows, every, charge)

    @staticmethod
    def _placed(answer: Tensor, rows: Tensor, every: Tensor, charge: Charge | None) -> Tensor:
        """`answer` to `rows` among `every` row that was asked about: the others are lost."""
        if len(rows) == len(every):
            return answer
        assert charge is not None
        answered = torch.isin(every, rows)
        charge.lose(every[~answered])
        whole = answer.new_full((len(every), answer.shape[1]), math.nan)
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

    def _count(self, rows: Tensor, phase: str, charge: Charge | None, times: int = 1) -> None:
        self.rows[phase] += times * len(rows)
        if charge is not None:
            charge.add(rows, times)

    def _shaped(self, answer: Tensor, rows: int) -> Tensor:
        """The answer, refused where it is not real scores (rows, k) of as many classes as before."""
        if answer.is_complex() or answer.is_meta or answer.layout != torch.strided:
            kind = f"{answer.dtype}, {answer.layout} on {answer.device}"
            raise VictimError(f"expected the model to return a tensor of real scores, got {kind}")
        fewest = 1 if self.multilabel else 2
        if answer.dim() != 2 or len(answer) != rows or answer.shape[1] < fewest:
            wanted = f"one row of at least {fewest} scores for each of {rows} inputs"
            raise VictimError(f"expected the model to return {wanted}, got shape {tuple(answer.shape)}")
        if self.classes is None:
            self.classes = answer.shape[1]
        if answer.shape[1] != self.classes:
            raise VictimError(f"the model returned {answer.shape[1]} scores a row after {self.classes} before")
        return answer.to(self.device, torch.float32)

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
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]


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
        self.lost = torch.zeros(samples, dtype=torch.bool)  # whose last affordable question went unanswered

    def __call__(self, x: Tensor, samples: Tensor, phase: str) -> Tensor:
        """x: (n, c, *size), samples: (n,) which sample each row belongs to -> scores (n, k)."""
        return self.victim(x, phase, self.charge(samples, phase))

    def charge(self, samples: Tensor, phase: str) -> Charge:
        return Charge(self, samples.cpu(), PHASES.index(phase))

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
        self.sent = 0

    def affordable(self, rows: Tensor) -> Tensor:
        """Those of `rows` (m,) that may be sent; while no row was sent twice, `check` has seen to all of them."""
        return rows if self.sent == int(rows[0]) else rows[self._within_budget(rows)]

    def check(self) -> None:
        if not self._within_budget(torch.arange(len(self.samples))).all():
            raise BudgetError(f"a row was about to go beyond the budget of {self.meter.budget} queries a sample")

    def _within_budget(self, rows: Tensor) -> Tensor:
        """(m,) bool: whether the row's sample has queries left for all its rows."""
        samples = self.samples[rows]
        if self.meter.budget is None:
            return torch.ones_like(samples, dtype=torch.bool)
        asked = torch.bincount(samples, minlength=len(self.meter.counts))
        return (self.meter.counts.sum(1) + asked <= self.meter.budget)[samples]

    def add(self, rows: Tensor, times: int = 1) -> None:
        chosen = self.samples[rows]
        self.sent += times * len(rows)
        self.meter.counts[:, self.phase].index_add_(0, chosen, torch.full_like(chosen, times))

    def lose(self, rows: Tensor) -> None:
        self.meter.lost[self.samples[rows]] = True
