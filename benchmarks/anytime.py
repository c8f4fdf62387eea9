"""How little distortion an attack needs at every number of queries, against the policies a user could pick instead.

python -m benchmarks.anytime                      # what is kept in benchmarks/results/raw, as benchmarks/results/anytime.md
python -m benchmarks.anytime --fresh              # run everything that can be run again and keep it (minutes on a GPU)
python -m benchmarks.anytime --only images,ecg    # some groups of cases, and --case vgg for some of their names
python -m benchmarks.anytime --quick              # under a minute: ours on few samples, 50 queries, writes nothing

A figure is the median over samples the model had right of the distance of the best flip within q queries, the clean one
included; a sample without a flip counts as infinitely far. Ratios are over the best baseline at the same q (square, random,
and the Q-map agent `auto` was before, recorded; greedy asks about every patch before it acts and has no flip by then),
samples drawn in pairs; brackets are 95% bootstrap intervals. Baselines get the same cleanup and stopping. The settings of the
belief search were chosen on CIFAR-10 test images 1000-1399 of the VGG, the WRN and a training model that resists
perturbations, and on photos that a prior was trained on: none is reported on. No prior was trained on VGG, WRN, the robust
CNN, the networks of beats (windows of 2 s, 9 of the 22 records of DS2, 150 beats with classes evened out; no Q-map was
recorded of them) or the photos' EfficientNet-Lite0 and Lite1 (one family): for photos none ships, and `auto` is `belief`.
Photos are 120 of the NIPS 2017 challenge and 144 pets. What is kept of CIFAR-10 and photos was run on an H200, of beats and
the demo on 2 CPU cores; distances depend on that by rounding alone. The Q-map's curves were recorded from outside before its
code went; those of signals in units of each signal's amplitude and brought to mV by it. The rows of photos are older
than the rest: from before more was expected of a picture's middle; so are those of surrogates: from before these were shown
copies (benchmarks.peers has newer ones).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks import common
from benchmarks.pack_ecg import beats, evened
from benchmarks.train_ecg import ecg_victim
from rlab.core.env import Proposal, State, Task
from rlab.core.trace import Improvements, best_within
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.options import make_attack
from rlab.policies.belief import BeliefPolicy
from rlab.policies.belief.state import BeliefState
from rlab.stats import Estimate, Floats, Rows, estimate, mean_estimate
from rlab.victims.base import Victim
from rlab.victims.zoo import demo_victim

QUERIES = (3, 5, 8, 12, 20, 50, 100, 200)
PHOTO_PRIOR = "photo_prior"  # a trained prior that does not ship, recorded
QMAP = "qmap"  # the agent that `auto` was before the belief search
LIMITED = ("single", "add", "belief-single", "belief-add")  # proposals of one change, or without restores: recorded
BASELINES = ("square", "random", QMAP)
SURROGATES = ("resnet20", "robust_all_conv", "mixer", "all_conv", "inverted")
VARIANTS: dict[str, dict[str, Any]] = {
    "surrogates": {"policy": "belief", "surrogates": True},
    "no-draws": {"policy": "auto(temperature=0.0, warming=0.0)"},
    "one-way": {"policy": "auto(rivals=1)"},
}
ABLATIONS = {
    "auto": "trained prior, fixed rule", "belief": "no prior, fixed rule", "surrogates": "five surrogates, fixed rule",
    "add": "trained prior, no restores (cleanup after the flip)", "single": "trained prior, single changes",
    "belief-add": "no prior, no restores (cleanup after the flip)", "belief-single": "no prior, single changes",
    "no-draws": "trained prior, mean of the belief in place of draws", "one-way": "trained prior, one class believed about",
}  # fmt: skip
OURS, WITHOUT = "auto", "belief"
FAR, FAR_PHOTOS = 30.0, 200.0  # what no flip counts as in means: farther than all that were found
NATURAL = ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate")
MILLIVOLTS = (
    "baseline_wander@0.15,0.3mV", "powerline_hum50@0.1mV", "powerline_hum60@0.1mV", "muscle_noise@0.05,0.1mV",
    "electrode_motion@0.3mV", "amplitude_scaling@0.3", "smoothing@8", "lead_dropout@1",
)  # fmt: skip
SEED = 0


@dataclass(frozen=True)
class Case:
    """One victim under one palette; `aims` are the ratios to reach at q = 5, 20, 50, 200."""

    group: str
    name: str
    load: Callable[[int, str], tuple[Victim, Batch]]  # samples, device
    palette: tuple[str, ...] | None
    patch: int | None
    samples: int
    aims: tuple[float, float, float, float]
    policy: str = OURS
    most: int = 200  # queries of ours; of others, 200

    @property
    def raw(self) -> str:
        """What baselines of this case are kept under; the same for every policy of ours."""
        return f"anytime-{self.name.partition(',')[0].replace(' ', '_')}"


@dataclass(frozen=True)
class Curve:
    """Improvements of the samples a model had right."""

    improvements: tuple[Improvements, ...]

    def within(self, queries: int) -> Floats:
        """(n,)"""
        return best_within(self.improvements, queries).double().numpy()

    def median(self, queries: int) -> Estimate:
        values = self.within(queries)
        return estimate(lambda rows: _middle(values, rows), len(values), SEED)

    def plain(self) -> dict[str, Any]:
        return {"improvements": [[[q, round(d, 4)] for q, d in sample] for sample in self.improvements]}

    def first(self, samples: int) -> Curve:
        return Curve(self.improvements[:samples])


def _middle(values: Floats, rows: Rows) -> Floats:
    """Medians (draws,) in which infinity counts."""
    return np.sort(values[rows], axis=1)[:, (values.shape[0] - 1) // 2]


def cifar(name: str) -> Callable[[int, str], tuple[Victim, Batch]]:
    return lambda samples, device: (common.cifar_victim(name, device), common.cifar_test(samples))


def ecg(name: str) -> Callable[[int, str], tuple[Victim, Batch]]:
    def make(samples: int, device: str) -> tuple[Victim, Batch]:
        test, victim = beats("test"), ecg_victim(name, device)
        rows = evened(test.y, torch.ones(len(test), dtype=torch.bool), samples, (0, 1, 2), SEED)
        return victim, test[rows]

    return make


def photos(number: int) -> Callable[[int, str], tuple[Victim, Batch]]:
    return lambda samples, device: (common.photo_victim(device, number), common.photos_and_pets(samples))


def demo(name: str) -> Callable[[int, str], tuple[Victim, Batch]]:
    return lambda samples, device: (demo_victim(name, device), load(f"demo:{name}", limit=samples))


CASES = (
    Case("images", "vgg natural", cifar("vgg"), NATURAL, 4, 500, (0.55, 0.42, 0.36, 0.28)),
    Case("images", "wrn natural", cifar("wide_resnet"), NATURAL, 4, 500, (0.55, 0.42, 0.36, 0.28)),
    Case("transformer", "vit natural", cifar("vit"), NATURAL, 4, 500, (0.55, 0.42, 0.36, 0.28)),
    Case("robust", "robust natural", cifar("cnn_a_mix"), NATURAL, 4, 500, (1.0, 0.62, 0.50, 0.42)),
    Case("noprior", "vgg natural, nothing trained", cifar("vgg"), NATURAL, 4, 500, (0.70, 0.45, 0.36, 0.28), WITHOUT),
    Case(
        "noprior",
        "wrn natural, nothing trained",
        cifar("wide_resnet"),
        NATURAL,
        4,
        500,
        (0.70, 0.45, 0.36, 0.28),
        WITHOUT,
    ),
    Case("shift", "vgg shift 0.1 4x4", cifar("vgg"), ("channel_shift@0.1",), 4, 300, (1.0, 0.95, 0.85, 0.80)),
    Case("shift", "vgg shift 0.05 2x2", cifar("vgg"), ("channel_shift@0.05",), 2, 300, (1.0, 0.95, 0.85, 0.80)),
    Case("shift", "vgg shift 0.03 1x1", cifar("vgg"), ("channel_shift@0.03",), 1, 300, (1.0, 0.95, 0.85, 0.80)),
    Case("photos", "lite1 natural", photos(1), NATURAL, 14, 264, (0.55, 0.36, 0.28, 0.18), WITHOUT, 1000),
    Case("photos", "lite0 natural", photos(0), NATURAL, 14, 264, (0.55, 0.36, 0.28, 0.18), WITHOUT, 1000),
    Case("ecg", "beats cnn", ecg("cnn"), MILLIVOLTS, 10, 150, (0.9, 0.75, 0.6, 0.5)),
    Case("ecg", "beats transformer", ecg("transformer"), MILLIVOLTS, 10, 150, (0.9, 0.75, 0.6, 0.5)),
    Case("demo", "demo digits", demo("digits"), None, None, 200, (1.0, 0.7, 0.6, 0.5)),
    Case("demo", "demo ecg", demo("ecg"), None, None, 200, (1.0, 0.7, 0.6, 0.5)),
)
KEYS = {"images": "images", "noprior": "noprior", "ecg": "ecg"}


def measure(case: Case, policy: str, samples: int, budget: int, device: str) -> Curve:
    """One attack, until the budget is spent."""
    victim, batch = case.load(samples, device)
    options: dict[str, Any] = dict(VARIANTS.get(policy, {"policy": policy}))
    if options.pop("surrogates", False):
        options["surrogate"] = tuple(common.cifar_victim(name, device) for name in SURROGATES)
    attack = make_attack(
        batch, palette=case.palette, patch=case.patch, budget=budget + 1, until="budget", seed=SEED,
        chunk=len(batch) if device != "cpu" else None, **options,
    )  # fmt: skip
    result = attack(victim, batch)
    pairs = zip(result.improvements, result.attacked.tolist(), strict=True)
    return Curve(tuple(improvements for improvements, attacked in pairs if attacked))


def kept(case: Case, policy: str, device: str, fresh: bool) -> Curve | None:
    """The recorded results of a policy, or new ones; None for a policy that is gone and has none."""
    queries = case.most if policy in (OURS, WITHOUT) else 200
    name = f"{case.raw}-{policy}-b{queries}"
    there = (common.RAW / f"{name}.json").exists()
    recorded = policy in (QMAP, PHOTO_PRIOR, *LIMITED)
    if recorded and not there:
        return None
    values = common.kept_values(
        name, fresh and not recorded, lambda: measure(case, policy, case.samples, queries, device).plain()
    )
    return Curve(tuple(tuple((int(q), float(d)) for q, d in sample) for sample in values["improvements"]))


def ratio(ours: Curve, others: Sequence[Curve], queries: int) -> Estimate:
    """Our median over that of the best baseline, drawn in pairs; NaN where no baseline has one."""
    mine, theirs = ours.within(queries), [one.within(queries) for one in others]

    def of(rows: Rows) -> Floats:
        best = np.min([_middle(values, rows) for values in theirs], 0)
        middle = _middle(mine, rows)
        with np.errstate(invalid="ignore"):  # where neither has a flip there is no ratio; where only we have, it is 0
            return np.where(np.isfinite(best), middle / best, np.where(np.isfinite(middle), 0.0, np.nan))

    return estimate(of, len(mine), SEED)


def section(case: Case, curves: Mapping[str, Curve], queries: Sequence[int]) -> str:
    head = ("within so many queries", *(f"{q}" for q in queries))
    rows = [(name, *(common.interval(curve.median(q)) for q in queries)) for name, curve in curves.items()]
    ours, others = next(iter(curves.values())), list(curves.values())[1:]
    rows.append(("ratio to the best other", *(common.interval(ratio(ours, others, q)) for q in queries)))
    aims = dict(zip((5, 20, 50, 200), case.aims, strict=True))
    rows.append(("aim", *(f"{aims[q]:g}" if q in aims else "" for q in queries)))
    flipped = float(np.isfinite(ours.within(queries[-1])).mean())
    note = f"{len(ours.improvements)} samples the model had right; {flipped:.1%} flipped within {queries[-1]} queries."
    return f"## {case.name}\n\n{common.table(head, rows)}\n\n{note}"


def ablations(device: str, fresh: bool) -> str:
    """What each part brings: the mean of log distance over the curve, against the first row, in pairs; below 0 is better."""
    rows, told = [], []
    for victim in ("vgg natural", "wrn natural"):
        case = next(case for case in CASES if case.name == victim)
        found = {name: kept(case, name, device, fresh) for name in ABLATIONS}
        curves = {name: curve for name, curve in found.items() if curve is not None}
        whole = areas(curves["auto"])
        for name, curve in curves.items():
            gap = areas(curve) - whole
            shown = [f"{curve.median(q).value:.3g}" for q in (5, 20, 50, 200)]
            change = "" if name == "auto" else common.interval(mean_estimate(gap, SEED))
            rows.append((f"{victim.split()[0]}: {ABLATIONS[name]}", *shown, change))
        share = common.kept_values(f"{case.raw}-dual", fresh, lambda case=case: dual_share(case, device))  # type: ignore[misc]
        told.append(
            f"On {victim.split()[0]}, of the proposals after the first flip {share['both']:.0%} add some patches and restore "
            f"others in one step, {share['restores']:.0%} only restore and {share['adds']:.0%} only add or exchange."
        )
    head = ("", *(f"within {q}" for q in (5, 20, 50, 200)), "log distance, minus the first row's")
    return f"## What each part brings\n\n{common.table(head, rows)}\n\n{' '.join(told)}"


def dual_share(case: Case, device: str) -> dict[str, float]:
    """Of the proposals after the first flip, the shares that add and restore at once, only restore, and do neither."""
    counts = dict.fromkeys(("both", "restores", "adds"), 0)
    propose = BeliefPolicy.propose

    def watched(policy: BeliefPolicy, state: State, memory: BeliefState, task: Task) -> Proposal[BeliefState]:
        proposal = propose(policy, state, memory, task)
        added = ((proposal.assignment > 0) & (state.assignment == 0)).any(1)
        restored = ((proposal.assignment == 0) & (state.assignment > 0)).any(1)
        flipped = state.margin < 0
        counts["both"] += int((flipped & added & restored).sum())
        counts["restores"] += int((flipped & ~added & restored).sum())
        counts["adds"] += int((flipped & ~restored).sum())
        return proposal

    with patch.object(BeliefPolicy, "propose", watched):
        measure(case, OURS, case.samples, 200, device)
    return {name: count / max(sum(counts.values()), 1) for name, count in counts.items()}


def beside_the_seed(device: str, fresh: bool) -> str:
    """Distances of photos within many queries, beside the average that the paper reports."""
    rows = []
    for case in (case for case in CASES if case.group == "photos"):
        curve = kept(case, case.policy, device, fresh)
        assert curve is not None
        for queries in (50, 200, 1000):
            values = curve.within(queries)
            won = values[np.isfinite(values)]
            cells = (f"{len(won) / len(values):.1%}", *(f"{v:.3g}" for v in (won.mean(), np.median(won), won.max())))
            rows.append((f"{case.name}: {case.policy}", f"{queries}", *cells))
    rows.append(("RLAB paper, ImageNet", "", "", "2.48", "", "4.74"))
    head = ("", "within", "flipped", "average L2 of flips", "median", "largest")
    case = next(case for case in CASES if case.name == "lite1 natural")
    with_prior, without = (kept(case, name, device, False) for name in (PHOTO_PRIOR, WITHOUT))
    assert with_prior is not None
    assert without is not None
    gap = common.interval(mean_estimate(areas(with_prior, FAR_PHOTOS) - areas(without, FAR_PHOTOS), SEED))
    told = (
        "A prior for photos, trained on Lite0 and Lite2 (`agents/photos.yaml`), was measured on Lite1: log distance over the "
        f"curve {gap} more than without one. It does not ship."
    )
    return f"## Photos beside the paper's figure\n\n{common.table(head, rows)}\n\n{told}"


def areas(curve: Curve, far: float = FAR) -> Floats:
    """(n,) the mean log distance over the curve; no flip counts as very far."""
    return np.mean([np.log(np.minimum(curve.within(q), far)) for q in QUERIES], 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = ", ".join(dict.fromkeys(case.group for case in CASES))
    parser.add_argument("--only", default="", help=f"groups of cases with commas: {groups}")
    parser.add_argument("--fresh", action="store_true", help="run again what is kept")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", default="", help="how the names of cases begin, with commas")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args()
    queries = QUERIES[:6] if o.quick else QUERIES
    only = {name for name in o.only.split(",") if name} or ({"images", "noprior", "ecg"} if o.quick else set())
    pages, figures = [], dict[str, Any]()
    for case in CASES:
        if (only and case.group not in only) or (o.quick and case.name.startswith("wrn")):
            continue
        if o.case and not case.name.startswith(tuple(o.case.split(","))):
            continue
        try:
            ours = (
                measure(case, case.policy, 24, 50, o.device) if o.quick else kept(case, case.policy, o.device, o.fresh)
            )
            others = {policy: kept(case, policy, o.device, o.fresh) for policy in BASELINES}
        except common.Absent as why:
            print(f"{case.name} is left out: {why}")
            continue
        assert ours is not None
        first = {name: curve.first(len(ours.improvements)) for name, curve in others.items() if curve is not None}
        curves = {case.policy: ours, **first}
        pages.append(section(case, curves, queries))
        print(pages[-1], flush=True)
        figures |= keyed(case, curves, queries)
    figures["success_200"] = success(o.device)
    if not o.quick and not only and not o.case:
        pages.append(beside_the_seed(o.device, False))
        pages.append(ablations(o.device, o.fresh))
        common.write_page(common.RESULTS / "anytime.md", "Distance within so many queries", __doc__ or "", SEED, pages)
    common.finish(figures)


def success(device: str) -> float:
    """The share flipped within 200 queries, of both undefended models never seen, as kept."""
    curves = [kept(case, OURS, device, False) for case in CASES if case.group == "images"]
    return float(np.mean([np.isfinite(curve.within(200)).mean() for curve in curves if curve is not None]))


def keyed(case: Case, curves: Mapping[str, Curve], queries: Sequence[int]) -> dict[str, Any]:
    """The figures by the names a script may hold them to; of several victims of a group the last counts."""
    ours, others = next(iter(curves.values())), list(curves.values())[1:]
    key, last = KEYS.get(case.group, case.group), queries[-1]
    figures: dict[str, Any] = {f"{key}_ratio_{q}": ratio(ours, others, q).value for q in (5, 20, 50, 200) if q <= last}
    figures[f"{key}_l2_at_20"] = ours.median(20).value
    return figures


if __name__ == "__main__":
    main()
