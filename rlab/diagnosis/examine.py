"""The examination: data and palette first, which cost nothing, then the model, which is asked as little as possible."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, uint8

from rlab.data.batch import Batch
from rlab.diagnosis.checks import data_checks, filter_checks, input_checks, output_checks, without_findings
from rlab.diagnosis.inputs import failure, input_findings, other_layout
from rlab.diagnosis.outputs import constant, declared, label_range, low_accuracy, output_findings, renamed, shifted
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import FEWEST, Check, Diagnosis, Finding, Severity, error, note, options, warning
from rlab.errors import InputError, VictimError
from rlab.filters import FAMILIES, Entry, Filter, Palette, check_palette
from rlab.filters.palette import Spec
from rlab.runs.inputs import Data, Model, taken
from rlab.runs.options import AttackOptions
from rlab.storage.config import check
from rlab.victims.base import Victim

_TWICE = 1.001 / 255  # of the range: where values divided by 255 once too often end
_NARROW = 0.05  # of the range
_SLACK = 1e-3  # as the victim allows
_USELESS = ("nan", "random", "batch", "training-mode")  # comparing such answers with others would say nothing


def examine(
    victim: Victim, batch: Batch, palette: Palette | None = None, *, samples: int = 16, seed: int = 0
) -> Diagnosis:
    """Looks at `samples` of the batch; asks the model about at most twelve times as many rows (thirteen of video), all counted."""
    before = victim.rows.total()
    probe = Probe.of(victim, batch, samples, seed)
    findings, checks = [*_agreement(victim, batch), *data_findings(batch)], data_checks(batch)
    accuracy: float | None = None
    if all(finding.level is not Severity.ERROR for finding in findings):  # else the model would be asked nonsense
        answers, accuracy, made = _model_findings(probe, batch)
        findings, checks = findings + answers, checks + made
    if palette is not None:
        findings += filter_findings(palette, probe.batch, seed)
        checks += filter_checks(palette, probe.batch)
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.level))
    return Diagnosis(tuple(findings), victim.rows.total() - before, accuracy, without_findings(checks, findings))


def data_findings(batch: Batch) -> list[Finding]:
    """What can be seen of the data alone, without asking a model."""
    return [*_values(batch), *_one_class(batch), *_duplicates(batch), *_flat(batch)]


def doctor(
    model: Model,
    data: Data,
    *,
    palette: Spec | Sequence[Spec] | None = None,
    samples: int = 16,
    seed: int = 0,
    limit: int | None = None,
) -> Diagnosis:
    """Checks model, data and palette on a few samples before a budget is spent; every row asked is counted."""
    declared = check(AttackOptions, {"palette": palette, "seed": seed}, "the doctor's options")
    with taken(model, data, limit) as (victim, batch):
        specs = declared.filled(batch)[0].palette or ()
        wanted = Palette.of(specs, batch.rank, batch.x.shape[1], batch.rate, batch.unit)
        return examine(victim, batch, wanted, samples=samples, seed=seed)


def _model_findings(probe: Probe, batch: Batch) -> tuple[list[Finding], float | None, list[Check]]:
    """What is wrong, the accuracy, and every check that was made."""
    x = probe.batch.x
    try:
        raw = probe.raw(x)
        findings = declared(probe, raw)
        scores = probe.victim(x, PHASE)
    except (VictimError, InputError) as problem:
        return [failure(probe, problem)], None, []
    findings += output_findings(probe, raw, scores)
    checks = output_checks(probe, scores)
    misfit = label_range(batch, probe.victim.multilabel, scores.shape[1])
    if misfit:
        return [*findings, *misfit, *constant(probe, scores)], None, checks
    accuracy = float(probe.correct(scores).mean())
    if any(finding.name in _USELESS and finding.level is not Severity.NOTE for finding in findings):
        return findings, accuracy, checks
    if len(x) < FEWEST:
        what = f"only {len(x)} samples: scale, normalisation, channel order and labels need {FEWEST} at least"
        return [*findings, *constant(probe, scores), note("samples", what, "give more samples")], accuracy, checks
    causes = shifted(probe, scores) or input_findings(probe, scores) or other_layout(probe, scores)
    if all(finding.name == "channel-order" and finding.level is Severity.WARNING for finding in causes):
        causes += renamed(probe, scores) or constant(probe, scores) or low_accuracy(probe, scores)
        checks += input_checks(probe, scores, accuracy)
    return findings + causes, accuracy, checks


def _values(batch: Batch) -> list[Finding]:
    low, high = batch.bounds
    least, most = (float(end) for end in batch.x.aminmax())
    if not math.isfinite(high - low) or least == most:
        return []
    seen = f"the values run from {least:.4g} to {most:.4g} in bounds [{low:g}, {high:g}]"
    if most <= low + (high - low) * _TWICE:
        twice, right = high - low <= 1, (high - low) / 255
        change = "divide by 255 once only" if twice else f"pass bounds=({low:g}, {right:g})"
        what, flag = f"{seen}: they look divided by 255 once too often", f"-D bounds=[{low:g},{right:g}]"
        return [error("bounds", what, f"{change} when loading the data", "" if twice else flag)]
    if most - least < _NARROW * (high - low):
        change = "pass the bounds the data really have: severities are a share of them"
        return [warning("bounds", f"{seen}: they fill {(most - least) / (high - low):.1%} of them", change)]
    return []


def _agreement(victim: Victim, batch: Batch) -> list[Finding]:
    """Distorted inputs may reach the batch's bounds, so the victim must accept all of them."""
    (low, high), (least, most) = victim.bounds, batch.bounds
    slack = _SLACK * min(1.0, high - low)
    if (low, high) == (least, most) or not math.isfinite(high - low):
        return []
    seen = f"the data's bounds are [{least:g}, {most:g}] but the model's are [{low:g}, {high:g}]"
    change = f"pass bounds=({least:g}, {most:g}) to {type(victim).__name__}, or load the data with the model's bounds"
    flag = options(bounds=(least, most)) if math.isfinite(most - least) else ""
    if least < low - slack or most > high + slack:
        return [error("bounds", f"{seen}: distorted inputs would be refused", change, flag)]
    return [warning("bounds", f"{seen}: distortions are cut to the narrower range", change, flag)]


