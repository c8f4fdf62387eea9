"""Benchmarks made against five CIFAR-10 models, what each does on the others', and how they rank by the distance to an error.

python -m benchmarks.transfer                  # 500 images, then 250 and 1,000 for time and memory; benchmarks/results/transfer.md
python -m benchmarks.transfer --ranks --others 32   # only the ranking, minutes; its section of the page
python -m benchmarks.transfer --confidences --others 32   # only the confidences
python -m benchmarks.transfer --quick          # under a minute: 6 images ranked, and benchmarks.labels --quick; writes nothing
python -m benchmarks.transfer --policy agent.safetensors --device cuda

Sets are 8-bit PNG files; every figure is of what was read back from them. Accuracy is over the samples a level holds. Uniform
corruptions are filters over the whole image with no agent, at the severity whose mean L2 is the level's own. The palette was
chosen after trials on up to 100 of these same images, so the comparison with its own filters is not blind: with colour shifts on
4x4 patches a uniform tint hurt the robust model more than the set did, and with noise, blur, dead pixels and light together
uniform blur hurt every other model more than the flips did. The last table tells how filters it does not use compare.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import common, labels
from benchmarks.transfer_tables import growth, levels, matrix, mean_l2, uniform
from rlab.benchmarking import Benchmark, BenchmarkReport, make_benchmark, run_benchmark, save_report, verify_benchmark
from rlab.core import defaults
from rlab.victims.torch_module import TorchVictim

MADE_AGAINST = "resnet20"
ROBUST = "cnn_a_mix"  # certified
SHIFTS = "small shifts"  # of the kind its certificate is about
RANKED = {SHIFTS: ("channel_shift@0.05", 2), "light": ("illuminate@0.2,0.4", 4)}
RANKS = (
    "Sets made against each of the five models on the first {images} test images, budget {budget}. A sample's distance is the "
    "least L2 of its files in all five sets on which a model errs, the original's 0 among them, at most the reach in the sets' "
    "card. The area is the mean distance over the reach. Intervals draw samples and sets. `cnn_a_mix` is certified robust "
    "against small changes of every value: who is robust is a question of the palette. The small shifts were "
    "chosen after the ranking under light had been seen."
)
CONFIDENCES, CONFIDENCE_PALETTE = "confidence:0.9,0.7,0.5,flip,0.3,0.1", "illuminate@0.05,0.1,0.2"
VICTIMS = ("resnet20", "vgg", "wide_resnet", "mixer", ROBUST)
PALETTE, PATCH, LADDER = "illuminate@0.2,0.4", 4, "times:1.5,2"
# Filters the benchmark does not use; the last is a tint.
FURTHER = ("gaussian_noise", "gaussian_blur", "dead_pixel", "contrast", "channel_shift-+-")
Options = argparse.Namespace


def victim(name: str, device: str) -> TorchVictim:
    model = common.cifar_victim(name)
    model.model.to(device)
    model.device = torch.device(device)
    return model


def make(o: Options, against: Sequence[str], images: int, folder: Path, ladder: str) -> dict[str, Any]:
    """One benchmark -> seconds, queries, and the memory it took beyond what models and data need."""
    victims, batch = {name: victim(name, o.device) for name in against}, common.cifar_test(images)
    for model in victims.values():
        model(batch.x[:64].to(o.device), "train")  # what a first call allocates is no cost of the benchmark
    options = {"palette": o.palette.split(), "patch": o.patch, "policy": o.policy, "budget": o.budget, "steps": o.steps}
    before, began = _memory(), time.perf_counter()
    benchmark = make_benchmark(victims, batch, folder, ladder=ladder, seed=o.seed, format="png", **options)
    queries = sum(row[f"queries_{phase}"] for row in benchmark.rows for phase in ("search", "cleanup", "verify"))
    seconds = time.perf_counter() - began
    return {"images": images, "seconds": seconds, "megabytes": _memory() - before, "queries": queries}


def _memory() -> float:
    """The most this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(o: Options, images: int, folder: Path) -> dict[str, Any]:
    """`make` in a process of its own, so that its memory is its own."""
    words = ["--make", str(images), str(folder), "--policy", o.policy, "--palette", o.palette, "--device", o.device]
    words += [f"--{name}={getattr(o, name)}" for name in ("patch", "budget", "steps", "seed", "ladder", "threads")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.transfer", *words],
        cwd=common.HERE.parent,
        stdout=subprocess.PIPE,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"made {images} images: {figures['seconds']:.0f} s, {figures['queries']} queries", flush=True)
    return figures


