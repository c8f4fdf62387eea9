"""Where does the model look? Our map against the methods people use, on three kinds of ground truth.

python -m benchmarks.explain                    # all sections, results in benchmarks/results/explain.md
python -m benchmarks.explain --only pets        # one section; of pets, ecg, clips
python -m benchmarks.explain --device cuda      # the whole of it takes minutes on a GPU and many hours without one
python -m benchmarks.explain --quick            # under a minute: few samples, few queries, writes nothing

pets    Oxford-IIIT Pets with EfficientNet-Lite0 at 224 pixels; truth: object and border of the trimaps. The first 40 images
        were used to choose the method's settings; figures are of the others that the model has right.
ecg     MIT-BIH beats of the test patients (DS2) with three networks; truth: R +- 50 ms.
clips   simulated clips, test split, with the demo's network; truth: where the object is.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import common
from benchmarks.explain_belief import WITHIN, interval_coverage, within_table
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.explanation.base import ExplanationTask, Method, mean_fill
from rlab.explanation.belief import Belief
from rlab.explanation.black_box import Middle, Occlusion, Rise
from rlab.explanation.credit import AdversarialErasing, Credit
from rlab.explanation.maps import threshold, to_unit
from rlab.explanation.options import read_masks
from rlab.explanation.run import parse_method
from rlab.explanation.scores import MethodComparison, MethodJudge, ScoredMethod, area, curves, overlap
from rlab.explanation.sensitivity import Hsic, Sobol
from rlab.explanation.spread import SETTINGS, Spread
from rlab.explanation.white_box import AblationCam, GradCam, GradCamPlusPlus, IntegratedGradients, ScoreCam
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

SEEN = 40  # pets that settings were chosen on
CHECKED = 16  # samples that stability and sanity are taken over
OURS, EQUAL = "belief (ours)", "rise, equal queries"
BLACK_BOX = ("rise", EQUAL, "occlusion", "mask (ours)", "credit (ours)")
RULES = (
    "Masks are maps cut at Otsu's threshold. Queries are rows that reached the model for a map; those of the scores are not "
    "among them. Deletion and insertion have 50 steps: the highest points are blurred, or shown in the blurred input; "
    "'deletion, grey' puts the sample's mean in their place. Dice of the map: ours takes its mask from the spread "
    "map, so the map itself, cut by the same rule, is scored as well. Differences are ours minus "
    "the other's over the same samples. Brackets are 95% bootstrap intervals. Stability and sanity are over the "
    "first 16 samples. Settings of our method were chosen on the "
    "first 40 pets, on the clips' train split, and, of four settings, on 30 beats of DS2 for each network."
)
COLUMNS = (
    ("queries", "queries"),
    ("dice", "Dice"),
    ("iou", "IoU"),
    ("dice_map", "Dice of the map"),
    ("pointing", "pointing"),
    ("energy", "energy"),
    ("deletion", "deletion"),
    ("deletion_grey", "deletion, grey"),
    ("insertion", "insertion"),
    ("stability", "stability"),
    ("sanity", "sanity"),
)


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


@dataclass
class Bench:
    """The options of a run, and what it has found so far."""

    device: str
    samples: int | None
    seed: int
    quick: bool
    page: Path
    sections: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def count(self, usual: int) -> int:
        return 1 if self.quick else min(self.samples or usual, usual)

    def methods(self, along: int, channels: bool = True) -> dict[str, Method]:
        """All methods by the name of their row."""
        credit = Credit(sets=24, episodes=1, erasing=AdversarialErasing(width=3, steps=4)) if self.quick else Credit()
        masks = (24, 12) if self.quick else (8000, 700)
        found: dict[str, Method] = {
            OURS: Belief(queries=150 if self.quick else None),
            "credit (ours)": credit,
            "mask (ours)": parse_method("mask(budget=20)" if self.quick else "mask"),
            "rise": Rise(masks=masks[0]),
            EQUAL: Rise(masks=masks[1]),
            "rise, equal queries, blurred": Rise(masks=masks[1], remove="blur"),
            "sobol": Sobol(samples=1 if self.quick else 8, along=3 if self.quick else 8),
            "hsic": Hsic(masks=masks[1], along=3 if self.quick else 8),
            "occlusion": Occlusion(along=3 if self.quick else along),
            "gradcam": GradCam(),
            "gradcam++": GradCamPlusPlus(),
            "gradcam, spread as ours": Spreading(),
            "middle": Middle(),
        }
        if not self.quick and channels:  # one pass a channel
            found |= {"ablationcam": AblationCam(), "scorecam": ScoreCam()}
        if importlib.util.find_spec("captum"):
            found["integrated gradients"] = IntegratedGradients(steps=4 if self.quick else 50)
        else:
            print("left out integrated gradients: pip install captum")
        return found


def correct(victim: Victim, batch: Batch) -> Batch:
    """The samples that the victim has right."""
    found = torch.cat([victim(x.to(victim.device)).argmax(1).cpu() for x in batch.x.split(256)])
    return batch[(found == batch.y).nonzero().flatten().tolist()]


def compete(
    bench: Bench, name: str, victim: TorchVictim, batch: Batch, methods: Mapping[str, Method]
) -> MethodComparison:
    """Judges all methods and writes the section."""
    began = time.perf_counter()
    steps, checks = 4 if bench.quick else 50, not bench.quick
    judge = MethodJudge(
        steps=steps,
        stability=checks,
        sanity=checks,
        checked=CHECKED,
        tell=lambda m, s: print(f"{name}: {m}, {s.explanation.seconds:.0f} s"),
    )
    comparison = more_scores(judge(victim, batch, methods, batch.y, bench.seed), victim, steps)
    bench.sections.append(f"## {name}\n\n{len(batch)} samples, {time.perf_counter() - began:.0f} s.")
    bench.sections.append(scores_table(comparison))
    bench.sections.append(differences_table(comparison))
    key = name.lower().replace(" ", "_").replace(",", "")
    kind = key.partition("_")[0]
    for score, worst in (("deletion", max), ("insertion", min)):  # of several networks, the one where it is least good
        gap, at = comparison.difference(OURS, "rise", score).value, f"{kind}_{score}_minus_rise"
        bench.figures[at] = worst(gap, bench.figures.get(at, gap))
    bench.figures[f"{kind}_deletion"] = comparison.judged[OURS].mean("deletion").value
    for method, scored in comparison.judged.items():
        plain = method.replace(" (ours)", "").replace(" ", "_").replace(",", "").replace("+", "p")
        for score in ("dice", "iou", "deletion", "queries"):
            bench.figures[f"{key}_{plain}_{score}"] = scored.mean(score).value
    if not bench.quick:
        gallery(comparison, bench.page.with_name(f"explain_{key}.html"), name)
    return comparison


def gallery(comparison: MethodComparison, path: Path, title: str) -> None:
    """The first samples side by side, where there is matplotlib to draw them."""
    try:
        from rlab.explanation.page import explain_section
        from rlab.present.page import Page, write_page
    except ImportError as error:
        print(f"no gallery: {error}")
        return
    write_page(Page(title, [explain_section(comparison, limit=8)]), path)


def more_scores(comparison: MethodComparison, victim: Victim, steps: int) -> MethodComparison:
    """The Dice of each map cut by the rule, and deletion with the sample's mean in place of what is hidden."""
    batch, judged = comparison.batch, {}
    x0 = batch.x.to(victim.device)
    assert batch.masks is not None
    for name, method in comparison.judged.items():
        maps, labels = method.explanation.maps, method.explanation.labels
        own = {
            "dice_map": overlap(threshold(maps, "otsu"), batch.masks)["dice"],
            "deletion_grey": area(curves(victim, x0, mean_fill(x0).expand_as(x0), maps, labels, steps)),
        }
        judged[name] = ScoredMethod(method.explanation, {**method.scores, **own})
    return replace(comparison, judged=judged)


