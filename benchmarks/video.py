"""How few queries the temporal and the spatial agent need on clips, against `square` and `random`, and what each part brings.

python -m benchmarks.video --unpack data/clips.npz               # once: data/clips_train.npz, data/clips_test.npz, and, where
                                                                 # OpenCV is, data/clips_saliency.npz
python -m benchmarks.video --train runs/clips --minutes 8        # the agents of agents/clips.yaml, and those of the ablations
python -m benchmarks.video --agents runs/clips --packed data/clips.npz --device cuda
python -m benchmarks.video --only victims                        # one section; of others, victims, ablations, encoders, memory
python -m benchmarks.video --quick                               # under a minute: simulated clips, writes nothing

Six UCF-101 actions, groups 4-7, clips the victim has right, budget 10,000. Queries are search + cleanup; their medians are over
all attacked clips, one that was not flipped counting as the whole budget. MAP is the mean absolute change times 255; it, L2,
Linf, frames and patches are medians over flipped clips after cleanup. `greedy` would ask about every patch and entry at every
step, over 5,000 queries for its first change, and is left out. `adapt=0` everywhere: no agent was trained on a test clip.
"""

from __future__ import annotations

import argparse
import functools
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import rlab
from benchmarks import common
from benchmarks.video_agents import PALETTE, PATCH, packed_clips, quick_agents, train_all, write_arrays
from rlab.agents import parse_policy
from rlab.agents.base import Policy
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.loop import make_attack
from rlab.victims.base import Victim
from rlab.victims.zoo import CLIP_NETS, clip_victim

SIDES = (5, 13)  # of patches, the papers'
NEVER_SEEN = "slowfast"  # not among the models of agents/clips.yaml
ABLATED = "tsm"
HEADINGS = ("attack", "success", "queries", "search", "MAP", "L2", "Linf", "frames", "patches", "s a clip")


@dataclass(frozen=True)
class Figures:
    """What a table tells of one attack; medians."""

    success: float
    queries: float
    search: float
    map255: float
    l2: float
    linf: float
    frames: float
    patches: float
    seconds: float  # a clip

    @classmethod
    def of(cls, result: rlab.AttackResult) -> Figures:
        tried, won = result.attacked, result.succeeded
        budget = result.setting.budget
        queries = torch.where(won, result.effort, budget)[tried].float()
        touched = (result.assignment != 0).view(len(result), result.setting.grid.shape[0], -1).any(2).sum(1)

        def median(values: torch.Tensor) -> float:
            return float(values[won].float().median()) if won.any() else math.nan

        return cls(
            success=float(won.sum()) / max(1, int(tried.sum())),
            queries=float(queries.median()) if len(queries) else math.nan,
            search=median(result.queries[:, 0]),
            map255=median(result.final["map255"]),
            l2=median(result.final["l2"]),
            linf=median(result.final["linf"]),
            frames=median(touched),
            patches=median(result.final["l0_patches"]),
            seconds=float(result.seconds.sum()) / len(result),
        )

    def cells(self, name: str) -> tuple[str, ...]:
        figures = (self.queries, self.search, self.map255, self.l2, self.linf, self.frames, self.patches, self.seconds)
        return (name, f"{self.success:.1%}", *("–" if math.isnan(one) else f"{one:.4g}" for one in figures))


