"""How rlab bears faults: of the disk, of the network, of its inputs, of its own process, and many clients at once.

python -m benchmarks.reliability                         # twenty minutes; then write results/reliability.md
python -m benchmarks.reliability --quick                 # ten minutes, with fewer moments of each command
python -m benchmarks.reliability --quick --only serve    # one part: faults, mutations, orphans, stale, kills, journal, serve
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from unittest import mock

import httpx
import numpy as np

from benchmarks import tables
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Numbers, Raw, Store
from benchmarks.reliability.journal import measure_journal, measure_repeated
from benchmarks.serve.cases import made_up
from tests.mutation.fuzz import fuzzing
from tests.runs.changes import CHANGES
from tests.runs.killing import COMMANDS, FAULTS, faulty, unbroken
from tests.runs.stale import stale
from tests.victims.network import network_case

RULES = """The k-th access of a command to the disk fails: its process is killed, the disk is full, for a moment or for good,
or read-only, or reports an error; a failing fsync leaves half of its file. Every access is tried, or ten of each slow
command. The same for requests to a model behind an address, with seven faults of the network. A fault is lost if the command
does not end with one line, or if the resumed run writes a folder that differs from an undisturbed one. A damaged input is
bad if a command does not end with one line, leaves something behind, or takes more than 30 s or 1 GB; a damaged request, if
the answer is an error of the server. A result is stale if an attack in the same folder returns it although something that
decides it has changed: the model, its code, its reading, a surrogate, a filter, a policy, a goal or the data. A kill (SIGKILL)
hits the process that owns a run at its 2nd, 9th or 21st request; rows sent again are those of both processes less those of an
unbroken run and the one question of a resumed run. The journal's time is the median of 15 interleaved pairs. Clients
of the server look at the list of 50 runs once a second."""
NETWORK, FAULT = "attack over HTTP", "faults-"
FEW = 10  # moments of each command and fault in a quick run, and of slow commands; the slow tests try all of them
SLOW = ("learn", "stages", "benchmark png", "benchmark npz", "audit")
DAMAGES = 4000
RUNS, CLIENTS, SECONDS = 50, 200, 10  # of the server
MODEL = """
import os, time
import numpy as np

def slow():
    def scores(x):
        with open(os.environ["QUERIES"], "a") as file:
            file.write(f"{time.time()} {len(x)}\\n")
        time.sleep(0.05)
        return np.stack([x.reshape(len(x), -1).mean(1), np.full(len(x), 0.5)], 1)
    return scores
