"""How much of an explanation lies where textbooks say the sign is: python -m benchmarks.ecg.plausible [FOLDS].

The records of PTB-XL are chosen by their SCP statements; the network knows only superclasses, so the superclass of the statement is
explained, where the network detects it. Sources:

- Bundle branch block, QRS in V1 and V6: AHA/ACCF/HRS recommendations, part III, https://doi.org/10.1161/CIRCULATIONAHA.108.191095
- Infarction, ST (acute) and Q waves, a part of QRS (prior), in neighbouring leads: fourth universal definition of myocardial
  infarction, https://doi.org/10.1161/CIR.0000000000000617
- Inferior in II, III, aVF and anterior in V1 to V4: recommendations, part VI, https://doi.org/10.1161/CIRCULATIONAHA.108.191098
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.data import real
from benchmarks.harness import Figures
from benchmarks.tables import interval, table
from benchmarks.victims.twelve_leads import CLASSES, twelve_lead_victim
from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.ecg_masks import segment_masks
from rlab.data.load import load
from rlab.explanation.run import explain_batch
from rlab.stats import Estimate, estimate
from rlab.victims.torch_module import TorchVictim

KIND, NET, FOLDS, SEED = "plausible", "cnn7", "9", 0  # the network was trained on folds 1 to 8
OURS, UNIFORM, IN_WAVES = "waves", "uniform", "uniform in waves"
METHODS = {
    OURS: "waves(channels='each', queries=145)",
    "rise": "rise(masks=144)",
    "gradcam": "gradcam",
}  # RISE has the same number of queries


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


def measure(device: str, methods: Sequence[str] = (OURS,), folds: str = FOLDS) -> Shares:
    net = twelve_lead_victim(NET, device).model
    victim = TorchVictim(net, outputs="logits", bounds=UNBOUNDED, multilabel=True, device=device)
    batch, statements = detected(victim, folds)
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


def plausible_figures(shares: Shares) -> Figures:
    """`plausible_over_uniform` takes the signs of an acute infarction; `_q` counts QRS too, which holds Q waves."""
    ours = shares.signs[OURS]
    return {
        "plausible_records": len(shares.statements),
        "plausible_over_uniform": over(ours, shares.signs[UNIFORM]).value,
        "plausible_over_uniform_low": over(ours, shares.signs[UNIFORM]).low,
        "plausible_over_uniform_in_waves": over(ours, shares.signs[IN_WAVES]).value,
        "plausible_over_uniform_q": over(shares.with_q[OURS], shares.with_q[UNIFORM]).value,
    }


def plausible_table(shares: Shares) -> str:
    groups = {"all": list(range(len(shares.statements)))}
    for row, name in enumerate(shares.statements):
        groups.setdefault(name, []).append(row)
    rows = []
    for name, own in groups.items():
        for method, values in shares.signs.items():
            wider = shares.with_q[method][own].mean()
            times = "1" if method == UNIFORM else interval(over(values[own], shares.signs[UNIFORM][own]), 2)
            rows.append((name, str(len(own)), method, f"{values[own].mean():.1%}", f"{wider:.1%}", times))
    return table("statement | records | method | heat at the sign | or in QRS there | over uniform", rows)


if __name__ == "__main__":
    print(plausible_table(measure("cpu", tuple(METHODS), *sys.argv[1:2])))
