"""The page of `benchmarks.harden`, from the raw files of its jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.attacks import Pairs
from benchmarks.harden.cases import FROM_SCRATCH, METHODS, SEEDS, TITLES
from benchmarks.harden.jobs import BUDGETS, OTHERS, TRAINED_KINDS, mean_common
from benchmarks.raw import Raw, Store, or_nan
from benchmarks.tables import interval, table
from benchmarks.tables import section as section_of
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds

RULES = """
From scratch, every method trains the same network from random weights with SGD (Nesterov momentum, cosine schedule, batches of
256, shifts and mirroring, averaged weights, bfloat16), with the settings of its paper and none tried beside them; ours takes the
palette and radius that were best for ResNet-20. Epochs give each method about 250 s of an H200 alone (standard training: 114 s);
five trainings shared the GPU, so the seconds in the table are longer. Each keeps the epoch that holds best on 5,000 training
images kept aside, 2,000 of them under its own samples. In all other sections, every method fine-tunes
the same net on the same data for the same epochs with the same optimizer; what makes the harder
samples (chance, the gradient of the model, the belief search) and the loss are the method's own. Each training keeps
the epoch that holds best against its own samples on the data to choose by, the unchanged net included. Its weights are
then drawn back on the line to the unchanged ones until clean accuracy on these data is within 0.8 points: that is a
method's row; the points at 40, 70 and 100% of the way are its curve. Every method has the best of the same number of
settings (nine on CIFAR-10, six on beats, four on clips), by the distance on the data to choose by, which rlab 0.2.0 tried
with few epochs; for ours, six others on CIFAR-10 and four on beats had been tried before. The data to
choose by, to report on and to train on share no patient and no group of clips. Distance is L2, for clips the mean
absolute change: the median of the best flip within a number of queries of `auto` with the default palette, over samples
the model classifies correctly; no flip counts as infinitely far. Times unchanged is the ratio within 200 queries, and
so is ours over it. Square and PGD: share of samples that stay correct. Corruptions: the palette's filters over the
whole input; held-out: all other filters; common 15: mean accuracy over the kinds and severities of CIFAR-10-C,
made by `rlab.corruptions`; common 13: without the two kinds that are also in the palette.
Brackets are 95% bootstrap intervals over seeds and samples.
"""
CONFIG = (  # `batch_size` is the name of `training_batch` in raw files of rlab 0.3.0
    "palettes", "patches", "radius_range", "aimed_share", "gradient_steps", "consistency", "consistency_weight",
    "learning_rate", "batch_size", "training_batch", "ema_decay", "distillation_weight",
)  # fmt: skip
PUBLISHED = (
    "Published accuracy under the 15 corruptions, all 10,000 images: RLAT with AugMix 89.6% (https://arxiv.org/abs/2103.02325), "
    "AugMax with ResNet-18 90.4% (https://arxiv.org/abs/2110.13771), both after more epochs than here. Our "
    "RLAT, with steps of 0.02 of the features' length, stays far below that, and did not train with steps of 0.05 (17.9% clean): "
    "its row says little about the method."
)
Jobs = Sequence[Raw]


def of_method(store: Store, section: str, method: str) -> Jobs:
    names = (f"{section}-{method}-{seed}" for seed in SEEDS)
    return [store.read(name) for name in names if name in store]


def points(job: Raw) -> list[Mapping[str, Any]]:
    return list(job.numbers["points"].values())


def distances(jobs: Jobs, budget: int, share: float | None = None) -> Floats:
    """(seeds, n) at the chosen point, or at another share of the way; NaN where a sample was not attacked."""
    chosen = [points(job)[0] if share is None else next(p for p in points(job) if p["share"] == share) for job in jobs]
    return np.array([or_nan(point[f"l2_{budget}"]) for point in chosen])


def times(jobs: Jobs, unchanged: Jobs, share: float | None = None, budget: int = 200) -> Estimate:
    """The median distance over that of the unchanged net, on the seeds that both have."""
    pairs = [(a, b) for a in jobs for b in unchanged if a.facts["seed"] == b.facts["seed"]]
    if not pairs:
        return Estimate(math.nan)
    ours, other = ([pair[i] for pair in pairs] for i in (0, 1))
    return ratio_over_seeds(distances(ours, budget, share), distances(other, budget), "median")


def base_of(section: str) -> str:
    """The method that distances are divided by."""
    return "standard" if section == "scratch" else "unchanged"


def methods_of(section: str) -> Sequence[str]:
    """The belief search is slow, so that beats alone are hardened with it."""
    return {"scratch": tuple(FROM_SCRATCH), "ecg": METHODS}.get(section, METHODS[:-1])


def section(store: Store, name: str) -> str:
    found = {method: jobs for method in methods_of(name) if (jobs := of_method(store, name, method))}
    unchanged, first = found[base_of(name)], next(iter(found.values()))[0].facts
    common = "common" in points(unchanged[0])[0]
    main = [_row(method, jobs, found, common, unchanged) for method, jobs in found.items()]
    changed = {m: jobs[0] for m, jobs in found.items() if m != "unchanged" and not as_it_was(jobs[0], unchanged)}
    curve = [row for method, job in changed.items() for row in _curve(method, job, unchanged, common)]
    ours = found.get("ours", unchanged)[0].facts
    config, epochs = ours["config"], ours["epochs"]
    about = (
        f"{first['train']:,} samples to train on, {first['validation']:,} to choose by, {first['test']:,} to report on, of which "
        f"{len(points(unchanged[0])[0]['l2_200'])} are attacked; {epochs} epochs; {first['device']}; "
        f"`{', '.join(f'{key}: {config[key]}' for key in CONFIG if key in config)}`."
    )
    last = " | common 15 | common 13" if common else ""
    heads = (
        f"method | samples by | seeds | clean | distance, 50 queries | distance, 200 queries | times {base_of(name)}"
    )
    heads += f" | ours over it | Square | PGD | corruptions | held-out{last} | training, s"
    parts = [table(heads, main)]
    if "ours" in found:
        near = (distances(jobs, BUDGETS[-1])[0] for jobs in (found["ours"], unchanged))
        parts.append(Pairs.of(*near).sentence("samples"))
    if missing := [method for method in methods_of(name) if method not in found]:
        parts.append(f"Not trained yet: {', '.join(missing)}.")
    if name == "scratch":
        return section_of(TITLES[name], about, *parts, PUBLISHED)
    curve_heads = f"method | of the way | clean | times, 50 queries | times, 200 queries{last}"
    parts += ["The curve of the first seed: clean accuracy and distance.", table(curve_heads, curve)]
    return section_of(TITLES[name], about, *parts)


def _row(method: str, jobs: Jobs, found: Mapping[str, Jobs], common: bool, unchanged: Jobs) -> list[str]:
    own = [points(job)[0] for job in jobs]
    same = 0 if jobs is unchanged else sum(as_it_was(job, unchanged) for job in jobs)
    name = f"{method} ({same} of {len(jobs)} kept the unchanged net)" if same else method
    clean = _share([p["clean"] for p in own], jobs[0].facts["test"])
    maker = "–" if jobs is unchanged else jobs[0].facts["maker"]
    cells = [name, maker, str(len(jobs)), clean]
    cells += [interval(over_seeds(distances(jobs, budget), "median")) for budget in BUDGETS]
    beside = "" if method == "ours" else interval(times(found.get("ours", []), jobs))
    cells += [interval(times(jobs, unchanged)), beside]
    cells += [f"{np.mean([p[one] for p in own]):.1%}" for one in OTHERS]
    cells += _common(own) if common else []
    return [*cells, f"{np.mean([job.numbers['seconds'] for job in jobs]):.0f}"]


def as_it_was(job: Raw, unchanged: Jobs) -> bool:
    """Whether no epoch was kept, so that the unchanged net was measured; older files show it only by their figures."""
    if "kept_epoch" in job.facts:
        return bool(job.facts["kept_epoch"] == 0)
    before = [points(one)[0] for one in unchanged if one.facts["seed"] == job.facts["seed"]]
    return bool(before) and all(points(job)[0][name] == before[0][name] for name in ("clean", *OTHERS))


def _curve(method: str, job: Raw, unchanged: Jobs, common: bool) -> Iterator[list[str]]:
    for point in sorted(points(job), key=lambda point: point["share"]):
        ratios = [interval(times([job], unchanged, point["share"], budget)) for budget in BUDGETS]
        row = [method, f"{point['share']:.0%}", f"{point['clean']:.1%}", *ratios]
        yield [*row, *(_common([point]) if common else [])]


def _common(own: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean accuracy under all common corruptions, and under those that are not in the palette."""
    return [f"{np.mean([mean_common(point, known) for point in own]):.1%}" for known in ((), TRAINED_KINDS)]


def _share(values: Sequence[float], samples: int) -> str:
    """The mean over seeds with a binomial interval for one test set."""
    mean = float(np.mean(values))
    half = 1.96 * math.sqrt(mean * (1 - mean) / samples)
    return f"{mean:.1%} [{mean - half:.1%}, {mean + half:.1%}]"


def sections(store: Store) -> Iterator[str]:
    for name in TITLES:
        if of_method(store, name, base_of(name)):
            yield section(store, name)


def figures(store: Store) -> dict[str, float]:
    pairs = [(name, method, of_method(store, name, method)) for name in TITLES for method in methods_of(name)[1:]]
    return {f"{n}_{m}_times": times(jobs, of_method(store, n, base_of(n))).value for n, m, jobs in pairs if jobs}
