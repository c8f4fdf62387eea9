"""The examination: first data and palette, which need no queries, then the model with as few queries as possible."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, uint8

from rlab.data.batch import Batch
from rlab.data.wfdb import HIGHEST, LOWEST
from rlab.diagnosis import outputs
from rlab.diagnosis.inputs import failure, input_checks, input_findings, other_layout
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.protocols import Protocol, encoding_findings, find_protocol, is_open
from rlab.diagnosis.report import FEWEST, Check, Diagnosis, Finding, Severity, error, note, options, warning
from rlab.diagnosis.rows import row_findings
from rlab.errors import InputError, VictimError
from rlab.filters import FAMILIES, Filter, Palette, check_palette
from rlab.filters.palette import Spec, refuse_pixels
from rlab.filters.palettes import VOLTS, is_ecg
from rlab.progress import showing
from rlab.runs.inputs import Data, Model, relabelled, taken
from rlab.runs.options import AttackOptions
from rlab.runs.palette_options import make_palette
from rlab.runs.understood import Understood, show
from rlab.storage.config import check, check_keywords
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions

_TWICE = 1.001 / 255  # share of the range that values divided by 255 once too often fill
_NARROW = 0.05  # share of the range
_SLACK = 1e-3  # as in Victim
_USELESS = ("nan", "random", "batch", "training-mode")  # such answers cannot be compared with others


def examine(
    victim: Victim, batch: Batch, palette: Palette | None = None, *, samples: int = 16, seed: int = 0
) -> Diagnosis:
    """Examine `samples` samples of the batch with at most twelve queries per sample (one more for video, and for JPEG)."""
    before = victim.rows.total()
    probe = Probe.of(victim, batch, samples, seed)
    findings, checks = [*_agreement(victim, batch), *data_findings(batch)], _data_checks(batch)
    accuracy: float | None = None
    if all(finding.level is not Severity.ERROR for finding in findings):  # else the answers would mean nothing
        answers, accuracy, made = _model_findings(probe, batch)
        findings, checks = findings + answers, checks + made
    if palette is not None:
        findings += _filter_findings(palette, probe.batch, seed)
        seen = f"changes {len(probe.batch)} samples within bounds, the same way for the same seed"
        names = dict.fromkeys(entry.filter.name for entry in palette.entries)
        checks += [Check(f"filter:{name}", seen) for name in names]
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.level))
    failed = {finding.name for finding in findings if finding.level is not Severity.NOTE}
    passed = tuple(check for check in checks if not failed & {check.name, *check.covers})
    return Diagnosis(tuple(findings), victim.rows.total() - before, accuracy, passed)


def data_findings(batch: Batch) -> list[Finding]:
    """Findings about the data that need no model."""
    return [*_values(batch), *_unit(batch), *_one_class(batch), *_duplicates(batch), *_flat(batch)]


def _data_checks(batch: Batch) -> list[Check]:
    least, most = (float(end) for end in batch.x.aminmax())
    low, high = batch.bounds
    what = "sets of labels" if batch.y.dim() > 1 else "labels"
    within = f"values from {least:.4g} to {most:.4g} in bounds [{low:g}, {high:g}], which the model accepts"
    labels = f"{len(batch.y.unique(dim=0))} different {what} in {len(batch)} samples"
    return [
        Check("bounds", within),
        *([Check("one-class", labels)] if batch.target == "classes" else []),
        Check("duplicates", f"all {len(batch)} samples differ"),
        Check("flat", f"none of {len(batch)} samples is constant"),
    ]


def doctor(
    model: Model,
    data: Data,
    *,
    palette: Spec | Sequence[Spec] | None = None,
    samples: int = 16,
    seed: int = 0,
    limit: int | None = None,
    progress: bool = True,
) -> Diagnosis:
    """Check model, data and palette on a few samples before you spend a budget; queries are counted.

    progress=False prints nothing.
    """
    declared = check_keywords(doctor, AttackOptions, {"palette": palette, "seed": seed})
    refuse_pixels(declared.palette, "the doctor")
    protocol: Protocol | None = None
    with showing(progress), taken(model, data, limit) as (victim, batch):
        named = check(ModelOptions, {"name": model}) if isinstance(model, str) else model
        if isinstance(named, ModelOptions) and is_open(named):
            protocol = find_protocol(named, batch)
            victim = protocol.victim
            batch = relabelled(batch, victim.own_classes)
        show(Understood(batch, (victim,)))
        specs = declared.filled(batch)[0].palette or ()
        wanted = make_palette(specs, batch)
        report = examine(victim, batch, wanted, samples=samples, seed=seed)
        return report if protocol is None else protocol.added_to(report)


def _model_findings(probe: Probe, batch: Batch) -> tuple[list[Finding], float | None, list[Check]]:
    """Findings, accuracy, and all checks made."""
    if probe.victim.prediction != "classes":
        return row_findings(probe)
    x = probe.batch.x
    try:
        raw = probe.raw(x)
        findings = outputs.declared(probe, raw)
        scores = probe.victim(x, PHASE)
    except (VictimError, InputError) as problem:
        return [failure(probe, problem)], None, []
    findings += outputs.output_findings(probe, raw, scores) + encoding_findings(probe, scores)
    checks = outputs.output_checks(probe, scores)
    if misfit := outputs.label_range(batch, probe.victim.multilabel, scores.shape[1]):
        return [*findings, *misfit, *outputs.constant(probe, scores)], None, checks
    accuracy = float((probe.correct(scores) == 1).float().mean())
    if any(finding.name in _USELESS and finding.level is not Severity.NOTE for finding in findings):
        return findings, accuracy, checks
    if len(x) < FEWEST:
        what = f"{len(x)} samples are too few to check scale, normalisation, channel order and labels"
        few = note("samples", what, f"give at least {FEWEST} samples")
        return [*findings, *outputs.constant(probe, scores), few], accuracy, checks
    causes = outputs.shifted(probe, scores) or input_findings(probe, scores) or other_layout(probe, scores)
    if all(finding.name == "channel-order" and finding.level is Severity.WARNING for finding in causes):
        causes += (
            outputs.renamed(probe, scores) or outputs.constant(probe, scores) or outputs.low_accuracy(probe, scores)
        )
        checks += input_checks(probe, scores)
    return findings + causes, accuracy, checks


def _values(batch: Batch) -> list[Finding]:
    low, high = batch.bounds
    least, most = (float(end) for end in batch.x.aminmax())
    if not math.isfinite(high - low) or least == most:
        return []
    seen = f"the values range from {least:.4g} to {most:.4g} in bounds [{low:g}, {high:g}]"
    if most <= low + (high - low) * _TWICE:
        twice, right = high - low <= 1, (high - low) / 255
        change = "divide by 255 only once" if twice else f"pass bounds=({low:g}, {right:g})"
        what, flag = f"{seen}: they seem to be divided by 255 twice", f"-D bounds=[{low:g},{right:g}]"
        return [error("bounds", what, f"{change} when you load the data", "" if twice else flag)]
    if most - least < _NARROW * (high - low):
        change = "pass the true bounds of the data, because severities are relative to them"
        return [warning("bounds", f"{seen}: they fill only {(most - least) / (high - low):.1%} of them", change)]
    return []


def _unit(batch: Batch) -> list[Finding]:
    """Heights that no ECG has in this unit; records with such heights are left out when they are read."""
    if not is_ecg(batch.rank, batch.rate, batch.unit):
        return []
    tall = float((batch.x.amax(-1) - batch.x.amin(-1)).amax(1).median())  # of the tallest lead
    height = 1000 * VOLTS[batch.unit] * tall
    if LOWEST <= height <= HIGHEST:
        return []
    what = f"the tallest lead spans {tall:.4g} {batch.unit} (median of the samples), but an ECG {LOWEST:g} to {HIGHEST:g} mV"
    other = next((unit for unit in ("uV", "mV", "V") if LOWEST <= 1000 * VOLTS[unit] * tall <= HIGHEST), "")
    change = f"pass the unit of the values{f', such as {other}' * bool(other)}, because severities are in mV"
    return [warning("unit", what, change, f"-D unit={other}" if other else "")]


def _agreement(victim: Victim, batch: Batch) -> list[Finding]:
    """Distorted inputs can take any value in the batch's bounds, so the victim must accept all of them."""
    (low, high), (least, most) = victim.bounds, batch.bounds
    slack = _SLACK * min(1.0, high - low)
    if (low, high) == (least, most) or not math.isfinite(high - low):
        return []
    seen = f"the data's bounds are [{least:g}, {most:g}] but the model's are [{low:g}, {high:g}]"
    change = f"pass bounds=({least:g}, {most:g}) to {type(victim).__name__}, or load the data with the model's bounds"
    flag = options(bounds=(least, most)) if math.isfinite(most - least) else ""
    if least < low - slack or most > high + slack:
        return [error("bounds", f"{seen}: distorted inputs would be refused", change, flag)]
    return [warning("bounds", f"{seen}: distortions are limited to the narrower range", change, flag)]


