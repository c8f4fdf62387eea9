"""Small audits of the demo's digits: a second or two each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from rlab.auditing import AuditOptions, AuditResult, run_audit
from rlab.auditing.verdicts import banner
from rlab.present.page import Page
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

REQUIREMENTS: list[dict[str, Any]] = [
    {"metric": "errors", "at_most": 0},
    {"metric": "clean_accuracy", "at_least": "50%"},
    {"metric": "success", "at": {"snr": "20dB"}, "below": "100%"},
]


def declared(**more: Any) -> dict[str, Any]:
    """Everything small; what is given replaces a section."""
    return {
        "model": "demo:digits",
        "data": {"path": "demo:digits", "limit": 4},
        "palette": ["gaussian_noise@0.3", "dead_pixel@0.5"],
        "patch": 2,
        "budget": 40,
        "chunk": 4,
        "doctor": {"samples": 4},
        "explain": {"methods": ["occlusion", "middle"], "samples": 2, "steps": 4},
        "benchmark": {"ladder": "times:1.5", "steps": 5},
        "requirements": REQUIREMENTS,
        **more,
    }


def brighter() -> Victim:
    """A second model: the demo's, that takes inputs to be darker than they are."""
    return TorchVictim(demo_victim("digits").model, mean=[0.2], std=[0.4])


def quick(**more: Any) -> dict[str, Any]:
    """Doctor and attack alone."""
    return declared(**{"explain": False, "benchmark": False, **more})


def audit_options(values: dict[str, Any]) -> AuditOptions:
    return check(AuditOptions, values, "the audit")


class Watch:
    """Every victim the audit loads, so that a test can look at its count."""

    def __init__(self) -> None:
        self.victims: list[Victim] = []

    @property
    def rows(self) -> int:
        return sum(victim.rows.total() for victim in self.victims)


def watched(values: dict[str, Any], folder: Path, page: bool = False, **options: Any) -> tuple[AuditResult, Watch]:
    """Runs the audit and keeps its victims at hand; the page is drawn only where it is looked at."""
    watch = Watch()

    def loading(model: ModelOptions, bounds: tuple[float, float]) -> Victim:
        watch.victims.append(load_model(model, bounds))
        return watch.victims[-1]

    with mock.patch("rlab.auditing.load.load_model", loading), few_pictures() if page else undrawn():
        return run_audit(audit_options(values), folder, **options), watch


def few_pictures() -> Any:
    """One sample a section: drawing takes longer than everything else."""
    view = AuditResult.view
    return mock.patch.object(AuditResult, "view", lambda self, samples=1, folder=None: view(self, 1, folder))


@contextmanager
def undrawn() -> Iterator[None]:
    """Pages have the verdict alone."""

    def view(self: AuditResult, samples: int = 24, folder: Path | None = None) -> Page:
        return Page("", [], banner(self.verdicts) if self.verdicts else None)

    page = mock.patch.multiple("rlab.auditing.report", write_page=mock.DEFAULT, verdict_text=lambda *_: "")
    with page, mock.patch.object(AuditResult, "view", view):
        yield


def write(values: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path
