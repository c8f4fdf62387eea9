"""How few queries an attack needs on ECG beats, against the policies a user could pick instead; three victims, 9 records of DS2.

python -m benchmarks.ecg                                        # square, random, greedy; results in benchmarks/results/ecg.md
python -m benchmarks.ecg --agent runs/agent/agent.safetensors    # with an agent of yours
python -m benchmarks.ecg --only distortions                     # one section; of attacks, distortions
python -m benchmarks.ecg --quick                                # under a minute: few beats, small budget, writes nothing

What does not change with the agent is kept in benchmarks/results/raw; --fresh runs it again. The records are read below
$RLAB_REAL, or as packed by `python -m benchmarks.pack_ecg`.

Victims are those of `train_ecg.py`: no training of a prior or an agent saw them. Beats are those of DS2 (9 of its 22 records are
here) that the victim has right, as many N as S as V as far as there are. Queries are search + cleanup;
medians of queries are over all these beats, one that was not flipped counting as the whole budget; L2 (in mV, and over that
of the beat itself) is after cleanup, over flipped beats; SNR is of the beat without its mean against what was changed.
All attacks get the same stopping, and those that do not reduce by themselves the same cleanup. Smooth PGD (Han et al. 2020) is
the white-box bound: it takes the victim's own gradients and moves every sample freely but smoothly, so that it has no queries to
compare. Brackets are 95% bootstrap intervals.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import common
from benchmarks.beat_nets import BEAT_NETS
from benchmarks.pack_ecg import DATA, beats, evened
from benchmarks.smooth_pgd import smooth_pgd_min
from benchmarks.train_ecg import ecg_victim
from rlab.comparison import AttackOutcome, Figures, l2_ratio, outcome_of, query_ratio
from rlab.data.batch import Batch
from rlab.policies import parse_policy
from rlab.policies.auto import card, shipped
from rlab.priors.file import read_header
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.stats import Estimate, estimate, median
from rlab.victims.torch_module import TorchVictim

PATCH = 10  # samples, 28 ms: 72 patches a window
# What goes wrong at the bedside, each alone in the table of distortions and all together as the palette of the attacks.
DISTORTIONS = {
    "baseline wander": ("baseline_wander@0.15,0.3mV",),
    "hum, 50 Hz": ("powerline_hum50@0.1mV",),
    "hum, 60 Hz": ("powerline_hum60@0.1mV",),
    "muscle noise": ("muscle_noise@0.05,0.1mV",),
    "electrode motion": ("electrode_motion@0.3mV",),
    "amplitude": ("amplitude_scaling@0.3",),
    "smoothing": ("smoothing@8",),
    "lead dropout": ("lead_dropout@1",),
}
PALETTE = tuple(spec for specs in DISTORTIONS.values() for spec in specs)
BASELINES = ("square", "random", "greedy")
LABELS = (0, 1, 2)  # N, S, V
FEW = 30  # beats for greedy, which is slow
SMOOTH = "smooth PGD, white box"
AGENT, SIGNALS = "auto", "signals"  # the policy that takes the agent that ships, and that agent's name


@dataclass(frozen=True)
class Traced:
    """An outcome, and for each beat how loud the change was: NaN where it was not flipped."""

    outcome: AttackOutcome
    relative: Tensor  # (n,) L2 of the change over that of the beat, after cleanup
    snr_flip: Tensor  # (n,) dB, when it first flipped
    snr: Tensor  # (n,) dB, after cleanup

    @classmethod
    def of(cls, result: AttackResult, rows: int) -> Traced:
        lost = ~result.succeeded
        columns = (result.final["relative_l2"], result.flip["snr_db"], result.final["snr_db"])
        return cls(outcome_of(result, rows), *(c.double().masked_fill(lost, torch.nan) for c in columns))

    def plain(self) -> dict[str, Any]:
        columns = {"relative": self.relative, "snr_flip": self.snr_flip, "snr": self.snr}
        return self.outcome.plain() | {
            name: [round(v, 4) if v == v else None for v in column.tolist()] for name, column in columns.items()
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Traced:
        columns = ([np.nan if v is None else v for v in values[name]] for name in ("relative", "snr_flip", "snr"))
        return cls(AttackOutcome.from_plain(values), *(torch.tensor(c, dtype=torch.float64) for c in columns))

    def median(self, values: Tensor, seed: int) -> Estimate:
        """Of the beats that were attacked; those not flipped are left out."""
        return _median(values[self.outcome.attacked], seed)


@dataclass
class Bench:
    """The options of a run, and what it has found so far."""

    agent: str | None
    seen: tuple[str, ...]
    samples: int
    alone: int
    budget: int
    seed: int
    device: str
    fresh: bool
    quick: bool
    test: Batch
    pages: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def sample(self, victim: TorchVictim, count: int) -> Batch:
        """Beats the victim has right, classes evened out; looked for among twenty times as many."""
        y, victim.chunk = self.test.y, 2048
        rows = torch.tensor(evened(y, torch.ones(len(y), dtype=torch.bool), 20 * count, LABELS, self.seed))
        right = torch.zeros(len(y), dtype=torch.bool)
        right[rows] = victim(self.test.x[rows].to(victim.device), "verify").argmax(1).cpu() == y[rows]
        return self.test[evened(y, right, count, LABELS, self.seed)]

    def run(
        self,
        name: str,
        victim: TorchVictim,
        batch: Batch,
        policy: str,
        palette: Sequence[str],
        budget: int,
    ) -> Traced:
        """Now, and told on the way."""
        chunk = len(batch) if self.device != "cpu" else None
        shared: dict[str, Any] = {"patch": PATCH, "chunk": chunk, "seed": self.seed}
        attack = make_attack(batch, policy=policy, palette=palette, budget=budget, **shared)
        before = sum(victim.rows.values())
        result = run_attack(attack, victim, batch)
        traced = Traced.of(result, sum(victim.rows.values()) - before)
        print(f"{name}, {policy}: {result.tally()}, {traced.outcome.seconds:.0f} s", flush=True)
        return traced

    def keep(
        self, name: str, victim: TorchVictim, batch: Batch, policy: str, palette: Sequence[str], budget: int
    ) -> Traced:
        """From results/raw where the same was run before; --quick and agents leave nothing there."""
        if self.quick or policy == self.agent:
            return self.run(name, victim, batch, policy, palette, budget)
        file = f"ecg-{name}-{policy}-n{len(batch)}-b{budget}-s{self.seed}-{mark(victim, batch, palette)}"
        made = common.kept_values(
            file, self.fresh, lambda: self.run(name, victim, batch, policy, palette, budget).plain()
        )
        return Traced.from_plain(made)


def mark(victim: TorchVictim, batch: Batch, palette: Sequence[str]) -> str:
    """Eight letters that change with the weights, the beats, the palette or the patch."""
    found = hashlib.sha256(json.dumps([batch.ids, list(palette), PATCH]).encode())
    for weight in victim.model.state_dict().values():
        found.update(weight.cpu().numpy().tobytes())
    return found.hexdigest()[:8]


def attacks(bench: Bench) -> None:
    """Every policy with the whole palette on every victim."""
    for name in BEAT_NETS:
        victim = ecg_victim(name, bench.device)
        batch = bench.sample(victim, bench.samples)
        policies = [*([bench.agent] if bench.agent else []), *BASELINES]
        runs = {one: bench.keep(name, victim, _part(batch, one), one, PALETTE, _budget(bench, one)) for one in policies}
        labelled = {("agent" if one == bench.agent else one): run for one, run in runs.items()}
        if bench.agent:
            _ratios(bench, name, labelled)
        for one, run in labelled.items():
            _note(bench, f"{name}_{one.replace(', ', '_').replace(' ', '_')}", run)
        seen = f" {'Seen' if name in bench.seen else 'Never seen'} in the agent's training." if bench.agent else ""
        less = f" Greedy's budget is {_budget(bench, 'greedy'):,}, on the first {min(FEW, len(batch))} of them."
        table = _attack_table(labelled, bench.seed) + "\n" + _smooth_row(bench, name, victim, batch)
        bench.pages.append(f"## {name}\n\n{_about(batch, bench)}{less}{seen}\n\n{table}")


def distortions(bench: Bench) -> None:
    """Each distortion alone, by random proposals: what a victim bears, whoever looks for it."""
    policy: str = "random"
    rows = []
    count = min(bench.samples, bench.alone)
    for name in BEAT_NETS:
        victim = ecg_victim(name, bench.device)
        batch = bench.sample(victim, count)
        for title, specs in DISTORTIONS.items():
            slug = title.replace(", ", "_").replace(" ", "_").lower()
            run = bench.keep(f"{name}-{slug}", victim, batch, policy, specs, bench.budget)
            _note(bench, f"{name}_{slug}", run)
            f = Figures.of(run.outcome, bench.seed)
            rows.append(
                (
                    f"{name}, {title}",
                    f"`{' '.join(specs)}`",
                    common.share(f.success),
                    common.interval(f.queries),
                    common.interval(f.queries_won),
                    common.interval(run.median(run.snr_flip, bench.seed)),
                    common.interval(run.median(run.snr, bench.seed)),
                )
            )
    headings = (
        "victim, distortion",
        "palette",
        "success",
        "queries",
        "of flipped",
        "SNR at the flip, dB",
        "after cleanup, dB",
    )
    about = f"One distortion alone, {count} beats a victim, budget {bench.budget:,}, proposals by `random`."
    bench.pages.append(f"## Victim by distortion\n\n{about}\n\n{common.table(headings, rows)}")


SECTIONS: dict[str, Callable[[Bench], None]] = {"attacks": attacks, "distortions": distortions}


def _budget(bench: Bench, policy: str) -> int:
    """A sweep of greedy costs hundreds of queries, so that it gets four times the budget, and two sweeps of a quick run."""
    return max(600, 4 * bench.budget) if policy == "greedy" else bench.budget


def _part(batch: Batch, policy: str) -> Batch:
    """And for the same reason fewer beats."""
    return batch[:FEW] if policy == "greedy" else batch


def _times(ours: Traced, other: Traced, seed: int) -> tuple[Estimate, Estimate]:
    """The other's median queries and L2 over ours, on the beats both attacked."""
    same = ours.outcome.first(len(other.outcome))
    return query_ratio(same, other.outcome, seed), l2_ratio(same, other.outcome, seed)