def _one_class(batch: Batch) -> list[Finding]:
    if len(batch) < 2 or not (batch.y == batch.y[0]).all():
        return []
    what = f"all {len(batch)} samples carry the same label"
    change = "take samples of several classes, e.g. shuffle before taking the first ones"
    return [warning("one-class", what, change, "-D shuffle=true")]


def _duplicates(batch: Batch) -> list[Finding]:
    counts = Counter(hashlib.blake2b(x.numpy().tobytes()).digest() for x in batch.x.cpu().contiguous().view(uint8))
    extra = len(batch) - len(counts)
    what = f"{extra} of {len(batch)} samples are exact copies of others"
    change = "leave the copies out: they count twice in every number"
    return [warning("duplicates", what, change)] if extra else []


def _flat(batch: Batch) -> list[Finding]:
    """Samples, or single channels of them, that hold one value throughout."""
    channels = batch.x.flatten(2).amin(-1) == batch.x.flatten(2).amax(-1)
    whole = batch.x.flatten(1).amin(-1) == batch.x.flatten(1).amax(-1)
    partly, findings = channels.any(1) & ~whole, []
    if whole.any():
        what = f"{int(whole.sum())} of {len(batch)} samples hold one value throughout: {_names(batch, whole)}"
        findings.append(warning("flat", what, "leave them out: there is nothing in them to classify or to distort"))
    if partly.any():
        what = f"{int(partly.sum())} of {len(batch)} samples have a channel that is flat: {_names(batch, partly)}"
        findings.append(note("flat", what, "check for a lead that was off or a channel that was not filled"))
    return findings


def _names(batch: Batch, rows: Tensor) -> str:
    """The first few ids of the samples where `rows` (b,) is true."""
    ids = [batch.ids[row] for row in rows.nonzero().flatten().tolist()]
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def filter_findings(palette: Palette, batch: Batch, seed: int) -> list[Finding]:
    """`batch` holds the few samples picked."""
    findings = []
    for kind in {id(entry.filter): entry.filter for entry in palette.entries}.values():
        entries = tuple(entry for entry in palette.entries if entry.filter is kind)
        name = f"filter:{kind.name}"
        try:
            check_palette(Palette(entries), batch.x, batch.bounds)
            for entry in entries:
                if not _changes(entry, batch, seed):
                    what = f"the palette entry {entry.name!r} changes no value of {len(batch)} samples"
                    change = f"raise its severity or take it out: {kind.name!r} only costs queries here"
                    findings.append(warning(name, what, change, _without(palette, kind)))
        except InputError as problem:
            change = f"mend that function, or take {kind.name!r} out of the palette"
            findings.append(error(name, str(problem), change, _without(palette, kind)))
    return findings


def _without(palette: Palette, kind: Filter) -> str:
    """--palette flags of the other entries, where there are any and all can be named on a command line."""
    others = [entry for entry in palette.entries if entry.filter is not kind]
    known = {member.name for family in FAMILIES.values() for channels in range(1, 13) for member in family(channels)}
    if any(entry.filter.name not in known for entry in others):
        return ""
    return " ".join(dict.fromkeys(f"--palette {replace(entry, draw=0).name}" for entry in others))


def _changes(entry: Entry, batch: Batch, seed: int) -> bool:
    """Whether any sample looks different afterwards; stops at the first that does."""
    alone = Palette((entry,))
    banks = (alone.bank(batch.x[row : row + 1], batch.bounds, [seed]) for row in range(len(batch)))
    return any(not torch.equal(bank[:, 0], bank[:, 1]) for bank in banks)
