"""Good and bad from the point of view of the model's owner, as colours."""

from __future__ import annotations

from typing import Literal

Tone = Literal["", "pass", "fail", "warn"]
TERMINAL: dict[Tone, str] = {"pass": "green", "fail": "red", "warn": "yellow"}  # pages define theirs in style.css
