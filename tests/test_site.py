"""The documentation site: every link works, pages fetch nothing from outside, and the reference has every public name."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import rlab
from rlab.cli.app import COMMANDS
from rlab.runs.options import AttackOptions
from scripts.commands_page import MARK, commands_text

built = pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs the extra 'docs'")
TINY = "site_name: tiny\ntheme: {name: mkdocs, locale: en}\nplugins: []\nhooks: [scripts/site_pages.py]\n"


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]  # --quiet hides warnings
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=quiet, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@built
def test_the_site_builds_without_a_broken_link_and_fetches_nothing(root: Path, tmp_path: Path) -> None:
    done = build(root, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    assert 'href="repository/benchmarks/results/peers.html"' in pages["results.html"]
    summary = (rlab.attack.__doc__ or "").partition("\n")[0].replace("`", "")
    assert summary in html.unescape(re.sub(r"<[^>]*>", "", pages["reference.html"]))
    options = re.findall(r"<code>(--[^<]*)</code>", pages["commands.html"])
    assert {"--track TRACKER", "--dry-run"} <= set(options)
    fetched = re.compile(r"""(?:src|<link[^>]*\bhref|url\()\s*=?\s*["']?(?:https?:)?//[^"'\s>]+""")
    assert {name: found for name, text in pages.items() if (found := fetched.findall(text))} == {}


@built
@pytest.mark.parametrize(
    ("target", "pages"), [("../notes.md#here", 1), ("../code.py", 1), ("../book.ipynb", 2), ("../gone.md", None)]
)
def test_links_out_of_docs_become_pages_and_broken_ones_fail_the_build(
    root: Path, tmp_path: Path, target: str, pages: int | None
) -> None:
    for folder in ("docs", "scripts"):
        (tmp_path / folder).mkdir()
    shutil.copy(root / "scripts" / "site_pages.py", tmp_path / "scripts")
    book = {"cells": [{"cell_type": "markdown", "source": ["# Book\n", "[notes](notes.md)"]}]}
    files = {"docs/index.md": f"[there]({target})\n", "notes.md": "## Here\n", "code.py": "x = 1\n"}
    for name, text in {**files, "mkdocs.yml": TINY, "book.ipynb": json.dumps(book)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert (done.returncode == 0) == (pages is not None), done.stdout + done.stderr
    if pages:
        assert len(list((tmp_path / "site" / "repository").rglob("index.html"))) == pages


def test_every_command_is_documented_with_its_options(root: Path) -> None:
    documented = dict(re.findall(r"^## rlab ([a-z ]+)\n(.*?)(?=^## |\Z)", commands_text(), re.M | re.S))
    assert {name.split()[0] for name in documented} == set(COMMANDS)
    assert "benchmark verify" in documented
    for name in set(AttackOptions.model_fields):
        assert re.search(rf"--{name.replace('_', '-')}[ ,]", documented["attack"]), name
    assert MARK in (root / "docs" / "commands.md").read_text(encoding="utf-8")


def test_the_reference_has_every_public_name_once(root: Path) -> None:
    named = re.findall(r"^::: rlab\.(\w+)$", (root / "docs" / "reference.md").read_text(encoding="utf-8"), re.M)
    assert sorted(named) == sorted(rlab.PUBLIC)
