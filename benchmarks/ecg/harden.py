"""Our network for twelve leads before and after `rlab.harden` with the clinical palette, on records of fold 9."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.attacks import attack, median, ratio
from benchmarks.ecg.leads import PATCH
from benchmarks.harness import Figures, Piece
from benchmarks.raw import Raw, Store, from_curves, to_curves
from benchmarks.tables import interval, section, table
from benchmarks.victims.train_twelve import measured, records, training_records, varied
from benchmarks.victims.twelve_leads import OURS, twelve_lead_victim
from rlab.auditing.detection import detected, distorted, groups_of
from rlab.core.channels import TWELVE
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.hardening.run import harden
from rlab.progress import quiet
from rlab.runs.options import make_attack
from rlab.runs.understood import say_nothing
from rlab.victims.torch_module import TorchVictim

KIND, BEFORE = "harden", "before"
SEEDS = (0, 1, 2)
RECORDS, QUERIES, SNR = 30, 100, 12.0  # attacked records, queries for each, dB within a group of leads
NOISES = ("muscle_noise", "baseline_wander", "electrode_motion")
PALETTE = "clinical"
# The radii are about those of an attack. On the records left out, (0.02, 0.3) cost 2 to 4 points of records right and gained 1.
OPTIONS: dict[str, Any] = {
    "palettes": [[PALETTE]], "patches": [PATCH, 100], "epochs": 8, "training_batch": 32, "learning_rate": 1e-3,
    "radius_range": (0.005, 0.05), "max_clean_drop": 0.05,
}  # fmt: skip


@dataclass(frozen=True)
class HardenCase:
    """The network as it was trained, or hardened with a seed."""

    seed: int | None  # None: before

    @property
    def name(self) -> str:
        return f"{KIND}-{BEFORE if self.seed is None else self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        own = {} if self.seed is None else {**OPTIONS, "seed": self.seed}
        return {**own, "records": RECORDS, "queries": QUERIES, "snr": SNR, "noises": NOISES}


FULL = (HardenCase(None), *(HardenCase(seed) for seed in SEEDS))


@cache
def network(seed: int | None) -> TorchVictim:
    victim = twelve_lead_victim(OURS)
    if seed is None:
        return victim
    train, validation = training_records()
    options = {**OPTIONS, "seed": seed, "augment": varied}
    return harden(victim, train, options, validation=validation, progress=quiet, announce=say_nothing).victim


def attacked() -> Batch:
    """The first records of fold 9 that the network gets all right before it is hardened."""
    batch = records("9")
    right = ((network(None)(batch.x) > 0) == (batch.y > 0)).all(1)
    return batch[right.nonzero().flatten().tolist()[:RECORDS]]


def detection(victim: TorchVictim, batch: Batch) -> dict[str, float]:
    """The share of labels, detected by the network before it is hardened, that this one detects with noise in a group of leads."""
    known, seeds = detected(network(None)(batch.x).sigmoid(), batch.y), sample_seeds(0, 0, len(batch)).tolist()
    shares = {}
    for noise in NOISES:
        own = make_attack(batch, palette=f"{noise}@{SNR:g}dB", patch=PATCH, channels=TWELVE)
        for group, leads in groups_of(own, batch).items():
            x = distorted(batch.x, own.palette, leads, SNR, batch.bounds, seeds)
            still = detected(victim(x, "verify").sigmoid(), batch.y) & known
            shares[f"{noise} in {group}"] = float(still.sum() / known.sum())
    return shares


def measure(case: HardenCase, device: str) -> Raw:
    """Records that the hardened network gets wrong from the start count as a flip at no distance."""
    victim, batch = network(case.seed), attacked()
    found = attack(
        victim, batch, goal="multilabel", palette=PALETTE, patch=PATCH, channels=TWELVE, budget=QUERIES + 1, until="budget",
    )  # fmt: skip
    curves = [
        own if there else ((1, 0.0),) for own, there in zip(found.improvements, found.attacked.tolist(), strict=True)
    ]
    whole = records("9")
    numbers = {"curves": from_curves(tuple(tuple(own) for own in curves)), "detection": detection(victim, whole)}
    return Raw({**numbers, "quality": dict(measured(victim, whole))})


def pieces() -> Iterator[Piece]:
    for case in FULL:
        yield Piece(case.name, KIND, case.settings, partial(measure, case))


Found = Mapping[HardenCase, Raw]


def stored(store: Store) -> dict[HardenCase, Raw]:
    """All stored cases; none until they are complete."""
    if any(case.name not in store for case in FULL):
        return {}
    return {case: store.read(case.name) for case in FULL}


def harden_figures(found: Found) -> Figures:
    """Before, and the means over the seeds after; `harden_l2_times` is the median distance over that before."""
    if not found:
        return {}
    first, after = found[FULL[0]].numbers, [found[case].numbers for case in FULL[1:]]
    curves = [to_curves(each["curves"]) for each in (first, *after)]
    figures = {f"harden_{BEFORE}_{name}": value for name, value in summary(first).items()}
    figures |= {
        f"harden_after_{name}": float(np.mean([summary(each)[name] for each in after])) for name in summary(first)
    }
    return {**figures, "harden_l2_times": ratio(curves[1:], [curves[0]] * len(after), QUERIES).value}


def summary(numbers: Mapping[str, Any]) -> dict[str, float]:
    return {**numbers["quality"], "detection": float(np.mean(list(numbers["detection"].values())))}


def harden_section(found: Found) -> str:
    rows = []
    for case, raw in found.items():
        quality, curves = raw.numbers["quality"], to_curves(raw.numbers["curves"])
        name = BEFORE if case.seed is None else f"after, seed {case.seed}"
        shares = (
            f"{quality['labels_right']:.1%}",
            f"{quality['records_right']:.1%}",
            f"{summary(raw.numbers)['detection']:.1%}",
        )
        far = interval(median([curves], QUERIES), 3)
        times = (
            "1"
            if case.seed is None
            else interval(ratio([curves], [to_curves(found[FULL[0]].numbers["curves"])], QUERIES), 2)
        )
        rows.append((name, f"{quality['macro_auc']:.3f}", *shares, far, times))
    after = [found[case].numbers["detection"] for case in FULL[1:]]
    each = [
        (kind, f"{share:.1%}", f"{np.mean([own[kind] for own in after]):.1%}")
        for kind, share in found[FULL[0]].numbers["detection"].items()
    ]
    about = (
        f"Our network `{OURS}` before and after `rlab.harden` with the {PALETTE} palette, on fold 9, whose records took no part in "
        f"training or in the choice of settings. Detection: the share of labels detected before that are still detected with noise "
        f"of {SNR:g} dB in one group of leads, the mean of {', '.join(NOISES)} and the four groups. Distance: median L2 in mV of "
        f"the best flip within {QUERIES} queries of `auto`, on the first {RECORDS} records that the network gets all right before; "
        "a record that is wrong afterwards counts as 0. Detection is judged by the labels that the network found before, so that "
        "it can only fall where the network before loses none; a label that is found only afterwards does not count."
    )
    head = f"network | macro AUC | labels right | records right | detection | L2 within {QUERIES} | times before"
    more = table("noise at 12 dB | detected before | after, mean of the seeds", each)
    return section("Hardening", about, table(head, rows), more)