@dataclass
class Bench:
    """The options of a run, and what it has found so far."""

    batch: Batch
    agents: Path | None
    weights: Path
    budget: int
    patience: int | None
    price: float
    own_patience: int
    device: str
    seed: int
    quick: bool
    mobilenet: str | None = None
    fresh: bool = False
    full: bool = False
    pages: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def victim(self, name: str) -> Victim:
        if self.quick:
            return rlab.demo_victim("clips")
        path = self.weights / f"{name}.safetensors"
        if not path.exists():
            raise common.Absent(
                f"{path.name} is not in {self.weights.name}: train it with python -m benchmarks.train_clips"
            )
        return clip_victim(path, self.device)

    def agent(self, name: str = "pair", **options: Any) -> Policy:
        """The agents trained under this name."""
        path = None if self.agents is None else self.agents / name / "agent.safetensors"
        if path is None or not path.exists():
            raise common.Absent(f"there are no agents {name!r}: train them with --train FOLDER, then --agents FOLDER")
        said = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return parse_policy(f"{path}({said})") if said else parse_policy(str(path))

    def run(self, name: str, victim: Victim, policy: str | Policy, patch: int = PATCH, **options: Any) -> Figures:
        """One attack, told on the way."""
        together = len(self.batch) if self.device != "cpu" else None
        chosen: dict[str, Any] = {"patience": self.patience, "chunk": together} | options
        made = make_attack(
            self.batch, palette=PALETTE, patch=(1, patch, patch), budget=self.budget, policy=policy, **chosen
        )
        began = time.monotonic()
        found = Figures.of(made(victim, self.batch, self.seed))
        print(
            f"{name}: {found.success:.1%}, {found.queries:g} queries, MAP {found.map255:.3g}, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return found

    def ours(self, name: str, victim: Victim, policy: Policy, patch: int = PATCH, **options: Any) -> Figures:
        return self.run(name, victim, policy, patch, **({"price": self.price, "patience": self.own_patience} | options))

    def other(self, name: str, victim: Victim, policy: str) -> Figures:
        """A policy that does not change with ours: from results/raw where it was run before; --quick leaves nothing there."""
        make = functools.partial(self.run, f"{name}, {policy}", victim, policy)
        if self.quick:
            return make()
        patience = "" if self.patience is None else f"-patience{self.patience}"
        file = f"video-{name}-{policy}{patience}-n{len(self.batch)}-b{self.budget}-s{self.seed}"
        return Figures(**common.kept_values(file, self.fresh, lambda: asdict(make())))

    def page(self, title: str, about: str, rows: Mapping[str, Figures], more: Sequence[str] = ()) -> None:
        shown = common.table(HEADINGS, [figures.cells(name) for name, figures in rows.items()])
        self.pages.append("\n\n".join([f"## {title}", about, shown, *more]))

    def note(self, name: str, figures: Figures) -> None:
        self.figures |= {
            f"{name}_success": figures.success,
            f"{name}_queries": figures.queries,
            f"{name}_map": figures.map255,
        }


def victims(bench: Bench) -> None:
    """The two agents, `square` and `random` on every victim."""
    for name in ("demo",) if bench.quick else tuple(CLIP_NETS):
        try:
            victim = bench.victim(name)
        except common.Absent as why:
            print(f"skipped {name}: {why}")
            continue
        rows = {"two agents": bench.ours(f"{name}, two agents", victim, bench.agent())}
        if bench.full:
            rows["two agents, full cleanup"] = bench.ours(f"{name}, full cleanup", victim, bench.agent(), patience=None)
        rows |= {policy: bench.other(name, victim, policy) for policy in ("square", "random")}
        ours = rows["two agents"]
        for key, figures in rows.items():
            bench.note(f"{name}_{key.replace('two agents', 'agents').replace(', ', '_').replace(' ', '_')}", figures)
        times = {key: rows[key].queries / ours.queries for key in ("square", "random")}
        bench.figures |= {f"{name}_{key}_ratio": value for key, value in times.items()}
        seen = "a victim the agents never saw" if name == NEVER_SEEN else "one of the victims they were trained on"
        told = "; ".join(
            f"`{key}` needs {value:.3g} times their queries at {rows[key].map255 / ours.map255:.3g} times their MAP"
            for key, value in times.items()
        )
        bench.page(name.upper(), f"{_about(bench)} It is {seen}.", rows, [told + "."])


def others(bench: Bench) -> None:
    """`square` and `random` alone, to have them in results/raw."""
    for name in ("demo",) if bench.quick else tuple(CLIP_NETS):
        for policy in ("square", "random"):
            bench.other(name, bench.victim(name), policy)


def ablations(bench: Bench) -> None:
    """Each part left out, on one victim."""
    name = "demo" if bench.quick else ABLATED
    victim = bench.victim(name)
    rows: dict[str, Figures] = {}

    def add(label: str, policy: Callable[[], Policy], patch: int = PATCH, **options: Any) -> None:
        try:
            rows[label] = bench.ours(f"ablation, {label}", victim, policy(), patch, **options)
        except common.Absent as why:
            print(f"skipped {label}: {why}")

    add("two agents, L1 + L2", bench.agent)
    add("one agent, trained alone", lambda: bench.agent("one"))
    add("one agent, the same without the temporal one", lambda: bench.agent(temporal=False))
    add("L1 only, trained so", lambda: bench.agent("coarse"))
    add("L1 only, the same agents", lambda: bench.agent(levels=1))
    add("without reverse removal", bench.agent, cleanup=False)
    for side in SIDES:
        add(f"patch {side}x{side}", bench.agent, side)
    add("without objectness and motion", lambda: bench.agent("plain"))
    add("adapt=12: twelve looks at each clip first", lambda: bench.agent(adapt=12))
    for label, figures in rows.items():
        bench.note("ablation_" + "_".join("".join(c if c.isalnum() else " " for c in label).lower().split()), figures)
    one, two = rows.get("one agent, trained alone"), rows.get("two agents, L1 + L2")
    more = []
    if one is not None and two is not None:
        bench.figures["map_two_below_one"] = 1 - two.map255 / one.map255
        more = [f"Two agents: MAP {1 - two.map255 / one.map255:.1%} below that of one."]
    bench.page(f"What each part brings, {name.upper()}", _about(bench), rows, more)


def encoders(bench: Bench) -> None:
    """The small encoder against MobileNet-V2, where agents were trained with it and its weights are at hand."""
    if bench.mobilenet is None:
        raise common.Absent("name weights with --mobilenet FILE, at --train too")
    victim = bench.victim(ABLATED)
    rows = {
        "small encoder": bench.ours("small encoder", victim, bench.agent()),
        "MobileNet-V2": bench.ours("MobileNet-V2", victim, bench.agent("mobilenet", mobilenet=bench.mobilenet)),
    }
    for label, figures in rows.items():
        bench.note("encoder_" + label.split()[0].lower().replace("-", "_"), figures)
    bench.page("Frame encoders", _about(bench), rows)


def memory(bench: Bench) -> None:
    """Peak memory and seconds for one clip of 300 frames, in a process of its own."""
    from benchmarks.video_memory import measure

    frames = 32 if bench.quick else 300
    policies = {"square": "square"}
    if bench.agents is not None and (file := bench.agents / "pair" / "agent.safetensors").exists():
        policies["two agents"] = str(file)
    found = {
        label: measure(
            frames=frames, policy=policy, net=ABLATED, budget=20 if bench.quick else 200, device=bench.device
        )
        for label, policy in policies.items()
    }
    names = list(next(iter(found.values())))
    bench.figures |= {
        f"memory_{label.replace('two agents', 'agents')}_{name}": value
        for label, one in found.items()
        for name, value in one.items()
        if isinstance(value, int | float)
    }
    rows = [
        [label, *(f"{one[name]:.4g}" if isinstance(one[name], float) else str(one[name]) for name in names)]
        for label, one in found.items()
    ]
    bench.pages.append("\n\n".join(["## A long clip", common.table(["policy", *names], rows)]))


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "others": others,
    "victims": victims,
    "ablations": ablations,
    "encoders": encoders,
    "memory": memory,
}


