"""One interface for every explanation: a method asks a victim about a batch and returns a map over each input.

What is shown where an input is hidden is here too: its mean, or the input under a strong filter, by default a wide blur.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.maps import threshold
from rlab.explanation.regions import RegionEffects
from rlab.filters.palette import Palette
from rlab.runs.options import AttackOptions
from rlab.storage.config import check_options
from rlab.victims.base import QueryMeter, Victim
from rlab.victims.torch_module import TorchVictim

RULE, ASKED = "otsu", "asked"  # how masks are cut, and what is said of one whose size the model was asked for
SCORE = "score"  # the victim's phase for queries that judge maps; they are no part of what a map cost
ROWS = 512  # that are made at once
MOST = 1_000_000  # of anything a method counts
NOISE = 0.5  # its standard deviation where parts are removed by noise
BLUR, LEAST_BLUR = 16, 4.0  # its standard deviation is this part of the longest axis, and no fewer points than this


@dataclass(frozen=True)
class Explanation:
    """Maps of one method. A higher value means that the decision rests more on that point; values are per sample."""

    method: str
    maps: Tensor  # (n, *size) float32
    mask: Tensor  # (n, *size) bool, by `rule`
    labels: Tensor  # (n,) the class that is explained
    queries: Tensor  # (n,) rows that reached the model for the map, the clean prediction included
    rule: str  # how the mask came about
    seconds: float
    gradients: bool = False  # whether the method looked into the model
    deviation: Tensor | None = None  # (n, *size) standard deviation of the maps, of methods that know it
    regions: RegionEffects | None = None  # what removing each region does, of methods that know it
    probabilities: Tensor | None = None  # (n, k) of the untouched inputs

    def __len__(self) -> int:
        return len(self.maps)

    def __repr__(self) -> str:
        size, spent = "×".join(map(str, self.maps.shape[1:])), float(self.queries.float().mean())
        masks = f"masks cover {float(self.mask.float().mean()):.0%}"
        return f"Explanation({len(self)} maps {size} by {self.method}, {masks}, {spent:,.0f} queries a sample)"

    def _repr_html_(self) -> str:
        from rlab.present.notebook import maps_html

        facts = {"method": self.method, "masks cover": f"{float(self.mask.float().mean()):.0%}, {self.rule}"}
        facts |= {"queries a sample": f"{float(self.queries.float().mean()):,.0f}", "samples": f"{len(self):,}"}
        return maps_html(facts, self.maps, [f"sample {i}, class {int(k)}" for i, k in enumerate(self.labels)])

    @property
    def arrays(self) -> dict[str, Tensor]:
        plain = {"maps": self.maps, "mask": self.mask, "labels": self.labels, "queries": self.queries}
        known = {"deviation": self.deviation, "probabilities": self.probabilities}
        return plain | {name: array for name, array in known.items() if array is not None}

    @staticmethod
    def join(parts: Sequence[Explanation]) -> Explanation:
        """Explanations of consecutive samples as one."""
        whole: dict[str, Any] = {name: torch.cat([part.arrays[name] for part in parts]) for name in parts[0].arrays}
        regions = [part.regions for part in parts if part.regions is not None]
        whole["regions"] = RegionEffects.join(regions) if regions else None
        return replace(parts[0], **whole, seconds=sum(part.seconds for part in parts))


@dataclass(frozen=True)
class Drawn:
    """What a method draws."""

    maps: Tensor  # (n, *size)
    extent: Tensor  # (n, *size): what is cut to the masks
    deviation: Tensor | None = None  # (n, *size)
    regions: RegionEffects | None = None
    mask: Tensor | None = None  # (n, *size) bool, of a method that asked how far its set reaches; for the usual rule


@dataclass(frozen=True)
class ExplanationTask:
    """What a method works on: n inputs, the class to explain in each, and the meter all questions go through."""

    meter: QueryMeter
    x0: Tensor  # (n, c, *size) on the victim's device
    labels: Tensor  # (n,)
    clean: Tensor  # (n, k) scores of x0, asked for already
    seeds: Tensor  # (n,) each sample's own source of chance
    bounds: tuple[float, float]
    instead: Tensor | None = None  # (n, c, *size) what stands where something is removed; None leaves it to the method

    def __len__(self) -> int:
        return len(self.x0)

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.x0.shape[2:])

    @property
    def victim(self) -> Victim:
        return self.meter.victim

    @property
    def clean_score(self) -> Tensor:
        """(n,) of the explained class."""
        return self.clean.gather(1, self.labels[:, None]).squeeze(1)

    def ask(self, x: Tensor, samples: Tensor) -> Tensor:
        """x (m, c, *size), whose samples (m,) -> the explained class's score (m,)."""
        return self.meter(x, samples, "search").gather(1, self.labels[samples][:, None]).squeeze(1)

    def questions(self, items: int, rows: int = ROWS) -> Iterator[tuple[Tensor, Tensor]]:
        """Every item of every sample, about so many rows at once: samples (m,) and items (m,)."""
        every = torch.arange(len(self), device=self.x0.device)
        for some in torch.arange(items, device=self.x0.device).split(max(1, rows // len(self))):
            yield every.repeat_interleave(len(some)), some.repeat(len(self))

    def look(self, x: Tensor, samples: Tensor) -> Tensor:
        """x (m, c, *size), whose samples (m,) -> what the module itself answers (m, k), in the graph: m rows, as any others."""
        assert isinstance(self.victim, TorchVictim)  # checked before a white-box method is drawn
        self.meter.charge(samples, "search").add(torch.arange(len(x)))
        return self.victim.outputs_in_graph(x, "search")


class Method(ABC):
    """A way to make maps. The final `__call__` checks, counts and thresholds; `draw` is the method itself."""

    name: ClassVar[str]
    gradients: ClassVar[bool] = False  # needs a torch module, not only its answers
    flips: ClassVar[bool] = (
        False  # looks for what makes the model change its mind: only what it predicts can be explained
    )
    together: int = 16  # samples worked on at once

    @classmethod
    def of(cls, options: Mapping[str, Any], attack: AttackOptions) -> Method:
        """With options of its own; `attack` holds those of the run, for methods that attack."""
        check_options(cls, options, f"the method {cls.name!r}")
        for name, value in options.items():
            least = int(type(value) is int and name != "episodes")
            if isinstance(value, int | float) and not least <= value <= MOST:
                raise InputError(f"expected {name} of the method {cls.name!r} from {least} to {MOST:,}, got {value!r}")
        return cls(**options)

    @abstractmethod
    def draw(self, task: ExplanationTask) -> Tensor:
        """(n, *size)."""

    def most(self, size: tuple[int, ...]) -> int | None:
        """Rows that an input of this size takes at most, the clean prediction included; None where the model's layers decide."""
        return None

    def explain(self, task: ExplanationTask) -> Drawn:
        """The maps, and what is cut to the masks: the same, unless a method has a better idea of the extent."""
        maps = self.draw(task).float()
        return Drawn(maps, maps)

    def cut(self, extent: Tensor, rule: str) -> Tensor:
        """(n, *size) -> bool; a method that knows its own set overrides this."""
        return threshold(extent, rule)

    @final
    def __call__(
        self,
        victim: Victim,
        batch: Batch,
        labels: Tensor | None = None,
        seed: int = 0,
        rule: str = RULE,
        instead: Tensor | None = None,
    ) -> Explanation:
        """Maps for every sample; `labels` (n,) None explains the class that the victim predicts; `instead` (n, c, *size) is
        what stands where something is removed, for the methods that take it."""
        if self.gradients and not isinstance(victim, TorchVictim):
            needs = f"the method {self.name!r} needs the model's gradients or layers, not a {type(victim).__name__}"
            raise InputError(f"{needs}: leave it out, or pass the torch module as a TorchVictim")
        parts = []
        for at in range(0, len(batch), self.together):
            rows = slice(at, min(at + self.together, len(batch)))
            some = None if labels is None else labels[rows]
            shown = None if instead is None else instead[rows]
            parts.append(self._explain(victim, batch[rows], some, sample_seeds(seed, at, rows.stop - at), rule, shown))
        return Explanation.join(parts)

    def _explain(
        self, victim: Victim, batch: Batch, labels: Tensor | None, seeds: Tensor, rule: str, instead: Tensor | None
    ) -> Explanation:
        began = time.perf_counter()
        meter, x0 = QueryMeter(victim, len(batch)), batch.x.to(victim.device)
        clean = meter(x0, torch.arange(len(batch)), "search")
        chosen = clean.argmax(1) if labels is None else labels.to(x0.device)
        check_labels(victim, clean, chosen, batch.ids, self.flips)
        shown = None if instead is None else instead.to(x0.device)
        drawn = self.explain(ExplanationTask(meter, x0, chosen, clean, seeds.to(x0.device), batch.bounds, shown))
        assert drawn.maps.shape == (len(batch), *batch.size), drawn.maps.shape
        asked = drawn.mask is not None and rule == RULE
        mask = drawn.mask if asked and drawn.mask is not None else self.cut(drawn.extent, rule)
        queries, rule = meter.counts.sum(1), ASKED if asked else rule
        deviation = None if drawn.deviation is None else drawn.deviation.cpu()
        seconds, maps = time.perf_counter() - began, drawn.maps.cpu()
        about = (rule, seconds, self.gradients, deviation, drawn.regions, victim.probabilities(clean).cpu())
        return Explanation(self.name, maps, mask.cpu(), chosen.cpu(), queries, *about)


def check_labels(victim: Victim, clean: Tensor, labels: Tensor, ids: Sequence[str], flips: bool) -> None:
    """Refuses classes the model does not have, and, where a flip is looked for, those it did not predict."""
    classes = clean.shape[1]
    if labels.shape != (len(clean),):
        raise InputError(f"expected one class to explain for each of {len(clean)} samples, got {tuple(labels.shape)}")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        outside = int(labels[(labels < 0) | (labels >= classes)][0])
        raise InputError(f"class {outside} is not one of the model's 0..{classes - 1}")
    if torch.isnan(clean).any():
        raise InputError("the model answered NaN for an untouched sample: mend the model or its input range")
    predicted = clean.gather(1, labels[:, None]).squeeze(1) > 0 if victim.multilabel else clean.argmax(1) == labels
    if flips and not predicted.all():
        row = int((~predicted).nonzero()[0])
        missed = f"class {int(labels[row])} was not predicted for {int((~predicted).sum())} of {len(labels)} samples"
        first = f"first {ids[row]!r} (predicted {int(clean[row].argmax())})"
        raise InputError(f"{missed}, {first}: explain the predicted class, or leave them out")


def mean_fill(x0: Tensor) -> Tensor:
    """(n, c, *size) -> (n, c, 1, ...): each sample's own mean by channel."""
    return x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))


def removed(task: ExplanationTask, how: str) -> Tensor:
    """(n, c, *size): the inputs with everything removed, by 'blur', 'mean', 'noise' or a filter with its severity."""
    if task.instead is not None:
        return task.instead
    if how == "mean":
        return mean_fill(task.x0).expand_as(task.x0)
    spec = {"blur": None, "noise": f"gaussian_noise@{NOISE:g}"}.get(how, how)
    return hiding_bank(task.x0, task.bounds, task.seeds.tolist(), spec)[:, 1]


def hiding_filter(size: tuple[int, ...]) -> str:
    """The filter where none is named."""
    return f"gaussian_blur@{max(LEAST_BLUR, max(size) / BLUR):g}"


def hiding_bank(x0: Tensor, bounds: tuple[float, float], seeds: Sequence[int], spec: str | None = None) -> Tensor:
    """x0 (n, c, *size) -> (n, 2, c, *size): the input, and the input with everything hidden."""
    size = tuple(x0.shape[2:])
    palette = Palette.of([spec or hiding_filter(size)], len(size), x0.shape[1])
    if len(palette) != 1:
        raise InputError(f"expected one filter at one severity to hide patches with, got {', '.join(palette.names)}")
    return palette.bank(x0, bounds, seeds)
