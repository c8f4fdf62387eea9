"""--json and --quiet: what a program reads, and that nothing else is on standard output."""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml

from rlab.cli.speak import out, speaking, summary
from rlab.errors import Notice
from rlab.results.result import AttackResult
from tests.auditing.cases import quick, undrawn
from tests.command import rlab_command
from tests.training.test_directions import TINY

DIGITS = ["demo:digits", "demo:digits", "--limit", 3, "--budget", 20]
ATTACK = ["attack", *DIGITS, "--pictures", 0]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.rglob("run.lock"))


def test_a_reader_that_leaves_is_told_apart_from_a_model_that_ends_the_command() -> None:
    gone = io.StringIO()
    with (
        mock.patch.object(sys, "stdout", gone),
        mock.patch.object(gone, "write", side_effect=BrokenPipeError),
        pytest.raises(BrokenPipeError),
    ):
        out.print("a line")


def read(text: str) -> dict[str, Any]:
    """The one object that is all of it."""
    assert text.count("\n") == 1
    found: dict[str, Any] = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    return found


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_the_object_of_an_attack_says_what_its_folder_holds(quiet: list[str]) -> None:
    said = rlab_command(*ATTACK, "--out", "run", "--json", *quiet)
    assert said.code == 0, said.err
    figures, result = read(said.out), AttackResult.load("run")
    assert (figures["command"], figures["out"]) == ("attack", "run")
    assert figures["samples"] == len(result) == 3
    assert figures["queries"] == int(result.queries.sum())
    assert figures["succeeded"] == int(result.succeeded.sum())
    assert bool(said.err) is not bool(quiet)


def test_quiet_says_nothing_but_errors() -> None:
    assert rlab_command(*ATTACK, "--out", "run", "--quiet") == rlab_command(*ATTACK, "--out", "run", "-q")
    assert rlab_command(*ATTACK, "--out", "run", "-q").out == ""
    said = rlab_command(*ATTACK, "--out", "run", "--budget", 0, "-q")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert rlab_command(*ATTACK, "--out", "run").out  # and only then


def test_what_a_model_prints_is_not_among_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with speaking(as_json=True, quiet=True):
        sys.stdout.write("loading weights")
        summary(rows=3, best=torch.inf, each=[float("nan"), 1.0], out=Path("a"))
        warnings.warn("of rlab", Notice, stacklevel=1)
    printed = capsys.readouterr()
    assert read(printed.out) == {"rows": 3, "best": None, "each": [None, 1.0], "out": "a"}
    assert printed.err == "loading weights"


def test_the_object_of_a_comparison_and_of_explanations() -> None:
    said = rlab_command("compare", *DIGITS, "--policies", "random,square", "--out", "both", "--json", "-q", "--no-page")
    assert list(read(said.out)["attacks"]) == ["random", "square"]
    said = rlab_command("explain", *DIGITS, "--method", "middle", "--pictures", 0, "--out", "maps", "--json", "-q")
    assert read(said.out)["methods"]["middle"]["queries"] >= 0


def test_the_objects_of_show_and_report() -> None:
    assert rlab_command(*ATTACK, "--out", "run", "-q").code == 0
    shown, result = rlab_command("show", "run", "--json", "-q"), AttackResult.load("run")
    assert read(shown.out)["succeeded"] == int(result.succeeded.sum())
    page = rlab_command("report", "run", "--samples", 0, "--json", "-q")
    assert read(page.out)["page"] == "run/report.html"
    assert Path("run/report.html").is_file()
    assert rlab_command("show", "run", "--quiet").out == ""
    rlab_command("compare", *DIGITS, "--policies", "random,square", "--out", "both", "-q")
    tables = read(rlab_command("show", "both", "--json", "-q").out)["tables"]
    assert [[row["attack"] for row in table["rows"]] for table in tables] == [["random", "square"]] * 3


def test_the_object_of_a_training_names_its_file() -> None:
    Path("tiny.yaml").write_text(yaml.safe_dump(TINY))
    said = rlab_command("train", "tiny.yaml", "--out", "agent", "--json", "-q")
    assert said.code == 0, said.err
    figures = read(said.out)
    assert (figures["command"], figures["kind"]) == ("train", "prior")
    assert Path(figures["file"]).is_file()
    assert rlab_command("agents", figures["file"]).code == 0


def test_an_audit_that_failed_says_so_in_its_object() -> None:
    failing = [{"metric": "queries", "at_most": 1}]
    Path("audit.yaml").write_text(yaml.safe_dump(quick(policy="random", budget=12, requirements=failing)))
    with undrawn():
        flags = ["--seed", 5, "--until", "flip", "--device", "cpu", "--batch-size", 2]
        said = rlab_command("audit", "audit.yaml", "--out", "out", "--json", "-q", *flags)
    assert said.code == 1
    config = yaml.safe_load(Path("out", "attack", "config.yaml").read_text())
    assert (config["seed"], config["until"]) == (5, "flip")
    assert (config["model"]["device"], config["model"]["chunk"]) == ("cpu", 2)
    figures = read(said.out)
    assert (figures["passed"], [row["passed"] for row in figures["requirements"]]) == (False, [False])
    assert figures["rows"] >= figures["model_rows"] > 1