"""


def measure_faults(folder: Path, name: str, most: int | None = None) -> Numbers:
    """Faults of the disk at every access of a command, or at `most` of them."""
    tried = lost = 0
    moments = unbroken(name)[0]
    few = range(1, moments + 1) if most is None else sorted({1 + k * (moments - 1) // (most - 1) for k in range(most)})
    for fault in FAULTS:
        for moment in few:
            with redirect_stderr(io.StringIO()):
                said = faulty(name, fault, moment, folder / f"{tried}")
            tried, lost = tried + 1, lost + bool(said)
            if said:
                print(f"{name}, {fault} at {moment} of {moments}: {said}")
    return {"moments": moments, "tried": tried, "lost": lost}


def measure_network(folder: Path) -> Numbers:
    with network_case() as case:
        requests, outcome = case.unbroken(folder / "unbroken")
        points = case.points(requests)
        said = {point: case.faulty(point, folder / str(point), requests, outcome) for point in points}
    for point, words in said.items():
        if words:
            print(f"{point}: {words}")
    return {"moments": requests, "tried": len(points), "lost": sum(map(bool, said.values()))}


def measure_mutations(folder: Path) -> Numbers:
    with fuzzing() as fuzzer:
        fuzzer.run(math.inf, 0, DAMAGES)
    for name, damages in fuzzer.bad.items():
        print(f"{name}: {damages}")
    return {"mutations_tried": fuzzer.tried, "mutations_bad": len(fuzzer.bad), "mutations_kinds": len(fuzzer.subjects)}


def measure_orphans(folder: Path) -> Numbers:
    """Rows that reach the model after a kill -9 of the process that owns two workers, over the rows of one batch of each."""
    (folder / "my_model.py").write_text(MODEL)
    x = np.random.default_rng(0).random((64, 1, 8, 8), np.float32)
    np.savez(folder / "x.npz", x=x, y=(x.mean((1, 2, 3)) < 0.5).astype(int))
    queries = folder / "queries"
    words = "attack my_model:slow x.npz --budget 500 --policy random --palette dead_pixel --workers 2 --chunk 8 --no-page --out run"
    environment = {**_environment(), "QUERIES": str(queries)}
    call, quiet = [sys.executable, "-m", "rlab", *words.split()], subprocess.DEVNULL
    with subprocess.Popen(call, cwd=folder, env=environment, stdout=quiet, stderr=quiet) as process:
        while len(_sent(queries)) < 20:
            if process.poll() is not None:
                raise RuntimeError("the attack ended before it could be killed")
            time.sleep(0.02)
        process.kill()
        process.wait()
        killed = time.time()
    time.sleep(3)
    after = [rows for moment, rows in _sent(queries) if moment > killed]
    return {"orphan_queries": sum(after), "orphan_batches": len(after)}


def measure_stale(folder: Path) -> Numbers:
    """Repeat attacks in their folder after something changed, such as the model's code; count old results that come back."""
    tried = {change.name: (folder / f"{number}", change) for number, change in enumerate(CHANGES)}
    old = list[str]()
    for name, (own, change) in tried.items():
        own.mkdir()
        with mock.patch.object(sys, "path", [str(own), *sys.path]):
            old += [name] if stale(change, "attack", own) else []
    for name in old:
        print(f"the old result comes back after a change: {name}")
    return {"stale": len(old), "stale_tried": len(tried)}


