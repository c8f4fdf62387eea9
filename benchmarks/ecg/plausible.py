"""How much of an explanation lies where textbooks say the sign is: python -m benchmarks.ecg --only plausible.

The records of PTB-XL are chosen by their SCP statements; the networks know only superclasses, so the superclass of the statement is
explained, where the network detects it. Sources:

- Bundle branch block, QRS in V1 and V6: AHA/ACCF/HRS recommendations, part III, https://doi.org/10.1161/CIRCULATIONAHA.108.191095
- Infarction, ST (acute) and Q waves, a part of QRS (prior), in neighbouring leads: fourth universal definition of myocardial
  infarction, https://doi.org/10.1161/CIR.0000000000000617
- Inferior in II, III, aVF and anterior in V1 to V4: recommendations, part VI, https://doi.org/10.1161/CIRCULATIONAHA.108.191098
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.data import real
from benchmarks.harness import Figures, Piece
from benchmarks.raw import Raw, Store
from benchmarks.tables import interval, section, table
from benchmarks.victims.twelve_leads import CLASSES, twelve_lead_victim
from benchmarks.victims.twelve_leads import OURS as OWN_NET
from rlab.data.batch import Batch
from rlab.data.ecg_masks import segment_masks
from rlab.data.load import load
from rlab.explanation.run import explain_batch
from rlab.stats import Estimate, estimate
from rlab.victims.torch_module import TorchVictim

KIND, SEED, EVERY = "plausible", 0, "1-9"
OURS, UNIFORM, IN_WAVES = "waves", "uniform", "uniform in waves"
METHODS = {
    OURS: "waves(channels='each', queries=145)",
    "rise": "rise(masks=144)",
    "rise by lead": "rise(masks=144, channels='each')",
    "gradcam": "gradcam",
    "integrated gradients": "integrated_gradients",
}  # RISE has the same number of queries


@dataclass(frozen=True)
class PlausibleCase:
    """A network, and the records it explains."""

    net: str
    folds: str
    seen: str  # whether the network was trained on them

    @property
    def name(self) -> str:
        return f"{KIND}-{self.net}-{self.folds}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"net": self.net, "folds": self.folds, "methods": METHODS, "seed": SEED}


QUICK = PlausibleCase("cnn7", "9", "no")
FULL = (
    QUICK,
    PlausibleCase("cnn3", "9", "no"),
    PlausibleCase(OWN_NET, "8-9", "no; the length of its training was chosen by fold 8"),
    PlausibleCase("cnn3", EVERY, "folds 1 to 8"),
    PlausibleCase(OWN_NET, EVERY, "folds 1 to 7"),
)


@dataclass(frozen=True)
class Sign:
    """Where the sign of a statement lies, and the superclass that it belongs to."""

    superclass: str
    wave: str
    leads: tuple[str, ...]


BLOCK, INFERIOR = Sign("CD", "QRS", ("V1", "V6")), Sign("MI", "ST", ("II", "III", "aVF"))
ANTERIOR = Sign("MI", "ST", ("V1", "V2", "V3", "V4"))
SIGNS = {"CLBBB": BLOCK, "CRBBB": BLOCK, "IMI": INFERIOR, "AMI": ANTERIOR, "ASMI": ANTERIOR}
Q_WAVE = "QRS"  # of a prior infarction


@dataclass(frozen=True)
class Shares:
    """The share of each method's heat in the region of each record's sign (n,), and in it or in QRS of the same leads."""

    statements: tuple[str, ...]
    signs: Mapping[str, Tensor]
    with_q: Mapping[str, Tensor]

    def raw(self) -> Raw:
        parts = {"signs": self.signs, "with_q": self.with_q}
        plain = {part: {name: _rounded(own) for name, own in shares.items()} for part, shares in parts.items()}
        return Raw({"records": len(self.statements), **plain}, {"statements": list(self.statements)})

    @classmethod
    def of(cls, raw: Raw) -> Shares:
        parts = [
            {name: torch.tensor(own, dtype=torch.float64) for name, own in raw.numbers[part].items()}
            for part in ("signs", "with_q")
        ]
        return cls(tuple(raw.facts["statements"]), *parts)


def _rounded(shares: Tensor) -> list[float]:
    return [round(share, 5) for share in shares.tolist()]


def heat_share(heat: Tensor, region: Tensor) -> Tensor:
    """heat (n, c, time), region (n, c, time) bool -> (n,): the share of the positive heat inside; 0 where there is none."""
    positive = heat.clamp(min=0).double().flatten(1)
    return (positive * region.flatten(1)).sum(1) / positive.sum(1).clamp(min=1e-12)


def region(masks: Mapping[str, Tensor], signs: Sequence[Sign], leads: Sequence[str], q: bool = False) -> Tensor:
    """(n, c, time) bool: the wave of each record's sign in its leads; `q` adds the Q waves of an infarction."""
    rows = []
    for row, sign in enumerate(signs):
        wave = masks[sign.wave][row] | (masks[Q_WAVE][row] if q else False)
        rows.append(torch.tensor([lead in sign.leads for lead in leads])[:, None] & wave)
    return torch.stack(rows)


def detected(victim: TorchVictim, folds: str) -> tuple[Batch, list[str]]:
    """The records with exactly one of the statements whose superclass the network detects, and their statements."""
    batch = load(real("ptbxl"), folds=folds, label_column="diagnostic", classes=tuple(SIGNS))
    held = [[name for name, y in zip(batch.classes, own, strict=True) if y] for own in batch.y.tolist()]
    rows = [row for row, names in enumerate(held) if len({SIGNS[name] for name in names}) == 1]
    scores = victim(batch.x[rows])
    kept = [row for row, own in zip(rows, scores, strict=True) if own[_output(held[row][0])] > 0]
    return batch[kept], [held[row][0] for row in kept]


