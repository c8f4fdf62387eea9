"""One sample of a result."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlab.core.setting import Setting, Status
from rlab.core.trace import DISTANCE_NAMES

Classes = int | tuple[int, ...]  # any number of them where a sample has several labels


@dataclass(frozen=True, repr=False)
class AttackedSample:
    """What it was, what became of it, and what that took."""

    id: str
    label: Classes
    status: Status
    queries: int  # from the clean prediction to the end of cleanup, as everywhere; the verification is not among them
    distance: float  # of the nearest flip, of the kind that was kept small; infinite where none was verified
    before: Tensor  # (k,) probabilities of the untouched input
    after: Tensor  # (k,) probabilities of the perturbed input
    x: Tensor  # (c, *size)
    perturbed: Tensor  # (c, *size)
    mask: Tensor  # (*size) bool: where it is distorted
    setting: Setting

    @property
    def predicted_before(self) -> Classes:
        return self._predicted(self.before)

    @property
    def predicted_after(self) -> Classes:
        return self._predicted(self.after)

    def _predicted(self, p: Tensor) -> Classes:
        several = isinstance(self.label, tuple)
        return tuple((p > 0.5).nonzero().flatten().tolist()) if several else int(p.argmax())

    def _names(self, classes: Classes) -> str:
        names, listed = self.setting.classes, classes if isinstance(classes, tuple) else (classes,)
        return " + ".join(names[k] if k < len(names) else f"class {k}" for k in listed) or "nothing"

    def __repr__(self) -> str:
        read = " -> ".join(map(self._names, (self.predicted_before, self.predicted_after)))
        told = f"{DISTANCE_NAMES[self.setting.distance]} {self.setting.told(self.distance)}"
        what = f"{self.id}: {self._names(self.label)} read as {read}, {told}, {self.queries} queries, {self.status}"
        return f"AttackedSample({what})"
