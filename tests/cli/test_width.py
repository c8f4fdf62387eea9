"""Every table that a command prints fits 80 columns and shows every heading and cell."""

from __future__ import annotations

import io
import operator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlab.auditing.verdicts import requirements_table
from rlab.benchmarking.requirements import Requirement, Verdict
from rlab.cli.app import COMMANDS as COMMANDS_OF_RLAB
from rlab.cli.speak import out
from rlab.diagnosis import findings_table
from rlab.diagnosis.report import Finding, Severity
from rlab.present.table import Cells, Table, TerminalTable, terminal, text
from rlab.results.tables import summary_table
from tests.command import rlab_command
from tests.comparison.planted import PLANTED, plant
from tests.results.plots.fixtures import CASES, make_result

WIDTH = 80
DIGITS = ("demo:digits", "demo:digits", "--limit", 3)
SMALL = (*DIGITS, "--policy", "random", "--budget", 30)
COMMANDS: dict[str, tuple[object, ...]] = {
    "filters": (),
    "agents": (),
    "agents images": (),
    "examples": (),
    "doctor": (*DIGITS, "--samples", 2),
    "corrupt": (*DIGITS, "--kinds", "fog,elastic_transform"),
    "compare": (*DIGITS, "--budget", 20, "--attacks", PLANTED),
    "explain": (*DIGITS, "--compare", "--method", "middle,occlusion,rise(masks=8)", "--steps", 4),
}
WHOLE = {
    "doctor": ["filter:gaussian_noise", "normalisation"],
    "agents": ["signals"],
    "compare": [PLANTED],
    "corrupt": ["elastic_transform"],
}  # no table goes on in a second one, and these names stay in one line
IN_SEQUENCE = {"attack", "show", "report", "benchmark"}
MADE_UP = {"demo", "init", "harden", "audit"}


def printed(table: TerminalTable) -> str:
    console = Console(width=WIDTH, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def columns_of(shown: str, count: int) -> list[str]:
    """Each column's text without spaces; columns that follow in further tables come after those of the first."""
    parts: list[list[str]] = []
    for line in shown.splitlines():
        cells = [cell.replace(" ", "") for cell in line.replace("┃", "│").split("│")[1:-1]]
        if line.startswith(("┏", "┌")):  # a table without a head has thin lines
            parts.append([""] * (line.count("┳") + line.count("┬") + 1))
        for at, cell in enumerate(cells):
            parts[-1][at] += cell
    first, *further = parts
    assert all(part[0] == first[0] for part in further)  # it repeats the first column, and more if they are needed
    repeated = [[*map(operator.eq, part, first), False].index(False) for part in further]
    columns = first + [column for part, again in zip(further, repeated, strict=True) for column in part[again:]]
    assert len(columns) == count
    return columns


def assert_fits(table: TerminalTable) -> str:
    shown = printed(table)
    assert max(map(len, shown.splitlines())) <= WIDTH
    head, cells = table.table.head, table.table.cells
    whole = [
        "".join(f"{name} {' '.join(text(row[at].value) for row in cells)}".split()) for at, name in enumerate(head)
    ]
    assert columns_of(shown, len(head)) == whole
    return shown


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[TerminalTable]:
    """The tables that commands print in a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "width", WIDTH)
    plant(monkeypatch)
    recorded: list[TerminalTable] = []
    show = out.print

    def record(*objects: Any, **style: Any) -> None:
        recorded.extend(each for each in objects if isinstance(each, TerminalTable))
        show(*objects, **style)

    monkeypatch.setattr(out, "print", record)
    return recorded


def run(tables: list[TerminalTable], *words: object) -> str:
    """Run a command, check its tables and return what it prints."""
    before = len(tables)
    said = rlab_command(*words)
    assert said.code in (0, 1), said.err
    assert len(tables) > before
    for table in tables[before:]:
        assert assert_fits(table).rstrip("\n") in said.out
    return said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_needs_no_other(command: str, tables: list[TerminalTable]) -> None:
    said = run(tables, *command.split(), *COMMANDS[command])
    if command in WHOLE:
        assert all(name in said for name in WHOLE[command])
        assert said.count("┏") == len(tables)


def test_attacks_shown_and_reported(tables: list[TerminalTable]) -> None:
    for seed in (0, 1):
        run(tables, "attack", *SMALL, "--seed", seed, "--pictures", 0, "--out", f"a-run-with-a-long-name-{seed}")
    run(tables, "show", "a-run-with-a-long-name-0")
    run(tables, "report", "a-run-with-a-long-name-0", "a-run-with-a-long-name-1")


def test_benchmarks_made_graded_and_shown(tables: list[TerminalTable]) -> None:
    run(tables, "benchmark", "make", *SMALL, "--ladder", "times:1.5", "--out", "bench")
    run(tables, "benchmark", "run", "bench", "-m", "a-long-model-name=demo:digits", "-m", "two=demo:digits")
    run(tables, "show", "bench")


def test_runs_of_the_demo_side_by_side() -> None:
    results = [make_result(CASES[name]) for name in ("signal beat", "image digits", "video")]
    runs = {f"a run with quite a long name, {i}": result for i, result in enumerate(results)}
    assert_fits(terminal(summary_table(runs, "The smallest changes")))


def test_findings_about_data() -> None:
    words = "values reach from -2.1 to 2.6, as after a normalisation that the model does itself"
    finding = Finding(Severity.WARNING, "normalisation", words, "pass -M mean=[0.5,0.5,0.5]")
    assert_fits(terminal(findings_table([finding])))


def test_what_to_change_has_room_beside_checks_that_passed(tables: list[TerminalTable]) -> None:
    said = run(tables, "doctor", "demo:digits", "demo:digits", "--limit", 8, "-p", "gaussian_blur@0.01")
    lines = said.splitlines()
    found = lines[next(at for at, line in enumerate(lines) if line.startswith("┃ check")) - 1]
    assert len(found.split("┳")) == 4
    assert len(found.split("┳")[-1]) > 15
    assert "passed" in said


def test_requirements_of_an_audit() -> None:
    values = {"metric": "corruption_accuracy", "distortion": "gaussian_noise", "level": 3, "at_least": 0.95}
    requirement = Requirement.model_validate(values)
    verdicts = [Verdict(requirement, share, 1234, "the mean over levels", 0.101, 0.145) for share in (0.123, 0.98)]
    assert_fits(terminal(requirements_table(verdicts)))


def test_many_columns_follow_in_further_tables() -> None:
    rows: list[Cells] = [[f"method {i}", *(1000.0 * i + k for k in range(20))] for i in range(3)]
    shown = assert_fits(terminal(Table(["method", *(f"figure {k}" for k in range(20))], rows, "Figures")))
    assert shown.count("Figures") == 1
    assert shown.count("method 1") == shown.count("┏") > 1


def test_no_command_with_a_table_is_left_out() -> None:
    bare = {"learn", "serve", "train"}  # what they print is no table, or that of `rlab show`
    assert {*COMMANDS_OF_RLAB} - bare == {name.split()[0] for name in COMMANDS} | IN_SEQUENCE | MADE_UP
