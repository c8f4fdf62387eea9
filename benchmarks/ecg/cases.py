"""Victims, distortions and policies of the ECG benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.victims.beat_nets import BEAT_NETS

PATCH = 10  # samples, 28 ms: 72 patches in a window
# Each distortion alone in the table of distortions; all together are the palette of the attacks.
DISTORTIONS = {
    "baseline wander": ("baseline_wander@0.15,0.3mV",),
    "hum, 50 Hz": ("powerline_hum50@0.1mV",),
    "hum, 60 Hz": ("powerline_hum60@0.1mV",),
    "muscle noise": ("muscle_noise@0.05,0.1mV",),
    "electrode motion": ("electrode_motion@0.3mV",),
    "amplitude": ("amplitude_scaling@0.3",),
    "smoothing": ("smoothing@8",),
    "lead dropout": ("lead_dropout@1",),
}
PALETTE = tuple(spec for specs in DISTORTIONS.values() for spec in specs)
OURS, BASELINES, SMOOTH = "auto", ("square", "random", "greedy"), "smooth PGD"
GREEDY_BEATS = 30  # greedy is slow
SEED = 0


@dataclass(frozen=True)
class Size:
    """Beats of each victim, beats for one distortion alone, queries for each beat."""

    samples: int = 90
    alone: int = 30
    budget: int = 1000


FULL, QUICK = Size(), Size(6, 30, 40)


@dataclass(frozen=True)
class Case:
    """One policy on one victim."""

    kind: str  # attacks or distortions
    net: str
    policy: str
    palette: tuple[str, ...]
    samples: int
    budget: int
    title: str = ""

    @property
    def key(self) -> str:
        """How the names of its figures begin."""
        return f"{self.net}_{_slug(self.title or ('agent' if self.policy == OURS else self.policy))}"

    @property
    def name(self) -> str:
        title = f"-{_slug(self.title)}" if self.title else ""
        return f"{self.net}{title}-{_slug(self.policy)}-n{self.samples}-b{self.budget}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"net": self.net, "policy": self.policy, "palette": self.palette, "patch": PATCH, "samples": self.samples,
                "budget": self.budget, "seed": SEED}  # fmt: skip


def _slug(title: str) -> str:
    return title.replace(", ", "_").replace(" ", "_").lower()


def cases(size: Size) -> Iterator[Case]:
    """A sweep of greedy takes hundreds of queries, so it gets at least one, and fewer beats."""
    for net in BEAT_NETS:
        for policy in (OURS, *BASELINES):
            greedy = policy == "greedy"
            budget = max(800, size.budget) if greedy else size.budget
            yield Case(
                "attacks", net, policy, PALETTE, min(GREEDY_BEATS, size.samples) if greedy else size.samples, budget
            )
        yield Case("attacks", net, SMOOTH, (), size.samples, 0)
    for net in BEAT_NETS:
        for title, specs in DISTORTIONS.items():
            yield Case("distortions", net, "random", specs, min(size.samples, size.alone), size.budget, title)
