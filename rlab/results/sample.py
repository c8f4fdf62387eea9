"""One sample of a result."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlab.core.setting import Setting, Status
from rlab.core.trace import DISTANCE_NAMES
from rlab.results.kept import Inputs
from rlab.results.sentences import class_words, sample_sentence

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
    inputs: Inputs  # of this sample alone, read when they are asked for
    entries: Tensor  # (p,) the palette entry of every patch, 0 where it is untouched
    setting: Setting
    r_peaks: tuple[int, ...] = ()

    @property
    def x(self) -> Tensor:
        """(c, *size)."""
        return self.inputs.all()[0][0]

    @property
    def perturbed(self) -> Tensor:
        """(c, *size)."""
        return self.inputs.all()[1][0]

    @property
    def mask(self) -> Tensor:
        """(*size) bool: where it is distorted."""
        return self.setting.grid.expand(self.entries != 0)

    @property
    def sentence(self) -> str:
        """What became of it, in plain words."""
        return sample_sentence(self)

    def __str__(self) -> str:
        return f"{self.id}: {self.sentence}"

    @property
    def predicted_before(self) -> Classes:
        return self._predicted(self.before)

    @property
    def predicted_after(self) -> Classes:
        return self._predicted(self.after)

    def _predicted(self, p: Tensor) -> Classes:
        several = isinstance(self.label, tuple)
        return tuple((p > 0.5).nonzero().flatten().tolist()) if several else int(p.argmax())

    def __repr__(self) -> str:
        label, *read = (class_words(self.setting, k) for k in (self.label, self.predicted_before, self.predicted_after))
        told = f"{DISTANCE_NAMES[self.setting.distance]} {self.setting.told(self.distance)}"
        what = f"{self.id}: {label} read as {' -> '.join(read)}, {told}, {self.queries} queries, {self.status}"
        return f"AttackedSample({what})"
