"""The victim: any model behind one call that checks inputs, splits them into chunks and counts every row."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict, final, get_args

import torch
from torch import Tensor

from rlab.errors import DataError, InputError, OptionError, VictimError
from rlab.guard import TimeUp, contained, time_limit
from rlab.predictions.kinds import Prediction
from rlab.victims.account import Account, Call
from rlab.victims.answers import LABELS, Score, check_reading, ranked_classes, read_answer, recognise, scored, to_scores
from rlab.victims.answers import Outputs as Outputs
from rlab.victims.failures import Unanswered, first_line, out_of_memory
from rlab.victims.readers import PREDICTED, READERS, BoxOutputs

_LONGEST, _ROUNDING = 10**6, 1e-3  # seconds, and how far values may leave their bounds
_CHUNK_BYTES = 2**27  # of inputs at once, so that long clips go a few at a time


class Common(TypedDict, total=False):
    """Keywords that every victim takes."""

    bounds: tuple[float, float]
    outputs: Outputs | BoxOutputs
    multilabel: bool
    classes: int | None
    output: str | int | None
    score: Score | None
    chunk: int | None
    timeout: float | None


class Victim(ABC):
    """Black box: inputs (b, c, *size) in `bounds` -> scores (b, k).

    Scores are log-probabilities, or log-odds if several classes can be true at once (`multilabel`). If the model returns
    only `labels`, or the `topk` most likely of `classes`, scores rank these classes and carry no other information.
    `output` selects one of several outputs; `score` is a function that turns an output into scores.
    """

    device: torch.device = torch.device("cpu")  # where the attack keeps its tensors
    first_chunk: int = 256  # default rows per call; running out of memory halves it
    first_timeout: float | None = None  # default seconds for one answer; None: no limit
    watched: bool = True  # whether `time_limit` enforces the timeout
    retries: int = 0  # how often rows are sent again after `Unanswered`
    backoff: float = 0.5  # seconds before the first retry, doubled each time
    concurrency: int = 1  # maximum concurrent requests
    own_classes: tuple[str, ...] = ()  # names of the classes in the order of the scores, if the model has its own
    inputs: str = "as float32 arrays (rows, channels, *size)"  # how the model gets them, in words

    def __init__(
        self,
        *,
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs | BoxOutputs = "auto",
        multilabel: bool = False,
        classes: int | None = None,
        output: str | int | None = None,
        score: Score | None = None,
        chunk: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise OptionError(f"expected bounds (low, high) with low below high, got {tuple(bounds)}")
        self.boxes = outputs if isinstance(outputs, BoxOutputs) else BoxOutputs()  # how arrays of boxes are read
        outputs = "boxes" if isinstance(outputs, BoxOutputs) else outputs
        if outputs not in get_args(Outputs):
            raise OptionError(f"expected outputs to be one of {', '.join(get_args(Outputs))}, got {outputs!r}")
        check_reading(outputs, multilabel, classes, output, score)
        if chunk is not None and chunk < 1:
            raise OptionError(f"expected a chunk of at least 1 row, got {chunk}")
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST):
            raise OptionError(f"expected a timeout above 0 and up to {_LONGEST} seconds, got {timeout!r}")
        self.bounds, self.outputs, self.multilabel, self.output, self.score = bounds, outputs, multilabel, output, score
        self.chunk, self.timeout = chunk or self.first_chunk, timeout or self.first_timeout
        self.declared = self.outputs, classes
        self.classes = classes  # None until the first answer, and if the model does not return scores of classes
        self.width: int | None = None  # of a row of scores, boxes, a map or numbers; None until the first answer
        self.rows: Counter[str] = Counter()  # phase -> rows that reached the model

    @property
    def tells_labels(self) -> bool:
        """Whether the model returns classes without scores."""
        return self.outputs in LABELS

    @property
    def prediction(self) -> Prediction:
        """What the model predicts."""
        return PREDICTED.get(self.outputs, "classes")

    def read_like(self, outputs: Outputs, width: int) -> None:
        """Read answers as earlier ones were read, perhaps in another process."""
        self.outputs = outputs
        self.set_width(width)

    def set_width(self, width: int) -> None:
        """Note how many scores, values of boxes, points or numbers a row of the answer has."""
        self.width = width
        if self.prediction == "classes":
            self.classes = width

    @abstractmethod
    def _predict(self, x: Tensor) -> Tensor:
        """x: (b, c, *size) -> raw outputs (b, k), in the order of the rows."""

    def __repr__(self) -> str:
        low, high, queries = *self.bounds, self.rows.total()
        return f"{type(self).__name__}({self._about()}, values in [{low:g}, {high:g}], on {self.device}, {queries:,} queries)"

    def _about(self) -> str:
        return type(self).__name__

    def describe(self) -> str:
        """One line: the model, its device, the values it takes and what happens to them first."""
        where = "" if "://" in (about := self._about()) else f" on {self.device}"  # a server keeps its device to itself
        return f"{about}{where}, takes values in {list(self.bounds)} {self.inputs}"

    @final
    def __call__(
        self, x: Tensor, phase: str = "search", samples: Tensor | None = None, assignment: Tensor | None = None,
        account: Account | None = None,
    ) -> Tensor:  # fmt: skip
        """x: (b, c, *size) -> scores (b, k) on x's device; NaN for rows without an answer that the budget cannot repeat.

        `account` counts the rows for their `samples` (b,); its journal may keep their `assignment` (b, p).
        """
        self._check(x)
        call = Call(x, phase, samples, assignment, account, self.rows, self.device, self.width)
        most = max(1, _CHUNK_BYTES // x[0].nbytes)
        if call.width is not None:  # known from a journal
            self.set_width(call.width)
        while parts := call.turn(min(self.chunk, most), self.retries, self.backoff):
            for rows in self._left(call, parts):
                part = call.part(rows)
                call.count(rows)
                try:
                    with self._sentences(part), time_limit(self.timeout if self.watched else None):
                        answer = self._shaped(self._predict(part), len(part)).detach()
                except InputError:
                    call.count(rows, times=-1)  # refused before the model saw them
                    raise
                except Unanswered as error:
                    call.fail(rows, error)
                except Exception as error:
                    if not out_of_memory(error):
                        raise
                    if len(rows) == 1:
                        shape = tuple(x.shape[1:])
                        raise VictimError(f"the model runs out of memory on a single input of shape {shape}") from error
                    self.chunk = len(rows) // 2
                    break  # the other parts are too large, too
                else:
                    call.put(rows, answer)
        return self.scores_of(call.result()).to(x.device)

    def _left(self, call: Call, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        """The parts of a call that are queried one by one; a model that answers many at once does so here, and leaves none."""
        return parts

    def _check(self, x: Tensor) -> None:
        if x.dim() < 3 or not x.numel():
            raise DataError(f"expected at least one input of shape (rows, channels, *size), got {tuple(x.shape)}")
        low, high = (float(end) for end in x.aminmax())
        slack = _ROUNDING * min(1.0, self.bounds[1] - self.bounds[0])
        if not (self.bounds[0] - slack <= low and high <= self.bounds[1] + slack and math.isfinite(high - low)):
            raise DataError(f"the model expects values in {list(self.bounds)}, got {low:.4g} to {high:.4g}")

    @contextmanager
    def _sentences(self, x: Tensor) -> Iterator[None]:
        """Whatever the model raises becomes a one-line error, except running out of memory."""
        where, dtype = f"on inputs of shape {tuple(x.shape)}", torch.get_default_dtype()
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
        finally:
            torch.set_default_dtype(dtype)  # the model may have changed it

    def _read(self, answer: object, x: Tensor, output: str | int | None = None) -> Tensor:
        """What the model returned for x (b, c, *size), or its part `output` -> a tensor, of rows unless of scores."""
        if self.prediction == "classes":
            return read_answer(answer, output, self.score)
        return READERS[self.outputs](scored(answer, output, self.score), tuple(x.shape), self.boxes)

    def _shaped(self, answer: Tensor, rows: int) -> Tensor:
        """Check that the answer is real numbers (rows, k), of the same width as before."""
        if answer.is_complex() or answer.is_meta or answer.layout != torch.strided:
            kind = f"{answer.dtype}, {answer.layout} on {answer.device}"
            raise VictimError(f"expected the model to return a tensor of real scores, got {kind}")
        if self.tells_labels and not self.multilabel:
            answer = ranked_classes(answer.to(self.device, torch.float32), rows, self.classes, self.outputs)
        fewest = 1 if self.multilabel or self.prediction != "classes" else 2
        if answer.dim() != 2 or len(answer) != rows or answer.shape[1] < fewest:
            wanted = f"one row of at least {fewest} scores for each of {rows} inputs"
            advice = ": if these are class numbers, pass outputs='labels' and classes=" * (answer.shape == (rows,))
            if answer.shape == (rows, 1):
                advice = ": for a number, pass outputs='numbers'; for two classes, a score= that is above 0 for class 1"
            elif answer.dim() > 2:
                advice = ": if these are boxes or maps of classes, pass outputs='boxes' or outputs='map'"
            raise VictimError(f"expected the model to return {wanted}, got shape {tuple(answer.shape)}{advice}")
        before = self.width or self.classes
        if before not in (None, answer.shape[1]):
            raise VictimError(f"the model returned {answer.shape[1]} scores per row, and {before} before")
        self.set_width(answer.shape[1])
        return answer.to(self.device, torch.float32)

    def scores_of(self, answer: Tensor) -> Tensor:
        """Scores (m, k) from answers of the model; the first ones decide how answers are read if that is not known."""
        if self.prediction != "classes":
            return answer
        if self.outputs == "auto":
            self.outputs = recognise(answer, self.multilabel)
        return to_scores(answer, self.outputs, self.multilabel)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Scores (b, k) -> probabilities (b, k); rows of boxes, maps or numbers stay as they are."""
        if self.prediction != "classes":
            return scores
        return scores.sigmoid() if self.multilabel else scores.exp()
