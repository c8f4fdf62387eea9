"""What is installed is enough: a newcomer's first minutes from the built wheel, in a folder with nothing of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.sdist import SdistBuilder

from tests.test_ecg_flow import MODEL, write_records
from tests.test_project import ROOT, project_files

# Several commands in one process, because the imports alone take seconds.
NEWCOMER = """
import sys
import rlab
from rlab.cli import main

assert rlab.__file__.startswith(sys.argv[1]), rlab.__file__
for line in sys.stdin.read().splitlines():
    sys.argv = line.split()
    try:
        main()
    except SystemExit as left:
        assert not left.code, (line, left.code)
"""
DEMO = """rlab examples
rlab examples audit
rlab init demo:digits
rlab attack --config rlab.yaml --limit 2 --budget 30 --policy random --pictures 1 --out digits
"""
RECORDS = """rlab init records --model my_height:height --limit 3 --out ecg.yaml
rlab attack --config ecg.yaml --budget 60 --pictures 1 --out beats
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return file


def test_a_newcomer_needs_nothing_but_the_wheel(wheel: Path, tmp_path: Path):
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    ZipFile(wheel).extractall(installed)
    write_records_of_a_team(empty)
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", NEWCOMER, str(installed)]
    done = subprocess.run(command, cwd=empty, env=environment, input=DEMO + RECORDS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_what_is_left(empty)


@pytest.mark.slow
def test_the_wheel_installs_the_command(wheel: Path, tmp_path: Path):
    home, empty = tmp_path / "venv", tmp_path / "empty"
    venv.create(home, with_pip=True)
    (packages,) = home.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]  # what rlab needs is there already
    (packages / "others.pth").write_text("\n".join(others))
    install = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    write_records_of_a_team(empty)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for line in (DEMO + RECORDS).splitlines():
        command = [str(home / "bin/rlab"), *line.split()[1:]]
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    check_what_is_left(empty)


def write_records_of_a_team(folder: Path) -> None:
    (folder / "records").mkdir(parents=True)
    write_records(folder / "records")
    (folder / "my_height.py").write_text(MODEL)


def check_what_is_left(folder: Path) -> None:
    for run in ("digits", "beats"):
        assert (folder / run / "samples.parquet").is_file()
        assert list((folder / run / "pictures").glob("*.png"))
    assert (folder / "examples/audit.yaml").read_bytes() == (ROOT / "examples/audit.yaml").read_bytes()


def test_the_wheel_holds_the_package_and_the_examples_and_no_more(wheel: Path):
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {path.relative_to(ROOT).as_posix() for path in project_files()}
    assert {
        name.replace("rlab/assets/examples/", "examples/").replace("rlab/assets/agents/", "agents/") for name in names
    } == {name for name in expected if name.startswith(("rlab/", "examples/", "agents/"))}


def test_the_source_distribution_is_complete():
    packed = {Path(file.path) for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert [path for path in project_files() if path not in packed and path.name != "pyproject.toml"] == []
