"""How little distortion an attack needs at each number of queries, compared with other policies.

python -m benchmarks.anytime                     # run the pieces that have no raw file, then write results/anytime.md
python -m benchmarks.anytime --page              # write the page from the raw files
python -m benchmarks.anytime --only images,ecg   # run some cases
python -m benchmarks.anytime --only stages --device cuda  # a run of 3,000 images that learns from its own answers
python -m benchmarks.anytime --quick             # our policy on few samples with 50 queries; a run of 500 digits that learns
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.anytime import cases, simulators, stages
from benchmarks.anytime.cases import BASELINES, CASES, OURS, PARTS, STUDIED, VARIANTS, Case
from benchmarks.attacks import SURROGATES, attack, flipped, flips, median, over_best, tails, within
from benchmarks.data import Absent
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import RAW, Curves, Raw, Store
from benchmarks.tables import interval, table
from benchmarks.tables import section as section_of
from benchmarks.victims import cifar_victim
from rlab.policies.belief import Belief
from rlab.stats import Floats, mean_estimate

QUERIES, SHOWN = (3, 5, 8, 12, 20, 50, 100, 200), (5, 20, 50, 200)
FAR = 30.0  # the distance of a sample without a flip in means: larger than all distances found
SEED = 0
QUICK = (24, 50)  # samples, queries
HEADING = "distance within queries"
RULES = """
A figure is the median distance of the best flip within q queries, counting the clean query, over the samples that the
model classifies correctly; a sample without a flip counts as infinitely far. Ratios divide our median by that of the
best other policy at the same q, on the same samples; brackets are 95% bootstrap intervals over samples and seeds. A
row has one seed unless the line below its table names more. In the tables of the first flip and of the end, means are
over flips alone. The others are square and random; greedy queries every patch before it acts and has no flip by then.
Both go on after their first flip until the budget is spent: inside a ball that each nearer flip shrinks, with
restarts; their settings were chosen on images 1000-1099 and 3000-3031 of the VGG and a robust CNN and on digits
1698-1796. The settings of the belief search were chosen on CIFAR-10 test images 1000-1399 of the VGG, the WRN and a
robust training model, and on photos that a prior was trained on; no page reports on these. Those of pruning were
chosen on images 1000-1009 and 3000-3031 of the VGG and on the demo's last digits and beats, but for one: the 60
queries without a gain after which patches have a price were chosen on 0.3.0's curves of the photos here. No prior was
trained on VGG, WRN, the robust CNN, the networks for beats (2 s windows, 9 of the 22 records of DS2, 150 beats with
balanced classes) or the photos' EfficientNet-Lite0 and Lite1 (one family). No prior for photos ships, so there `auto`
is `belief`. Photos are 120 of the NIPS 2017 challenge and 144 pets. CIFAR-10 and photos ran on an H200, beats and the
demo on a CPU; another device draws other random numbers, like another seed.

