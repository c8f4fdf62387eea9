"""Where does the model look? Our map against the methods people use, on three kinds of ground truth.

python -m benchmarks.explain                    # all sections: raw scores, then the page benchmarks/results/explain.md
python -m benchmarks.explain --only pets        # one section; may be repeated
python -m benchmarks.explain --device cuda --only pets --part 1/3    # a third of the samples: parts may run side by side
python -m benchmarks.explain --page             # the page from the raw scores that are there, parts put together
python -m benchmarks.explain --pack             # the beats alone, as a small file for machines without the records
python -m benchmarks.explain --quick            # under a minute, writes nothing

pets    Oxford-IIIT Pets with EfficientNet-Lite0 at 224 pixels; truth: object and border of the trimaps. Settings were chosen on
        some of the first 40 images; figures are of the others that the model has right.
beats_* MIT-BIH beats of the test patients (DS2) with three networks; truth: R +- 50 ms. Settings: beats of DS1.
clips   simulated clips, test split, with the demo's network; truth: where the object is.

--quick asks the model about a few of the same samples; RISE's scores with 8,000 queries take longer than a minute and are read
from the raw scores of the full run, of the same samples (`explain_quick`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import common
from benchmarks.explain_belief import interval_coverage, within
from benchmarks.explain_page import OURS, figures, join_parts, plain_scores, read_raw, write
from benchmarks.explain_quick import NETS, SEEN, STEPS, pets_victim, quick_figures
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.errors import MissingExtra
from rlab.explanation.base import ExplanationTask, Method, mean_fill
from rlab.explanation.belief import BY_RANK, Belief
from rlab.explanation.black_box import Middle, Occlusion, Rise
from rlab.explanation.captum_methods import KernelShap, Lime, captum
from rlab.explanation.compared import MethodComparison, ScoredMethod
from rlab.explanation.credit import Credit
from rlab.explanation.judge import MethodJudge
from rlab.explanation.maps import even_grid, threshold, to_unit
from rlab.explanation.options import read_masks
from rlab.explanation.scores import area, curves, overlap
from rlab.explanation.sensitivity import Hsic, Sobol
from rlab.explanation.spread import SETTINGS, Spread
from rlab.explanation.white_box import AblationCam, GradCam, GradCamPlusPlus, IntegratedGradients, ScoreCam
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

PACKED = common.HERE.parent / "data" / "beats_explained.npz"
CHECKED, SHORTER, MEASURED = (
    16,
    30,
    20,
)  # samples of stability and sanity, of the scores within fewer queries, of intervals
PATCHES, OCCLUDED = (32, 8, 4), (32, 14, 6)  # along an axis, by rank from 1: of peers that ask about sets, of occlusion


@dataclass(frozen=True)
class Spreading(Method):
    """Another method's map under our spreading: how much of our Dice is owed to that step."""

    name = "spread"
    gradients = True
    inner: Method = field(default_factory=GradCam)

    def draw(self, task: ExplanationTask) -> Tensor:
        settings = SETTINGS[len(task.size) - 1]  # lifted and spread exactly as our own influence is
        cover = to_unit(self.inner.draw(task).clamp(min=0)) ** settings.lift
        return to_unit(Spread()(cover, task.x0, task.bounds)) ** settings.lift if settings.spread else cover