def _sent(queries: Path) -> list[tuple[float, int]]:
    lines = queries.read_text().splitlines() if queries.exists() else []
    return [(float(moment), int(rows)) for moment, rows in map(str.split, lines)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """Run `rlab serve` in its own process: its address and process number."""
    call = [sys.executable, "-m", "rlab", "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["address"], process.pid
        finally:
            process.send_signal(signal.SIGINT)


def measure_server(folder: Path) -> Numbers:
    result = made_up((8, 8), (2, 2), 1, 50)
    for number in range(RUNS):
        result.save(folder / "runs" / f"run-{number:02d}")
    with serving(folder / "runs") as (address, pid):
        with httpx.Client(base_url=address, timeout=60) as client:
            alone = [_milliseconds(client) for _ in range(23)][3:]  # the first ones load the code
        one = statistics.median(alone)
        many = sorted(asyncio.run(_clients(address)))
        rss = _megabytes(pid)
        with httpx.Client(base_url=address, timeout=60) as client:
            for page in ("/run/run-00", "/samples/run-00", "/sample/0/run-00", "/picture/original/0/run-00"):
                client.get(page).raise_for_status()
        drawn = _megabytes(pid)
    p99 = many[int(0.99 * len(many))]
    return {
        "serve_p50_ms": one, "serve_many_p50_ms": statistics.median(many), "serve_p99_ms": p99, "serve_ratio": p99 / one,
        "serve_rss_mb": rss, "serve_pages_rss_mb": drawn,
    }  # fmt: skip


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if "VmRSS" in line) / 1024


def _milliseconds(client: httpx.Client) -> float:
    start = time.perf_counter()
    client.get("/").raise_for_status()
    return 1000 * (time.perf_counter() - start)


async def _clients(address: str) -> list[float]:
    host, _, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    times = list[float]()

    async def client(number: int) -> None:
        await asyncio.sleep(number / CLIENTS)
        for _ in range(SECONDS):
            start = time.perf_counter()
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            took = time.perf_counter() - start
            times.append(1000 * took)
            await asyncio.sleep(max(0.0, 1 - took))

    await asyncio.gather(*map(client, range(CLIENTS)))
    return times


def in_folder(measure: Callable[[Path], Numbers]) -> Numbers:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        numbers = measure(Path(folder))
    print(f"{numbers}", flush=True)
    return numbers


def parts(quick: bool = False) -> Iterator[tuple[str, str, Callable[[Path], Numbers]]]:
    """Case, name of the raw file, and what is measured."""
    for name in COMMANDS:
        most = FEW if quick or name in SLOW else None
        yield "faults", _file(name), partial(measure_faults, name=name, most=most)
    yield "faults", _file(NETWORK), measure_network
    yield "mutations", "mutations", measure_mutations
    yield "orphans", "orphans", measure_orphans
    yield "stale", "stale", measure_stale
    yield "kills", "kills", measure_repeated
    yield "journal", "journal", measure_journal
    yield "serve", "serve", measure_server


def _file(command: str) -> str:
    return FAULT + command.replace(" ", "-")


def _raw(measure: Callable[[Path], Numbers], device: str) -> Raw:
    return Raw(in_folder(measure))


def pieces(options: Options) -> Iterator[Piece]:
    for case, name, measure in parts():
        yield Piece(name, case, {}, partial(_raw, measure))


def collected(numbers: Mapping[str, Numbers]) -> Figures:
    faults = [own for name, own in numbers.items() if name.startswith(FAULT)]
    figures = {f"faults_{key}": sum(own[key] for own in faults) for key in ("tried", "lost")} if faults else {}
    return {**figures, **{key: value for own in numbers.values() if own not in faults for key, value in own.items()}}


def quick(options: Options) -> Figures:
    chosen = [(name, measure) for case, name, measure in parts(quick=True) if case in (options.only or CASES)]
    return collected({name: in_folder(measure) for name, measure in chosen})


def read(store: Store, names: Iterable[str]) -> dict[str, Numbers]:
    return {name: store.read(name).numbers for name in names if name in store}


def figures(store: Store) -> Figures:
    return collected(read(store, [name for _, name, _ in parts()]))


def sections(store: Store) -> Iterator[str]:
    files = {_file(name): name for name in (*COMMANDS, NETWORK)}
    faults = read(store, files)
    keys = ("moments", "tried", "lost")
    rows = [[files[file], *(f"{own[key]:,.0f}" for key in keys)] for file, own in faults.items()]
    rows.append(["all", *(f"{sum(own[key] for own in faults.values()):,.0f}" for key in keys)])
    yield tables.section("Faults", tables.table("command | accesses or requests | faults tried | lost", rows))
    others = collected(read(store, CASES[1:]))
    names = {
        "mutations_kinds": "kinds of inputs and requests",
        "mutations_tried": "damages tried",
        "mutations_bad": "bad",
        "stale_tried": "attacks repeated in their folder after something changed",
        "stale": "old results among them",
        "queries_repeated_kills": "kills of attacks in a process, by workers, on an address, learning and noisy",
        "queries_repeated_max": "most rows sent again after one, over rows that had no answer yet",
        "journal_overhead": "CPU time of an attack on a ResNet-20 with the journal, over that without",
        "frames": "frames of rlab between `rlab.attack` and the model",
        "orphan_queries": "queries by workers after their owner was killed",
        "serve_p50_ms": "server, one client: median, ms",
        "serve_many_p50_ms": f"server, {CLIENTS} clients: median, ms",
        "serve_p99_ms": f"server, {CLIENTS} clients: 99th percentile, ms",
        "serve_ratio": "the latter over the median of one client",
        "serve_rss_mb": "memory of the server after that, MB",
        "serve_pages_rss_mb": "memory after it drew the pages of a run and of a sample, MB",
    }
    shown = [[words, f"{others[key]:,.{others[key] % 1 > 0:d}f}"] for key, words in names.items() if key in others]
    yield tables.section("Damages, kills and clients", tables.table(" | figure", shown))


CASES = ("faults", "mutations", "orphans", "stale", "kills", "journal", "serve")
CLAIM = Claim("reliability", "Reliability", __doc__, RULES, quick, pieces, sections, figures, cases=CASES)
