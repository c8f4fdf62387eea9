"""The shape of the package: short files and functions, no circular import, visible layers, typed seams."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from rlab.folders.verbs import VERBS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rlab"
FILES = sorted(PACKAGE.rglob("*.py"))
LOOSE = {path.name for path in PACKAGE.glob("*.py")}
LONGEST_FILE, LONGEST_PAPER, LONGEST_FUNCTION, MOST_PARAMETERS = 300, 450, 60, 8
MOST_LOOSE_FILES, MOST_LAYERS = 8, 12
MOST_LINES = 44_450  # of all files; it only ever falls


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, ast.Module]:
    """Every file of the package; parsed on first use, because all processes import this module."""
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def imported(tree: ast.Module, for_types: bool = False) -> Iterator[str]:
    """Modules of the package that a file imports, wherever the import stands; those for type checkers only if `for_types`."""
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if node in skipped and not for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & modules().keys()
            if not names <= modules().keys():
                yield node.module


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circular import; an empty list if there is none."""
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def test_no_circular_import() -> None:
    assert find_cycle({name: set(imported(tree)) for name, tree in modules().items()}) == []


@pytest.mark.parametrize("package", sorted({path.relative_to(PACKAGE).parts[0] for path in FILES} - LOOSE))
def test_no_circle_inside_a_package_even_of_types(package: str) -> None:
    own = {name: tree for name, tree in modules().items() if name.startswith(f"rlab.{package}.")}
    graph = {name: {other for other in imported(tree, for_types=True) if other in own} for name, tree in own.items()}
    assert find_cycle(graph) == []


def test_a_circular_import_inside_a_function_is_found() -> None:
    lazy = ast.parse("def f():\n    from rlab.errors import InputError\n")
    assert set(imported(lazy)) == {"rlab.errors"}
    assert find_cycle({"a": {"b"}, "b": {"a"}}) != []


def test_files_are_short() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    limits = {path: LONGEST_PAPER if "papers" in path.parts else LONGEST_FILE for path in lengths}
    assert {path: length for path, length in lengths.items() if length > limits[path]} == {}


def test_the_package_does_not_grow() -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES) <= MOST_LINES


def test_every_report_has_its_row_in_the_one_table_of_commands() -> None:
    """A class is a report if it names its command; the table names the class that reads a folder of this command."""
    named: dict[str, set[str]] = {}
    for module, tree in modules().items():
        for node in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "verb" and line.value is not None:
                    named.setdefault(ast.literal_eval(line.value), set()).add(f"{module}:{node.name}")
    assert named.keys() == {verb.name for verb in VERBS}
    assert all(verb.report in named[verb.name] for verb in VERBS)


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{node.name}", node


def test_functions_are_short_and_take_few_parameters() -> None:
    lengths, counts = dict[str, int](), dict[str, int]()
    for name, node in functions():
        own = node.args
        lengths[name] = (node.end_lineno or 0) - node.lineno + 1
        arguments = (*own.posonlyargs, *own.args, *own.kwonlyargs)
        counts[name] = sum(argument.arg not in ("self", "cls") for argument in arguments)
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_few_files_lie_loose_and_few_layers_have_no_exceptions() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_LOOSE_FILES
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = declared["tool"]["importlinter"]["contracts"]
    assert sum(len(contract["layers"]) for contract in contracts) <= MOST_LAYERS
    assert all("ignore_imports" not in contract and contract["exhaustive"] for contract in contracts)


@pytest.mark.parametrize("package", ["rlab.core", "rlab.policies"])
def test_seams_are_typed(package: str) -> None:
    """No field, parameter or result that other modules see is declared as Any; keywords that users pass on may be."""
    untyped = []
    for name, tree in modules().items():
        for node in ast.walk(tree) if name.startswith(package) else ():
            notes: list[ast.expr | None] = []
            if isinstance(node, ast.ClassDef):
                notes = [field.annotation for field in node.body if isinstance(field, ast.AnnAssign)]
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                notes = [node.returns, *(argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs))]
            untyped += [f"{name}:{note.lineno}" for note in notes if isinstance(note, ast.Name) and note.id == "Any"]
    assert untyped == []
