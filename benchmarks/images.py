"""How few queries an agent needs on images, against the attacks a user could pick instead.

python -m benchmarks.images                     # all sections, results in benchmarks/results/images.md
python -m benchmarks.images --only cifar        # one section; of cifar, victims, natural, unseen, imagenet, ablations
python -m benchmarks.images --quick             # under a minute: the first images, others' results from results/raw

What does not change with the agent (torchattacks Square, greedy, random) is kept in benchmarks/results/raw; --fresh runs
it again.

Queries are search + cleanup; medians of queries are over all samples the model had right, a sample that was not flipped
counting as the whole budget; L2 is over flipped samples in [0, 1]. Ratios are the other attack's median queries over the
agent's. Brackets are 95% bootstrap intervals.
"""

from __future__ import annotations

import argparse
import time
from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import common
from rlab.comparison import (
    AttackOutcome,
    Contender,
    Figures,
    PolicyContender,
    l2_ratio,
    parse_library_attack,
    queries_at_l2,
    query_ratio,
    ratio_at_equal_l2,
)
from rlab.data.batch import Batch
from rlab.policies import BASELINES
from rlab.runs.options import AttackOptions
from rlab.storage.config import check
from rlab.victims.base import Victim

FINE = ("channel_shift@0.03",)  # on single pixels
MIDDLE = ("channel_shift@0.05",)
SHIFT = ("channel_shift@0.1",)  # on coarse patches, for the sweep over all of them
NATURAL = ("gaussian_noise@0.1,0.3", "gaussian_blur@1.5", "dead_pixel@1.0", "illuminate@0.2")
# None of these filters is in the agent's training (agents/images.yaml).
UNSEEN = {
    "contrast": ("contrast@0.8",),
    "mixed": ("contrast@0.6", "motion_blur@5*2", "pixelate@4", "jpeg@85"),
}
SQUARE = "torchattacks:square"
# The agent's options of rlab.attack, by section; chosen on test images 1000-2023, which are not reported on.
# Baselines keep the defaults: cleanup tries every patch.
SETTINGS: dict[str, dict[str, Any]] = {
    "cifar": {"l2_penalty": 0.1, "patience": 1},
    "greedy": {"l2_penalty": 0.1},
    "natural": {"l2_penalty": 0.1, "patience": 1},
    "unseen": {"l2_penalty": 0.1, "patience": 1},
    "imagenet": {"l2_penalty": 0.02, "patience": 1},
}
QUICK = 8  # images of --quick
STRENGTHS = {
    "resnet20": (0.75, 1.0, 1.25, 1.5, 2.0),
    "vgg": (1.0, 1.5, 2.0),
    "wide_resnet": (1.0, 1.5, 2.0),
    "cnn_a_mix": (1.0, 2.0, 3.0, 4.0),
    "efficientnet_lite0": (2.0, 3.0, 5.0, 7.0, 12.0),
}


def contender(policy: str, palette: Sequence[str], patch: int, **options: Any) -> PolicyContender:
    """A policy of ours with these options of `rlab.attack`."""
    given = {"policy": policy, "palette": palette, "patch": patch, **options}
    return PolicyContender(check(AttackOptions, given, "the attack's options"))


