"""The examination: data and palette first, which cost nothing, then the model, which is asked as little as possible."""

from __future__ import annotations

from rlab.data.batch import Batch
from rlab.doctor.chance import FEWEST
from rlab.doctor.data import data_findings
from rlab.doctor.filters import filter_findings
from rlab.doctor.inputs import input_findings
from rlab.doctor.labels import label_range, low_accuracy, renamed, shifted
from rlab.doctor.layout import failure, other_layout
from rlab.doctor.outputs import constant, declared, output_findings
from rlab.doctor.patient import PHASE, Patient
from rlab.doctor.report import Finding, Level, Report, note
from rlab.errors import InputError, VictimError
from rlab.filters import Palette
from rlab.victims.base import Victim

_USELESS = ("nan", "random", "batch", "training-mode")  # comparing such answers with others would say nothing


def examine(
    victim: Victim, batch: Batch, palette: Palette | None = None, *, samples: int = 16, seed: int = 0
) -> Report:
    """Looks at `samples` of the batch; asks the model about at most twelve times as many rows (thirteen of video), all counted."""
    before = victim.rows.total()
    patient = Patient.of(victim, batch, samples, seed)
    found = data_findings(victim, batch)
    accuracy: float | None = None
    if all(finding.level is not Level.ERROR for finding in found):  # else the model would be asked nonsense
        seen, accuracy = _model_findings(patient, batch)
        found += seen
    if palette is not None:
        found += filter_findings(palette, patient.batch, seed)
    order = list(Level)
    findings = tuple(sorted(found, key=lambda finding: order.index(finding.level)))
    return Report(findings, victim.rows.total() - before, accuracy)


def _model_findings(patient: Patient, batch: Batch) -> tuple[list[Finding], float | None]:
    x = patient.batch.x
    try:
        raw = patient.raw(x)
        found = declared(patient, raw)
        scores = patient.victim(x, PHASE)
    except (VictimError, InputError) as problem:
        return [failure(patient, problem)], None
    found += output_findings(patient, raw, scores)
    misfit = label_range(batch, patient.victim.multilabel, scores.shape[1])
    if misfit:
        return [*found, *misfit, *constant(patient, scores)], None
    accuracy = float(patient.right(scores).mean())
    if any(finding.name in _USELESS and finding.level is not Level.NOTE for finding in found):
        return found, accuracy
    if len(x) < FEWEST:
        what = f"only {len(x)} samples: scale, normalisation, channel order and labels need {FEWEST} at least"
        return [*found, *constant(patient, scores), note("samples", what, "give more samples")], accuracy
    causes = shifted(patient, scores) or input_findings(patient, scores) or other_layout(patient, scores)
    if all(finding.name == "channel-order" and finding.level is Level.WARNING for finding in causes):
        causes += renamed(patient, scores) or constant(patient, scores) or low_accuracy(patient, scores)
    return found + causes, accuracy
