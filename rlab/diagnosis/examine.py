"""The examination: data and palette first, which cost nothing, then the model, which is asked as little as possible."""

from __future__ import annotations

from rlab.data.batch import Batch
from rlab.diagnosis.chance import FEWEST
from rlab.diagnosis.data import data_findings
from rlab.diagnosis.filters import filter_findings
from rlab.diagnosis.inputs import input_findings
from rlab.diagnosis.labels import label_range, low_accuracy, renamed, shifted
from rlab.diagnosis.layout import failure, other_layout
from rlab.diagnosis.outputs import constant, declared, output_findings
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import Diagnosis, Finding, Severity, note
from rlab.errors import InputError, VictimError
from rlab.filters import Palette
from rlab.victims.base import Victim

_USELESS = ("nan", "random", "batch", "training-mode")  # comparing such answers with others would say nothing


def examine(
    victim: Victim, batch: Batch, palette: Palette | None = None, *, samples: int = 16, seed: int = 0
) -> Diagnosis:
    """Looks at `samples` of the batch; asks the model about at most twelve times as many rows (thirteen of video), all counted."""
    before = victim.rows.total()
    probe = Probe.of(victim, batch, samples, seed)
    found = data_findings(victim, batch)
    accuracy: float | None = None
    if all(finding.level is not Severity.ERROR for finding in found):  # else the model would be asked nonsense
        seen, accuracy = _model_findings(probe, batch)
        found += seen
    if palette is not None:
        found += filter_findings(palette, probe.batch, seed)
    order = list(Severity)
    findings = tuple(sorted(found, key=lambda finding: order.index(finding.level)))
    return Diagnosis(findings, victim.rows.total() - before, accuracy)


def _model_findings(probe: Probe, batch: Batch) -> tuple[list[Finding], float | None]:
    x = probe.batch.x
    try:
        raw = probe.raw(x)
        found = declared(probe, raw)
        scores = probe.victim(x, PHASE)
    except (VictimError, InputError) as problem:
        return [failure(probe, problem)], None
    found += output_findings(probe, raw, scores)
    misfit = label_range(batch, probe.victim.multilabel, scores.shape[1])
    if misfit:
        return [*found, *misfit, *constant(probe, scores)], None
    accuracy = float(probe.correct(scores).mean())
    if any(finding.name in _USELESS and finding.level is not Severity.NOTE for finding in found):
        return found, accuracy
    if len(x) < FEWEST:
        what = f"only {len(x)} samples: scale, normalisation, channel order and labels need {FEWEST} at least"
        return [*found, *constant(probe, scores), note("samples", what, "give more samples")], accuracy
    causes = shifted(probe, scores) or input_findings(probe, scores) or other_layout(probe, scores)
    if all(finding.name == "channel-order" and finding.level is Severity.WARNING for finding in causes):
        causes += renamed(probe, scores) or constant(probe, scores) or low_accuracy(probe, scores)
    return found + causes, accuracy
