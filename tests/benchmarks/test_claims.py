"""README tells no figure that docs/claims.md does not hold, and that page is what the results say."""

from __future__ import annotations

from benchmarks import claims
from benchmarks.claims import Claim, Source

README = claims.README.read_text(encoding="utf-8")


def test_the_page_is_what_the_results_say() -> None:
    page = claims.PAGE.read_text(encoding="utf-8")
    assert page == claims.page(claims.sources()), "write it again: python -m benchmarks.claims"


def test_every_figure_of_readme_is_on_the_page() -> None:
    assert claims.missing(README, claims.sources()) == []


def planted(*figures: str) -> list[Source]:
    return [Source("page.md", "command", "data", "CPU", [Claim("one", figures), Claim("two", ["9.99"])])]


def readme(text: str) -> str:
    return f"# rlab\n\n## The search\n\n{text}\n\n## What to do with what was found\n\nNothing.\n\n## Else\n\n77.7\n"


def test_a_row_must_be_of_one_claim_as_far_as_it_is_written_out() -> None:
    table = "| a | 5 | 20 |\n|---|---|---|\n| row 5 | {} | {} |\n"
    held = planted("within 5: 2.993 [2.8, 3.1]", "within 20: 1.714")
    assert claims.missing(readme(table.format("2.99", "1.7")), held) == []
    assert claims.missing(readme(table.format("2.9", "1.7")), held)  # not how 2.993 is rounded
    assert claims.missing(readme(table.format("2.8", "1.7")), held)  # an end of an interval is not the figure
    assert claims.missing(readme(table.format("2.99", "9.99")), held)  # of two claims
    assert claims.missing(readme(table.format("2.99%", "1.7")), held)  # another unit
    assert claims.missing(readme(table.format("1.7", "1.7")), held)  # of another column
    assert claims.missing(readme(table.format("∞", "1.7")), held)
    assert claims.missing(readme(table.format("∞", "1.7")), planted("within 5: inf [3, inf]", "within 20: 1.714")) == []


def test_a_sentence_must_tell_figures_of_the_page_or_settings() -> None:
    held = planted("2.993")
    said = "With 1,000 queries ResNet-20 and `--limit 44` need 2.99 on 4x4 patches of [a page](x/33.md)."
    assert claims.missing(readme(said), held) == []
    assert claims.missing(readme("It is 3.6 to 5.2 times quicker."), held) == [
        "3.6, 5.2 in: It is 3.6 to 5.2 times quicker."
    ]
