"""What a finished stage cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer

_UNSTORED = PlainSerializer(lambda value: 0.0)


@dataclass(frozen=True)
class Rows:
    """Queries to the audited model, and to copies that hardening or sanity checks make."""

    model: int = 0
    copies: int = 0

    def __add__(self, more: Rows) -> Rows:
        return Rows(self.model + more.model, self.copies + more.copies)

    @property
    def total(self) -> int:
        return self.model + self.copies


@dataclass(frozen=True)
class Tally:
    """Samples of one class that the model detects unchanged, and how many of them with a distortion in a group of channels."""

    distortion: str
    snr: float | None  # dB within the group; None: the severity of the palette
    entry: str  # the distortion with its severity
    channels: str  # the group in words
    name: str  # of the class
    label: int
    detected: int
    still: int


@dataclass(frozen=True)
class StageRecord:
    """The cost of a finished stage, and what only the audit measures."""

    rows: Rows = Rows()
    seconds: Annotated[float, _UNSTORED] = 0.0  # only in junit.xml: reports of equal audits are equal
    note: str = ""  # why it has no results
    tallies: tuple[Tally, ...] = ()  # of the stage `detect`