@dataclass
class Bench:
    """The options of a run, and what it has found so far."""

    agent: str
    photo_agent: str
    images: int | None
    budget: int | None
    seed: int
    options: dict[str, Any]
    fresh: bool
    quick: bool
    device: str = "cpu"
    pages: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def count(self, usual: int) -> int:
        return min(self.images or (QUICK if self.quick else usual), usual)

    def limit(self, usual: int) -> int:
        return self.budget or usual

    def run(self, name: str, victim: Victim, batch: Batch, contender: Contender, budget: int) -> AttackOutcome:
        """Now, and told on the way."""
        outcome = contender(victim, batch, budget, self.seed)
        done, of = int(outcome.succeeded.sum()), int(outcome.attacked.sum())
        print(f"{name}: {done} of {of}, {outcome.seconds:.0f} s", flush=True)
        return outcome

    def keep(self, name: str, victim: Victim, batch: Batch, contender: Contender, budget: int) -> AttackOutcome:
        """From results/raw where it was run before, on these samples or on more; --quick leaves nothing there."""
        end = f"-b{budget}-s{self.seed}"
        if self.quick:
            held = common.kept_longest(name, end, len(batch))
            return held if held is not None else self.run(name, victim, batch, contender, budget)
        file = f"{name}-n{len(batch)}{end}"
        return common.kept(file, self.fresh, lambda: self.run(name, victim, batch, contender, budget))

    def squares(self, name: str, victim: Victim, batch: Batch, budget: int) -> list[common.Row]:
        """torchattacks Square-L2 at each strength."""
        rows = []
        for eps in STRENGTHS[name]:
            spec = f"{SQUARE}@{eps}"
            kept = f"{name}-{spec.replace(':', '-')}"
            rows.append((f"Square L2, eps {eps:g}", self.keep(kept, victim, batch, parse_library_attack(spec), budget)))
        return rows

    def page(self, title: str, about: str, rows: Sequence[common.Row], more: Sequence[str] = ()) -> None:
        """A section: the first row is the agent's, which the others are measured against."""
        self.pages.append("\n\n".join([f"## {title}", about, common.outcomes_table(rows, self.seed), *more]))

    def against_square(self, name: str, ours: AttackOutcome, squares: Sequence[common.Row]) -> list[str]:
        """What Square would need at our median L2, as a sentence and as figures."""
        l2 = Figures.of(ours, self.seed).l2.value
        runs = [one for _, one in squares]
        need, times = queries_at_l2(runs, l2, self.seed), ratio_at_equal_l2(ours, runs, self.seed)
        self.note(name, ours)
        prefix = "" if name == "resnet20" else f"{name}_"
        self.figures[f"{prefix}square_queries_at_equal_l2"] = need.value
        self.figures[f"{prefix}ratio_square"] = times.value
        self.figures[f"{prefix}ratio_square_low"] = times.low
        if need.value != need.value:
            return [f"The settings of Square do not enclose the agent's median L2 of {l2:.3g}."]
        return [
            f"Square at the agent's median L2 of {l2:.3g}: {common.interval(need)} queries, {common.interval(times)} times as many."
        ]

    def note(self, name: str, outcome: AttackOutcome) -> None:
        f = Figures.of(outcome, self.seed)
        self.figures[f"{name}_success"] = f.success.value
        self.figures[f"{name}_queries"] = f.queries.value
        self.figures[f"{name}_l2"] = f.l2.value

    def ours(self, batch: Batch, palette: Sequence[str], patch: int, section: str) -> PolicyContender:
        policy = self.photo_agent if max(batch.size) > 96 else self.agent
        return contender(policy, palette, patch, **({} if policy in BASELINES else SETTINGS[section]) | self.options)


def cifar(bench: Bench) -> None:
    """ResNet-20, 500 images, budget 1,000: Square at equal L2, greedy and random in the same palette."""
    victim, batch, budget = (
        common.cifar_victim("resnet20", bench.device),
        common.cifar_test(bench.count(500)),
        bench.limit(1000),
    )
    ours = bench.run("agent, single pixels", victim, batch, bench.ours(batch, FINE, 1, "cifar"), budget)
    middle = bench.run("agent, 2x2", victim, batch, bench.ours(batch, MIDDLE, 2, "cifar"), budget)
    chance = bench.keep("resnet20-random-shift0.05-p2", victim, batch, contender("random", MIDDLE, 2), budget)
    squares = bench.squares("resnet20", victim, batch, budget)
    rows = [("agent, 1x1", ours), ("agent, 2x2", middle), ("random, 2x2", chance), *squares]
    more = bench.against_square("resnet20", ours, squares)
    more += bench.against_square("resnet20_2x2", middle, squares)
    bench.figures["random_ratio"] = query_ratio(middle, chance, bench.seed).value
    about = _about(batch, FINE, budget) + f" With 2x2 patches the palette is `{MIDDLE[0]}`."
    bench.page("CIFAR-10, ResNet-20", about, rows, more)
    _greedy(bench, victim, batch, budget)


