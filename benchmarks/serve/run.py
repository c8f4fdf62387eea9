"""What looking at runs costs: size and seconds of a report of 500 samples, milliseconds of `rlab serve` for the sample
list of a run of 100,000, and the seconds it takes to start.

python -m benchmarks.serve           # images, beats and clips
python -m benchmarks.serve --quick   # images only

Each report shows all its samples. Times are wall time on one thread. This benchmark has no page; docs/serve.md names its figures.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import torch

from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Raw, Store
from benchmarks.serve.cases import KINDS, QUESTIONS, made_up, many_samples
from rlab.folders.reports import report_run


def report(kind: str, folder: Path, clock: Callable[[], float] = time.perf_counter) -> tuple[float, float, int]:
    """Megabytes, seconds and samples of the report of a stored run."""
    result = made_up(*KINDS[kind])
    run = result.save(folder / kind)
    start = clock()
    page = report_run(run, folder / f"{kind}.html", samples=len(result))
    return page.stat().st_size / 1e6, clock() - start, len(result)


def measure_reports(quick: bool, folder: Path) -> dict[str, float]:
    """Images have figures without a suffix."""
    figures: dict[str, float] = {}
    for kind in list(KINDS)[: 1 if quick else None]:
        megabytes, seconds, samples = report(kind, folder)
        print(f"report of {samples} {kind}: {megabytes:.1f} MB, {seconds:.1f} s")
        own = {"report_mb": megabytes, "report_s": seconds}
        figures |= own if kind == "images" else {f"{name}_{kind}": value for name, value in own.items()}
    return figures


def measure_server(quick: bool, folder: Path) -> dict[str, float]:
    """The slowest median over several requests, and the seconds until the first page is served."""
    many_samples(folder / "many")
    starts, slowest = [], 0.0
    for _ in range(3):
        with serving(folder) as (address, seconds):
            starts.append(seconds)
            with httpx.Client(base_url=address, timeout=60) as client:
                for question in QUESTIONS:
                    client.get(f"/samples/many?{question}").raise_for_status()  # loads the maps if it needs them
                    took = statistics.median(_milliseconds(client, f"/samples/many?{question}") for _ in range(5))
                    print(f"{took:6.0f} ms  {question or 'the first page'}")
                    slowest = max(slowest, took)
    print(f"started within {', '.join(f'{s:.2f}' for s in starts)} s")
    return {"list_ms": slowest, "start_s": statistics.median(starts)}


def _milliseconds(client: httpx.Client, address: str) -> float:
    start = time.perf_counter()
    client.get(address).raise_for_status()
    return 1000 * (time.perf_counter() - start)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, float]]:
    """Run `rlab serve` in its own process: its address, and the seconds until its first page was read."""
    start = time.perf_counter()
    call = [sys.executable, "-m", "rlab", "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            httpx.get(address, timeout=60).raise_for_status()
            yield address, time.perf_counter() - start
        finally:
            process.send_signal(signal.SIGINT)


def measure(quick: bool) -> dict[str, float]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        parts = [part(quick, Path(folder)) for part in (measure_reports, measure_server)]
    return {name: value for part in parts for name, value in part.items()}


def pieces(options: Options) -> Iterator[Piece]:
    yield Piece("serve", "serve", {}, lambda device: Raw(measure(False)))


def figures(store: Store) -> Figures:
    return store.read("serve").numbers if "serve" in store else {}


CLAIM = Claim("serve", "Looking at runs", __doc__, "", lambda options: measure(True), pieces, figures=figures)