def verified(folder: Path, o: Options, figures: dict[str, float]) -> str:
    """Every file read again, its victim asked again."""
    checked = verify_benchmark(folder, {MADE_AGAINST: victim(MADE_AGAINST, o.device)})
    files, wrong, asked = checked.files, len(checked.mismatches), checked.asked
    figures |= {"files": files, "verified_mismatches": figures["verified_mismatches"] + wrong, "asked": asked}
    return f"{files:,} files read again: {wrong} do not hold; ResNet-20 asked about {asked:,} of them."


def ranks(o: Options, place: Path, figures: dict[str, float]) -> str:
    """All models ranked by distance, once for each palette, on sets made against every one of them."""
    parts = ["## Ranking by distance", RANKS.format(images=o.others, budget=o.rank_budget)]
    models = {name: victim(name, o.device) for name in VICTIMS}
    for name, (palette, patch) in RANKED.items():
        if o.quick and name != SHIFTS:
            continue
        folder = place / f"ranked-{name.replace(' ', '-')}"
        options = argparse.Namespace(**vars(o) | {"palette": palette, "patch": patch, "budget": o.rank_budget})
        make(options, VICTIMS, o.others, folder, "flip")
        checked = verify_benchmark(folder, models)
        figures["verified_mismatches"] = figures.get("verified_mismatches", 0) + len(checked.mismatches)
        report = run_benchmark([folder], models, corruptions=False, seed=o.seed)
        key = "robust_rank" if name == SHIFTS else f"robust_rank_{name}"
        figures[key] = next(s.rank for s in report.standings if s.model == ROBUST)
        reach = report.areas[0]["reach"]
        parts += [
            f"{name[0].upper()}{name[1:]}: `{palette}`, patch {patch}; the axis ends at {reach:.2f}.",
            _ranks(report),
        ]
    return "\n\n".join(parts)


def _ranks(report: BenchmarkReport) -> str:
    own = {
        row["model"]: row
        for row in report.areas
        for s in report.standings
        if row["model"] == s.model and row["set"] in s.victim_of
    }
    rows = []
    for s in report.standings:
        area, median = (f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]" for e in (s.area, s.flip_distance))
        flips, quartiles = own[s.model], f"{s.quartiles[0]:.2f}–{s.quartiles[1]:.2f}"
        held = f"{flips['never']} of {flips['samples']}"
        rows.append((s.model, area, median, quartiles, f"{flips['flip_distance']:.2f}", held, f"{s.best}–{s.worst}"))
    head = ("model", "area", "median L2 to err", "quartiles", "median flip, own set", "never flipped", "rank in 95%")
    return common.table(head, rows)


def thresholds(o: Options, place: Path, figures: dict[str, float]) -> str:
    """A set around the flip of ResNet-20: how near its files are to the confidences asked for, and how many were not reached."""
    folder, images = place / "thresholds", 4 if o.quick else o.others
    options = argparse.Namespace(**vars(o) | {"palette": CONFIDENCE_PALETTE, "budget": o.rank_budget})
    make(options, [MADE_AGAINST], images, folder, CONFIDENCES)
    whole, rows = Benchmark.load(folder), []
    figures |= {"threshold_error": whole.threshold_error}
    checked = verify_benchmark(folder, {MADE_AGAINST: victim(MADE_AGAINST, o.device)})
    figures["verified_mismatches"] = figures.get("verified_mismatches", 0) + len(checked.mismatches)
    missed = 0
    for level in whole.ladder.names:
        stored, asked = whole.stored(MADE_AGAINST, level), whole.of(MADE_AGAINST, level)
        missed += len(asked) - len(stored)
        sure = [row["probability"] for row in stored]
        span = f"{min(sure):.3f}–{max(sure):.3f}" if sure else "–"
        flips = {row["place"]: row["l2"] for row in whole.stored(MADE_AGAINST)}
        shares = [row["l2"] / flips[row["place"]] for row in stored if row["place"] in flips]
        beside = f"{sum(shares) / len(shares):.2f}" if shares else "–"
        rows.append((level, f"{len(stored)} of {len(asked)}", mean_l2(whole, level), beside, span))
    figures["thresholds_unreached"] = missed
    about = (
        f"Ladder `{CONFIDENCES}`, palette `{CONFIDENCE_PALETTE}`, patch {o.patch}, the first {images} test images, "
        f"{o.rank_budget} queries a level and up to {o.steps} to come near it. A file counts within 0.05 of its level; largest "
        f"gap {whole.threshold_error:.3f}. Of a sample, no level keeps more distortion than a severer one; means are over "
        "the samples that reached a level."
    )
    head = ("level", "reached", "mean L2", "L2 over the same sample's flip, mean", "confidence of the files")
    return "\n\n".join(["## Confidences on both sides of the flip", about, common.table(head, rows)])


