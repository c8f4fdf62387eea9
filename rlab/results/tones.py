"""Colours by status: a flip is bad for the model's owner, a sample that holds is good."""

from __future__ import annotations

from rlab.core.status import Status
from rlab.present.table import Tone

STATUS_TONES: dict[Status, Tone] = {
    Status.SUCCEEDED: "fail",
    Status.SPENT: "pass",
    Status.SKIPPED: "",
    Status.FAILED: "warn",
    Status.LOST: "warn",
    Status.UNVERIFIED: "warn",
}
# Colours in pictures, in the order of the bar: Okabe and Ito's palette, which is safe for colour-blind readers.
STATUS_COLOURS = {
    Status.SUCCEEDED: "#D55E00",
    Status.SPENT: "#009E73",
    Status.SKIPPED: "#CCCCCC",
    Status.FAILED: "#CC79A7",
    Status.LOST: "#56B4E9",
    Status.UNVERIFIED: "#E69F00",
}
