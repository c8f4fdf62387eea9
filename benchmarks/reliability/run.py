"""How rlab bears faults: of the disk, of the network, of its inputs, of its own process, and many clients at once.

python -m benchmarks.reliability --quick                 # ten minutes on an idle machine
python -m benchmarks.reliability --quick --only serve    # one part: faults, mutations, orphans or serve

A fault counts as lost if the command does not end with one line, or if the resumed run differs from an undisturbed one. The
clients of the server look at the list of runs once a second. This benchmark has no page.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np

from benchmarks.harness import Claim, Figures, Options
from benchmarks.serve.cases import made_up
from tests.mutation.fuzz import fuzzing
from tests.runs.killing import FAULTS, faulty, unbroken
from tests.victims.network import network_case

COMMANDS = ("attack", "learn", "harden", "benchmark npz", "stages")
PER_FAULT = 20  # moments of each command and fault; all of them are in the slow tests
MUTATION_SECONDS = 240.0
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


def measure_faults(folder: Path) -> dict[str, float]:
    tried = lost = 0
    for name in COMMANDS:
        moments = unbroken(name)[0]
        for fault in FAULTS:
            for moment in sorted({1 + number * (moments - 1) // PER_FAULT for number in range(PER_FAULT + 1)}):
                said = faulty(name, fault, moment, folder / f"{tried}")
                tried, lost = tried + 1, lost + bool(said)
                if said:
                    print(f"{name}, {fault} at {moment} of {moments}: {said}")
        print(f"{name}: {tried} faults so far, {lost} lost", flush=True)
    with network_case() as case:
        requests, outcome = case.unbroken(folder / "unbroken")
        for point in case.points(requests):
            said = case.faulty(point, folder / str(point), outcome)
            tried, lost = tried + 1, lost + bool(said)
            if said:
                print(f"{point}: {said}")
    return {"faults_tried": tried, "faults_lost": lost}


def measure_mutations(folder: Path) -> dict[str, float]:
    with fuzzing() as fuzzer:
        fuzzer.run(MUTATION_SECONDS, 0)
    for name, damages in fuzzer.bad.items():
        print(f"{name}: {damages}")
    return {"mutations_tried": fuzzer.tried, "mutations_bad": len(fuzzer.bad)}


def measure_orphans(folder: Path) -> dict[str, float]:
    """Rows that reach the model after a kill -9 of the process that owns two workers, over the rows of one batch of each."""
    (folder / "my_model.py").write_text(MODEL)
    x = np.random.default_rng(0).random((64, 1, 8, 8), np.float32)
    np.savez(folder / "x.npz", x=x, y=(x.mean((1, 2, 3)) < 0.5).astype(int))
    queries = folder / "queries"
    words = "attack my_model:slow x.npz --budget 500 --policy random --palette dead_pixel --workers 2 --chunk 8 --no-page --out run"
    environment = {**_environment(), "QUERIES": str(queries)}
    with subprocess.Popen([sys.executable, "-m", "rlab", *words.split()], cwd=folder, env=environment) as process:
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


def measure_server(folder: Path) -> dict[str, float]:
    result = made_up((8, 8), (2, 2), 1, 50)
    for number in range(RUNS):
        result.save(folder / "runs" / f"run-{number:02d}")
    with serving(folder / "runs") as (address, pid):
        with httpx.Client(base_url=address, timeout=60) as client:
            alone = [_milliseconds(client) for _ in range(23)][3:]  # the first ones load the code
        one = statistics.median(alone)
        many = sorted(asyncio.run(_clients(address)))
        rss = next(
            int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
        )
    p99 = many[int(0.99 * len(many))]
    print(f"one client: p50 {one:.1f} ms; {CLIENTS} clients: {len(many)} answers, p50 {statistics.median(many):.1f} ms")
    return {"serve_p50_ms": one, "serve_p99_ms": p99, "serve_ratio": p99 / one, "serve_rss_mb": rss / 1024}


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


PARTS: Mapping[str, Callable[[Path], dict[str, float]]] = {
    "faults": measure_faults,
    "mutations": measure_mutations,
    "orphans": measure_orphans,
    "serve": measure_server,
}


def quick(options: Options) -> Figures:
    figures: dict[str, float] = {}
    memory = Path("/dev/shm")
    for name, part in PARTS.items():
        if name in (options.only or PARTS):
            with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
                figures |= part(Path(folder))
    return figures


CLAIM = Claim("reliability", "Faults", __doc__, "", quick, cases=tuple(PARTS))
