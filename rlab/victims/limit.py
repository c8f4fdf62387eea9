"""The maximum number of queries of a command: every model asks here before inputs are sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rlab.errors import OptionError

FREE = "surrogate"  # phase of queries to the user's own models, which cost nothing


class LimitReached(KeyboardInterrupt):
    """Stops the work as Ctrl-C does: what is finished is saved, and no code takes it for an answer of the model."""


@dataclass
class QueryLimit:
    """Counts the inputs that are sent to models; answers from a cache or an earlier process are not."""

    most: int
    sent: int = 0
    reached: bool = False


_limit: ContextVar[QueryLimit | None] = ContextVar("limit", default=None)


@contextmanager
def query_limit(most: int) -> Iterator[None]:
    """Inside the block, models get at most this many inputs: an error stops the work before one more is sent.

    In a run folder, what is finished is saved, and the same call with a larger limit goes on.
    """
    if most < 1:
        raise OptionError(f"expected a limit of at least 1 query, got {most}")
    limit = QueryLimit(most)
    before = _limit.set(limit)
    try:
        yield
    except KeyboardInterrupt as stop:
        if not limit.reached:
            raise
        saved = str(stop).removeprefix("stopped; ") or "what is finished is saved"
        raise OptionError(f"the limit of {most:,} queries is reached after {limit.sent:,}: {saved}") from None
    finally:
        _limit.reset(before)


def spend(rows: int, phase: str) -> None:
    """Count rows that are about to be sent to a model, unless they would exceed the limit; a negative number takes rows back."""
    limit = _limit.get()
    if limit is None or phase == FREE:
        return
    limit.reached = limit.sent + rows > limit.most
    if limit.reached:
        raise LimitReached
    limit.sent += rows


def is_limited() -> bool:
    return _limit.get() is not None
