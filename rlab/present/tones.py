"""What is good and bad for the model's owner: a sample that holds is good, one that flips is not."""

from __future__ import annotations

from typing import Literal

from rlab.core.status import Status

Tone = Literal["", "pass", "fail", "warn"]
TERMINAL: dict[Tone, str] = {"pass": "green", "fail": "red", "warn": "yellow"}  # pages have theirs in style.css
STATUS_TONES: dict[Status, Tone] = {
    Status.SUCCEEDED: "fail",
    Status.SPENT: "pass",
    Status.SKIPPED: "",
    Status.FAILED: "warn",
    Status.LOST: "warn",
    Status.UNVERIFIED: "warn",
}
# In pictures, in the order of their bar: Okabe and Ito's, safe for the colour-blind.
STATUS_COLOURS = {
    Status.SUCCEEDED: "#D55E00",
    Status.SPENT: "#009E73",
    Status.SKIPPED: "#CCCCCC",
    Status.FAILED: "#CC79A7",
    Status.LOST: "#56B4E9",
    Status.UNVERIFIED: "#E69F00",
}