def _about(bench: Bench) -> str:
    side = bench.batch.size
    extra = f"; the agents' cleanup ends after {bench.own_patience} failed tries in a row"
    extra += "" if bench.patience is None else f", the others' after {bench.patience}"
    return (
        f"{len(bench.batch)} clips of {side[0]} frames of {side[1]} x {side[2]}, budget {bench.budget} queries a clip, "
        f"palette `{' '.join(PALETTE)}`, patches of {PATCH} x {PATCH} on single frames{extra}."
    )


def clips(packed: Path | None) -> Batch:
    """Groups 4-7 of the six actions."""
    if packed is not None:
        return packed_clips(packed, "test")
    from benchmarks.train_clips import TEST
    from rlab.victims.zoo import CLIP_FRAMES, CLIP_SIZE

    return rlab.load(real_clips(), groups=TEST, size=CLIP_SIZE, frames=CLIP_FRAMES)


def real_clips() -> Path:
    return common.real("ucf6")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--unpack", type=Path, help="write a pack of benchmarks.train_clips as arrays beside it, and leave"
    )
    parser.add_argument("--train", type=Path, help="train the agents into this folder, and leave")
    parser.add_argument(
        "--variants", default="", help="of --train, with commas; all where not said: pair,one,coarse,plain"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="of --train, for each of them")
    parser.add_argument("--mobilenet", help="weights of MobileNet-V2, to train and measure agents that use it")
    parser.add_argument("--agents", type=Path, help="the folder that --train made")
    parser.add_argument("--packed", type=Path, help="a pack of benchmarks.train_clips in place of the clips")
    parser.add_argument("--weights", type=Path, default=common.WEIGHTS, help="the victims' folder")
    parser.add_argument("--only", default="victims,ablations,encoders,memory", help="sections, with commas")
    parser.add_argument("--clips", type=int, help="at most so many clips, spread over the classes")
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--patience", type=int, help="of the others' cleanup; not said, they try every patch")
    parser.add_argument("--own-patience", type=int, default=4, help="of the agents' cleanup: failed tries in a row")
    parser.add_argument("--price", type=float, default=0.0, help="what L2 costs the agents, see rlab attack's price")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="the agents also with a cleanup that tries every patch")
    parser.add_argument("--fresh", action="store_true", help="run again what results/raw holds")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "video.md")
    o = parser.parse_args()
    began = time.monotonic()
    if o.unpack:
        return common.finish(write_arrays(o.unpack) | {"seconds": time.monotonic() - began})
    if o.train:
        train_all(o.train, o.minutes, o.device, o.mobilenet, [name for name in o.variants.split(",") if name])
        return common.finish({"seconds": time.monotonic() - began})
    chosen = [name.strip() for name in o.only.split(",")]
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}: choose of {', '.join(SECTIONS)}")
    with tempfile.TemporaryDirectory() as folder:
        if o.quick:
            quick_agents(Path(folder))
        batch = rlab.load("demo:clips", limit=4) if o.quick else clips(o.packed)
        if o.clips is not None:
            batch = batch[torch.linspace(0, len(batch) - 1, min(o.clips, len(batch))).long().tolist()]
        device, agents = ("cpu", Path(folder)) if o.quick else (o.device, o.agents)
        budget = min(o.budget, 60) if o.quick else o.budget
        bench = Bench(
            batch, agents, o.weights, budget, o.patience, o.price, o.own_patience, device, o.seed, o.quick,
            o.mobilenet, o.fresh, o.full,
        )  # fmt: skip
        for name in chosen:
            try:
                SECTIONS[name](bench)
            except (common.Absent, InputError, ImportError) as why:
                print(f"skipped {name}: {why}")
    if bench.pages and not o.quick:
        rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
        common.write_page(o.out, "Video", rules, o.seed, bench.pages)
    common.finish(bench.figures | {"seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
