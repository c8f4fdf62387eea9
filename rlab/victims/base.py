"""The victim: any model behind one call that checks inputs, splits them into chunks and counts every row."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, Unpack, final

import torch
from torch import Tensor

from rlab.errors import DataError, InputError, OptionError, VictimError
from rlab.guard import TimeUp, contained, time_limit
from rlab.predictions.kinds import Prediction
from rlab.storage.config import check_keywords, takes
from rlab.victims.account import Account, Call
from rlab.victims.answers import ranked_classes, read_answer, recognise, scored, to_scores
from rlab.victims.failures import Unanswered, first_line, out_of_memory
from rlab.victims.named import find_function
from rlab.victims.readers import READERS
from rlab.victims.reading import UNIT, Outputs, Reading, Score

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

_ROUNDING = 1e-3  # by which values may leave their bounds
_CHUNK_BYTES = 2**27  # of inputs at once, so that long clips go a few at a time


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
    reads: tuple[str, ...] = tuple(Reading.model_fields)  # the fields of a reading that have an effect

    @takes(Reading)
    def __init__(self, **reading: Unpack[VictimKeywords]) -> None:
        self.declared = check_keywords(type(self), Reading, reading)
        if unread := [name for name in self.declared.given() if name not in self.reads]:
            raise OptionError(f"{type(self).__name__} does not take {', '.join(unread)}: omit it")
        self.reading = self.declared  # with what the first answer tells about the outputs
        score = self.declared.score
        self.score: Score | None = find_function(score) if isinstance(score, str) else score
        self.chunk, self.timeout = self.declared.chunk or self.first_chunk, self.declared.timeout or self.first_timeout
        self.width: int | None = None  # of a row of scores, boxes, a map or numbers; None until the first answer
        self.rows: Counter[str] = Counter()  # phase -> rows that reached the model

    @property
    def bounds(self) -> tuple[float, float]:
        return self.reading.bounds or UNIT

    @property
    def outputs(self) -> Outputs:
        return self.reading.outputs

    @property
    def multilabel(self) -> bool:
        return self.reading.multilabel

    @property
    def prediction(self) -> Prediction:
        """What the model predicts."""
        return self.reading.prediction

    @property
    def classes(self) -> int | None:
        """None until the first answer, and if the model does not return scores of classes."""
        return self.reading.classes or (self.width if self.prediction == "classes" else None)

    def read_as(self, **changes: Unpack[VictimKeywords]) -> Self:
        """The same model, with the same count of queries, read in another way."""
        other = copy.copy(self)
        other.reading = self.reading.model_copy(update=dict(changes))
        return other

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
            self.width = call.width
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
        return READERS[self.outputs](scored(answer, output, self.score), tuple(x.shape), self.reading)

    def _shaped(self, answer: Tensor, rows: int) -> Tensor:
        """Check that the answer is real numbers (rows, k), of the same width as before."""
        if answer.is_complex() or answer.is_meta or answer.layout != torch.strided:
            kind = f"{answer.dtype}, {answer.layout} on {answer.device}"
            raise VictimError(f"expected the model to return a tensor of real scores, got {kind}")
        if self.reading.tells_labels and not self.multilabel:
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
        self.width = answer.shape[1]
        return answer.to(self.device, torch.float32)

    def scores_of(self, answer: Tensor) -> Tensor:
        """Scores (m, k) from answers of the model; the first ones decide how answers are read if that is not known."""
        if self.prediction != "classes":
            return answer
        if self.outputs == "auto":
            self.reading = self.reading.model_copy(update={"outputs": recognise(answer, self.multilabel)})
        return to_scores(answer, self.outputs, self.multilabel)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Scores (b, k) -> probabilities (b, k); rows of boxes, maps or numbers stay as they are."""
        if self.prediction != "classes":
            return scores
        return scores.sigmoid() if self.multilabel else scores.exp()
