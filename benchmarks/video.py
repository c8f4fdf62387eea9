"""How few queries the temporal and the spatial agent need on clips, against `square` and `random`, and what each part brings.

python -m benchmarks.video --unpack data/clips.npz               # once: data/clips_train.npz, data/clips_test.npz, and, where
                                                                 # OpenCV is, data/clips_saliency.safetensors
python -m benchmarks.video --train runs/clips --minutes 8        # the agents of agents/clips.yaml, and those of the ablations
python -m benchmarks.video --agents runs/clips --packed data/clips.npz --device cuda
python -m benchmarks.video --packed data/clips.npz               # the agents that come with the package
python -m benchmarks.video --only curves --budget 200            # MAP within so many queries, on every victim
python -m benchmarks.video --only victims                        # one section; see SECTIONS
python -m benchmarks.video --quick                               # under a minute: simulated clips, writes nothing

Six UCF-101 actions, groups 4-7, clips the victim has right, budget 10,000. Queries are search + cleanup; their medians are over
all attacked clips, one that was not flipped counting as the whole budget. MAP is the mean absolute change times 255; it, L2,
Linf, frames and patches are medians over flipped clips after cleanup. `greedy` would ask about every patch and entry at every
step, over 5,000 queries for its first change, and is left out. `square` and `random` get the agents' cleanup: the same regions,
the same patience. `adapt=0` everywhere: no agent was trained on a test clip.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

import rlab
from benchmarks import common
from benchmarks.video_agents import PATCH, packed_clips, quick_agents, train_all, write_arrays
from benchmarks.video_bench import Bench, Figures
from rlab.core.trace import best_within
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.policies import parse_policy
from rlab.policies.base import Policy
from rlab.victims import Victim
from rlab.victims.zoo.clips import CLIP_NETS

SIDES = (5, 13)  # of patches, the papers'
NEVER_SEEN = "slowfast"  # not among the models of agents/clips.yaml
ABLATED = "tsm"


def _victims(bench: Bench) -> Iterator[tuple[str, Victim]]:
    """Those whose weights are at hand, by name."""
    for name in ("demo",) if bench.quick else tuple(CLIP_NETS):
        try:
            yield name, bench.victim(name)
        except common.Absent as why:
            print(f"skipped {name}: {why}")


def victims(bench: Bench) -> None:
    """The two agents, `square` and `random` on every victim."""
    for name, victim in _victims(bench):
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
        bench.page(name.upper(), f"{bench.about} It is {seen}.", rows, [told + "."])


def curves(bench: Bench) -> None:
    """The median MAP of the best flip within so many queries, no flip counting as infinitely far, and its ratio to `square`'s."""
    for name, victim in _victims(bench):
        policies = {"belief": parse_policy("belief"), "two agents": bench.agent()}
        policies |= {policy: bench.reduced(policy) for policy in ("square", "random")}
        found = {label: bench.curve(f"{name}, {label}", victim, policy) for label, policy in policies.items()}
        queries = [q for q in (5, 10, 20, 50, 100, 200) if q <= bench.budget]
        medians = {
            label: [255 * float(best_within(curve, q).median()) for q in queries] for label, curve in found.items()
        }
        for i, q in enumerate(queries):
            bench.figures[f"{name}_map_ratio_{q}"] = medians["belief"][i] / medians["square"][i]
        bench.figures[f"{name}_success"] = sum(map(bool, found["belief"])) / max(1, len(found["belief"]))
        rows = [(label, *(f"{value:.3g}" for value in values)) for label, values in medians.items()]
        head = ("MAP within so many queries", *map(str, queries))
        bench.pages.append("\n\n".join([f"## {name.upper()}, query by query", bench.about, common.table(head, rows)]))


def others(bench: Bench) -> None:
    """`square` and `random` alone, to have them in results/raw."""
    for name in ("demo",) if bench.quick else tuple(CLIP_NETS):
        for policy in ("square", "random"):
            bench.other(name, bench.victim(name), policy)