def graded(o: Options, folder: Path, more: Sequence[Path], figures: dict[str, float]) -> list[str]:
    models = {name: victim(name, o.device) for name in VICTIMS}
    report = run_benchmark([folder, *more], models, seed=o.seed)
    name = f"{folder.name}/{MADE_AGAINST}"
    if o.pictures:
        save_report(report, o.pictures)
    parts = [levels(report, folder, MADE_AGAINST, figures), matrix(report)]
    other = run_benchmark([folder], models, corruptions=FURTHER, seed=o.seed)
    return [*parts, uniform(report, name, True, figures), uniform(other, name, False, figures)]


def others_sections(page: Path) -> list[str]:
    """Those that `benchmarks.sets` and `benchmarks.overlap` wrote."""
    parts = page.read_text(encoding="utf-8").rstrip("\n").split("\n\n## ")[1:] if page.exists() else []
    return [f"## {part}" for part in parts if part.startswith(("Sets: ", "Overlapping"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument(
        "--sizes", default="250,1000", help="further sizes for time and memory, with commas; '' for none"
    )
    parser.add_argument("--others", type=int, default=100, help="images of the sets made against every model")
    for name, what in (("ranks", "ranking"), ("confidences", "confidences")):
        parser.add_argument(f"--{name}", action="store_true", help=f"only the {what}; only that section is written")
    parser.add_argument("--rank-budget", type=int, default=60, help="queries a sample of the ranked sets")
    parser.add_argument("--policy", default=defaults.POLICY, help="a policy or an agent's file")
    parser.add_argument("--palette", default=PALETTE)
    parser.add_argument("--patch", type=int, default=PATCH)
    parser.add_argument("--ladder", default=LADDER)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--folder", type=Path, help="where the benchmarks are kept; a run that was stopped goes on there"
    )
    parser.add_argument("--pictures", type=Path, help="a folder for the report's tables and picture")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "transfer.md")
    parser.add_argument(
        "--make", nargs=2, help=argparse.SUPPRESS
    )  # images and folder: one benchmark, in its own process
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    if o.make:
        print(json.dumps(make(o, [MADE_AGAINST], int(o.make[0]), Path(o.make[1]), o.ladder)))
        return
    if o.quick:
        o.others, o.rank_budget, o.steps = 6, 40, 20
    began, figures = time.monotonic(), dict[str, float]()
    try:
        with tempfile.TemporaryDirectory() as beside:
            place = o.folder or Path(beside)
            ranked = "" if o.confidences else ranks(o, place, figures)
            around = "" if o.ranks else thresholds(o, place, figures)
            pages = [] if o.quick or o.ranks or o.confidences else _all(o, place, figures)
        if o.quick:
            figures["label_only_ratio_500"] = labels.quick_ratio()
    except common.Absent as why:
        print(f"skipped: {why}")
        common.finish({})
        return
    if o.ranks or o.confidences:
        for section in filter(None, (ranked, around)):
            common.replace_section(o.out, f"{section}\n\n{common.circumstances(o.seed)}")
    elif not o.quick:
        rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
        rules += f" Palette `{o.palette}`, patch {o.patch}, ladder `{o.ladder}`, policy `{Path(o.policy).name}`, budget {o.budget}"
        pages = [ranked, around, *pages, *others_sections(o.out)]
        common.write_page(o.out, "Transfer", f"{rules} + {o.steps} a level.", o.seed, pages)
    common.finish(figures | {"seconds": time.monotonic() - began})


def _all(o: Options, place: Path, figures: dict[str, float]) -> list[str]:
    sizes = sorted({o.images, *(int(n) for n in o.sizes.split(",") if n)})
    folders = {n: place / f"cifar{n}" for n in sizes}
    done = {n: (folders[n] / "metadata.parquet").exists() for n in sizes}
    made = [apart(o, n, folders[n]) for n in sizes]
    more = [place / "others"]
    make(o, VICTIMS[1:], o.others, more[0], "flip")
    head = "## Files\n\n" + verified(folders[o.images], o, figures)
    timed = [m for n, m in zip(sizes, made, strict=True) if not done[n]]  # one that was there already tells no time
    return [head, *graded(o, folders[o.images], more, figures), *([growth(o, timed, figures)] if timed else [])]


if __name__ == "__main__":
    main()