def scores_table(comparison: MethodComparison) -> str:
    judged = comparison.judged
    names = [(name, head) for name, head in COLUMNS if any(name in method.scores for method in judged.values())]
    rows = []
    for name, method in judged.items():
        means = [method.mean(score).value for score, _ in names]
        cells = [
            f"{mean:,.0f}" if score == "queries" else f"{mean:.3f}"
            for (score, _), mean in zip(names, means, strict=True)
        ]
        rows.append((f"{name}, white box" if method.explanation.gradients else name, *cells))
    return common.table(("method", *(head for _, head in names)), rows)


def differences_table(comparison: MethodComparison) -> str:
    rows = []
    for other in comparison.judged:
        if other != OURS:
            gaps = [comparison.difference(OURS, other, score) for score in ("dice", "iou", "deletion", "insertion")]
            rows.append((other, *(f"{e.value:+.3f} [{e.low:+.3f}, {e.high:+.3f}]" for e in gaps)))
    return common.table((f"{OURS} minus", "Dice", "IoU", "deletion (below 0 is better)", "insertion"), rows)


def pets(bench: Bench) -> None:
    victim = common.photo_victim(bench.device)
    victim.chunk = 8 if bench.device == "cpu" else 512  # the quickest
    batch = common.pets()[SEEN:]
    batch = batch[: 2 if bench.quick else len(batch)]
    batch = replace(batch, masks=read_masks(common.real("pets", "trimaps"), batch, (1, 3)))
    batch = correct(victim, batch)
    batch = batch[: bench.count(len(batch))]
    comparison = compete(bench, "Pets", victim, batch, bench.methods(14))
    for other in ("gradcam", "ablationcam", "rise"):
        if other in comparison.judged:
            for score in ("dice", "iou"):
                bench.figures[f"pets_{score}_over_{other}_low"] = comparison.difference(OURS, other, score).low
    others = [comparison.judged[name].mean("deletion").value for name in BLACK_BOX if name in comparison.judged]
    bench.figures["pets_deletion_best_other_black_box"] = min(others)


