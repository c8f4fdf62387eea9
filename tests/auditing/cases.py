"""Small audits of the demo's digits: a second or two each."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from rlab.auditing import Audit, make_audit_config, run_audit
from rlab.data.batch import Batch
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

REQUIREMENTS = ["doctor: no errors", "clean accuracy at least 50%", "success below 100% at SNR 20 dB"]


def declared(**more: Any) -> dict[str, Any]:
    """Everything small; what is given replaces a section."""
    return {
        "model": "demo:digits",
        "data": {"path": "demo:digits", "limit": 8},
        "palette": ["gaussian_noise@0.3", "dead_pixel@0.5"],
        "patch": 2,
        "doctor": {"samples": 4},
        "attack": {"budget": 60, "chunk": 4},
        "explain": {"methods": ["occlusion", "middle"], "samples": 2, "steps": 4},
        "benchmark": {"ladder": "times:1.5", "steps": 5, "corruptions": False},
        "requirements": REQUIREMENTS,
        **more,
    }


def brighter() -> Victim:
    """A second model: the demo's, that takes inputs to be darker than they are."""
    return TorchVictim(demo_victim("digits").model, mean=[0.2], std=[0.4])


def quick(**more: Any) -> dict[str, Any]:
    """Doctor and attack alone."""
    return declared(**{"explain": False, "benchmark": False, **more})


class Watch:
    """Every victim the audit loads, so that a test can look at its count."""

    def __init__(self) -> None:
        self.victims: list[Victim] = []

    @property
    def rows(self) -> int:
        return sum(one.rows.total() for one in self.victims)


def watched(values: dict[str, Any], folder: Path, page: bool = False, **options: Any) -> tuple[Audit, Watch]:
    """Runs the audit and keeps its victims at hand; the page is drawn only where it is looked at."""
    watch, load = Watch(), ModelOptions.load

    def loading(self: ModelOptions, batch: Batch) -> Victim:
        watch.victims.append(load(self, batch))
        return watch.victims[-1]

    drawn = (
        nullcontext() if page else mock.patch("rlab.auditing.run.write_audit_page", return_value=folder / "report.html")
    )
    with mock.patch.object(ModelOptions, "load", loading), drawn:
        return run_audit(make_audit_config(values), folder, **options), watch


def write(values: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path