def _one_class(batch: Batch) -> list[Finding]:
    if len(batch) < 2 or batch.target != "classes" or not (batch.y == batch.y[0]).all():
        return []
    what, take = f"all {len(batch)} loaded samples have the same label", batch.take
    if take.limit is None or len(batch) < take.limit or (take.order == "spread" and not take.shuffle):
        return [warning("one-class", what, "load samples of several classes: more data or another split")]
    if take.shuffle:
        return [warning("one-class", what, "use samples of several classes: raise the limit, or leave out shuffle")]
    return [warning("one-class", what, "use samples of several classes: spread the limit over them", "-D order=spread")]


def _duplicates(batch: Batch) -> list[Finding]:
    hashes = {hashlib.blake2b(x.numpy().tobytes()).digest() for x in batch.x.cpu().contiguous().view(uint8)}
    extra = len(batch) - len(hashes)
    what = f"{extra} of {len(batch)} samples are exact copies of others"
    return [warning("duplicates", what, "remove the copies, which count twice in all results")] if extra else []


def _flat(batch: Batch) -> list[Finding]:
    """Samples, or channels of samples, that are constant."""
    channels = batch.x.flatten(2).amin(-1) == batch.x.flatten(2).amax(-1)
    whole = batch.x.flatten(1).amin(-1) == batch.x.flatten(1).amax(-1)
    partly, findings = channels.any(1) & ~whole, []
    if whole.any():
        what = f"{int(whole.sum())} of {len(batch)} samples are constant: {_names(batch, whole)}"
        findings.append(warning("flat", what, "remove them: there is nothing to classify or distort"))
    if partly.any():
        what = f"{int(partly.sum())} of {len(batch)} samples have a constant channel: {_names(batch, partly)}"
        findings.append(note("flat", what, "check for a disconnected lead or an empty channel"))
    return findings