def _about(batch: Batch, bench: Bench) -> str:
    held = ", ".join(f"{int((batch.y == i).sum())} {batch.label_name(i)}" for i in LABELS)
    palette = " ".join(PALETTE)
    return f"{len(batch)} beats ({held}), budget {bench.budget:,} queries a beat, palette `{palette}`, patch {PATCH}."


def _note(bench: Bench, name: str, run: Traced) -> None:
    f = Figures.of(run.outcome, bench.seed)
    bench.figures |= {
        f"{name}_success": f.success.value,
        f"{name}_queries": f.queries.value,
        f"{name}_l2": f.l2.value,
        f"{name}_snr_flip": run.median(run.snr_flip, bench.seed).value,
    }


def _smooth_row(bench: Bench, name: str, victim: TorchVictim, batch: Batch) -> str:
    """The white-box bound as a last row of the table of attacks."""
    l2 = smooth_pgd_min(victim, batch.x, batch.y).double()
    won, signal = l2.isfinite(), batch.x.flatten(1).double()
    snr = 20 * torch.log10((signal - signal.mean(1, keepdim=True)).norm(dim=1) / l2)
    found = [_median(values[won], bench.seed) for values in (l2, l2 / signal.norm(dim=1), snr)]
    success = float(won.double().mean())
    bench.figures |= {f"{name}_smooth_pgd_success": success, f"{name}_smooth_pgd_l2": found[0].value}
    told = [common.interval(one) for one in found]
    return "| " + " | ".join((SMOOTH, f"{success:.1%}", "–", "–", told[0], told[1], "–", told[2], "–")) + " |"


