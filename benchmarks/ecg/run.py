"""How few queries an attack needs on ECG beats, compared with other policies; and what groups of leads are worth.

python -m benchmarks.ecg                       # run what has no raw file, then write results/ecg.md
python -m benchmarks.ecg --only leads          # one case; `twelve` are policies on whole records of twelve leads
python -m benchmarks.ecg --quick               # few beats and queries, records of twelve leads, their heat, and reading

The beats are read below $RLAB_REAL, or from the files of `python -m benchmarks.beats`: three victims, 9 records of DS2. Records
of twelve leads and their networks are below $RLAB_REAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.attacks import attack
from benchmarks.beats import LABELS, balanced, beats
from benchmarks.ecg import harden, held_out, leads, networks, plausible, twelve
from benchmarks.ecg.cases import (
    BASELINES,
    FULL,
    GREEDY_BEATS,
    OURS,
    PALETTE,
    PATCH,
    QUICK,
    SEED,
    SMOOTH,
    Case,
    Size,
    cases,
)
from benchmarks.ecg.reading import read_ms
from benchmarks.ecg.smooth_pgd import smooth_pgd_min
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Curves, Numbers, Raw, Store, from_curves, or_nan, to_curves
from benchmarks.tables import interval, section, share, table
from benchmarks.victims import BEAT_NETS, beat_victim
from rlab.comparison import AttackOutcome, l2_ratio, outcome_of, query_ratio
from rlab.comparison import Figures as OutcomeFigures
from rlab.data.batch import Batch
from rlab.results.result import AttackResult
from rlab.stats import Estimate, estimate, median
from rlab.victims.torch_module import TorchVictim

COLUMNS = ("relative", "snr_flip", "snr")
RULES = """
Beats: no training of a prior or an agent used these victims (`benchmarks.victims.train_beats`). Beats are those of the 9 available
records of DS2 that the victim classifies correctly, with N, S and V balanced as far as there are enough. Queries are search and
cleanup; their median is over all beats, and a beat that was not flipped counts as the whole budget. L2, in mV and relative to the
beat's own, is after cleanup, over flipped beats. SNR compares the beat without its mean with the change. All attacks use the same
stopping rule, and those that do not reduce the distortion themselves the same cleanup. Smooth PGD (Han et al. 2020) is the
white-box bound: it uses the victim's own gradients and moves every sample freely but smoothly, so it has no queries to compare.
[anytime.md](anytime.md) compares the policies within the same number of queries. Brackets are 95% bootstrap intervals.
"""


@dataclass(frozen=True)
class Traced:
    """An outcome, and how loud the change of each beat was: NaN where it was not flipped."""

    outcome: AttackOutcome
    relative: Tensor  # (n,) L2 of the change over that of the beat, after cleanup
    snr_flip: Tensor  # (n,) dB at the first flip
    snr: Tensor  # (n,) dB after cleanup

    @classmethod
    def of(cls, result: AttackResult, rows: int) -> Traced:
        lost = ~result.succeeded
        columns = (result.final["relative_l2"], result.flip["snr_db"], result.final["snr_db"])
        return cls(outcome_of(result, rows), *(c.double().masked_fill(lost, torch.nan) for c in columns))

    def numbers(self) -> dict[str, Any]:
        outcome = self.outcome
        plain: dict[str, Any] = {"queries": outcome.queries.tolist(), "budget": outcome.budget, "rows": outcome.rows}
        plain["l2"] = [None if v != v else round(v, 5) for v in outcome.l2.tolist()]
        plain |= {name: getattr(outcome, name).int().tolist() for name in ("attacked", "succeeded")}
        columns = {name: [round(v, 4) if v == v else None for v in getattr(self, name).tolist()] for name in COLUMNS}
        return plain | columns | {"improvements": from_curves(outcome.improvements, 5)}

    @classmethod
    def from_numbers(cls, numbers: Numbers) -> Traced:
        columns = {name: torch.tensor(numbers[name], dtype=torch.bool) for name in ("attacked", "succeeded")}
        outcome = AttackOutcome(
            **columns, queries=torch.tensor(numbers["queries"]), l2=torch.tensor(or_nan(numbers["l2"]), dtype=torch.float64),
            budget=numbers["budget"], rows=numbers["rows"], improvements=to_curves(numbers["improvements"]),
        )  # fmt: skip
        return cls(outcome, *(torch.tensor(or_nan(numbers[name]), dtype=torch.float64) for name in COLUMNS))

    def median(self, values: Tensor) -> Estimate:
        """Over the attacked beats that were flipped."""
        return _median(values[self.outcome.attacked])


def _median(values: Tensor) -> Estimate:
    held = values.numpy()
    return estimate(lambda rows: median(held, rows), len(held), SEED)


@cache
def test_beats() -> Batch:
    return beats("test")


def sample(victim: TorchVictim, test: Batch, count: int) -> Batch:
    """Beats the victim classifies correctly, balanced, taken from twenty times as many."""
    y, victim.chunk = test.y, 2048
    rows = torch.tensor(balanced(y, torch.ones(len(y), dtype=torch.bool), 20 * count))
    right = torch.zeros(len(y), dtype=torch.bool)
    right[rows] = victim(test.x[rows].to(victim.device), "verify").argmax(1).cpu() == y[rows]
    return test[balanced(y, right, count)]


def trace(case: Case, victim: TorchVictim, batch: Batch) -> Traced:
    before = sum(victim.rows.values())
    result = attack(victim, batch, policy=case.policy, palette=case.palette, budget=case.budget, patch=PATCH, seed=SEED)
    return Traced.of(result, sum(victim.rows.values()) - before)


def make(case: Case, size: Size, device: str) -> Raw:
    """Greedy attacks the first of the beats that the others attack."""
    victim = beat_victim(case.net, device)
    batch = sample(victim, test_beats(), case.samples if case.title else size.samples)[: case.samples]
    held = {batch.label_name(i): int((batch.y == i).sum()) for i in LABELS}
    if case.policy != SMOOTH:
        return Raw(trace(case, victim, batch).numbers(), {"beats": held})
    l2, signal = smooth_pgd_min(victim, batch.x, batch.y).double(), batch.x.flatten(1).double()
    won = l2.isfinite()
    snr = 20 * torch.log10((signal - signal.mean(1, keepdim=True)).norm(dim=1) / l2)
    columns = {"l2": l2, "relative": l2 / signal.norm(dim=1), "snr": snr}
    return Raw({name: values[won].tolist() for name, values in columns.items()} | {"beats": len(l2)}, {"beats": held})


def pieces(options: Options) -> Iterator[Piece]:
    for case in cases(FULL):
        yield Piece(case.name, case.kind, case.settings, partial(make, case, FULL))
    yield from leads.pieces()
    yield from twelve.pieces()
    yield from harden.pieces()
    yield from held_out.pieces()
    yield from plausible.pieces()
    yield from networks.pieces()


Read = Callable[[str], Raw]


def attack_table(net: str, read: Read, size: Size) -> str:
    """Our policy, the others and the white-box bound on one victim."""
    own = [case for case in cases(size) if case.kind == "attacks" and case.net == net]
    runs = {case.policy: Traced.from_numbers(read(case.name).numbers) for case in own if case.policy != SMOOTH}
    rows = []
    for name, run in runs.items():
        f = OutcomeFigures.of(run.outcome, SEED)
        measured = (f.queries, f.queries_won, f.l2, *(run.median(getattr(run, column)) for column in COLUMNS))
        times, _ = _times(runs[OURS], run)
        rows.append((name, share(f.success), *map(interval, measured), "1" if name == OURS else interval(times)))
    smooth = read(own[-1].name).numbers
    cells = [interval(_median(torch.tensor(smooth[name], dtype=torch.float64))) for name in ("l2", "relative", "snr")]
    success = f"{len(smooth['l2']) / smooth['beats']:.1%}"
    rows.append((f"{SMOOTH}, white box", success, "–", "–", cells[0], cells[1], "–", cells[2], "–"))
    head = "attack | success | queries | of flipped | L2, mV | relative to the beat's | SNR at the flip, dB"
    return table(f"{head} | after cleanup, dB | times the queries of {OURS}", rows)


def _times(ours: Traced, other: Traced) -> tuple[Estimate, Estimate]:
    """The other's median queries and L2 over ours, on the beats both attacked."""
    same = ours.outcome.first(len(other.outcome))
    return query_ratio(same, other.outcome, SEED), l2_ratio(same, other.outcome, SEED)


