"""What rlab understood of the data and the model, as one block of text before the first query."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlab.core.channels import LEADS
from rlab.data.batch import Batch, Kind, Samples, summarise_losses
from rlab.filters.palettes import is_ecg
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.progress import showing, silent
from rlab.redact import redact
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

WIDTH, LABEL = 80, 9  # columns of the block, and of the names at its left
_READ = 4  # samples of a source that are read to see their values
_NAME = 16  # characters of a class name
_KINDS: dict[Kind, str] = {"signal": "signal{} of {} values", "image": "image{} of {} pixels", "video": "clip{} of {}"}


@dataclass(frozen=True)
class Understood:
    """Samples, the models to query, and the options that were filled in; as text, the block."""

    samples: Samples
    victims: Sequence[Victim] = ()
    defaulted: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(
            textwrap.fill(text, WIDTH, initial_indent=name.ljust(LABEL), subsequent_indent=" " * LABEL)
            for name, text in self.lines().items()
        )

    def lines(self) -> dict[str, str]:
        """Each line of the block, by its name."""
        samples, lines = self.samples, {"data": _data(self.samples)}
        if samples.take.limit is not None:
            lines["samples"] = _selection(samples)
        if samples.left_out:
            lines["left out"] = summarise_losses(samples.left_out, 2).partition(": ")[2]
        if samples.one_label:
            lines["labels"] = "one per sample, as the model has; -M multilabel=true takes several"
        elif samples.target != "classes":
            lines["targets"] = _TARGETS[samples.target](samples)
        elif samples.y.dim() > 1:
            one = "; -D multilabel=false keeps samples with one" if samples.leads else ""  # an option of ECG records
            lines["labels"] = f"several per sample{one}"
        if samples.kind == "signal" and samples.shape[0] == len(LEADS) and not samples.leads:
            lines["leads"] = (
                f"12 channels without names are distorted together: for an ECG, name them, -D leads={','.join(LEADS)}"
            )
            lines["leads"] += "" if is_ecg(1, samples.rate, samples.unit) else ", and pass -D rate=HZ and -D unit=mV"
        lines["values"] = self._values()
        if samples.target == "classes" or samples.classes:
            lines["classes"] = _classes(samples)
        if self.victims:
            more = f"; and {len(self.victims) - 1} more" if len(self.victims) > 1 else ""
            lines["model"] = redact(self.victims[0].describe()) + more
        if self.defaulted:
            shown = {name: v if isinstance(v, list | tuple) else [v] for name, v in self.defaulted.items()}
            lines["defaults"] = "; ".join(f"{name} {' '.join(map(str, values))}" for name, values in shown.items())
        return lines

    def _values(self) -> str:
        samples = self.samples
        with showing(False):
            x = samples.x if isinstance(samples, Batch) else samples[: min(_READ, len(samples))].x
        low, high = samples.bounds
        unit, some = f" {samples.unit}" if samples.unit else "", "" if isinstance(samples, Batch) else " in the first"
        allowed = f"{low:.4g} to {high:.4g} allowed" if math.isfinite(high - low) else "no bounds"
        text = f"{float(x.min()):.4g} to {float(x.max()):.4g}{unit} found{some}, {allowed}"
        if samples.eight_bit:
            text += ", in steps of 8 bits"
        if samples.kind == "image" and x.shape[1] == 3 and bool((x == x[:, :1]).all()):
            text += ", the same in all 3 channels (for grey pictures: -D channels=1)"
        plain = any(isinstance(victim, TorchVictim) and victim.reading.normalise is None for victim in self.victims)
        if samples.kind != "signal" and low < 0 and plain:
            text += " (if they are normalised, pass them in [0, 1], and mean and std to the model)"
        return text


Announce = Callable[[Understood], None]  # called before the first query


def show(understood: Understood) -> None:
    """Print the block to standard error, as Python users see it."""
    if not silent.get():
        sys.stderr.write(f"{understood}\n")


def say_nothing(understood: Understood) -> None:
    """Print nothing before the first query."""


def _data(samples: Samples) -> str:
    sides = " x ".join(map(str, samples.size))
    if samples.kind == "video":
        sides = f"{samples.size[0]} frames of {samples.size[1]} x {samples.size[2]} pixels"
    channels = f"{samples.shape[0]} channel{'s' if samples.shape[0] > 1 else ''}"
    rate = f", {samples.rate:g} Hz" if samples.rate else ""
    what = _KINDS[samples.kind].format("s" if len(samples) > 1 else "", sides)
    return f"{len(samples)} {what}, {channels}{rate}"


def _selection(samples: Samples) -> str:
    take, count = samples.take, len(samples.y.unique(dim=0))
    if take.limit is not None and len(samples) + len(samples.left_out) < take.limit:
        return f"limit {take.limit}: all of them"
    short = f", but only {len(samples)} can be used" if take.limit is not None and len(samples) < take.limit else ""
    if take.order == "first" and not take.shuffle:
        return f"limit {take.limit}: the first ones{short}"
    drawn = take.shuffle or samples.target != "classes"
    one, many = ("set of labels", "sets of labels") if samples.y.dim() > 1 else ("class", "classes")
    how = "drawn at random" if drawn else f"spread over {count} {one if count == 1 else many}"
    advice = "" if take.shuffle else "; order=first takes the first"
    return f"limit {take.limit}: {how} (seed {take.seed}){short}{advice}"


def _objects(samples: Samples) -> str:
    there = TargetBoxes.decode(samples.y).there.sum(1)
    return f"{int(there.sum())} boxes, up to {int(there.max())} per sample"


_TARGETS: dict[Prediction, Callable[[Samples], str]] = {
    "boxes": _objects,
    "map": lambda samples: f"a class for each of {samples.y.shape[1]} points (-1: unknown)",
    "numbers": lambda samples: (
        f"{samples.y.shape[1]} per sample, {float(samples.y.min()):.4g} to {float(samples.y.max()):.4g}"
    ),
}


def _classes(samples: Samples) -> str:
    """The classes with their numbers, as many as fit into a line."""
    if not samples.classes:
        last = samples.y.shape[1] - 1 if samples.y.dim() > 1 else int(samples.y.max())
        several = "several labels per sample, " if samples.y.dim() > 1 else ""
        return f"{several}numbers up to {last}, without names"
    text = f"{len(samples.classes)}{', numbered by name' if samples.numbered else ''}:"
    for number, name in enumerate(samples.classes):
        short = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        part = f" {number}" if name == str(number) else f" {number} {short}"
        if len(text) + len(part) > WIDTH - LABEL - len(", ..."):
            return f"{text} ..."
        text += part + ("," if number < len(samples.classes) - 1 else "")
    return text
