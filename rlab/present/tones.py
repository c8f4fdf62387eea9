"""Colours from the model owner's view: a sample that holds is good, a flip is bad."""

from __future__ import annotations

from typing import Literal

from rlab.core.status import Status

Tone = Literal["", "pass", "fail", "warn"]
TERMINAL: dict[Tone, str] = {"pass": "green", "fail": "red", "warn": "yellow"}  # style.css has those of pages
STATUS_TONES: dict[Status, Tone] = {
    Status.SUCCEEDED: "fail",
    Status.SPENT: "pass",
    Status.SKIPPED: "",
    Status.FAILED: "warn",
    Status.LOST: "warn",
    Status.UNVERIFIED: "warn",
}
# Okabe and Ito's colours, safe for the colour-blind, in the order of the bar.
STATUS_COLOURS = {
    Status.SUCCEEDED: "#D55E00",
    Status.SPENT: "#009E73",
    Status.SKIPPED: "#CCCCCC",
    Status.FAILED: "#CC79A7",
    Status.LOST: "#56B4E9",
    Status.UNVERIFIED: "#E69F00",
}