def distortions_table(read: Read, size: Size) -> str:
    rows = []
    for case in (case for case in cases(size) if case.title):
        run = Traced.from_numbers(read(case.name).numbers)
        f = OutcomeFigures.of(run.outcome, SEED)
        cells = (share(f.success), interval(f.queries), interval(f.queries_won))
        loudness = (interval(run.median(run.snr_flip)), interval(run.median(run.snr)))
        rows.append((f"{case.net}, {case.title}", f"`{' '.join(case.palette)}`", *cells, *loudness))
    head = "victim, distortion | palette | success | queries | of flipped | SNR at the flip, dB | after cleanup, dB"
    return table(head, rows)


def sections(store: Store) -> Iterator[str]:
    """Each once all of its raw files are there."""
    if all(case.name in store for case in cases(FULL) if case.kind == "attacks"):
        yield from beat_sections(store)
    if found := lead_curves(store):
        yield leads.lead_section(found)
    if whole := twelve.stored(store):
        yield twelve.twelve_section(whole)
    if hardened := harden.stored(store):
        yield harden.harden_section(hardened)
    if beyond := held_out.stored(store):
        yield held_out.held_out_section(beyond)
    if heat := plausible.stored(store):
        yield plausible.plausible_section(heat)
    if nets := networks.stored(store):
        yield networks.network_section(nets)


