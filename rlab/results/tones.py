"""Colours by status: a flip is bad for the model's owner, a sample that holds is good."""

from __future__ import annotations

from rlab.core.status import Status
from rlab.present.table import Cell, Tone

STATUS_TONES: dict[Status, Tone] = {
    Status.SUCCEEDED: "fail",
    Status.SPENT: "pass",
    Status.SKIPPED: "",
    Status.FAILED: "warn",
    Status.LOST: "warn",
    Status.UNVERIFIED: "warn",
}


def status_cell(status: Status) -> Cell:
    """A status without its reason, in its colour."""
    return Cell(status.label.split(" because")[0], STATUS_TONES[status])
