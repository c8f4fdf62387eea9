"""What looking at runs costs: the size of a report of 500 samples and the seconds it takes to write; the milliseconds in which
`rlab serve` answers the sample list of a run of 100,000, and the seconds it takes to start.

    python -m benchmarks.serve --quick

Samples are made up: photographs of 224 x 224 pixels, beats of 12 leads, short clips. Each report shows all of them, to play
with. Times are wall time on one thread.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.common import finish
from rlab.core.distances import NAMES, measure
from rlab.core.grid import PatchGrid
from rlab.folders.reports import report_run
from rlab.results.kept import HeldInputs
from rlab.results.result import AttackResult, Setting, Status, to_arrays, to_rows
from rlab.storage import files

SAMPLES, BATCH, ROWS = 500, 50, 100_000
QUESTIONS = (
    "",
    "page=1500",
    "sort=l2",
    "status=succeeded&label=3&queries_to=200&l2_from=0.5&sort=queries&down=true",
    "entry=2&sort=l2&down=true",
    "words=99&sort=id&down=true&page=3",
)
PALETTE = ("gaussian_noise@0.1", "gaussian_blur@2", "dead_pixel@1")
KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int]] = {  # size, patch, channels, samples
    "images": ((224, 224), (16, 16), 3, SAMPLES),
    "beats": ((500,), (20,), 12, SAMPLES),
    "clips": ((16, 112, 112), (4, 16, 16), 3, 24),
}


def made_up(size: tuple[int, ...], patch: tuple[int, ...], channels: int, samples: int, seed: int = 0) -> AttackResult:
    """Smooth inputs with some noise, a twelfth of their patches distorted, all flipped; 50 at most, again and again."""
    if samples > BATCH:
        part = made_up(size, patch, channels, BATCH, seed)
        result = part.where(torch.arange(samples) % BATCH)
        return replace(result, ids=tuple(f"sample-{i:04d}" for i in range(samples)))
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(samples, channels, *(max(2, side // 8) for side in size), generator=generator)
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
    x0 = torch.nn.functional.interpolate(coarse, size=size, mode=mode)
    x0 = (x0 + 0.03 * torch.randn(x0.shape, generator=generator)).clamp(0, 1)
    grid = PatchGrid(size, patch)
    assignment = torch.randint(1, len(PALETTE) + 1, (samples, len(grid)), generator=generator, dtype=torch.uint8)
    assignment *= torch.rand(samples, len(grid), generator=generator) < 1 / 12
    assignment[:, 0] = 1
    noise = 0.15 * torch.randn(x0.shape, generator=generator) * grid.expand(assignment != 0)[:, None]
    x = (x0 + noise).clamp(0, 1)
    before, after = (torch.rand(samples, 10, generator=generator).softmax(1) for _ in range(2))
    final = measure(x0, x, assignment, (0.0, 1.0))
    queries = torch.zeros(samples, 4, dtype=torch.int64)
    queries[:, 0] = torch.randint(2, 400, (samples,), generator=generator)
    bounds = (0.0, 1.0)
    setting = Setting(
        size, patch, PALETTE, "untargeted", "auto", 1000, bounds, seed, rate=500.0 if len(size) == 1 else None
    )
    return AttackResult(
        setting=setting, ids=tuple(f"sample-{i:04d}" for i in range(samples)), labels=torch.arange(samples) % 10,
        status=(Status.SUCCEEDED,) * samples,
        queries=queries, before=before, after=after, final=final,
        flip={name: 1.3 * final[name] for name in NAMES},
        assignment=assignment, inputs=HeldInputs(x0, x), seconds=torch.zeros(samples), seeds=torch.arange(samples),
    )  # fmt: skip


def report(kind: str, folder: Path, clock: Callable[[], float] = time.perf_counter) -> tuple[float, float, int]:
    """Megabytes, seconds and samples of the report of a stored run."""
    result = made_up(*KINDS[kind])
    run = result.save(folder / kind)
    start = clock()
    page = report_run(run, folder / f"{kind}.html", samples=len(result))
    return page.stat().st_size / 1e6, clock() - start, len(result)


def measure_reports(quick: bool, folder: Path) -> dict[str, float]:
    """The first kind gives the figures by their plain names."""
    figures: dict[str, float] = {}
    for kind in list(KINDS)[: 1 if quick else None]:
        megabytes, seconds, samples = report(kind, folder)
        print(f"report of {samples} {kind}: {megabytes:.1f} MB, {seconds:.1f} s")
        own = {"report_mb": megabytes, "report_s": seconds}
        figures |= own if kind == "images" else {f"{name}_{kind}": value for name, value in own.items()}
    return figures


def many_samples(folder: Path) -> Path:
    """A run of 100,000 samples: small inputs, a thousand of them over and over, with ids, queries and distances of their own."""
    result = made_up((8, 8), (2, 2), 1, 1000)
    times, chance = ROWS // len(result), np.random.default_rng(0)
    table = pa.concat_tables([pa.Table.from_pylist(to_rows(result))] * times)
    own = {
        "id": [f"sample-{i:06d}" for i in range(ROWS)],
        "queries_search": chance.integers(2, 400, ROWS),
        "final_l2": chance.gamma(2.0, 0.5, ROWS),
    }
    for name, values in own.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    folder.mkdir()
    setting = result.setting.to_json()
    pq.write_table(table.replace_schema_metadata({files.SETTING: setting}), folder / files.SAMPLES)
    arrays = {name: array.repeat(times, *(1,) * (array.dim() - 1)) for name, array in to_arrays(result).items()}
    files.write_arrays(folder / files.ARRAYS, arrays, setting)
    return folder


def measure_server(quick: bool, folder: Path) -> dict[str, float]:
    """The slowest median of several questions, each asked over HTTP; the start is up to the first answered page."""
    many_samples(folder / "many")
    starts, slowest = [], 0.0
    for _ in range(3):
        with serving(folder) as (address, seconds):
            starts.append(seconds)
            with httpx.Client(base_url=address, timeout=60) as client:
                for question in QUESTIONS:
                    client.get(f"/samples/many?{question}").raise_for_status()  # reads the maps, where it needs them
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
    """`rlab serve` as a process of its own: its address, and the seconds until its first page was read."""
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


PARTS: tuple[Callable[[bool, Path], dict[str, float]], ...] = (measure_reports, measure_server)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="images alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        finish({name: value for part in PARTS for name, value in part(given.quick, Path(folder)).items()})


if __name__ == "__main__":
    main()