def beat_sections(store: Store) -> Iterator[str]:
    for net in BEAT_NETS:
        facts = store.facts(next(case.name for case in cases(FULL) if case.net == net))
        held = ", ".join(f"{count} {name}" for name, count in facts["beats"].items())
        about = (
            f"{FULL.samples} beats ({held}), budget {FULL.budget:,} queries for each beat, palette `{' '.join(PALETTE)}`, patch "
            f"{PATCH}. Greedy attacks the first {GREEDY_BEATS} beats."
        )
        yield section(net, about, attack_table(net, store.read, FULL))
    if all(case.name in store for case in cases(FULL)):
        about = (
            f"One distortion alone, {FULL.alone} beats for each victim, budget {FULL.budget:,}, proposals by `random`."
        )
        yield section("Victims and distortions", about, distortions_table(store.read, FULL))


def keyed(found: Mapping[str, Raw], size: Size) -> Figures:
    """Success, queries, L2 and SNR of each case, and our ratios to the other policies."""
    figures, ours = dict[str, Any](), dict[str, Traced]()
    for case in (case for case in cases(size) if case.name in found):
        numbers = found[case.name].numbers
        if case.policy == SMOOTH:
            l2 = _median(torch.tensor(numbers["l2"], dtype=torch.float64)).value
            figures |= {f"{case.key}_success": len(numbers["l2"]) / numbers["beats"], f"{case.key}_l2": l2}
            continue
        run = Traced.from_numbers(numbers)
        f = OutcomeFigures.of(run.outcome, SEED)
        own = {"success": f.success, "queries": f.queries, "l2": f.l2, "snr_flip": run.median(run.snr_flip)}
        figures |= {f"{case.key}_{name}": e.value for name, e in own.items()}
        if case.policy == OURS:
            ours[case.net], figures[f"{case.net}_seen"] = run, False  # no training used these victims
        elif case.policy in BASELINES and case.kind == "attacks" and case.net in ours:
            times, reach = _times(ours[case.net], run)
            key = f"{case.net}_ratio_{case.policy}"
            figures |= {key: times.value, f"{key}_low": times.low, f"{case.net}_l2_over_{case.policy}": 1 / reach.value}
    return figures | {"agent": OURS}


def quick(options: Options) -> Figures:
    chosen = [case for case in cases(QUICK) if not options.only or case.kind in options.only]
    figures = keyed({case.name: make(case, QUICK, options.device) for case in chosen}, QUICK)
    grouped = leads.QUICK if not options.only or leads.KIND in options.only else ()
    whole = twelve.QUICK if not options.only or twelve.KIND in options.only else ()
    reading = read_ms() if not options.only or "reading" in options.only else {}
    explained = (plausible.QUICK,) if not options.only or plausible.KIND in options.only else ()
    return {
        **figures,
        **leads.lead_figures({case: leads.measure(case, options.device) for case in grouped}),
        **twelve.twelve_figures({case: [twelve.measure(case, options.device)] for case in whole}),
        **reading,
        **plausible.plausible_figures(
            {case: plausible.measure(case, options.device, (plausible.OURS,)) for case in explained}
        ),
    }


def figures(store: Store) -> Figures:
    records = (leads.KIND, twelve.KIND, harden.KIND, held_out.KIND, plausible.KIND, networks.KIND)
    beats = keyed({name: store.read(name) for name in store.names() if not name.startswith(records)}, FULL)
    of_leads, of_policies = leads.lead_figures(lead_curves(store)), twelve.twelve_figures(twelve.stored(store))
    heat = {
        **plausible.plausible_figures(plausible.stored(store)),
        **held_out.held_out_figures(held_out.stored(store)),
    }
    return {**beats, **of_leads, **of_policies, **harden.harden_figures(harden.stored(store)), **heat}


def lead_curves(store: Store) -> dict[leads.LeadCase, Curves]:
    """All stored cases of lead groups; none until they are complete."""
    if any(case.name not in store for case in leads.FULL):
        return {}
    return {case: to_curves(store.read(case.name).numbers) for case in leads.FULL}


CASES = (
    "attacks", "distortions", leads.KIND, twelve.KIND, harden.KIND, held_out.KIND, "reading", plausible.KIND, networks.KIND
)  # fmt: skip
CLAIM = Claim("ecg", "ECG", __doc__, RULES, quick, pieces, sections, figures, cases=CASES)