def _output(statement: str) -> int:
    return CLASSES.index(SIGNS[statement].superclass)


def measure(case: PlausibleCase, device: str, methods: Sequence[str] = tuple(METHODS)) -> Shares:
    victim = twelve_lead_victim(case.net, device)
    batch, statements = detected(victim, case.folds)
    masks, signs = segment_masks(batch), [SIGNS[name] for name in statements]
    labels = torch.tensor([_output(name) for name in statements])
    every = torch.ones_like(batch.x)
    heat = {UNIFORM: every, IN_WAVES: every * torch.stack(list(masks.values())).any(0)[:, None]}
    for name in methods:
        found = explain_batch(victim, batch, METHODS[name], labels=labels, seed=SEED)
        heat[name] = found.maps[:, None].expand_as(batch.x) if found.by_lead is None else found.by_lead
    inside, wider = (region(masks, signs, batch.leads, q) for q in (False, True))
    return Shares(
        tuple(statements), *({name: heat_share(each, at) for name, each in heat.items()} for at in (inside, wider))
    )


def over(ours: Tensor, other: Tensor) -> Estimate:
    """The ratio of the mean shares, with a bootstrap interval over the records."""
    a, b = ours.numpy(), other.numpy()
    return estimate(lambda rows: a[rows].mean(-1) / b[rows].mean(-1), len(a), SEED)


def pieces() -> Iterator[Piece]:
    for case in FULL:
        yield Piece(case.name, KIND, case.settings, partial(make, case))


def make(case: PlausibleCase, device: str) -> Raw:
    return measure(case, device).raw()


Found = Mapping[PlausibleCase, Shares]


def stored(store: Store) -> dict[PlausibleCase, Shares]:
    """All stored cases; none until they are complete."""
    if any(case.name not in store for case in FULL):
        return {}
    return {case: Shares.of(store.read(case.name)) for case in FULL}


def plausible_figures(found: Found) -> Figures:
    """`plausible_over_uniform` takes the signs of an acute infarction; `_q` counts QRS too, which holds Q waves."""
    figures: dict[str, Any] = {}
    for case, shares in found.items():
        ours, end = shares.signs[OURS], "" if case == QUICK else f"_{case.net}_{case.folds}"
        times = over(ours, shares.signs[UNIFORM])
        figures |= {
            f"plausible_records{end}": len(shares.statements),
            f"plausible_over_uniform{end}": times.value,
            f"plausible_over_uniform_low{end}": times.low,
            f"plausible_over_uniform_high{end}": times.high,
            f"plausible_over_uniform_in_waves{end}": over(ours, shares.signs[IN_WAVES]).value,
            f"plausible_over_uniform_q{end}": over(shares.with_q[OURS], shares.with_q[UNIFORM]).value,
        }
    return figures


def plausible_section(found: Found) -> str:
    rows = []
    for case, shares in found.items():
        about = f"{case.net}, folds {case.folds}" if "-" in case.folds else f"{case.net}, fold {case.folds}"
        for method, values in shares.signs.items():
            times = [
                "1" if method == UNIFORM else interval(over(own[method], own[UNIFORM]), 2)
                for own in (shares.signs, shares.with_q)
            ]
            rows.append((f"{about}, {method}", str(len(values)), f"{values.mean():.1%}", *times))
    unseen = "; ".join(f"{case.net} on folds {case.folds}: {case.seen}" for case in found)
    about = (
        "The share of an explanation's positive heat at the sign that textbooks name: QRS in V1 and V6 for bundle branch block "
        "([AHA/ACCF/HRS, part III](https://doi.org/10.1161/CIRCULATIONAHA.108.191095)), ST in II, III and aVF for inferior and in "
        "V1 to V4 for anterior infarction ([part VI](https://doi.org/10.1161/CIRCULATIONAHA.108.191098), [fourth universal "
        "definition](https://doi.org/10.1161/CIR.0000000000000617)). The last column counts QRS in the same leads too, which holds "
        "the Q waves of a prior infarction. Records have such a statement, and the network detects its superclass, which is "
        f"explained. Methods: {', '.join(f'`{spec}`' for spec in METHODS.values())}; RISE and Grad-CAM have one map for all leads. "
        f"Seen in training: {unseen}. 'Uniform in waves': within P, QRS, ST and T. Records are few: read the intervals (95%)."
    )
    head = "network, records, method | records | heat at the sign | over uniform | with QRS, over uniform"
    by_statement = statement_table({case: shares for case, shares in found.items() if case.folds == EVERY})
    return section("Plausible heat", about, table(head, rows), f"By statement, folds {EVERY}:", by_statement)


def statement_table(found: Found) -> str:
    rows = []
    for case, shares in found.items():
        for name in dict.fromkeys(shares.statements):
            own = [row for row, each in enumerate(shares.statements) if each == name]
            for method in (OURS, "rise by lead", "integrated gradients"):
                values, uniform = shares.signs[method][own], shares.signs[UNIFORM][own]
                cells = (str(len(own)), f"{values.mean():.1%}", interval(over(values, uniform), 2))
                rows.append((f"{name}, {case.net}, {method}", *cells))
    return table("statement, network, method | records | heat at the sign | over uniform", rows)
