"""How near a flip of a clip is within so many queries: ours, `square` and `random` on four victims, and what each part brings.

python -m benchmarks.video --unpack data/clips.npz               # once: data/clips_train.npz, data/clips_test.npz, and, where
                                                                 # OpenCV is, data/clips_saliency.safetensors
python -m benchmarks.video --train runs/clips --minutes 8        # the agents of agents/clips.yaml, and those of the ablations
python -m benchmarks.video --arrays clips.npz                    # the test clips as arrays, for a machine without PyAV
python -m benchmarks.video --packed clips.npz --device cuda --only curves,ablations --raw out/video.json
python -m benchmarks.video --agents runs/clips --only variants   # agents that were trained without a part
python -m benchmarks.video --page                                # results/video.md from results/raw/video.json, nothing is run
python -m benchmarks.video --quick                               # under a minute, writes nothing; see `quick`

Six UCF-101 actions, groups 4-7, clips the victim has right. A query is one clip that reaches the victim, search and cleanup alike.
MAP within q is the mean absolute change times 255 of the best flip within q queries, the median over attacked clips, one without a
flip counting as infinitely far; intervals are 95%, by bootstrap over clips. An area is the mean of log MAP over the first 200
queries, no flip counting as MAP 64, and an area over another is the ratio of the geometric means: .8 is a MAP 20% lower all along.
`square` and `random` get the agents' cleanup: the same regions, the same patience. `greedy` would ask about every patch and entry
at every step, over 5,000 queries for its first change, and is left out. No agent was trained on a test clip, nor on SlowFast.
Of `auto`, 17 settings were tried on 60 training clips of C3D, TSN and TSM, and one was changed; `square` and `random` are as they
come. TSN's rows are of a second run of the same seed, as the first one's file was lost; its MAP within 50 was 6.34 there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rlab
from benchmarks import common
from benchmarks.video_agents import packed_clips, train_all, write_arrays, write_clips
from benchmarks.video_bench import Bench, Curve, area_ratio, map_ratio, recall, write_page
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra
from rlab.policies.base import Policy

SIDES = (5, 13)  # of patches, the papers'
ABLATED = "tsm"
AREA = 200  # queries
SEEDS = (0, 1, 2)
AGENTS = Path(rlab.__file__).parent / "assets" / "agent_clips.safetensors"
QUICK_SIZE, QUICK_PATCH, QUICK_AREA = (36, 48), 4, 50
Rows = Mapping[str, tuple[Callable[[], str | Policy[Any]], Mapping[str, Any]]]


def curves(bench: Bench) -> None:
    """Every attack on every victim."""
    names = [name for name, _ in bench.victims()]
    for labels in (("auto", "square"), ("two agents", "random")):
        for name in names:
            for label in labels:
                bench.run("curves", name, label, _policy(bench, label))


def _policy(bench: Bench, label: str) -> str | Policy[Any]:
    return bench.agent() if label == "two agents" else label if label == "auto" else bench.reduced(label)


def ablations(bench: Bench) -> None:
    """The same agents with each part left out."""
    rows: Rows = {
        "two agents, L1 + L2": (bench.agent, {}),
        "without the temporal agent": (lambda: bench.agent(temporal=False), {}),
        "L1 only": (lambda: bench.agent(levels=1), {}),
        "without reverse removal": (bench.agent, {"cleanup": False}),
        "removal by single patches": (lambda: bench.agent(by_region=False), {}),
        **{f"patch {side} x {side}": (bench.agent, {"patch": side}) for side in SIDES},
    }
    _run(bench, "ablations", rows)


def beliefs(bench: Bench) -> None:
    """The belief search with a part left out, or with what the agents see by."""
    said = {
        "auto": "auto",
        "nothing expected of the middle": "auto(central=0)",
        "nothing shared by frames and cells": "auto(shared=0)",
        "single patches from the start": "auto(coarse=False)",
        "one change a query": "auto(changes='single')",
        "adding alone, then reverse removal": "auto(changes='add')",
        "along the agents' directions": f"belief(prior='{AGENTS}')",
    }
    _run(bench, "beliefs", {label: (lambda spec=spec: spec, {}) for label, spec in said.items()})


def axes(bench: Bench) -> None:
    """The belief search where frames and places are chosen together, and where only one of them is: nothing is trained."""
    frames, height, width = bench.batch.size
    shapes = {
        "frames and places": (1, bench.patch, bench.patch),
        "places alone, on all frames": (frames, bench.patch, bench.patch),
        "frames alone, each whole": (1, height, width),
    }
    for label, patch in shapes.items():
        for seed in SEEDS:
            replace(bench, seed=seed).run("axes", ABLATED, label, "auto", patch=patch)


def variants(bench: Bench) -> None:
    """Agents trained for the same time from the same prior with a part left out."""
    names = {
        "two agents, L1 + L2": "pair",
        "one agent": "one",
        "L1 only": "coarse",
        "without objectness and motion": "plain",
    }
    _run(bench, "variants", {label: (lambda name=name: bench.agent(name), {}) for label, name in names.items()})


def encoders(bench: Bench) -> None:
    """The small encoder against MobileNet-V2, where agents were trained with it and its weights are at hand."""
    if bench.mobilenet is None:
        raise common.Absent("name weights with --mobilenet FILE, at --train too")
    mobile = {"MobileNet-V2": (lambda: bench.agent("mobilenet", mobilenet=bench.mobilenet), {})}
    _run(bench, "encoders", {"small encoder": (bench.agent, {}), **mobile})


def _run(bench: Bench, section: str, rows: Rows) -> None:
    for label, (policy, options) in rows.items():
        try:
            bench.run(section, ABLATED, label, policy(), **options)
        except common.Absent as why:
            print(f"skipped {label}: {why}")


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "curves": curves,
    "ablations": ablations,
    "beliefs": beliefs,
    "axes": axes,
    "variants": variants,
    "encoders": encoders,
}
TITLES = {
    "curves": "",
    "ablations": "What each part of the agents brings",
    "beliefs": "What each part of the belief search brings",
    "axes": "Frames and places together, or one of them alone",
    "variants": "Agents trained without a part",
    "encoders": "Frame encoders",
}


def quick() -> dict[str, float]:
    """C3D, SlowFast and TSM on two test clips each that they have right, at half the size in patches of half the side, so as many
    patches as ever; a process a victim.

    `c3d_map_ratio_50` is the median MAP within 50 queries over `square`'s, 0 where `square` has not flipped half of them;
    `pair_over_one` the area of the two agents that ship over that of the spatial one alone, 50 queries, TSM; `success` the share
    flipped within 200. Two clips say that it runs, not how well: how many and which were changed after ratios had been seen
    (C3D and SlowFast within 50 / 200: one clip 1.25 / .79 and 1.39 / .90, three 1.11 / .32 and 0 / .37,
    two .29 / .60 and 0 / 0). The claim is the page's, of 112 clips.
    Without the clips or the weights the demonstration's clips stand in, under keys of their own.
    """
    try:
        common.real("ucf6")
        with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            found = list(pool.map(quick_figures, ("slowfast", "c3d", ABLATED)))
    except (common.Absent, MissingExtra) as why:
        print(f"only the demonstration's clips: {why}")
        bench = Bench(rlab.load("demo:clips", limit=4), budget=60)
        ours, square = (bench.run("curves", "demo", label, _policy(bench, label)) for label in ("auto", "square"))
        return {"demo_map_ratio_50": map_ratio(ours, square, 50).value, "demo_success": ours.success(60).value}
    figures = {key: value for one in found for key, value in one.items()}
    return figures | {"success": min(value for key, value in figures.items() if key.endswith("_success"))}


def quick_figures(name: str) -> dict[str, float]:
    """What --quick tells of one victim."""
    batch = rlab.load(common.real("ucf6"), groups="4", size=QUICK_SIZE, frames=16)
    bench = Bench(batch, budget=QUICK_AREA if name == ABLATED else 200, patch=QUICK_PATCH)
    right = (bench.victim(name)(batch.x).argmax(1) == batch.y).nonzero()[:, 0]
    bench.batch = batch[[int(right[len(right) * part // 4]) for part in (1, 3)]]  # the middles of two halves of them
    if name == ABLATED:
        two, one = (bench.run("ablations", name, f"temporal={on}", bench.agent(temporal=on)) for on in (True, False))
        return {"pair_over_one": area_ratio([two], [one], QUICK_AREA).value}
    ours = bench.run("curves", name, "auto", "auto")
    square = bench.run("curves", name, "square", bench.reduced("square"))
    figures = {f"{name}_map_ratio_{q}": map_ratio(ours, square, q).value for q in (50, 200)}
    return figures | {f"{name}_success": ours.success(200).value}


def clips(packed: Path | None) -> Batch:
    """Groups 4-7 of the six actions: from the clips, from arrays, or from a pack of benchmarks.train_clips."""
    if packed is None:
        from benchmarks.train_clips import TEST
        from rlab.victims.zoo.clips import CLIP_FRAMES, CLIP_SIZE

        return rlab.load(common.real("ucf6"), groups=TEST, size=CLIP_SIZE, frames=CLIP_FRAMES)
    with np.load(packed, allow_pickle=False) as held:
        arrays = "x" in held
    return rlab.load(packed) if arrays else packed_clips(packed, "test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--unpack", type=Path, help="write a pack of benchmarks.train_clips as arrays beside it, and leave"
    )
    parser.add_argument("--arrays", type=Path, help="write the test clips as arrays, and leave")
    parser.add_argument("--train", type=Path, help="train the agents into this folder, and leave")
    parser.add_argument(
        "--variants", default="", help="of --train, with commas; all where not said: pair,one,coarse,plain"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="of --train, for each of them")
    parser.add_argument("--mobilenet", help="weights of MobileNet-V2, to train and measure agents that use it")
    parser.add_argument(
        "--agents", type=Path, help="the folder that --train made; not said, what comes with the package"
    )
    parser.add_argument("--packed", type=Path, help="arrays of --arrays, or a pack, in place of the clips")
    parser.add_argument("--weights", type=Path, default=common.WEIGHTS, help="the victims' folder")
    parser.add_argument("--only", default="curves,ablations,beliefs,variants", help="sections, with commas")
    parser.add_argument("--clips", type=int, help="at most so many clips, spread over the classes")
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--patience", type=int, default=6, help="failed tries in a row that end a level of a cleanup")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--raw", type=Path, default=common.RAW / "video.json", help="where every curve is kept")
    parser.add_argument("--page", action="store_true", help="only write the page of what --raw holds")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "video.md")
    o = parser.parse_args()
    began = time.monotonic()
    if o.unpack:
        return common.finish(write_arrays(o.unpack) | {"seconds": time.monotonic() - began})
    if o.train:
        train_all(o.train, o.minutes, o.device, o.mobilenet, [name for name in o.variants.split(",") if name])
        return common.finish({"seconds": time.monotonic() - began})
    if o.quick:
        return common.finish(quick() | {"seconds": time.monotonic() - began})
    if o.arrays:
        return common.finish({"clips": write_clips(clips(o.packed), o.arrays)})
    chosen = [name.strip() for name in o.only.split(",")]
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}: choose of {', '.join(SECTIONS)}")
    if not o.page:
        batch = clips(o.packed)
        if o.clips is not None:
            batch = batch[torch.linspace(0, len(batch) - 1, min(o.clips, len(batch))).long().tolist()]
        bench = Bench(
            batch, o.raw, o.agents, o.weights, o.budget, o.patience, o.device, o.seed, mobilenet=o.mobilenet
        )  # fmt: skip
        for name in chosen:
            try:
                SECTIONS[name](bench)
            except (common.Absent, InputError, ImportError) as why:
                print(f"skipped {name}: {why}")
    rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
    write_page(o.raw, o.out, rules, TITLES, AREA)
    common.finish(_told(recall(o.raw)) | {"seconds": time.monotonic() - began})


def _told(held: list[Curve]) -> dict[str, float]:
    """The figures of the last line."""
    by = {(curve.victim, curve.attack): curve for curve in held if curve.section == "curves"}
    figures = {}
    for name in dict.fromkeys(victim for victim, _ in by):
        ours, square = by.get((name, "auto")), by.get((name, "square"))
        if ours is not None and square is not None:
            figures |= {f"{name}_map_ratio_{q}": map_ratio(ours, square, q).value for q in (10, 50, 200)}
            figures |= {f"{name}_first": ours.first().value, f"{name}_success": ours.success(300).value}
    return figures


if __name__ == "__main__":
    main()
