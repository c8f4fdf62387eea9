"""Sets of CIFAR-10 images, ImageNet photos, MIT-BIH beats and UCF-101 clips: against each of three models, against their agreement
and against none, with their cards; and what every model does on all of them.

python -m benchmarks.sets --data cifar --out bench/cifar    # or photos, beats, clips; writes a section of results/transfer.md too
python -m benchmarks.sets --data beats --quick              # under a minute: few samples, writes nothing that stays

Three folders are made: `each` (the smallest flips found, of every model), `agreement` (those that flip all three) and `free`
(severities 1 to 5, no model asked but the reference they are calibrated on, where one is named).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import common, ecg
from benchmarks.pack_ecg import beats, evened
from benchmarks.peers_victims import clips
from benchmarks.train_ecg import ecg_victim
from benchmarks.video_agents import PALETTE as CLIP_PALETTE
from rlab.benchmarking import Benchmark, BenchmarkReport, make_benchmark, run_benchmark, verify_benchmark
from rlab.data.batch import Batch
from rlab.victims import Victim
from rlab.victims.zoo.clips import clip_victim


@dataclass(frozen=True)
class Source:
    """Data and three models of one kind, and how sets of them are made."""

    title: str
    data: Callable[[int], Batch]
    models: Callable[[], Mapping[str, Victim]]
    palette: tuple[str, ...]
    patch: int
    format: str
    samples: int
    budget: int
    reference: str | None = None  # of the severities; without one they are sixths of the reach


def _beats(count: int) -> Batch:
    """Beats of DS2, as many N as S as V."""
    batch = beats("test")
    return batch[evened(batch.y, torch.ones(len(batch), dtype=torch.bool), count, ecg.LABELS, seed=0)]


SOURCES = {
    "cifar": Source(
        "CIFAR-10", common.cifar_test,
        lambda: {name: common.cifar_victim(name) for name in ("resnet20", "vgg", "wide_resnet")},
        ("illuminate@0.2,0.4", "gaussian_noise@0.1,0.2"), 4, "parquet", 16, 50, "resnet20",
    ),
    "photos": Source(
        "ImageNet photos", common.photos,
        lambda: {f"lite{number}": common.photo_victim(number=number) for number in range(3)},
        ("illuminate@0.2,0.4", "gaussian_blur@4", "gaussian_noise@0.2,0.4"), 28, "webdataset", 6, 40, "lite0",
    ),
    "beats": Source(
        "MIT-BIH beats", _beats, lambda: {name: ecg_victim(name) for name in ("cnn", "resnet", "transformer")},
        ecg.PALETTE, ecg.PATCH, "wfdb", 18, 50,
    ),
    "clips": Source(
        "UCF-101 clips", clips,
        lambda: {n: clip_victim(common.WEIGHTS / f"{n}.safetensors") for n in ("c3d", "tsn", "slowfast")},
        CLIP_PALETTE, 14, "frames", 6, 30,
    ),
}  # fmt: skip


def make(source: Source, folder: Path, samples: int, budget: int, seed: int) -> tuple[list[Benchmark], dict[str, Any]]:
    """The three folders, every file of them verified by its models, and what all models do on them."""
    models, batch = dict(source.models()), source.data(samples)
    options: dict[str, Any] = {
        "palette": source.palette, "patch": source.patch, "format": source.format, "budget": budget, "seed": seed,
    }  # fmt: skip
    reference = {source.reference: models[source.reference]} if source.reference else {}
    severities: dict[str, Any] = {"sets": "free", "ladder": "severity:1..5", "reference": source.reference}
    few = max(1, samples // 3)  # each asks three models: saved more often
    made = [
        make_benchmark(models, batch, folder / "each", ladder="flip", **options),
        make_benchmark(models, batch, folder / "agreement", ladder="flip", sets="agreement", chunk=few, **options),
        make_benchmark(reference, batch, folder / "free", **severities, **options),
    ]
    checked = [verify_benchmark(each, {} if each.free else models) for each in made]
    report = run_benchmark(made, models, corruptions=False, seed=seed)
    mismatches = sum(len(each.mismatches) for each in checked)
    return made, {"report": report, "files": sum(each.files for each in checked), "mismatches": mismatches}


def transfer(made: list[Benchmark], report: BenchmarkReport) -> str:
    """Accuracy on the files of a set, at the flip, and of the set without a model at each severity."""
    cells = {(row["set"], row["level"], row["model"]): row for row in report.transfer}
    rows = []
    for benchmark in made:
        for victim, level, stored in benchmark.sets():
            name = f"{benchmark.name}/{victim}"
            against = " + ".join(benchmark.manifest.members) or ("no model" if benchmark.free else victim)
            far = sorted(row["l2"] for row in stored)[len(stored) // 2]
            shares = (f"{cells[name, level, model]['accuracy']:.0%}" for model in report.models)
            rows.append((against, level, f"{len(stored)} of {len(benchmark.of(victim, level))}", f"{far:.2f}", *shares))
    return common.table(("made against", "level", "files", "median L2", *report.models), rows)


def section(source: Source, o: argparse.Namespace, made: list[Benchmark], found: Mapping[str, Any]) -> str:
    severities = made[-1].manifest
    on = f"calibrated on `{source.reference}`" if severities.reference else "sixths of the reach"
    about = (
        f"{o.samples} samples, palette `{' '.join(source.palette)}`, patch {source.patch}, budget {o.budget}, format "
        f"`{source.format}`; severities {on}. Accuracy on the files of each set; {found['files']} files, "
        f"{found['mismatches']} of which do not hold. Made against (down), tested on (across)."
    )
    parts = [f"## Sets: {source.title}", about, transfer(made, found["report"]), common.circumstances(o.seed)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=tuple(SOURCES), default="cifar")
    parser.add_argument("--out", type=Path, help="where the sets are kept; a run that was stopped goes on there")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few samples and queries; writes nothing")
    parser.add_argument("--page", type=Path, default=common.RESULTS / "transfer.md")
    o = parser.parse_args()
    source, began = SOURCES[o.data], time.monotonic()
    o.samples = o.samples or (4 if o.quick else source.samples)
    o.budget = o.budget or (25 if o.quick else source.budget)
    try:
        with tempfile.TemporaryDirectory() as beside:
            made, found = make(source, o.out or Path(beside), o.samples, o.budget, o.seed)
            text = section(source, o, made, found)
    except common.Absent as why:
        print(f"skipped: {why}")
        common.finish({})
        return
    print(text)
    if not o.quick:
        common.replace_section(o.page, text)
    figures = {"files": found["files"], "verified_mismatches": found["mismatches"]}
    common.finish(figures | {"seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
