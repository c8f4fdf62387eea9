"""README and some pages work as written: the test runs each page's Python as one script and then its `rlab` commands, in an
empty folder. README keeps its length and its order, and links lead somewhere. `test_tutorials.py` runs the other pages.

A block right below a line `<!-- skip -->` is left out.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rlab.runs.options import RunOptions
from rlab.storage.config import check
from tests.command import rlab_command

DOCUMENTS = ("README.md", "docs/start-here.md", "docs/ecg.md", "docs/agents.md")
GUIDES = tuple(f"docs/{name}.md" for name in ("commands-guide", "models-and-data", "run-folders", "search"))
LINKING = (*DOCUMENTS, *GUIDES, "docs/results.md", "docs/design.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
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


def script_of(blocks: list[Block]) -> str:
    """The Python blocks as one script whose line numbers are the document's, for readable tracebacks."""
    lines: list[str] = []
    for block in blocks:
        if block.language == "python" and not block.skipped:
            lines += [""] * (block.first - len(lines)) + list(block.lines)
    return "\n".join(lines) + "\n" if lines else ""


def commands_of(blocks: list[Block]) -> list[str]:
    """The lines of shell blocks that start with `rlab `, or `$ rlab ` in a console; a closing backslash joins lines."""
    commands: list[str] = []
    for block in blocks:
        if block.language in ("bash", "console", "sh") and not block.skipped:
            joined = "\n".join(block.lines).replace("\\\n", " ").split("\n")
            commands += [line.removeprefix("$ ") for line in joined if re.match(r"(\$ )?rlab ", line)]
    assert not [command for command in commands if re.search(r"[|&;<>`]|\$[\w({]", command.partition("#")[0])]
    return commands


def run(command: list[str], folder: Path) -> None:
    """Run with this environment's commands first on the path; show the output on failure."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=570
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_it_runs_as_written(root: Path, tmp_path: Path, document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of((root / document).read_text(encoding="utf-8"))
    script = script_of(blocks)
    assert script, f"{document} shows no Python that is run"
    folder = tmp_path / "empty"
    folder.mkdir()
    shown = tmp_path / f"{Path(document).stem}.py"
    shown.write_text(script, encoding="utf-8")
    run([sys.executable, str(shown)], folder)
    monkeypatch.chdir(folder)
    for command in commands_of(blocks):
        printed = rlab_command(*shlex.split(command, comments=True)[1:])  # in this process: a new one takes seconds
        assert printed.code == 0, f"{command} ended with {printed.code}\n{printed.out}\n{printed.err}"


def test_configurations_shown_are_configurations(root: Path) -> None:
    blocks = blocks_of((root / "docs" / "commands-guide.md").read_text(encoding="utf-8"))
    shown = ["\n".join(block.lines) for block in blocks if block.language == "yaml"]
    assert shown
    for text in shown:
        check(RunOptions, yaml.safe_load(text))


def test_the_readme_is_short_and_in_order(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) in README_WORDS
    parts = [
        "![",
        "make demo",
        "import rlab",
        "rlab doctor",
        "page-beat.png",
        "| version |",
        "## When not to use it",
        "## Read on",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("document", LINKING)
def test_links_to_files_lead_somewhere(root: Path, document: str) -> None:
    page = root / document
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


SAMPLE = f"""\
text
```python
x = 1
```
- in a list
  ```python
  def f():
      return x
  ```
{SKIP}
```python
raise SystemExit(1)
```
```bash
make demo
rlab attack --model a \\
    --out b
```
```console
$ rlab doctor
all is well
```
"""


def test_blocks_share_a_namespace_and_keep_their_lines():
    script = script_of(blocks_of(SAMPLE))
    names: dict[str, object] = {}
    exec(compile(script + "y = f()", "sample", "exec"), names)
    assert names["y"] == 1
    assert script.splitlines()[2] == "x = 1"
    assert script.splitlines()[6] == "def f():"
    assert "SystemExit" not in script


def test_only_rlab_commands_are_run():
    assert commands_of(blocks_of(SAMPLE)) == ["rlab attack --model a      --out b", "rlab doctor"]


def test_a_document_without_python_gives_no_script():
    assert script_of(blocks_of("```bash\nrlab demo\n```\n")) == ""


def test_a_failing_command_is_a_failure(tmp_path: Path):
    with pytest.raises(AssertionError, match="ended with 3"):
        run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