def _median(values: Tensor, seed: int) -> Estimate:
    held = values.numpy()
    return estimate(lambda rows: median(held, rows), len(held), seed)


def _ratios(bench: Bench, name: str, runs: Mapping[str, Traced]) -> None:
    """How many times the agent's queries and L2 the others need; the interval's lower end beside it."""
    for one in BASELINES:
        times, reach = _times(runs["agent"], runs[one], bench.seed)
        bench.figures |= {
            f"{name}_ratio_{one}": times.value,
            f"{name}_ratio_{one}_low": times.low,
            f"{name}_l2_over_{one}": 1 / reach.value,
        }
    bench.figures[f"{name}_seen"] = name in bench.seen


def _attack_table(runs: Mapping[str, Traced], seed: int) -> str:
    first = next(iter(runs))
    rows = []
    for name, run in runs.items():
        f = Figures.of(run.outcome, seed)
        times, _ = _times(runs[first], run, seed)
        measured = (
            f.queries,
            f.queries_won,
            f.l2,
            *(run.median(c, seed) for c in (run.relative, run.snr_flip, run.snr)),
        )
        cells = [common.interval(one) for one in measured]
        rows.append((name, common.share(f.success), *cells, "1" if name == first else common.interval(times)))
    loudness = ("SNR at the flip, dB", "after cleanup, dB")
    headings = (
        "attack",
        "success",
        "queries",
        "of flipped",
        "L2, mV",
        "over the beat's",
        *loudness,
        f"times {first}'s queries",
    )
    return common.table(headings, rows)


