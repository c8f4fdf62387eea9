"""The project as a whole: version, public names, extras, dependencies, and its files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import rlab
from rlab.cli.app import COMMANDS
from scripts.write_stubs import stubs
from tests.results.plots.fixtures import CASES, make_result

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "rlab").rglob("*.py"))


@cache
def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def canonical(requirement: str) -> str:
    """'PyYAML>=6.0' -> 'pyyaml'."""
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def tree_of(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"), str(source))


def test_the_installed_version_equals_the_packages():
    assert metadata.version(project()["name"]) == rlab.__version__


def test_the_changelog_has_a_section_for_this_version():
    assert f"\n## {rlab.__version__.partition('.dev')[0]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", rlab.__all__)
def test_public_names_resolve(name: str):
    assert getattr(rlab, name) is not None
    assert name in dir(rlab)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'atack'"):
        rlab.atack  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("path", stubs(), ids=lambda path: path.name)
def test_type_checkers_see_the_same_names_and_keywords(path: Path):
    assert path.read_text(encoding="utf-8") == stubs()[path], "run `make stubs`"


def test_importing_rlab_imports_nothing_heavy():
    heavy = "{'torch', 'matplotlib', 'sklearn', 'pyarrow', 'typer'}"
    code = f"import sys, rlab; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_of_every_command_imports_no_library_of_models():
    code = """
import sys
from rlab.cli.app import COMMANDS, make_app
for words in [[], *([name] for name in COMMANDS), ["benchmark", "make"]]:
    try:
        make_app([*words, "--help"], lambda command: command)([*words, "--help"])
    except SystemExit:
        pass
print(sorted({'torch', 'scipy', 'matplotlib', 'pyarrow', 'pydantic'} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage: rlab") == len(COMMANDS) + 2
    assert done.stdout.splitlines()[-1] == "[]"


def test_show_does_not_import_packages_for_data_frames_and_training(tmp_path: Path):
    make_result(CASES["image digits"]).save(tmp_path / "run")
    command = f"sys.argv = ['rlab', 'show', {str(tmp_path / 'run')!r}, '--quiet']"
    told = "print(sorted({'pandas', 'rlab.training'} & set(sys.modules)), gc.isenabled())"
    code = f"import atexit, gc, sys\n{command}\natexit.register(lambda: {told})\nfrom rlab.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_only_training_imports_the_packages_for_training():
    code = "import sys, rlab.cli.demo, rlab.diagnosis, rlab.cli.app, rlab.policies; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def missing_extras(source: Path) -> Iterator[tuple[str | None, str]]:
    """(package, extra) of every MissingExtra("package", "extra") in a file; a computed package is None."""
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MissingExtra":
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            package, extra = (value.value if isinstance(value, ast.Constant) else None for value in values)
            assert isinstance(extra, str), f"{source.name}:{node.lineno} does not name the extra literally"
            yield (package if isinstance(package, str) else None), extra


def test_the_extra_an_error_names_brings_the_package():
    extras = project()["optional-dependencies"]
    named = [pair for source in SOURCES for pair in missing_extras(source)]
    assert named
    for package, extra in named:
        assert extra in extras, f"MissingExtra names the extra {extra!r}, which pyproject.toml does not have"
        brought = {canonical(requirement) for requirement in extras[extra]}
        assert package is None or canonical(package) in brought, f"the extra {extra!r} does not bring {package!r}"


def test_the_install_page_lists_every_extra():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", section, re.M)) == sorted(project()["optional-dependencies"])


def imported(node: ast.AST) -> set[str]:
    """Top-level packages that an import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return {node.module.partition(".")[0]}
    return set()


# Import names that differ from their distribution's.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "art": "adversarial-robustness-toolbox",
    "cv2": "opencv-contrib-python-headless",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# Not declared: pyproject.toml says how to install torchattacks, IPython is imported only in a notebook, which brings it, and
# pandas only by `to_pandas`, which says how to install it.
APART = {"torchattacks", "IPython", "pandas"}
# Modules that need an extra and are imported only with it.
WHOLE = {"rlab/training/environments.py": "train"}
WHOLE |= {f"rlab/serve/{name}.py": "serve" for name in ("access", "app", "site")}


def test_imports_are_declared():
    extras = {name: set(map(canonical, extra)) for name, extra in project()["optional-dependencies"].items()}
    core = {canonical(requirement) for requirement in project()["dependencies"]}
    every = core.union(*extras.values())
    for source in SOURCES:
        always = core | extras.get(WHOLE.get(source.relative_to(ROOT).as_posix(), ""), set())
        tree = tree_of(source)
        at_top = {name for node in tree.body for name in imported(node)}
        anywhere = {name for node in ast.walk(tree) for name in imported(node)}
        for names, declared in ((at_top, always), (anywhere, every)):
            others = names - sys.stdlib_module_names - {"rlab"} - APART
            assert {canonical(DISTRIBUTIONS.get(name, name)) for name in others} <= declared, source


def test_constraints_are_exact_pins_of_the_core_and_the_tools():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert "torch==2.13.0" in lines
    extras = project()["optional-dependencies"]
    listed = [*project()["dependencies"], *extras["docs"], *extras["test"], *extras["dev"]]
    needed = set(map(canonical, listed))
    assert needed - {project()["name"]} <= {canonical(line) for line in lines}


@cache
def project_files() -> tuple[Path, ...]:
    """What git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return tuple(path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file())


# Folders that belong to one machine; the words stand apart from the slash so that this file passes its own test.
PLACES = "|".join(["root", "work", "workspace", r"home/\w+", r"Users/\w+"])
MACHINE_PATH = re.compile(rf"(?<![\w.$)}}\]*/-])/(?:{PLACES})(?![\w-])")


def test_the_pattern_finds_machine_paths():
    slash = "/"
    for bad in ("root/x.py", "home/ann/data", "work/main", "Users/ann"):
        assert MACHINE_PATH.search(f'open("{slash}{bad}")')
    for good in ("https://host.org/work/x", "$HOME/work/x", "tests/root/x", "/workers", "../work"):
        assert not MACHINE_PATH.search(good)


def hits(pattern: re.Pattern[str]) -> list[str]:
    """'FILE: what matches', of all the project's text files."""
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # weights and pictures
        found += [f"{path.relative_to(ROOT)}: {hit[0]}" for hit in pattern.finditer(text)]
    return found


def test_no_file_names_a_path_of_one_machine():
    assert hits(MACHINE_PATH) == []


# `rlab` on the package index is another project: nobody may be told to install it.
OTHER_PROJECT = re.compile(r"""pip install [^\n`]*?\brlab(?![\w-])|["'`]rlab\\?\[""")


def test_the_pattern_finds_the_other_projects_name():
    name = "rlab"
    for bad in ("pip install {}", "pip install '{}[onnx]'", '"{}[test]"', "pip install -U {}", "pip install '{}>=0.2'"):
        assert OTHER_PROJECT.search(bad.format(name)), bad
    for good in (f"pip install {name}-robustness", f"pip install '{name}-robustness[onnx]'", f"import {name}"):
        assert not OTHER_PROJECT.search(good), good


def test_no_file_tells_to_install_the_other_project():
    assert hits(OTHER_PROJECT) == []
