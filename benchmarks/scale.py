"""Ratios of more at once over one at a time, and of the memory of many samples over few, in one run; and what a GPU does.

python -m benchmarks.scale --quick                      # prints JSON
python -m benchmarks.scale --only gpu --device cuda     # see `benchmarks.scale_gpu`
python -m benchmarks.scale --write                      # what is found goes to results/raw/scale.json and results/scale.md
python -m benchmarks.scale --collect FILE               # so does what was printed on another machine; nothing is run
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.scale_gpu import gpu_rows
from benchmarks.scale_memory import memory_rows
from rlab.results.result import AttackResult, to_arrays, to_rows
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import model_fingerprint
from rlab.runs.options import RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import check
from rlab.victims import HttpVictim
from rlab.victims.resolve import load_model
from rlab.victims.zoo import cifar_resnet

LATENCY = 0.05  # seconds, of the model behind an address
CONCURRENCY = 32
PARTS = ("http", "workers", "memory")
CHUNKS, SAMPLES, BUDGET = 10, 8, 40  # of the workers' attack: chunks, samples in each, queries a sample


@contextmanager
def served() -> Iterator[str]:
    """-> the address of the model, which is in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale_server", str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.terminate()


def http_rows(few: int = 24, many: int = 1920) -> dict[str, Any]:
    """Rows a second of one-row requests, one at a time and up to 32 at once, and whether they are answered alike."""
    x = torch.rand(many, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with served() as address:
        with HttpVictim(address, chunk=1, concurrency=1) as one:
            alone, slow = timed(one, x[:few])
        with HttpVictim(address, chunk=1, concurrency=CONCURRENCY) as victim:
            victim(x[:256])  # how many at once is found out in the first answers
            together, quick = timed(victim, x)
    rates = {"http_rows_per_second": many / quick, "http_rows_per_second_alone": few / slow}
    return {
        "http_speedup": rates["http_rows_per_second"] / rates["http_rows_per_second_alone"],
        "bit_equal": torch.equal(alone, together[:few]),
        **rates,
    }


def timed(victim: HttpVictim, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    began = time.perf_counter()
    return victim(x), time.perf_counter() - began


def net() -> nn.Module:
    """The workers' model: a ResNet-20 with random weights."""
    torch.manual_seed(0)
    return cifar_resnet(20).eval()


def worker_rows(counts: Sequence[int]) -> dict[str, Any]:
    """The same attack by one worker and by two, by three where asked for, and by two of Ray where it is installed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for the workers, which are started from here
    torch.set_num_threads(1)
    x = torch.rand(CHUNKS * SAMPLES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", x=x.numpy(), y=load_model_here()(x).argmax(1).numpy())
        ran = [attacked(Path(folder), workers=workers) for workers in counts]
        others = [attacked(Path(folder), workers=2, cluster="local")] if find_spec("ray") else []
        equal = all(same(ran[0][0], result) for result, _ in (*ran[1:], *others))  # read from the folder
    seconds = {f"workers_seconds_{count}": taken for count, (_, taken) in zip(counts, ran, strict=True)}
    return {
        "workers_speedup": ran[0][1] / ran[1][1],
        "bit_equal": equal,
        "bit_equal_over": [f"{count} worker{'s' if count > 1 else ''}" for count in counts]
        + ["2 workers of Ray"] * len(others),
        **seconds,
        "load_average": os.getloadavg()[0],
    }


def load_model_here() -> Any:
    return load_model(options(Path()).model)


def options(folder: Path) -> RunOptions:
    values = {
        "model": "benchmarks.scale:net", "data": str(folder / "data.npz"), "policy": "square", "budget": BUDGET,
        "until": "budget", "chunk": SAMPLES, "palette": ["gaussian_noise@0.01"], "patch": 8,
    }  # fmt: skip
    return check(RunOptions, values)


def attacked(folder: Path, **who: Any) -> tuple[AttackResult, float]:
    """The result, and the seconds from the second finished chunk to the last."""
    asked = options(folder)
    batch, ends = asked.data.load(), list[float]()

    def hear(part: Any) -> None:
        if len(part):
            ends.append(time.perf_counter())

    victim = load_model(asked.model)
    crew = Workers(check(WorkerOptions, who), asked.model, batch.bounds, model_fingerprint("", victim))
    work = crew.attack_parts(asked, batch.y)
    run = folder / "-".join(map(str, who.values()))
    result = run_attack(asked.build(batch), victim, batch, run, asked.plain(), hear, work)
    return result, ends[-1] - ends[1]


def same(one: AttackResult, other: AttackResult) -> bool:
    """All but the seconds."""
    arrays = to_arrays(other)
    rows = [[{**row, "seconds": 0.0} for row in to_rows(result)] for result in (one, other)]
    return all(torch.equal(value, arrays[name]) for name, value in to_arrays(one).items()) and repr(rows[0]) == repr(
        rows[1]
    )


def main() -> None:
    from benchmarks.common import circumstances, finish  # here, as workers import this file too
    from benchmarks.scale_page import collect, last_line

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one and two workers, not three: under a minute on idle cores"
    )
    parser.add_argument(
        "--only", "--parts", dest="parts", nargs="+", choices=(*PARTS, "gpu"), default=PARTS, help="all but gpu"
    )
    parser.add_argument("--device", default="cuda", help="of the part gpu")
    parser.add_argument("--compile", action="store_true", help="the model of the part gpu, by torch.compile")
    parser.add_argument("--write", action="store_true", help="keep what is found, and write results/scale.md")
    parser.add_argument(
        "--collect", nargs="+", type=Path, metavar="FILE", help="keep the last lines of these, and write the page"
    )
    parser.add_argument("--page", action="store_true", help="writes results/scale.md from results/raw/scale.json alone")
    given = parser.parse_args()
    if given.page or given.collect:
        return finish(collect([last_line(path) for path in given.collect or ()]))
    figures: dict[str, Any] = {}
    if "http" in given.parts:
        figures |= http_rows()
    if "workers" in given.parts:
        equal = figures.get("bit_equal", True)
        figures |= worker_rows((1, 2) if given.quick else (1, 2, 3))
        figures["bit_equal"] &= equal
    if "memory" in given.parts:
        figures |= memory_rows(given.quick)
    if "gpu" in given.parts:
        figures |= gpu_rows(given.device, compile=given.compile) | {"gpu_measured_on": circumstances(0)}
    if given.parts != ["gpu"]:
        figures["measured_on"] = circumstances(0)
    if given.write:
        collect([figures])
    finish(figures)


if __name__ == "__main__":
    main()
