"""`--help` at 80 columns, and a reader of the output that goes away."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from typing import Any
from unittest import mock

import pytest
import typer

from rlab.cli import main
from rlab.cli.fields import option_keys, values_of
from rlab.cli.help import EXAMPLES, GROUPS, LEFT, OWN, grouped_rows
from rlab.data.load import DataOptions
from rlab.explanation.options import ExplainOptions
from rlab.hardening.options import HardenOptions
from rlab.runs.options import RunOptions
from rlab.storage.config import Options
from rlab.victims.options import ModelOptions
from scripts.commands_page import commands

WIDTH = 80
CALLED = dict(commands())


def help_of(name: str, command: Any) -> str:
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
        return str(command.get_help(typer.Context(command, info_name=f"rlab {name}")))


@pytest.mark.parametrize("name", CALLED)
def test_help_fits_the_screen_with_wide_descriptions_and_two_examples(name: str) -> None:
    shown = help_of(name, CALLED[name])
    examples = EXAMPLES[name]
    assert len(examples) >= 2
    assert all(words in shown and about in shown for words, about in examples)
    lines = [line for line in shown.splitlines() if line.strip() not in {words for words, _ in examples}]
    assert max(map(len, lines)) <= WIDTH
    assert WIDTH - LEFT >= 45
    assert "see above" not in shown
    for flags, _ in (row for rows in grouped_rows(CALLED[name]).values() for row in rows):
        assert flags.strip() in shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_command_parse(name: str) -> None:
    for words, _ in EXAMPLES[name]:
        program, *rest = shlex.split(words)
        assert (program, rest[: len(name.split())]) == ("rlab", name.split())
        CALLED[name].make_context(name, rest[len(name.split()) :])


@pytest.mark.parametrize("name", ["attack", "compare", "explain", "benchmark make", "harden"])
def test_options_are_in_groups_with_the_most_used_first(name: str) -> None:
    groups = list(grouped_rows(CALLED[name]))
    assert [group for group in groups if group in GROUPS] == [group for group in GROUPS if group in groups]
    assert {"Model", "Data", "Attack", "Run", "Output"} <= set(groups)
    first = {group: rows[0][0] for group, rows in grouped_rows(CALLED[name]).items() if group != OWN}
    assert "--palette" in first["Attack"]
    assert "--config" in first["Run"]
    assert "--out" in first["Output"]


@pytest.mark.parametrize(
    ("group", "section", "own"),
    [("Model", ModelOptions, {"name", "device", "chunk", "timeout", "rate", "price", "max_cost"}),
     ("Data", DataOptions, {"path", "labels", "size", "limit"})],
)  # fmt: skip
def test_every_key_of_a_section_is_listed(group: str, section: type[Options], own: set[str]) -> None:
    listed = {flags.strip() for flags, _ in grouped_rows(CALLED["attack"])[group]}
    assert set(section.model_fields) - own <= listed
    assert dict(option_keys("model"))["factory"].startswith("module:function")


def described() -> Iterator[tuple[str, str, list[str]]]:
    for kind in (RunOptions, ModelOptions, DataOptions, ExplainOptions, HardenOptions):
        for name, field in kind.model_fields.items():
            yield f"{kind.__name__}.{name}", field.description or "", values_of(name, field)


def test_no_help_starts_with_a_choice_whose_capital_is_refused() -> None:
    for name, about, values in described():
        assert not re.match(rf"({'|'.join(map(re.escape, values)) or '$^'})\b", about), name
    for command in CALLED.values():
        for _, about in (row for rows in grouped_rows(command).values() for row in rows):
            assert not re.match(r"[A-Z]\w*:\w", about)


@pytest.mark.parametrize("words", [("filters",), ("agents",), ("--help",), ("attack", "--help"), ("filters", "--help")])
def test_a_closed_pipe_ends_a_command_quietly(words: tuple[str, ...]) -> None:
    """As `rlab filters | head -1` does it."""
    ear, mouth = os.pipe()
    os.close(ear)
    err, gone = io.StringIO(), os.fdopen(mouth, "w", buffering=1)
    with (
        redirect_stderr(err),
        mock.patch.object(sys, "argv", ["rlab", *words]),
        mock.patch.object(sys, "stdout", gone),
    ):
        with pytest.raises(SystemExit):
            main()
        sys.stdout.flush()  # as Python does at its end
    with suppress(BrokenPipeError):
        gone.close()
    assert err.getvalue() == ""
