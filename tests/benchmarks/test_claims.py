"""docs/claims.md and README's table agree with the results; README and docs/results.md show no other figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import claims, headline
from benchmarks.claims import README, Claim, Source


def test_the_page_agrees_with_the_results() -> None:
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page(claims.sources()), (
        "write it again: python -m benchmarks.claims"
    )


@pytest.mark.parametrize("document", claims.SHOWN, ids=lambda path: path.name)
def test_every_figure_is_on_the_page(document: Path) -> None:
    assert claims.missing(document.read_text(encoding="utf-8"), claims.sources()) == []


def planted(*figures: str) -> list[Source]:
    return [Source("page.md", "command", "data", "CPU", [Claim("one", figures), Claim("two", ["9.99"])])]


def test_a_row_must_match_one_claim_to_the_digits_shown() -> None:
    table = "| a | 5 | 20 |\n|---|---|---|\n| row 5 | {} | {} |\n"
    held = planted("within 5: 2.993 [2.8, 3.1]", "within 20: 1.714")
    assert claims.missing(table.format("2.99", "1.7"), held) == []
    assert claims.missing(table.format("2.9", "1.7"), held)  # not how 2.993 is rounded
    assert claims.missing(table.format("2.8", "1.7"), held)  # an end of an interval is not the figure
    assert claims.missing(table.format("2.99", "9.99"), held)  # of two claims
    assert claims.missing(table.format("2.99%", "1.7"), held)  # another unit
    assert claims.missing(table.format("1.7", "1.7"), held)  # of another column
    assert claims.missing(table.format("∞", "1.7"), held)
    assert claims.missing(table.format("∞", "1.7"), planted("within 5: inf [3, inf]", "within 20: 1.714")) == []


def test_a_sentence_may_show_only_figures_on_the_page_and_settings() -> None:
    held = planted("2.993")
    said = "With 1,000 queries ResNet-20 and `--limit 44` need 2.99 on 4x4 patches of [a page](x/33.md)."
    assert claims.missing(said, held) == []
    assert claims.missing("It is 3.6 to 5.2 times quicker.", held) == ["3.6, 5.2 in: It is 3.6 to 5.2 times quicker."]


def test_the_table_of_the_readme_agrees_with_the_results() -> None:
    readme = README.read_text(encoding="utf-8")
    assert readme == headline.written(readme), "write it again: python -m benchmarks.headline"


def test_only_the_table_is_replaced_and_its_marks_are_needed() -> None:
    page = f"before\n{headline.BEGIN}old\n{headline.END}after\n"
    assert headline.written(page) == f"before\n{headline.table()}after\n"
    for text in ("no marks", f"{headline.BEGIN}no end"):
        with pytest.raises(SystemExit):
            headline.written(text)
