"""What every result can do: draw itself, become a table, a page, a folder and the output of a notebook cell."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported on use: a command that prints a table needs none of them
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from rlab.present.page import Page

PathLike = str | os.PathLike[str]


class Result(ABC):
    """The base of every result of rlab."""

    @abstractmethod
    def plot(self) -> Figure:
        """Draw the result; notebooks show the figure, `savefig` writes it."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows of the table that `to_pandas` returns."""

    @abstractmethod
    def make_page(self) -> Page:
        """The page that `report` writes."""

    @abstractmethod
    def save(self, folder: PathLike) -> Path:
        """Write a run folder, which `rlab report` and `rlab serve` can show."""

    def to_pandas(self) -> DataFrame:
        """The result as a pandas.DataFrame."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise ImportError("this needs the package 'pandas', which is not installed: pip install pandas") from error
        return DataFrame(self.records())

    def report(self, path: PathLike) -> Path:
        """Write the result as one self-contained HTML page."""
        from rlab.present.page import write_page

        return write_page(self.make_page(), Path(path))

    def _repr_html_(self) -> str:
        """The page's verdict, figures and first section, without anything interactive."""
        from rlab.present.notebook import blocks_html
        from rlab.present.page import Text

        page = self.make_page()
        words = [page.verdict.sentence + "." if page.verdict else "", page.lead]
        return blocks_html([*(Text(each) for each in words if each), *page.sections[0].blocks], page.numbers)