def ecg(bench: Bench) -> None:
    from benchmarks.pack_ecg import beats
    from benchmarks.train_ecg import ecg_victim

    every = beats("test")
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(bench.seed)).tolist()
    for name in ("cnn",) if bench.quick else ("cnn", "resnet", "transformer"):
        victim = ecg_victim(name, bench.device)
        chosen = correct(victim, every[_evenly(every.y, order, bench.count(40))])
        comparison = compete(bench, f"ECG {name}", victim, chosen, bench.methods(32))
        some, contexts = (2, 60) if bench.quick else (20, 300)
        found = Belief()(victim, chosen[:some], chosen.y[:some], bench.seed)
        held = interval_coverage(victim, chosen[:some], found, contexts)
        bench.figures["interval_coverage"] = min(held, bench.figures.get("interval_coverage", 1.0))
        bench.sections.append(
            f"90% intervals of regions hold in {held:.0%} of the regions of {some} beats, by brute force."
        )
        bench.sections.append(within_table(victim, comparison, bench.seed, (120,) if bench.quick else WITHIN))


def _evenly(labels: Tensor, order: list[int], each: int) -> list[int]:
    """Up to `each` samples of every class, in random order."""
    chosen: dict[int, list[int]] = {}
    for row in order:
        rows = chosen.setdefault(int(labels[row]), [])
        if len(rows) < each:
            rows.append(row)
    return [row for rows in chosen.values() for row in rows]


def clips(bench: Bench) -> None:
    victim = demo_victim("clips")
    victim = TorchVictim(victim.model, device=bench.device)
    batch = correct(victim, load("demo:clips", limit=bench.count(60) + 2))
    compete(bench, "Clips", victim, batch[: bench.count(60)], bench.methods(6))


SECTIONS: dict[str, Callable[[Bench], None]] = {"pets": pets, "ecg": ecg, "clips": clips}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="one section; may be repeated")
    parser.add_argument("--samples", type=int, help="at most so many in each section")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=common.RESULTS / "explain.md")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        torch.set_num_threads(2)
    bench = Bench(given.device, given.samples, given.seed, given.quick, given.out)
    for name, section in SECTIONS.items():
        if not given.only or name in given.only:
            try:
                section(bench)
            except common.Absent as error:
                print(f"{name} is left out: {error}")
    if not given.quick and bench.sections:
        common.write_page(given.out, "Explanations", RULES, given.seed, bench.sections)
    common.finish(bench.figures)


if __name__ == "__main__":
    main()