def _greedy(bench: Bench, victim: Victim, batch: Batch, usual: int) -> None:
    """The sweep over all patches needs hundreds of queries a step, so it gets four times the budget and fewer images."""
    few = batch[: bench.count(100)]
    budget = 4000
    greedy = bench.keep("resnet20-greedy-shift0.1-p4", victim, few, contender("greedy", SHIFT, 4), budget)
    ours = bench.run("agent, 4x4", victim, few, bench.ours(few, SHIFT, 4, "greedy"), usual)
    times, reach = query_ratio(ours, greedy, bench.seed), 1 / l2_ratio(ours, greedy, bench.seed).value
    bench.note("greedy_palette_agent", ours)
    bench.figures |= {
        "greedy_queries": Figures.of(greedy).queries.value,
        "greedy_l2": Figures.of(greedy).l2.value,
        "greedy_ratio": times.value,
        "l2_over_greedy": reach,
    }
    about = _about(few, SHIFT, budget) + f" The agent's budget is {usual}."
    more = [f"The agent's median L2 is {reach:.3g} times greedy's, its queries 1/{times.value:.3g} of them."]
    bench.page("Greedy sweep, the same palette", about, [("agent, 4x4", ours), ("greedy, 4x4", greedy)], more)


def victims(bench: Bench) -> None:
    """The same agent on models it never saw; the last is certified robust."""
    for name, palette, patch in (("vgg", FINE, 1), ("wide_resnet", FINE, 1), ("cnn_a_mix", SHIFT, 4)):
        victim, batch, budget = (
            common.cifar_victim(name, bench.device),
            common.cifar_test(bench.count(200)),
            bench.limit(1000),
        )
        ours = bench.run(f"{name}, agent", victim, batch, bench.ours(batch, palette, patch, "cifar"), budget)
        squares = bench.squares(name, victim, batch, budget)
        more = bench.against_square(name, ours, squares)
        for label, one in squares:
            bench.figures[f"{name}_square_{label.split()[-1]}_success"] = Figures.of(one).success.value
        bench.page(
            f"Never seen in training: {name}",
            _about(batch, palette, budget),
            [(f"agent, {patch}x{patch}", ours), *squares],
            more,
        )


def natural(bench: Bench) -> None:
    """The papers' palette: noise, blur, dead pixels, light; against random proposals in the same environment."""
    victim, batch, budget = (
        common.cifar_victim("resnet20", bench.device),
        common.cifar_test(bench.count(500)),
        bench.limit(1000),
    )
    _against_random(bench, victim, batch, budget, "natural", NATURAL, "Natural palette, ResNet-20", "natural")


def unseen(bench: Bench) -> None:
    """Filters the agent never saw."""
    victim, batch, budget = (
        common.cifar_victim("resnet20", bench.device),
        common.cifar_test(bench.count(500)),
        bench.limit(1000),
    )
    for name, palette in UNSEEN.items():
        _against_random(
            bench, victim, batch, budget, f"unseen_{name}", palette, f"Filters never seen: {name}, ResNet-20", "unseen"
        )


