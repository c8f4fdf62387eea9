"""What went wrong in a model, in words."""

from __future__ import annotations

import torch

from rlab.errors import VictimError
from rlab.guard import words_of

# In the words of torch on a GPU, torch on a CPU, ONNX Runtime, and cuDNN or cuBLAS.
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "failed to allocate memory", "alloc_failed")


class Unanswered(VictimError):
    """Rows were sent without a usable answer; they may be sent, and are then counted, again."""

    def __init__(self, sentence: str, details: str = "", pause: float | None = None) -> None:
        super().__init__(sentence)
        self.details = details  # what was sent and received, in further lines
        self.pause = pause  # seconds that an overloaded server asked for; None if it did not put the rows off


class NoScores(VictimError):
    """The model understood the request, but its answer holds no scores, or not as many as expected."""


def first_line(error: Exception) -> str:
    """An error of other code in one line."""
    return f"{type(error).__name__}: {words_of(error)}".strip().splitlines()[0][:500]


def out_of_memory(error: Exception) -> bool:
    """Whether a model on this machine ran out of memory; messages from a server do not count."""
    named = any(words in words_of(error).lower() for words in _MEMORY_WORDS)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (named and not isinstance(error, VictimError))
