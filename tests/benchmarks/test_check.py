"""Results pages are current or on the list of outdated ones, and README and docs/results.md show no figure that no page has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import rlab
from benchmarks import check, headline
from benchmarks.harness import Claim
from benchmarks.headline import README, RESULTS_PAGE
from benchmarks.raw import Origin, Raw, Store
from benchmarks.tables import Results, Section

HERE = Path("document.md")


def test_the_list_has_exactly_the_outdated_raw_files() -> None:
    known, old = set(check.known_outdated()), set(check.outdated())
    assert not old - known, "new results of an older version: run their benchmarks again"
    assert not known - old, "no longer outdated: run python -m benchmarks --page"


def test_pages_agree_with_their_raw_files_and_every_claim_is_on_a_page() -> None:
    assert [str(failure) for failure in check.other_failures()] == []


@pytest.mark.parametrize("path", headline.TABLES, ids=lambda path: path.name)
def test_tables_of_results_agree_with_the_pages(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == headline.written(path, text), "write it again: python -m benchmarks --page"
    with pytest.raises(SystemExit):
        headline.written(path, "no marks")


def test_readme_has_six_rows_of_this_version_with_their_commands() -> None:
    rows = re.findall(r"^\|.*`python -m benchmarks\.\w+.*\|$", README.read_text(encoding="utf-8"), re.M)
    assert len(rows) == headline.SHOWN


def written(folder: Path, origins: Mapping[str, Origin], table: str) -> list[Section]:
    """A page of one section made of these raw files."""
    store = Store(folder / "raw" / "toy")
    for name, origin in origins.items():
        store.write(name, Raw({"value": 1.0}), origin)

    def sections(store: Store) -> list[str]:
        for name in origins:
            store.read(name)
        return [f"## One\n\n{table}"]

    Claim("toy", "Toy", "", "Rules.", lambda options: {}, sections=sections).write_page(store, folder / "toy.md")
    return list(Results.read("toy", folder).sections)


NOW = rlab.__version__
TABLE = "| L2 within | 5 | 20 |\n| --- | ---: | ---: |\n| a | 2.993 [2.8, 3.1] | 1.714 |\n| b | inf [3, inf] | 9.99 |"


def test_an_older_version_is_marked_on_the_page_and_found(tmp_path: Path) -> None:
    (section,) = written(tmp_path, {"new": Origin(NOW), "old": Origin("0.1.9")}, TABLE)
    assert "**Measured with rlab 0.1.9:** `old`." in section.text
    assert not section.current
    assert section.files == ["new", "old"]
    (failure,) = check.version_failures(tmp_path / "raw")
    assert (failure.page, failure.row) == ("toy.md", "old")
    assert "python -m benchmarks.toy" in failure.run
    assert list(check.page_failures([section])) == []


def test_a_page_older_than_its_raw_files_and_an_unused_file_are_found(tmp_path: Path) -> None:
    (section,) = written(tmp_path, {"a": Origin(NOW)}, TABLE)
    section.store.write("a", Raw({"value": 2.0}), Origin(NOW))
    section.store.write("b", Raw(), Origin(NOW))
    assert [failure.row for failure in check.page_failures([section])] == ["One", "b"]
    section.store.path("a").unlink()
    assert "gone" in next(iter(check.page_failures([section]))).why


@pytest.mark.parametrize(
    ("budgets", "failures"), [((50, 50), 0), ((50, 100), 1), ((50, 0), 0)], ids=["equal", "different", "white box"]
)
def test_rows_of_a_section_have_one_budget(tmp_path: Path, budgets: tuple[int, int], failures: int) -> None:
    origins = {str(i): Origin(NOW, settings={"budget": budget}) for i, budget in enumerate(budgets)}
    assert len(list(check.page_failures(written(tmp_path, origins, TABLE)))) == failures
    stated = "| | within | L2 |\n| --- | ---: | ---: |\n| a | 50 | 3 |\n| b | 100 | 2 |"
    assert not list(check.page_failures(written(tmp_path, origins, stated)))


@pytest.mark.parametrize(
    ("cells", "held"),
    [
        ("2.99 | 1.7", True),
        ("∞ | 9.99", True),
        ("2.99 | 9.99", True),  # of the same columns: the best of two rows is such a row
        ("2.9 | 1.7", False),  # not how 2.993 is rounded
        ("2.8 | 1.7", False),  # an end of an interval is not the figure
        ("2.99% | 1.7", False),  # another unit
        ("1.7 | 1.7", False),  # of another column
        ("2.99 | ∞", False),
    ],
)
def test_a_row_must_be_in_the_columns_of_a_linked_page(tmp_path: Path, cells: str, held: bool) -> None:
    found = written(tmp_path, {"a": Origin(NOW)}, TABLE)
    document = (
        f"# T\n\n## P\n\n[toy](../benchmarks/results/toy.md)\n\n| a | 5 | 20 |\n|---|---|---|\n| row 5 | {cells} |\n"
    )
    assert (not list(check.claim_failures(HERE, document, found))) == held
    assert list(check.claim_failures(HERE, document.replace("results/toy.md", "results/other.md"), found))


def test_a_sentence_may_show_only_figures_of_linked_pages_and_settings(tmp_path: Path) -> None:
    link = "[toy](benchmarks/results/toy.md)"
    said = f"With 1,000 queries ResNet-20 and `--limit 44` need 2.99 on 4x4 patches of {link}."
    new, old = (
        written(tmp_path / name, {"a": Origin(version)}, TABLE) for name, version in (("n", NOW), ("o", "0.1.9"))
    )
    assert list(check.claim_failures(HERE, said, new)) == []
    (failure,) = check.claim_failures(HERE, f"It is 3.6 to 5.2 times quicker. {link}", new)
    assert failure.row == "3.6, 5.2 in: It is 3.6 to 5.2 times quicker."
    assert list(check.claim_failures(RESULTS_PAGE, said, old)) == []
    assert list(check.claim_failures(README, said, old))  # README shows nothing of an older version