def methods(size: tuple[int, ...], channels: bool) -> dict[str, Method]:
    """All methods by the name of their row; ours and those 'at equal queries' ask as much as each other."""
    rank = len(size)
    equal, along = BY_RANK[rank - 1].queries - 1, PATCHES[rank - 1]
    found: dict[str, Method] = {
        OURS: Belief(),
        "credit (ours)": Credit(),
        "rise": Rise(),
        "rise, equal queries": Rise(masks=equal),
        "rise, equal queries, blurred": Rise(masks=equal, remove="blur"),
        "sobol": Sobol(samples=equal // (1 + len(even_grid(size, along))), along=along),
        "hsic": Hsic(masks=equal, along=along),
        "occlusion": Occlusion(along=OCCLUDED[rank - 1]),
        "gradcam": GradCam(),
        "gradcam++": GradCamPlusPlus(),
        "gradcam, spread as ours": Spreading(),
        "middle": Middle(),
    }
    if channels:  # one pass a channel
        found |= {"ablationcam": AblationCam(), "scorecam": ScoreCam()}
    try:
        captum()
    except MissingExtra as error:
        print(f"left out Kernel SHAP, LIME and integrated gradients: {error}")
    else:
        found |= {"kernel shap": KernelShap(equal, along), "lime": Lime(equal, along)}
        found["integrated gradients"] = IntegratedGradients()
    return found


@dataclass
class Bench:
    """The options of a run."""

    device: str
    samples: int | None
    seed: int
    raw: Path
    part: tuple[int, int]  # which of how many

    def take(self, batch: Batch) -> Batch:
        """This part's samples."""
        number, parts = self.part
        return batch[: self.samples][number - 1 :: parts]

    def share(self, usual: int) -> int:
        return -(-usual // self.part[1])

    def keep(self, key: str, values: Mapping[str, Any]) -> None:
        number, parts = self.part
        path = self.raw / (f"explain-{key}.json" if parts == 1 else f"explain-{key}.{number}of{parts}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, separators=(",", ":")) + "\n")


def correct(victim: Victim, batch: Batch) -> Batch:
    """The samples that the victim has right."""
    found = torch.cat([victim(x.to(victim.device)).argmax(1).cpu() for x in batch.x.split(256)])
    return batch[(found == batch.y).nonzero().flatten().tolist()]


def compete(bench: Bench, key: str, name: str, victim: TorchVictim, batch: Batch, channels: bool) -> None:
    """Judges all methods, then our map and others within fewer queries, then our intervals; each is kept once it is there."""
    began = time.perf_counter()
    judge = MethodJudge(
        steps=STEPS,
        stability=True,
        sanity=True,
        checked=bench.share(CHECKED),
        tell=lambda m, s: print(f"{name}: {m}, {s.explanation.seconds:.0f} s", flush=True),
    )
    found = judge(victim, batch, methods(batch.size, channels), batch.y, bench.seed)
    raw: dict[str, Any] = {
        "name": name,
        "circumstances": common.circumstances(bench.seed),
        "seconds": time.perf_counter() - began,
        "ids": list(batch.ids),
        "methods": plain_scores(more_scores(found, victim)),
    }
    bench.keep(key, raw)
    raw["within"] = within(victim, batch[: bench.share(SHORTER)], bench.seed, PATCHES[batch.rank - 1])
    bench.keep(key, {**raw, "seconds": time.perf_counter() - began})
    some = batch[: bench.share(MEASURED)]
    explained = Belief()(victim, some, some.y, bench.seed)
    raw["coverage"] = [interval_coverage(victim, some, explained), int(explained.regions.effect.numel())]  # type: ignore[union-attr]
    bench.keep(key, {**raw, "seconds": time.perf_counter() - began})


def more_scores(comparison: MethodComparison, victim: Victim) -> MethodComparison:
    """The Dice of each map cut by the rule, and deletion with the sample's mean in place of what is hidden."""
    batch, judged = comparison.batch, {}
    x0 = batch.x.to(victim.device)
    assert batch.masks is not None
    for name, method in comparison.judged.items():
        maps, labels = method.explanation.maps, method.explanation.labels
        own = {
            "dice_map": overlap(threshold(maps, "otsu"), batch.masks)["dice"],
            "deletion_grey": area(curves(victim, x0, mean_fill(x0).expand_as(x0), maps, labels, STEPS)),
        }
        judged[name] = ScoredMethod(method.explanation, {**method.scores, **own})
    return replace(comparison, judged=judged)


def pets(bench: Bench) -> None:
    victim = pets_victim(bench.device)
    batch = common.pets()[SEEN:]
    batch = replace(batch, masks=read_masks(common.real("pets", "trimaps"), batch, (1, 3)))
    compete(bench, "pets", "Pets", victim, bench.take(correct(victim, batch)), channels=False)


def test_beats(seed: int) -> Batch:
    """Up to 40 beats of every class, the classes in turn."""
    from benchmarks.pack_ecg import beats

    if PACKED.exists():
        return replace(load(PACKED, rate=360.0), unit="mV")
    every = beats("test")
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed)).tolist()
    groups = [[row for row in order if every.y[row] == label][:40] for label in every.y.unique()]
    return every[[group[turn] for turn in range(40) for group in groups if turn < len(group)]]


def beats_of(bench: Bench, name: str) -> None:
    from benchmarks.train_ecg import ecg_victim

    victim = ecg_victim(name, bench.device)
    chosen = correct(victim, test_beats(bench.seed))
    compete(bench, f"beats_{name}", f"Beats, {name}", victim, bench.take(chosen), channels=True)


def clips(bench: Bench) -> None:
    victim = TorchVictim(demo_victim("clips").model, device=bench.device)
    batch = correct(victim, load("demo:clips", limit=62))
    compete(bench, "clips", "Clips", victim, bench.take(batch[:60]), channels=True)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "pets": pets,
    **{f"beats_{name}": partial(beats_of, name=name) for name in NETS},
    "clips": clips,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="one section; may be repeated")
    parser.add_argument("--samples", type=int, help="at most so many in each section")
    parser.add_argument("--part", default="1/1", help="1/3 is the first third of the samples")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--raw", type=Path, default=common.RAW, help="folder of the raw scores")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "explain.md")
    parser.add_argument("--page", action="store_true", help="measure nothing: the page from the raw scores")
    parser.add_argument("--pack", action="store_true", help="write the beats' file")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    number, parts = map(int, given.part.split("/"))
    bench = Bench(given.device, given.samples, given.seed, given.raw, (number, parts))
    if given.quick:
        common.finish(quick_figures(read_raw(given.raw), given.only))
        return
    if given.pack:
        from benchmarks.pack_ecg import write as write_beats

        write_beats(test_beats(given.seed), PACKED)
        return
    for name in () if given.page else given.only or SECTIONS:
        try:
            SECTIONS[name](bench)
        except common.Absent as error:
            print(f"{name} is left out: {error}")
    if parts == 1:
        raws = join_parts(given.raw)
        write(raws, given.out)
        common.finish(figures(raws))


if __name__ == "__main__":
    main()