def _against_random(
    bench: Bench, victim: Victim, batch: Batch, budget: int, name: str, palette: Sequence[str], title: str, section: str
) -> None:
    ours = bench.run(f"{name}, agent", victim, batch, bench.ours(batch, palette, 4, section), budget)
    chance = bench.keep(f"resnet20-random-{name}-p4", victim, batch, contender("random", palette, 4), budget)
    hasty = bench.keep(
        f"resnet20-random-{name}-p4-patience1",
        victim,
        batch,
        contender("random", palette, 4, patience=1),
        budget,
    )
    bench.note(name, ours)
    bench.note(f"{name}_random", chance)
    bench.note(f"{name}_hasty_random", hasty)
    bench.figures[f"{name}_ratio"] = query_ratio(ours, chance, bench.seed).value
    bench.figures[f"{name}_l2_ratio"] = 1 / l2_ratio(ours, chance, bench.seed).value
    bench.page(
        title,
        _about(batch, palette, budget),
        [("agent, 4x4", ours), ("random, 4x4", chance), ("random, as hasty a cleanup", hasty)],
    )


def imagenet(bench: Bench) -> None:
    """EfficientNet-Lite0 at 224 pixels, budget 2,000."""
    victim, batch, budget = (
        common.photo_victim(bench.device),
        common.photos(2 if bench.quick else bench.count(60)),
        bench.limit(2000),
    )
    name = "efficientnet_lite0"
    own = 100 if bench.quick else budget
    ours = bench.run(f"{name}, agent", victim, batch, bench.ours(batch, MIDDLE, 4, "imagenet"), own)
    squares = bench.squares(name, victim, batch, budget)
    more = bench.against_square(name, ours, squares)
    about = _about(batch, MIDDLE, budget)
    bench.page("ImageNet photos, EfficientNet-Lite0 at 224", about, [("agent, 4x4", ours), *squares], more)


def ablations(bench: Bench) -> None:
    """What the parts are worth: the agent with one of them taken away."""
    victim, batch, budget = (
        common.cifar_victim("resnet20", bench.device),
        common.cifar_test(bench.count(100)),
        bench.limit(1000),
    )
    batch = batch[:2] if bench.quick else batch
    agent, options = bench.agent, {"l2_penalty": SETTINGS["cifar"]["l2_penalty"]} | bench.options
    variants = {"agent": agent, "without restore actions": f"{agent}(changes='add')", "without a prior": "belief"}
    rows = []
    for name, policy in variants.items():
        rows.append((name, bench.run(name, victim, batch, contender(policy, MIDDLE, 2, **options), budget)))
        bench.note("ablation_" + name.replace(" ", "_"), rows[-1][1])
    bench.page("Ablations, ResNet-20, 2x2", _about(batch, MIDDLE, budget), rows)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "cifar": cifar,
    "victims": victims,
    "natural": natural,
    "unseen": unseen,
    "imagenet": imagenet,
    "ablations": ablations,
}


def _about(batch: Batch, palette: Sequence[str], budget: int) -> str:
    return f"{len(batch)} images, budget {budget} queries an image, palette `{' '.join(palette)}`."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="auto", help="on CIFAR-10: a policy or an agent's file")
    parser.add_argument("--photo-agent", default="auto", help="the same for photos")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--images", type=int, help="at most so many images a section")
    parser.add_argument("--budget", type=int, help="queries an image, in place of each section's own")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of rlab.attack: patience=3"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fresh", action="store_true", help="run again what results/raw holds")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "images.md")
    o = parser.parse_args()
    chosen = [name.strip() for name in o.only.split(",")]
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}: choose of {', '.join(SECTIONS)}")
    options = {name: literal_eval(value) for name, _, value in (word.partition("=") for word in o.option)}
    bench = Bench(o.agent, o.photo_agent, o.images, o.budget, o.seed, options, o.fresh, o.quick, o.device)
    began = time.monotonic()
    for name in chosen:
        try:
            SECTIONS[name](bench)
        except common.Absent as why:
            print(f"skipped {name}: {why}")
    if bench.pages and not o.quick:
        rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
        rules += f" The agent is `{Path(o.agent).name}`, for photos `{Path(o.photo_agent).name}`."
        common.write_page(o.out, "Images", rules, o.seed, bench.pages)
    common.finish(bench.figures | {"seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
