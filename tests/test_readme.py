"""README keeps its length and its order, links lead somewhere, and configurations are valid. `test_tutorials.py` runs the pages.

A block right below a line `<!-- skip -->` is left out.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rlab.runs.options import RunOptions
from rlab.storage.config import check

DOCUMENTS = ("README.md", "docs/start-here.md", "docs/ecg.md", "docs/agents.md")
GUIDES = tuple(f"docs/{name}.md" for name in ("commands-guide", "models-and-data", "run-folders", "search"))
ROOT = Path(__file__).resolve().parent.parent
LINKING = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
README_WORDS = range(850, 951)  # everything between white space counts: code, tables and their bars too
SKIP = "<!-- skip -->"
_FENCE = re.compile(r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?[^`]*$')


@dataclass(frozen=True)
class Block:
    """A fenced block: `first` is the index of its first line of code; a block with a title is a file of that name."""

    language: str
    first: int
    lines: tuple[str, ...]
    skipped: bool
    title: str | None = None


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks, in order."""
    lines, found, opened = text.splitlines(), [], None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence and opened is None:
            opened = (fence["language"], number + 1, fence["title"])
        elif opened is not None and line.strip() == "```":
            language, first, title = opened
            code = textwrap.dedent("\n".join(lines[first:number])).split("\n")
            above = next((line.strip() for line in reversed(lines[: first - 1]) if line.strip()), "")
            found.append(Block(language, first, tuple(code), above == SKIP, title))
            opened = None
    assert opened is None, f"the block opened in line {opened[1]} is not closed"
    return found


def commands_of(blocks: list[Block]) -> list[str]:
    """The lines of shell blocks that start with `rlab `, or `$ rlab ` in a console; a closing backslash joins lines."""
    commands: list[str] = []
    for block in blocks:
        if block.language in ("bash", "console", "sh") and not block.skipped:
            joined = "\n".join(block.lines).replace("\\\n", " ").split("\n")
            commands += [line.removeprefix("$ ") for line in joined if re.match(r"(\$ )?rlab ", line)]
    assert not [command for command in commands if re.search(r"[|&;<>`]|\$[\w({]", command.partition("#")[0])]
    return commands


def test_configurations_shown_are_configurations(root: Path) -> None:
    blocks = blocks_of((root / "docs" / "commands-guide.md").read_text(encoding="utf-8"))
    shown = ["\n".join(block.lines) for block in blocks if block.language == "yaml"]
    assert shown
    for text in shown:
        check(RunOptions, yaml.safe_load(text))


def test_the_readme_is_short_and_in_order(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) in README_WORDS
    parts = ["![", "make demo", "import rlab", "rlab doctor", "page-beat.png", "| command |"]
    parts += ["## When not to use it", "## Read on"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r"^::: (\S+)$", text, re.M))  # names in the reference


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8"))
    for target, anchor in links:
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not anchor or there.suffix != ".md" or anchor in anchors(there), f"{target}#{anchor}"
