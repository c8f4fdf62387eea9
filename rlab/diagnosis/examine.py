"""The examination: first data and palette, which need no queries, then the model with as few queries as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from rlab.data.batch import Batch
from rlab.diagnosis import outputs
from rlab.diagnosis.data import agreement, data_checks
from rlab.diagnosis.inputs import ORDER, failure, input_findings
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.protocols import encoding_findings, known_protocol
from rlab.diagnosis.report import FEWEST, RISE, Diagnosis, Finding, Severity, error, note, passed, warning
from rlab.diagnosis.rows import row_findings
from rlab.errors import InputError, VictimError
from rlab.filters import FAMILIES, Filter, Palette, check_palette
from rlab.filters.palette import Spec, refuse_pixels
from rlab.progress import showing
from rlab.runs.inputs import Data, Model, relabelled, taken
from rlab.runs.options import AttackOptions
from rlab.runs.palette_options import make_palette
from rlab.runs.understood import Understood, show
from rlab.storage.config import check, check_keywords
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions

_USELESS = ("nan", "random", "batch", "training-mode")  # such answers cannot be compared with others


def examine(
    victim: Victim, batch: Batch, palette: Palette | None = None, *, samples: int = 16, seed: int = 0
) -> Diagnosis:
    """Examine `samples` samples of the batch with at most twelve queries per sample (one more for video, and for JPEG)."""
    before, accuracy = victim.rows.total(), None
    probe = Probe.of(victim, batch, samples, seed)
    found = [*agreement(victim, batch), *data_checks(batch)]
    if all(finding.level is not Severity.ERROR for finding in found):  # else the answers would mean nothing
        answers, accuracy = _model_findings(probe, batch)
        found += answers
    if palette is not None:
        found += _filter_findings(palette, probe.batch, seed)
    return Diagnosis.of(found, victim.rows.total() - before, accuracy)


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
    with showing(progress), taken(model, data, limit) as (victim, batch):
        named = check(ModelOptions, {"name": model}) if isinstance(model, str) else model
        protocol = known_protocol(named, victim, batch)
        batch = relabelled(batch, protocol.victim.own_classes)
        show(Understood(batch, (protocol.victim,)))
        entries = make_palette(declared.filled(batch)[0].palette or (), batch)
        return protocol.added_to(examine(protocol.victim, batch, entries, samples=samples, seed=seed))


def _model_findings(probe: Probe, batch: Batch) -> tuple[list[Finding], float | None]:
    """What the model's answers show, and the accuracy."""
    if probe.victim.prediction != "classes":
        return row_findings(probe)
    x = probe.batch.x
    try:
        raw = probe.raw(x)
        found = outputs.declared(probe, raw)
        scores = probe.victim(x, PHASE)
    except (VictimError, InputError) as problem:
        return [failure(probe, problem)], None
    found += [*outputs.output_findings(probe, raw, scores), *encoding_findings(probe)]
    if misfit := outputs.label_range(batch, probe.victim.multilabel, scores.shape[1]):
        return [*found, *misfit, *outputs.constant(probe, scores)], None
    found.append(passed("labels", f"labels fit the model's {scores.shape[1]} outputs"))
    right = probe.correct(scores)
    accuracy = float((right == 1).float().mean())
    if any(finding.name in _USELESS and finding.serious for finding in found):
        return found, accuracy
    if len(x) < FEWEST:
        what = f"{len(x)} samples are too few to check scale, normalisation, channel order and labels"
        few = note("samples", what, f"give at least {FEWEST} samples")
        return [*found, *outputs.constant(probe, scores), few], accuracy
    causes = outputs.shifted(probe, scores) or input_findings(probe, scores)
    if any(finding.name != ORDER or finding.level is Severity.ERROR for finding in causes):
        return found + causes, accuracy
    seen = f"{probe.measure} {float(right.mean()):.2f} on {len(x)} samples"
    tried = "" if float(right.mean()) > 1 - RISE else "; no other scale, mean or std is clearly better"
    found += [*causes, passed("normalisation", f"{seen}{tried}")]
    found += [passed(ORDER, "no clear gain from reversed channels")] * (x.shape[1] == 3)
    found += (
        outputs.renamed(probe, scores)
        or outputs.constant(probe, scores)
        or outputs.low_accuracy(probe, scores)
        or [passed("accuracy", f"{seen}; guessing gives {probe.guessing():.2f}")]
    )
    return found, accuracy


def _filter_findings(palette: Palette, batch: Batch, seed: int) -> Iterator[Finding]:
    for kind in {id(entry.filter): entry.filter for entry in palette.entries}.values():
        entries = tuple(entry for entry in palette.entries if entry.filter is kind)
        name = f"filter:{kind.name}"
        yield passed(name, f"changes {len(batch)} samples within bounds, the same way for the same seed")
        try:
            check_palette(Palette(entries), batch.x, batch.bounds)
            for entry in entries:
                alone = Palette((entry,))
                banks = (alone.bank(batch.x[row : row + 1], batch.bounds, [seed]) for row in range(len(batch)))
                if all(torch.equal(bank[:, 0], bank[:, 1]) for bank in banks):
                    what = f"the palette entry {entry.name!r} changes none of {len(batch)} samples"
                    change = f"raise its severity, or remove {kind.name!r}, which only costs queries here"
                    yield warning(name, what, change, _without(palette, kind))
        except InputError as problem:
            change = f"fix that function, or remove {kind.name!r} from the palette"
            yield error(name, str(problem), change, _without(palette, kind))


def _without(palette: Palette, kind: Filter) -> str:
    """--palette flags for all other entries, or '' if one of them cannot be given on the command line."""
    others = [entry for entry in palette.entries if entry.filter is not kind]
    known = {member.name for family in FAMILIES.values() for channels in range(1, 13) for member in family(channels)}
    if any(entry.filter.name not in known for entry in others):
        return ""
    return " ".join(dict.fromkeys(f"--palette {replace(entry, draw=0).name}" for entry in others))
