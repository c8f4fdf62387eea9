"""Whether every results page is up to date, every figure of README and docs/results.md is on a page, and budgets are equal.

python -m benchmarks --check

A raw file is outdated if another minor version of rlab made it. `results/outdated.txt` lists those that are known; a test fails if
the list and the raw files disagree, so the list can only shrink. Every section of a page names its raw files in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.headline import GENERATED, INFINITE, README, RESULTS_PAGE
from benchmarks.raw import RAW, RESULTS, Store
from benchmarks.tables import Results, Section, tables_in

LIST = RESULTS / "outdated.txt"
SETTINGS = ("0", "1", "2", "20", "100", "200", "255", "1,000", "3.11", "3.12", "3.13")  # figures that are no results
NUMBER = re.compile(r"(?<![\w.,\-/@:])\d[\d,]*(?:\.\d+)?%?(?![\w\-/:]|\.\d)")
LINK = re.compile(r"benchmarks/results/(\w+)\.md")


@dataclass(frozen=True)
class Failure:
    page: str
    row: str
    why: str
    run: str

    def __str__(self) -> str:
        return f"{self.page}: {self.row}: {self.why}; {self.run}"


def budgets(section: Section) -> dict[int, list[str]]:
    """The names of the current raw files by their budgets; white-box attacks and trainings have none.

    None count where each row states its own number of queries in a column `within`.
    """
    found: dict[int, list[str]] = {}
    if any("within" in heading for heading, _ in tables_in(section.text)):
        return found
    for name in (name for name in section.files if name in section.store and not name.startswith("train-")):
        origin = section.store.origin(name)
        if origin.current and (budget := origin.settings.get("budget")):
            found.setdefault(budget, []).append(name)
    return found


def holds(section: Section, heading: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether a section has each cell's figures, in a column whose heading ends in the same words if it has one."""
    for name, cell in zip(heading, cells, strict=True):
        rows = section.rows().values()
        own = [held for row in rows for column, held in row.items() if name and f" {column}".endswith(f" {name}")]
        if not all(known(number, numbers(" | ".join(own) if own else section.text)) for number in numbers(cell)):
            return False
        if own and INFINITE in cell and not any(one.startswith(("inf", INFINITE, "no flip")) for one in own):
            return False
    return True


def sections(folder: Path = RESULTS) -> list[Section]:
    return [section for path in sorted(folder.glob("*.md")) for section in Results.read(path.stem, folder).sections]


def outdated(raw: Path = RAW) -> dict[str, str]:
    """'page/name' of each raw file of another minor version -> that version."""
    origins = {
        f"{folder.name}/{name}": Store(folder).origin(name)
        for folder in _folders(raw)
        for name in Store(folder).names()
    }
    return {name: origin.version for name, origin in origins.items() if not origin.current}


def _folders(raw: Path) -> list[Path]:
    return sorted(path for path in raw.iterdir() if path.is_dir())


def known_outdated() -> list[str]:
    return LIST.read_text(encoding="utf-8").split()


def version_failures(raw: Path = RAW) -> Iterator[Failure]:
    for name, version in outdated(raw).items():
        page, _, row = name.partition("/")
        yield Failure(f"{page}.md", row, f"measured with rlab {version}", f"run python -m benchmarks.{page}")


def page_failures(found: Sequence[Section]) -> Iterator[Failure]:
    """Sections without raw files, older than their raw files, or with rows of different budgets; raw files of no section."""
    for section in found:
        page, again = f"{section.page}.md", f"run python -m benchmarks.{section.page} --page"
        if not section.files:
            yield Failure(page, section.title, "it comes from no raw file", "write it with the harness, or delete it")
        elif not all(name in section.store for name in section.files):
            yield Failure(page, section.title, "its raw files are gone", again)
        elif section.digest != section.store.digest(section.files):
            yield Failure(page, section.title, "its raw files are newer", again)
        if len(own := budgets(section)) > 1:
            few = "; ".join(f"{budget}: {', '.join(names[:2])}" for budget, names in sorted(own.items()))
            yield Failure(page, section.title, f"rows have different budgets ({few})", "run all with the same one")
    for store in {section.page: section.store for section in found}.values():
        page, used = store.folder.name, {name for s in found if s.page == store.folder.name for name in s.files}
        for name in sorted(set(store.names()) - used):
            yield Failure(f"{page}.md", name, "no section uses this raw file", "show it on the page, or delete it")


def claim_failures(document: Path, text: str, found: Sequence[Section]) -> Iterator[Failure]:
    """Table rows that no section of a linked page holds, and sentences with a figure that no linked page holds.

    The links are those of the same part of the document. README may only use sections that this version measured.
    """
    for part in re.sub(rf"```.*?```|!\[[^\]]*\]|{GENERATED}", "", text, flags=re.S).split("\n## "):
        linked = [s for s in found if s.page in LINK.findall(part) and (document != README or s.current)]
        held = [number for section in linked for number in numbers(section.text)] + list(SETTINGS)
        said = [
            " | ".join(cells)
            for heading, rows in tables_in(part)
            for cells in rows
            if not any(holds(section, heading[1:], cells[1:]) for section in linked)
        ]
        for sentence in re.split(r"(?<=[.:;])\s", re.sub(r"^\|.*$", "", part, flags=re.M)):
            if unknown := [number for number in numbers(sentence) if not known(number, held)]:
                said.append(f"{', '.join(unknown)} in: {' '.join(sentence.split())}")
        for words in said:
            yield Failure(
                document.name, words, "no results page that this part links to has it", "correct it, or delete it"
            )


def numbers(text: str) -> list[str]:
    """Figures in a text, without those in code, link targets, intervals, and names such as ResNet-20."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)|\[[-+\d., inf]+\]|<!--.*?-->", " ", text, flags=re.S)
    return NUMBER.findall(plain)


def known(number: str, held: Sequence[str]) -> bool:
    """Whether a figure in `held` rounds to this one."""
    digits = number.strip("%").replace(",", "")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) + 1e-9
    same = [float(one.strip("%").replace(",", "")) for one in held if one.endswith("%") == number.endswith("%")]
    return any(abs(one - float(digits)) <= half for one in same)


def other_failures() -> list[Failure]:
    """All but outdated raw files."""
    found = sections()
    claims = [
        failure
        for document in (README, RESULTS_PAGE)
        for failure in claim_failures(document, document.read_text(encoding="utf-8"), found)
    ]
    return [*page_failures(found), *claims]


def shrink_list() -> None:
    """Take raw files off the list that are no longer outdated; nothing is ever added."""
    old = outdated()
    LIST.write_text("".join(f"{name}\n" for name in known_outdated() if name in old), encoding="utf-8")


def check() -> int:
    """Print one line for each failure and a summary; 1 if there is any."""
    old, others = list(version_failures()), other_failures()
    print("\n".join(map(str, [*old, *others])))
    files = sum(len(Store(folder).names()) for folder in _folders(RAW))
    print(
        f"{len(old)} of {files} raw files are outdated ({len(known_outdated())} on the list); {len(others)} other failures"
    )
    return int(bool(old or others))
