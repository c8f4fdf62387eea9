"""Checks the doctor made, with what each saw: those that no finding speaks of have passed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rlab.data.batch import Batch
from rlab.diagnosis.probe import Probe
from rlab.diagnosis.report import RISE, Check, Finding, Severity
from rlab.filters import Palette


def without_findings(checks: Sequence[Check], findings: Sequence[Finding]) -> tuple[Check, ...]:
    """A note is no reason to withhold that a check passed."""
    named = {finding.name for finding in findings if finding.level is not Severity.NOTE}
    return tuple(check for check in checks if not named & {check.name, *check.covers})


def data_checks(batch: Batch) -> list[Check]:
    least, most = (float(end) for end in batch.x.aminmax())
    low, high = batch.bounds
    labels = batch.y.unique(dim=0)
    return [
        Check("bounds", f"values from {least:.4g} to {most:.4g} in bounds [{low:g}, {high:g}], which the model takes"),
        Check("one-class", f"{len(labels)} different labels among {len(batch)} samples"),
        Check("duplicates", f"all {len(batch)} samples differ"),
        Check("flat", f"none of {len(batch)} samples holds one value throughout"),
    ]


def output_checks(probe: Probe, scores: Tensor) -> list[Check]:
    victim, (count, classes) = probe.victim, scores.shape
    kind = "several labels a sample" if victim.multilabel else "one label a sample"
    sure = float(victim.probabilities(scores).nan_to_num().max())
    return [
        Check("nan", f"numbers for all {count} samples"),
        Check("outputs", f"{classes} {victim.outputs}, {kind}"),
        Check("steady", "the same samples asked twice, and alone, are answered alike", ("random", "batch", "training-mode", "nan")),
        Check("softmax-twice", f"probabilities up to {sure:.3g}", ("saturated", "nan")),
        Check("labels", f"labels fit the model's {classes} outputs"),
    ]  # fmt: skip


def input_checks(probe: Probe, scores: Tensor, accuracy: float) -> list[Check]:
    count, three = len(scores), probe.batch.x.shape[1] == 3
    right = f"accuracy {accuracy:.2f} on {count} samples as they come"
    tried = "" if accuracy > 1 - RISE else "; no other scale, mean or std is clearly better"
    order = [Check("channel-order", "no clear rise with the channels reversed")] if three else []
    return [
        Check("normalisation", f"{right}{tried}", ("bounds", "layout")),
        *order,
        Check("accuracy", f"{right}; guessing gives {probe.guessing():.2f}", ("constant", "labels")),
    ]


def filter_checks(palette: Palette, batch: Batch) -> list[Check]:
    """One for each filter."""
    names = dict.fromkeys(entry.filter.name for entry in palette.entries)
    seen = f"changes values of {len(batch)} samples, the same for the same seed, within bounds"
    return [Check(f"filter:{name}", seen) for name in names]