def available(agent: str) -> str | None:
    """The agent asked for, once it can be read; None where it is the default one and none ships for signals."""
    if agent == AGENT and SIGNALS not in shipped():
        return None
    parse_policy(agent)
    return agent


def trained_on(agent: str) -> list[str]:
    """The victims among those here that the agent's file names as what it was trained on."""
    if agent == AGENT:
        about = card(SIGNALS)
    elif agent.endswith(".safetensors"):
        about = read_header(Path(agent)).about
    else:
        return []
    models = [model["name"] for model in about.get("config", {}).get("models", [])]
    return [name for name in BEAT_NETS if f"benchmarks.beat_nets:{name}" in models]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default=AGENT, help="an agent's file; the one that ships where not said")
    parser.add_argument("--seen", default="", help="victims the agent was trained on; as its file says where not said")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--samples", type=int, default=120, help="beats a victim")
    parser.add_argument("--alone", type=int, default=30, help="beats a victim and distortion in the table of these")
    parser.add_argument("--budget", type=int, default=1000, help="queries a beat")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of packed beats; the records where it has none")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="run again what results/raw holds")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    parser.add_argument("--out", type=Path, default=common.RESULTS / "ecg.md")
    o = parser.parse_args()
    chosen, seen = ([word.strip() for word in text.split(",") if word.strip()] for text in (o.only, o.seen))
    for words, known in ((chosen, SECTIONS), (seen, BEAT_NETS)):
        if unknown := [word for word in words if word not in known]:
            parser.error(f"there is no {unknown[0]!r}: choose of {', '.join(known)}")
    agent = available(o.agent)
    seen = seen or (trained_on(agent) if agent else [])
    if agent is None:
        print("no agent for signals ships yet and none was named with --agent: its rows are left out")
    try:
        test = beats("test", o.data)
    except common.Absent as why:
        raise SystemExit(f"skipped: {why}") from why
    samples, budget = (6, 40) if o.quick else (o.samples, o.budget)
    bench = Bench(agent, tuple(seen), samples, o.alone, budget, o.seed, o.device, o.fresh, o.quick, test)
    began = time.monotonic()
    for name in chosen:
        SECTIONS[name](bench)
    if not o.quick:
        rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
        who = f" The agent is `{Path(agent).name}`." if agent else " No agent took part."
        common.write_page(o.out, "ECG beats", rules + who, o.seed, bench.pages)
    common.finish(bench.figures | {"agent": agent and Path(agent).name, "seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
