"""README's table of results agrees with the results pages."""

from __future__ import annotations

import pytest

from benchmarks import headline
from benchmarks.claims import README


def test_the_table_agrees_with_the_results() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme == headline.written(readme), "write it again: python -m benchmarks.headline"


def test_only_the_table_is_replaced_and_its_marks_are_needed() -> None:
    page = f"before\n{headline.BEGIN}old\n{headline.END}after\n"
    assert headline.written(page) == f"before\n{headline.table()}after\n"
    for text in ("no marks", f"{headline.BEGIN}no end"):
        with pytest.raises(SystemExit):
            headline.written(text)
