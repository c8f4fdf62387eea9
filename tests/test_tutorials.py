"""README, the tutorials and the guides work as written, block after block in an empty folder: Python in one namespace, `rlab`
commands, and blocks with a title as files of that name. A block right below a line `<!-- skip -->` is left out.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.commands_page import commands
from tests.command import rlab_command
from tests.test_readme import DOCUMENTS, GUIDES, Block, blocks_of, commands_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TWELVE = "twelve-leads"  # needs real records
TUTORIALS = [page for page in sorted((DOCS / "tutorials").glob("*.md")) if page.stem != TWELVE]
MORE = ("index", "benchmark", "explain", "harden")
PAGES = [*(ROOT / page for page in (*DOCUMENTS, *GUIDES)), *(DOCS / f"{name}.md" for name in MORE), *TUTORIALS]
QUICK = (  # the others are slow
    "README", "models-and-data", "run-folders", "search", "image", "filter", "attack", "http", "audit", "detector", "regression",
)  # fmt: skip
COMMANDS = dict(commands())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder that modules named my_... are imported from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def run_blocks(blocks: list[Block], page: str, folder: Path) -> int:
    """Run the blocks in order and return how many ran."""
    names: dict[str, object] = {"__name__": "tutorial"}
    count = 0
    for block in blocks:
        code = "\n".join(block.lines) + "\n"
        if block.skipped:
            continue
        if block.title:
            (folder / block.title).write_text(code, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.first + code, page, "exec"), names)  # tracebacks show the page's line numbers
            count += 1
        for command in commands_of([block]):
            printed = rlab_command(*shlex.split(command, comments=True)[1:])  # a new process would take seconds
            assert printed.code == 0, f"{command} ended with {printed.code}\n{printed.out}\n{printed.err}"
            count += 1
    return count


def slow_or_not(page: Path) -> Any:
    return pytest.param(page, marks=() if page.stem in QUICK else (pytest.mark.slow,))


@pytest.mark.parametrize("page", [*map(slow_or_not, PAGES)], ids=lambda page: page.stem)
def test_every_block_runs(page: Path, folder: Path) -> None:
    assert run_blocks(blocks_of(page.read_text(encoding="utf-8")), str(page), folder) > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_has_its_options(page: Path) -> None:
    for line in commands_of(blocks_of(page.read_text(encoding="utf-8"))):
        words = shlex.split(line, comments=True)[1:]
        name = " ".join(words[:2]) if words[0] == "benchmark" else words[0]
        if "--help" not in words:
            COMMANDS[name].make_context(name, words[len(name.split()) :])


@pytest.mark.real
@pytest.mark.slow
def test_every_block_on_real_records_runs(real: Path, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    for name, file in {"ptbxl": "ptbxl", "cnn3.onnx": "ecg12/cnn3_ptbxl5_100hz.onnx"}.items():
        (folder / name).symlink_to(real / file)
    page = DOCS / "tutorials" / f"{TWELVE}.md"
    assert run_blocks(blocks_of(page.read_text(encoding="utf-8")), str(page), folder) == 4


SAMPLE = """
```python title="my_x.py"
x = 3
```
- in a list
  ```python
  from my_x import x
  ```
<!-- skip -->
```python
raise SystemExit(1)
```
```python
assert x == 3
```
```bash
make demo
rlab show \\
    --help
```
"""


def test_blocks_run_in_order_and_titled_blocks_become_files(folder: Path) -> None:
    blocks = blocks_of(SAMPLE)
    assert run_blocks(blocks, "page", folder) == 3
    assert commands_of(blocks) == ["rlab show      --help"]
    with pytest.raises(AssertionError, match="ended with 2"):
        run_blocks(blocks_of("```bash\nrlab show nothing-here\n```\n"), "page", folder)