def _names(batch: Batch, rows: Tensor) -> str:
    """The first ids of the samples where `rows` (b,) is true."""
    ids = [batch.ids[row] for row in rows.nonzero().flatten().tolist()]
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def _filter_findings(palette: Palette, batch: Batch, seed: int) -> list[Finding]:
    findings = []
    for kind in {id(entry.filter): entry.filter for entry in palette.entries}.values():
        entries = tuple(entry for entry in palette.entries if entry.filter is kind)
        name = f"filter:{kind.name}"
        try:
            check_palette(Palette(entries), batch.x, batch.bounds)
            for entry in entries:
                alone = Palette((entry,))
                banks = (alone.bank(batch.x[row : row + 1], batch.bounds, [seed]) for row in range(len(batch)))
                if all(torch.equal(bank[:, 0], bank[:, 1]) for bank in banks):
                    what = f"the palette entry {entry.name!r} changes none of {len(batch)} samples"
                    change = f"raise its severity, or remove {kind.name!r}, which only costs queries here"
                    findings.append(warning(name, what, change, _without(palette, kind)))
        except InputError as problem:
            change = f"fix that function, or remove {kind.name!r} from the palette"
            findings.append(error(name, str(problem), change, _without(palette, kind)))
    return findings


def _without(palette: Palette, kind: Filter) -> str:
    """--palette flags for all other entries, or '' if one of them cannot be given on the command line."""
    others = [entry for entry in palette.entries if entry.filter is not kind]
    known = {member.name for family in FAMILIES.values() for channels in range(1, 13) for member in family(channels)}
    if any(entry.filter.name not in known for entry in others):
        return ""
    return " ".join(dict.fromkeys(f"--palette {replace(entry, draw=0).name}" for entry in others))
