"""Build the release candidate into `dist/` and try it: `make release`.

The wheel is built from the source archive, which therefore holds everything; both depend only on the commit. They are installed,
one after the other, into fresh environments of the oldest and the newest Python that `pyproject.toml` names, and run README's first
lines there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def main() -> None:
    if _output("git", "status", "--porcelain"):
        sys.exit(
            "expected a clean working tree, because the archives hold its files: commit or remove what `git status` lists"
        )
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    pythons = {version: _interpreter(version) for version in (versions[0], versions[-1])}
    archives = build(DIST)
    for version, python in pythons.items():
        for archive, printed in try_out(python, archives):
            print(f"Python {version}, {archive.name}: {printed}", flush=True)
    sums = [f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n" for archive in archives]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


def build(dist: Path) -> list[Path]:
    """The wheel and the source archive, in a folder that is emptied first."""
    os.environ["SOURCE_DATE_EPOCH"] = _output("git", "log", "-1", "--format=%ct")
    shutil.rmtree(dist, ignore_errors=True)
    _output(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(dist))
    (source,) = dist.iterdir()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(source) as packed:
        packed.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        _output(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist), folder=unpacked)
    return sorted(dist.iterdir(), reverse=True)  # a wheel's name is the source archive's and more


def try_out(python: str, archives: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """-> each archive and what its `rlab --version` prints, after README's first lines of Python ran with it."""
    (first, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _output(python, "-m", "venv", str(folder / "venv"))
        install = [str(folder / "venv/bin/pip"), "install", "--quiet"]
        for number, archive in enumerate(archives):  # a torch that is not pinned may bring gigabytes
            pinned = (
                ["--constraint", str(ROOT / "constraints.txt")] if not number else ["--no-deps", "--force-reinstall"]
            )
            _output(*install, *pinned, str(archive))
            _output(str(folder / "venv/bin/python"), "-c", first, folder=Path(tempfile.mkdtemp(dir=folder)))
            yield archive, _output(str(folder / "venv/bin/rlab"), "--version", folder=folder)


def _interpreter(version: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for python in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        with_it = shutil.which(python)
        if with_it and subprocess.run([with_it, "-c", "import venv"], capture_output=True).returncode == 0:
            return with_it
    sys.exit(f"Python {version} was not found on the PATH or among pyenv's versions: install it")


def _output(*command: str, folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
