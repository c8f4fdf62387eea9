"""How well the networks for beats do on the 9 available records of DS2, from their stored weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from safetensors import safe_open

from benchmarks.beats import beats
from benchmarks.data import TRAINED, weights
from benchmarks.harness import Piece
from benchmarks.raw import Raw, Store
from benchmarks.tables import section, table
from benchmarks.victims import BEAT_NETS, beat_victim
from benchmarks.victims.train_beats import COMMON, Quality, measure

KIND = "networks"


def make(name: str, device: str) -> Raw:
    with safe_open(weights(f"beats_{name}"), "pt") as file:
        left_out = float(file.metadata()["left_out_macro_f1"])
    net, test = beat_victim(name, device), beats("test")
    found = measure(net, test)
    numbers = {"parameters": sum(p.numel() for p in net.model.parameters()), "left_out": left_out}
    return Raw({**numbers, "confusion": found.confusion.flatten().tolist()}, {"classes": list(test.classes)})


def pieces() -> Iterator[Piece]:
    for name in BEAT_NETS:
        yield Piece(f"{KIND}-{name}", KIND, {"weights": TRAINED[f"beats_{name}"].sha256}, partial(make, name))


def stored(store: Store) -> dict[str, Raw]:
    return {name: store.read(f"{KIND}-{name}") for name in BEAT_NETS if f"{KIND}-{name}" in store}


def network_section(found: Mapping[str, Raw]) -> str:
    rows, classes = [], next(iter(found.values())).facts["classes"]
    for name, raw in found.items():
        n = raw.numbers
        q = Quality(torch.tensor(n["confusion"]).view(len(classes), len(classes)))
        whole = (f"{q.accuracy:.1%}", f"{q.balanced(COMMON):.1%}", f"{q.macro(COMMON):.3f}", f"{n['left_out']:.3f}")
        recall = (f"{share:.1%} / {f1:.2f}" for share, f1 in zip(q.recall[:COMMON], q.f1[:COMMON], strict=True))
        rows.append((name, f"{n['parameters']:,.0f}", *whole, *recall))
    counts = q.confusion.sum(1)
    held = ", ".join(f"{label} {count:,.0f}" for label, count in zip(classes, counts, strict=True))
    about = (
        f"{counts.sum():,.0f} beats of 9 of the 22 records of DS2: {held}. Patients are kept apart: nothing was trained or chosen "
        "on DS2. `python -m benchmarks.victims.train_beats` trains the networks on DS1 and chooses how far scores move towards N "
        "in three trainings that each leave out a third of its patients (the column `left out`). Balanced accuracy is mean recall "
        "over N, S and V, macro-F1 the mean over the same. Always answering N has accuracy "
        f"{counts[0] / counts.sum():.1%}. No network finds an F beat: those of the test come from one patient (213), those of the "
        "training from another (208). Two thirds of the S beats come from record 222, whose rhythm is atrial fibrillation and "
        "flutter for much of the time."
    )
    head = "network | parameters | accuracy | balanced accuracy | macro-F1 | left out | N, recall / F1 | S | V"
    return section("Networks for beats", about, table(head, rows))
