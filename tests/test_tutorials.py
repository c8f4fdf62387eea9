"""The tutorials and guides work as written, block after block in an empty folder: Python in one namespace, `rlab` commands, and
blocks with a title as files of that name. A block right below a line `<!-- skip -->` is left out.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import rlab_command
from tests.test_readme import GUIDES, Block, blocks_of, commands_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", *(ROOT / guide for guide in GUIDES), *sorted((DOCS / "tutorials").glob("*.md"))]
LONGER = [DOCS / f"{name}.md" for name in ("benchmark", "explain", "harden")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty, the working folder, and where modules named my_... are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def do(blocks: list[Block], shown_in: str, folder: Path) -> int:
    """Does the blocks in order -> how many there were to do."""
    names: dict[str, object] = {"__name__": "tutorial"}
    done = 0
    for block in blocks:
        code = "\n".join(block.lines) + "\n"
        if block.skipped:
            continue
        if block.title:
            (folder / block.title).write_text(code, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.first + code, shown_in, "exec"), names)  # with the page's own line numbers
            done += 1
        for command in commands_of([block]):
            printed = rlab_command(*shlex.split(command, comments=True)[1:])  # in this process: a new one takes seconds
            assert printed.code == 0, f"{command} ended with {printed.code}\n{printed.out}\n{printed.err}"
            done += 1
    return done


@pytest.mark.parametrize(
    "page", [*PAGES, *(pytest.param(page, marks=pytest.mark.slow) for page in LONGER)], ids=lambda page: page.stem
)
def test_it_does_what_it_shows(page: Path, folder: Path) -> None:
    assert do(blocks_of(page.read_text(encoding="utf-8")), str(page), folder) > 0


def test_blocks_are_done_in_order_and_titled_ones_are_files(folder: Path) -> None:
    page = '```python title="my_x.py"\nx = 3\n```\n```python\nfrom my_x import x\n```\n```python\nassert x == 3\n```\n'
    assert do(blocks_of(page), "page", folder) == 2
    with pytest.raises(AssertionError, match="ended with 2"):
        do(blocks_of("```bash\nrlab show nothing-here\n```\n"), "page", folder)
