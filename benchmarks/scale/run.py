"""How throughput grows with requests and workers, memory with samples, and what a GPU spends beyond the model.

python -m benchmarks.scale                               # HTTP, workers and memory; then write results/scale.md
python -m benchmarks.scale --only gpu --device cuda      # the GPU part
python -m benchmarks.scale --quick                       # one and two workers, no photos
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Claim, Options, Piece, circumstances
from benchmarks.raw import Raw
from benchmarks.scale.cases import CHUNKS, CONCURRENCY, LATENCY, PARTS, SAMPLES, options
from benchmarks.scale.gpu import gpu_rows
from benchmarks.scale.memory import memory_rows
from benchmarks.scale.page import RULES, figures, sections
from rlab.results.result import AttackResult, to_rows
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import model_fingerprint
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import check
from rlab.victims import HttpVictim
from rlab.victims.resolve import load_model


@contextmanager
def served() -> Iterator[str]:
    """The address of the model, which runs in its own process."""
    command = [sys.executable, "-m", "benchmarks.scale.server", str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.terminate()


def http_rows(few: int = 24, many: int = 1920) -> dict[str, Any]:
    """Rows per second of one-row requests, one at a time and up to 32 at once, and whether the scores are equal."""
    x = torch.rand(many, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with served() as address, TemporaryDirectory() as folder:
        with HttpVictim(address, chunk=1, concurrency=1) as one:
            alone, slow = timed(one, x[:few])
        with HttpVictim(address, chunk=1, concurrency=CONCURRENCY) as victim:
            victim(x[:256])  # the first responses set the number of requests at once
            together, quick = timed(victim, x)
        model = f"{address.replace('http://', 'kserve://')}model"
        with HttpVictim(model, chunk=1, concurrency=1) as one:
            alone_v2, slow_v2 = timed(one, x[:few])
        with HttpVictim(model, chunk=1, concurrency=CONCURRENCY, price=1, cache=Path(folder) / "answers") as victim:
            victim(x[:256])
            together_v2, quick_v2 = timed(victim, x[256:])
            paid = victim.bill.answered
            again = victim(x)
            hits_paid = victim.bill.answered - paid
    faster_v2 = (many - 256) / quick_v2 / (few / slow_v2)
    equal = (
        torch.equal(alone_v2, again[:few]) and torch.equal(together_v2, again[256:]) and torch.equal(again, together)
    )
    rates = {"http_rows_per_second": many / quick, "http_rows_per_second_alone": few / slow}
    faster = rates["http_rows_per_second"] / rates["http_rows_per_second_alone"]
    others = {"kserve_speedup": faster_v2, "cache_hits_paid": hits_paid}
    return {"http_speedup": faster, "bit_equal": torch.equal(alone, together[:few]) and equal, **others, **rates}


def timed(victim: HttpVictim, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    began = time.perf_counter()
    return victim(x), time.perf_counter() - began


def worker_rows(counts: Sequence[int]) -> dict[str, Any]:
    """The same attack by each number of workers, and by two workers of Ray if it is installed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the workers
    torch.set_num_threads(1)
    x = torch.rand(CHUNKS * SAMPLES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", x=x.numpy(), y=load_model(options(Path()).model)(x).argmax(1).numpy())
        ran = [attacked(Path(folder), workers=workers) for workers in counts]
        others = [attacked(Path(folder), workers=2, cluster="local")] if find_spec("ray") else []
        equal = all(same(ran[0][0], result) for result, _ in (*ran[1:], *others))  # read from the folder
    seconds = {f"workers_seconds_{count}": taken for count, (_, taken) in zip(counts, ran, strict=True)}
    over = [f"{count} worker{'s' if count > 1 else ''}" for count in counts] + ["2 workers of Ray"] * len(others)
    bits = {"bit_equal": equal, "bit_equal_over": over, "load_average": os.getloadavg()[0]}
    return {"workers_speedup": ran[0][1] / ran[1][1], **seconds, **bits}


def attacked(folder: Path, **who: Any) -> tuple[AttackResult, float]:
    """The result, and the seconds from the second finished chunk to the last."""
    chosen = options(folder)
    batch, ends = chosen.data.load(), list[float]()

    def hear(part: Any) -> None:
        if len(part):
            ends.append(time.perf_counter())

    victim = load_model(chosen.model)
    crew = Workers(check(WorkerOptions, who), chosen.model, batch.bounds, model_fingerprint(victim))
    run = folder / "-".join(map(str, who.values()))
    result = run_attack(chosen, victim, batch, run, chosen.plain(), hear, crew)
    return result, ends[-1] - ends[1]


def same(one: AttackResult, other: AttackResult) -> bool:
    """Whether everything is equal."""
    arrays = ("assignment", "original", "perturbed")
    equal = all(torch.equal(getattr(one, name), getattr(other, name)) for name in arrays)
    return equal and repr(to_rows(one)) == repr(to_rows(other))


MEASURES: dict[str, Callable[[str, bool], dict[str, Any]]] = {  # device, quick
    "http": lambda device, quick: http_rows(),
    "workers": lambda device, quick: worker_rows((1, 2) if quick else (1, 2, 3)),
    "memory": lambda device, quick: memory_rows(quick),
    "gpu": lambda device, quick: gpu_rows(device),
}


def make(part: str, device: str) -> Raw:
    found = MEASURES[part](device, False)
    facts = {name: value for name, value in found.items() if isinstance(value, str | bool | list) or value is None}
    return Raw({name: value for name, value in found.items() if name not in facts}, facts)


def pieces(given: Options) -> Iterator[Piece]:
    for part in (*PARTS, *(["gpu"] if "gpu" in given.only else [])):
        yield Piece(part, part, {"part": part}, partial(make, part))


def quick(given: Options) -> Mapping[str, Any]:
    found = [MEASURES[part](given.device, True) for part in given.only or PARTS]
    figures = {name: value for part in found for name, value in part.items()}
    if "bit_equal" in figures:
        figures["bit_equal"] = all(part.get("bit_equal", True) for part in found)
    return figures | {"measured_on": circumstances("python -m benchmarks.scale --quick")}


CLAIM = Claim("scale", "Many at once", __doc__, RULES, quick, pieces, sections, figures, cases=(*PARTS, "gpu"))
