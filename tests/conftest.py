"""Set-up shared by all tests: where real data lies, and runs that do not depend on the machine."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

# Before torch and matplotlib are imported, and inherited by the processes tests start: workers share few cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["COLUMNS"] = "200"  # a console takes its width when it is made, by whichever test comes first

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
REAL = Path(os.environ.get("RLAB_REAL", ROOT.parent / "shared" / "real"))

settings.register_profile("rlab", deadline=None, print_blob=True, max_examples=20)  # a busy machine is no failure
settings.load_profile("rlab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run modules, and the tests in each, in a random order"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffle")) is not None:
        draw, modules = random.Random(seed), dict[Path, int]()
        draw.shuffle(items)
        for item in items:  # a module's tests stay together, as they share its fixtures
            modules.setdefault(item.path, len(modules))
        items.sort(key=lambda item: modules[item.path])
    if REAL.is_dir():
        return
    absent = pytest.mark.skip(reason="no real data: set RLAB_REAL to the folder that holds it")
    for item in items:
        if item.get_closest_marker("real"):
            item.add_marker(absent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many faults of the disk and the network were tried."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    if faults := sum(value for report in reports for name, value in report.user_properties if name == "faults"):
        terminalreporter.write_line(f"{faults:,} faults of the disk and the network tried")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


class RealFolder(type(Path())):  # type: ignore[misc]  # the class of paths here
    """A folder of real data: a test that names a part which is not there is skipped."""

    def __truediv__(self, part: str) -> RealFolder:
        path: RealFolder = super().__truediv__(part)
        if not path.exists() and not any(path.parent.glob(f"{path.name}.*")):  # a record has no file of its bare name
            pytest.skip(f"{path} is missing: RLAB_REAL names a folder without this part of the real data")
        return path


@pytest.fixture(scope="session")
def real() -> RealFolder:
    """The folder of real data sets; for tests marked `real`."""
    if not REAL.is_dir():
        pytest.skip("no real data: set RLAB_REAL to the folder that holds it")
    return RealFolder(REAL)


@pytest.fixture(autouse=True)
def _no_secrets_of_others() -> Iterator[None]:
    """Secrets that a test gave are known to the process, and would be hidden in the sentences of the next test."""
    from rlab import redact

    before = dict(redact.known_secrets)
    yield
    redact.known_secrets.clear()
    redact.known_secrets.update(before)
