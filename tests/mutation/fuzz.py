"""Fuzz commands and the server for a while: `make fuzz MINUTES=10`, or `python -m tests.mutation.fuzz --minutes 10 --seed 1`.

It damages every kind of input of tests/mutation/inputs.py and requests to the server, with a limit of time and memory for each
case. A case that fails is shrunk and added to found.txt, which `make test` tries from then on.
"""

from __future__ import annotations

import argparse
import math
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.mutation.edits import Change, Edit, apply_all, changes, edits
from tests.mutation.inputs import SUBJECTS, make_inputs
from tests.mutation.test_mutations import check, within
from tests.serve.cases import served

FOUND = Path(__file__).with_name("found.txt")  # one case a line: its subject, a tab, its damages
ROUND = 10  # cases between two looks at the clock
MEMORY = 2**20  # kilobytes that one case may add to the process
PAGES = (
    "/", "/run/run", "/samples/run?sort=-l2&page=2", "/samples/run?status=succeeded&label=1", "/sample/0/run",
    "/picture/original/run?row=0", "/compare?run=run&run=run", "/serve.js", "/progress/run", "/nowhere",
)  # fmt: skip
HEADERS = (
    "Host: localhost\r\nOrigin: http://localhost\r\nSec-Fetch-Site: same-origin\r\nCookie: a=b\r\nContent-Length: 7"
)
REQUESTS = {
    f"{how} {page}": f"{how} {page} HTTP/1.1\r\n{HEADERS}\r\n\r\nbody=aa" for page in PAGES for how in ("GET", "POST")
}
Damages = list[Any]


@dataclass
class Fuzzer:
    """The valid inputs, a server of the run among them, and what was tried."""

    place: Path
    client: httpx.Client
    tried: int = 0
    bad: dict[str, Damages] = field(default_factory=dict)

    @property
    def subjects(self) -> dict[str, Callable[[Damages], None]]:
        commands = {str(each): lambda damages, each=each: check(self.place, each, damages) for each in SUBJECTS}
        requests = {name: lambda damages, text=text: self.send(text, damages) for name, text in REQUESTS.items()}
        return {**commands, **requests}

    def send(self, text: str, damages: Damages) -> None:
        """Send a damaged request; it is answered without a defect or not at all, and the server stays well."""
        answer = b""
        where = (self.client.base_url.host, self.client.base_url.port or 80)
        with socket.create_connection(where, timeout=20) as connection, suppress(ConnectionError):
            connection.sendall(apply_all(damages, text.encode()))
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(2**16)
        assert not answer.startswith(b"HTTP/1.1 5"), answer
        assert self.client.get("/serve.js").status_code == 200

    def campaign(self, name: str, number: int, count: int = ROUND) -> None:
        """Try `count` lists of damages of one subject, the same ones for the same number."""
        made = next((each.made for each in SUBJECTS if str(each) == name), "bytes")
        last: Damages = []
        quiet = [HealthCheck.too_slow, HealthCheck.differing_executors]

        @seed(number)
        @settings(max_examples=count, database=None, suppress_health_check=quiet, deadline=None)
        @given(damages=st.lists(edits if made == "bytes" else changes, min_size=1, max_size=3))
        def damage(damages: Damages) -> None:
            self.tried += 1
            last[:] = damages
            self.try_one(name, damages)

        try:
            damage()
        except Exception:  # hypothesis has shrunk it: the last case is the smallest
            self.bad[name] = list(last)

    def try_one(self, name: str, damages: Damages) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.subjects[name](damages)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY, "too much memory"

    def run(self, seconds: float, first: int, most: float = math.inf) -> None:
        """Go round the subjects until the time is up or `most` cases were tried; quick requests get ten times as many cases."""
        end, number = time.monotonic() + seconds, first
        while True:
            for name in self.subjects:
                self.campaign(name, number, 10 * ROUND if name in REQUESTS else ROUND)
                number += 1
                if time.monotonic() > end or self.tried >= most:
                    return


@contextmanager
def fuzzing() -> Iterator[Fuzzer]:
    place = Path(tempfile.mkdtemp(prefix="rlab-fuzz-"))
    try:
        for name in ("valid", "others", "served"):
            (place / name).mkdir()
        make_inputs(place / "valid", lambda *words: within(place / "valid", *words))
        shutil.copytree(place / "valid" / "run", place / "served" / "run")
        with served(place / "served") as client:
            yield Fuzzer(place, client)
    finally:
        shutil.rmtree(place)


def found() -> list[tuple[str, Damages]]:
    """The cases that failed once."""
    lines = FOUND.read_text(encoding="utf-8").splitlines() if FOUND.exists() else []
    known = {"Edit": Edit, "Change": Change, "nan": math.nan, "inf": math.inf}
    return [(name, eval(text, known)) for name, _, text in (line.partition("\t") for line in lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the same seed tries the same cases")
    options = parser.parse_args()
    with fuzzing() as fuzzer:
        fuzzer.run(60 * options.minutes, options.seed)
    sys.stdout.write(f"{fuzzer.tried:,} cases from seed {options.seed}, {len(fuzzer.bad)} bad\n")
    with FOUND.open("a", encoding="utf-8") as file:
        file.writelines(f"{name}\t{damages!r}\n" for name, damages in fuzzer.bad.items())
    raise SystemExit(bool(fuzzer.bad))


if __name__ == "__main__":
    main()