"Imagine before you ask" compares attacks that try their candidates on other networks: five surrogates (ResNet-20, an
adversarially trained and a plain all-convolutional network, a mixer and an inverted residual network) for images, the
other three networks for clips, the other public network for twelve leads (24 records of fold 9 of PTB-XL), or students
of 3,500 clean answers (images 1500-4999, none of them attacked) and of 3,000 beats of DS1. Rows of attacks that
imagine were measured with a trained correction of the forecasts; later versions have none, because it changed the
distances on the VGG by less than the error of measurement. Rows of students on images were measured with the students'
own gradients as prior; since then `auto` keeps the shipped prior beside students. A sample
stalls if its first flip takes more than three times as many queries as `belief` needs, and ten more. A single surrogate
is trusted for one miss only, since this made the row at 3 queries better on images 1000-1095, which no table reports;
the row of one surrogate on the VGG is older than this, that on twelve leads is not.
"""


def areas(curves: Curves) -> Floats:
    """(n,) mean log distance over the curve."""
    return np.mean([np.log(np.minimum(within([curves], q)[0], FAR)) for q in QUERIES], 0)


def measure(case: Case, policy: str, samples: int, budget: int, device: str, seed: int = SEED) -> Curves:
    """Attack until the budget is spent."""
    victim, batch = case.load(samples, device)
    options: dict[str, Any] = dict(VARIANTS.get(policy, {"policy": policy}))
    if options.pop("surrogates", False):
        options["surrogate"] = tuple(cifar_victim(name, device) for name in SURROGATES)
    options |= {"palette": case.palette, "patch": case.patch, "budget": budget + 1, "until": "budget", "seed": seed}
    return flips(attack(victim, batch, **options))


def simultaneous(case: Case, device: str) -> Raw:
    """Among the proposals after the first flip, the shares that add and restore at once, only restore, and only add."""
    counts = dict.fromkeys(("both", "restores", "adds"), 0)
    propose = Belief.propose

    def watched(policy: Belief, state: Any, *rest: Any) -> Any:
        proposal = propose(policy, state, *rest)
        added = ((proposal.assignment > 0) & (state.assignment == 0)).any(1)
        restored = ((proposal.assignment == 0) & (state.assignment > 0)).any(1)
        done = state.margin < 0
        counts["both"] += int((done & added & restored).sum())
        counts["restores"] += int((done & ~added & restored).sum())
        counts["adds"] += int((done & ~restored).sum())
        return proposal

    with patch.object(Belief, "propose", watched):
        measure(case, OURS, case.samples, 200, device)
    return Raw({name: count / max(sum(counts.values()), 1) for name, count in counts.items()})


def pieces(options: Options) -> Iterator[Piece]:
    """Each case with our policy and the baselines, then the table of parts."""
    seen = set[str]()
    for case in CASES:
        parts = PARTS if case in STUDIED else ()
        rows = dict.fromkeys(parts, 1) | dict.fromkeys((case.policy, *BASELINES), case.seeds)
        for policy, seeds in rows.items():
            for seed in range(seeds):
                if (name := case.file(policy, seed)) not in seen:
                    seen.add(name)
                    make = partial(measure, case, policy, case.samples, case.budget, seed=seed)
                    yield Piece.of_curves(name, case.group, settings(case, policy, seed), make)
    for case in STUDIED:
        yield Piece(f"{case.raw}-dual", case.group, settings(case, OURS), partial(simultaneous, case))
    yield from simulators.pieces()
    yield from stages.pieces()


def settings(case: Case, policy: str, seed: int = SEED) -> dict[str, Any]:
    spec = VARIANTS.get(policy, {"policy": policy})
    shared = {"palette": case.palette, "patch": case.patch, "samples": case.samples, "seed": seed}
    return {"case": case.raw, "budget": case.budget, **shared, **spec}


def kept(store: Store, case: Case, *policies: str) -> dict[str, list[Curves]]:
    """Each seed's curves of those policies that have raw files."""
    files = {policy: {str(seed): case.file(policy, seed) for seed in range(case.seeds)} for policy in policies}
    held = {policy: list(store.curves(seeds).values()) for policy, seeds in files.items()}
    return {policy: seeds for policy, seeds in held.items() if seeds}


def section(case: Case, held: Mapping[str, Sequence[Curves]], queries: Sequence[int]) -> str:
    rows = [(name, *(interval(median(seeds, q)) for q in queries)) for name, seeds in held.items()]
    ours, *others = held.values()
    if others:
        rows.append(("ratio to the best other", *(interval(over_best(ours, others, q)) for q in queries)))
        aims = dict(zip(SHOWN, case.aims, strict=True))
        rows.append(("aim", *(f"{aims[q]:g}" if q in aims else "" for q in queries)))
    share, many = flipped(ours, queries[-1]).value, f", {len(ours)} seeds" if len(ours) > 1 else ""
    note = f"{len(ours[0])} samples the model classifies correctly{many}; {share:.1%} flipped within {queries[-1]} queries."
    return section_of(case.name, table((HEADING, *map(str, queries)), rows), tails(held, case.budget), note)


