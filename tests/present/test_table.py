"""One table, three renderers: what is shown is rounded, what is recorded is not."""

from __future__ import annotations

import io
import math
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from rlab.present.page import Folded, Page, Section, render
from rlab.present.table import Cell, Cells, Share, Table, Value, markdown, number, records, terminal, text, typed
from rlab.stats import Estimate

ROWS: list[Cells] = [
    ["auto", 12, 0.123456, Estimate(2.0, 1.5, 2.5), Share(0.41666), Cell("fails", "fail")],
    ["a | b <i>[red]", 1234567, math.nan, Estimate(3.25), Share(Estimate(0.5, 0.4, 0.6), 0), None],
]
TABLE = Table(["method", "queries", "L2 at\nflip", "ratio", "success", ""], ROWS, "Some [figures] & more")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ("a word", "a word"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (0.123456, "0.123"),
        (12.0, "12"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (Estimate(2.0, 1.5, 2.5), "2 [1.5, 2.5]"),
        (Estimate(2.0), "2"),
        (Estimate(math.inf, 3.0, math.inf), "∞ [3, ∞]"),
        (Share(0.41666), "41.7%"),
        (Share(1, 0), "100%"),
        (Share(math.nan), "–"),
        (Share(Estimate(0.5, 0.4, 0.6), 0), "50% [40, 60]"),
        (Share(Estimate(math.nan)), "–"),
    ],
)
def test_cells_as_they_are_shown(value: Value | Share, shown: str) -> None:
    assert text(value) == shown


def test_digits() -> None:
    assert (number(0.123456, 2), number(-0.5), number(999.6)) == ("0.12", "-0.5", "1e+03")


def printed(table: Table, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(terminal(table))
    return console.export_text()


def test_the_terminal_shows_all_of_it_in_eighty_columns() -> None:
    shown = printed(TABLE)
    assert max(map(len, shown.splitlines())) <= 80
    for part in ("Some [figures] & more", "a | b <i>[red]", "0.123", "2", "[1.5, 2.5]", "41.7%", "fails", "1,234,567"):
        assert part in shown
    interval = next(line for line in shown.splitlines() if "[1.5, 2.5]" in line)
    assert "auto" not in interval  # it stands below its value


def test_words_give_way_and_figures_do_not() -> None:
    long = "a run whose name is quite long, as names of runs are"
    rows: list[Cells] = [[long, "12 of 13", "12.5 + 33.5", "0.333 mV", 0.25, "10.5 of 64", 13]]
    shown = printed(Table(["run", "flipped", "queries", "L2", "L2 after", "patches", "verified"], rows))
    assert max(map(len, shown.splitlines())) <= 80
    for cell in ("12 of 13", "12.5 + 33.5", "0.333 mV", "0.25", "10.5 of 64", "13", "verified"):
        assert cell in shown
    sentence = "what a filter imitates, in a sentence that is longer than a line of the terminal can be, and goes on"
    folded = printed(Table(["filter", "about"], [["blur", sentence]], words=2))
    assert max(map(len, folded.splitlines())) <= 80
    assert "".join(folded.replace("│", " ").split()).endswith(
        "".join(sentence.split())[-20:] + "└" + folded.splitlines()[-1][1:]
    )


def test_a_second_part_repeats_the_columns_that_tell_the_rows_apart() -> None:
    figures = ["12.34 mV and more", "56.78 mV and more", "harder by a good deal"]
    rows: list[Cells] = [["bench/digits", level, "digits", *figures, f"{level} last"] for level in ("flip", "x1.5")]
    head = ["set", "level", "model", "clean", "benchmark", "uniform", "end"]
    second = printed(Table(head, rows, words=3), 60).split("└")[-2]
    assert second.splitlines()[2].split("┃")[1:3] == [" set          ", " level "]
    for level in ("flip", "x1.5"):
        (line,) = [line for line in second.splitlines() if f"{level} last" in line]
        assert f"│ {level}" in line
    assert "digits" not in second.replace("bench/digits", "")  # the model does not tell them apart


def test_markdown() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "**Some [figures] & more**"
    assert lines[2] == "| method | queries | L2 at flip | ratio | success |  |"
    assert lines[3] == "| --- | ---: | ---: | ---: | ---: | ---: |"
    assert lines[4] == "| auto | 12 | 0.123 | 2 [1.5, 2.5] | 41.7% | fails |"
    assert lines[5].startswith(r"| a \| b <i>[red] | 1,234,567 | – |")
    assert not markdown(Table(["a"], [])).startswith("**")


def test_records_hold_the_values() -> None:
    (record,) = records(Table(["method", "L2 at\nflip", "ratio", "success"], [[ROWS[0][0], *ROWS[0][2:5]]]))
    ratio = {"ratio": 2.0, "ratio low": 1.5, "ratio high": 2.5}
    assert record == {"method": "auto", "L2 at flip": 0.123456, **ratio, "success": 0.41666}


class PageCells(HTMLParser):
    """Text and class of every cell of a page's tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.inside = True
            self.cells.append(("", dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] = (self.cells[-1][0] + data, self.cells[-1][1])


@pytest.mark.parametrize("folded", [False, True])
def test_the_page_shows_the_same_and_escapes_it(folded: bool) -> None:
    section = Section("Figures <b>", [Folded("more <u>", [TABLE]) if folded else TABLE])
    page = render(Page("A <script>alert(1)</script>", [section]))
    shown_page = PageCells(page)
    assert not {"i", "b", "u"} & set(shown_page.tags)
    assert shown_page.tags.count("script") == 1
    shown = [cell for cell, _ in shown_page.cells]
    assert shown[len(TABLE.head) :][:6] == ["auto", "12", "0.123", "2 [1.5, 2.5]", "41.7%", "fails"]
    assert "a | b <i>[red]" in shown
    assert ("fails", "figure fail") in shown_page.cells
    assert ("auto", "") in shown_page.cells


def test_the_first_rows_are_told_as_such() -> None:
    table = Table(["n"], [[i] for i in range(5)], "Numbers")
    assert table.first(5) is table
    assert len(table.first(2).rows) == 2
    assert table.first(2).title == "Numbers, the first 2 of 5"


def test_a_path_in_a_command_is_quoted_where_a_shell_needs_it() -> None:
    assert typed(Path("runs/digits")) == "runs/digits"
    assert shlex.split(f"rlab show {typed(Path('runs/my run'))}") == ["rlab", "show", "runs/my run"]