def ablations(bench: Bench) -> None:
    """The same agents with each part left out, on one victim."""
    rows = _rows(
        bench,
        {
            "two agents, L1 + L2": lambda: bench.agent(),
            "without the temporal agent": lambda: bench.agent(temporal=False),
            "L1 only": lambda: bench.agent(levels=1),
            "without reverse removal": lambda: bench.agent(),
            "removal by single patches": lambda: bench.agent(by_region=False),
            **{f"patch {side}x{side}": lambda: bench.agent() for side in SIDES},
            "adapt=16: sixteen looks at each clip first": lambda: bench.agent(adapt=16),
        },
        "ablation",
    )
    bench.page(f"What each part brings, {_ablated(bench).upper()}", bench.about, rows)


def variants(bench: Bench) -> None:
    """Agents trained for the same time from the same prior with a part left out, on one victim."""
    rows = _rows(
        bench,
        {
            "two agents, L1 + L2": lambda: bench.agent(),
            "one agent": lambda: bench.agent("one"),
            "L1 only": lambda: bench.agent("coarse"),
            "without objectness and motion": lambda: bench.agent("plain"),
        },
        "trained",
    )
    one, two = rows.get("one agent"), rows.get("two agents, L1 + L2")
    more = []
    if one is not None and two is not None:
        bench.figures["map_two_below_one"] = 1 - two.map255 / one.map255
        more = [f"Two agents: MAP {1 - two.map255 / one.map255:.1%} below that of one."]
    bench.page(f"Agents trained without a part, {_ablated(bench).upper()}", bench.about, rows, more)


def _rows(bench: Bench, policies: Mapping[str, Callable[[], Policy]], kind: str) -> dict[str, Figures]:
    """Each policy on the victim of the ablations; the label says what is done besides."""
    victim = bench.victim(_ablated(bench))
    rows: dict[str, Figures] = {}
    for label, policy in policies.items():
        patch = next((side for side in SIDES if label == f"patch {side}x{side}"), PATCH)
        options = {"cleanup": False} if label == "without reverse removal" else {}
        try:
            rows[label] = bench.ours(f"{kind}, {label}", victim, policy(), patch, **options)
        except common.Absent as why:
            print(f"skipped {label}: {why}")
            continue
        bench.note(
            f"{kind}_" + "_".join("".join(c if c.isalnum() else " " for c in label).lower().split()), rows[label]
        )
    return rows


def _ablated(bench: Bench) -> str:
    return "demo" if bench.quick else ABLATED


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
    bench.page("Frame encoders", bench.about, rows)


def memory(bench: Bench) -> None:
    """Peak memory and seconds for one clip of 300 frames, in a process of its own."""
    from benchmarks.video_memory import measure

    frames = 32 if bench.quick else 300
    policies = {"square": "square", "two agents": "auto"}
    if bench.agents is not None:
        policies["two agents"] = bench.file("pair")
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
    "curves": curves,
    "victims": victims,
    "ablations": ablations,
    "variants": variants,
    "encoders": encoders,
    "memory": memory,
}


def clips(packed: Path | None) -> Batch:
    """Groups 4-7 of the six actions."""
    if packed is not None:
        return packed_clips(packed, "test")
    from benchmarks.train_clips import TEST
    from rlab.victims.zoo.clips import CLIP_FRAMES, CLIP_SIZE

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
    parser.add_argument(
        "--agents", type=Path, help="the folder that --train made; not said, what comes with the package"
    )
    parser.add_argument("--packed", type=Path, help="a pack of benchmarks.train_clips in place of the clips")
    parser.add_argument("--weights", type=Path, default=common.WEIGHTS, help="the victims' folder")
    parser.add_argument("--only", default="victims,ablations,variants,encoders,memory", help="sections, with commas")
    parser.add_argument("--clips", type=int, help="at most so many clips, spread over the classes")
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--patience", type=int, default=6, help="the same of the others' cleanup")
    parser.add_argument("--own-patience", type=int, default=6, help="of the agents' cleanup: failed tries in a row")
    parser.add_argument(
        "--l2-penalty", type=float, default=0.0, help="what L2 costs the agents, see rlab attack's l2_penalty"
    )
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
            batch, agents, o.weights, budget, o.patience, o.l2_penalty, o.own_patience, device, o.seed, o.quick,
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
