"""Results whose commands have not moved to `Report` yet."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlab.present.report import PathLike as PathLike
from rlab.present.report import Report

if TYPE_CHECKING:
    from rlab.present.page import Page


class Result(Report):
    verb: ClassVar[str] = ""

    @abstractmethod
    def make_page(self) -> Page:
        """The page that `report` writes."""

    @abstractmethod
    def save(self, folder: PathLike) -> Path:
        """Write a run folder."""

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        return self.make_page()