def parts_section(store: Store) -> str:
    """Mean log distance over the curve minus that of the first row, paired by sample; below 0 is better."""
    rows, notes = [], []
    for case in STUDIED:
        name, curves = case.name.split()[0], store.curves({part: case.file(part) for part in PARTS})
        whole = areas(curves["auto"])
        for part, curve in curves.items():
            shown = [f"{median([curve], q).value:.3g}" for q in SHOWN]
            change = "" if part == "auto" else interval(mean_estimate(areas(curve) - whole, SEED))
            rows.append((f"{name}: {PARTS[part]}", *shown, change))
        share = store.read(f"{case.raw}-dual").numbers
        notes.append(
            f"On {name}, of the proposals after the first flip {share['both']:.0%} add some patches and restore "
            f"others in one step, {share['restores']:.0%} only restore and {share['adds']:.0%} only add or exchange."
        )
    head = ("", *(f"within {q}" for q in SHOWN), "log distance, minus the first row's")
    return section_of("What each part contributes", table(head, rows), " ".join(notes))


def photos_section(store: Store) -> Iterator[str]:
    """Distances on photos next to the average that the paper reports."""
    rows = []
    photos = {case: kept(store, case, case.policy) for case in CASES if case.group == "photos"}
    for case, curves in photos.items():
        for queries, seeds in product((20, 50, 200), curves.values()):
            values = within(seeds, queries)
            won = values[np.isfinite(values)]
            cells = (f"{len(won) / values.size:.1%}", *(f"{v:.3g}" for v in (won.mean(), np.median(won), won.max())))
            rows.append((f"{case.name}: {case.policy}", f"{queries}", *cells))
    if rows:
        rows.append(("RLAB paper, ImageNet", "", "", "2.48", "", "4.74"))
        body = table(" | within | flipped | average L2 of flips | median | largest", rows)
        yield section_of("Photos and the paper's figure", body)


def sections(store: Store) -> Iterator[str]:
    for case in CASES:
        if (curves := kept(store, case, case.policy, *BASELINES)) and case.policy in curves:
            yield section(case, curves, QUERIES)
    yield from photos_section(store)
    yield parts_section(store)
    yield from simulators.sections(store)
    yield from stages.sections(store)


def keyed(case: Case, held: Mapping[str, Sequence[Curves]], most: int) -> dict[str, Any]:
    """Figures by the names that scripts rely on; of several victims of a group the last counts."""
    ours, *others = held.values()
    if not others:
        return {}
    figures: dict[str, Any] = {f"{case.group}_ratio_{q}": over_best(ours, others, q).value for q in SHOWN if q <= most}
    return figures | {f"{case.group}_l2_at_20": median(ours, 20).value}


def figures(store: Store) -> Figures:
    found: dict[str, Any] = {}
    for case in CASES:
        curves = kept(store, case, case.policy, *BASELINES)
        if case.policy in curves:
            found |= keyed(case, curves, QUERIES[-1])
    return found | simulators.figures(store) | stages.figures(store)


def quick(options: Options) -> Figures:
    """Our policy measured now; the others from their raw files."""
    store, groups = Store(RAW / "anytime"), options.only or ("images", "noprior", "ecg", simulators.GROUP, stages.GROUP)
    samples, budget = QUICK
    found: dict[str, Any] = {}
    for case in CASES:
        if case.group not in groups or case.name.startswith("wrn"):
            continue
        try:
            ours = measure(case, case.policy, samples, budget, options.device)
        except Absent as why:
            print(f"skipped {case.name}: {why}")
            continue
        others = store.curves({name: case.file(name) for name in BASELINES})
        held = {case.policy: [ours]} | {name: [curves[: len(ours)]] for name, curves in others.items()}
        print(section(case, held, QUERIES[:6]), flush=True)
        found |= keyed(case, held, budget)
    if simulators.GROUP in groups:
        found |= simulators.quick(store, options.device)
    return found | (stages.quick(options.device) if stages.GROUP in groups else {})


TITLE = "Distance at each number of queries"
CLAIM = Claim(
    "anytime",
    TITLE,
    __doc__,
    RULES,
    quick,
    pieces,
    sections,
    figures,
    cases=(*cases.GROUPS, simulators.GROUP, stages.GROUP),
)
