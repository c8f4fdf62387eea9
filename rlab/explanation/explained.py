"""Maps and masks of samples by one method, their scores, and sentences about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rlab.core.batched import Rows
from rlab.data.batch import Batch
from rlab.data.kinds import kind_of
from rlab.explanation.effects import Effects
from rlab.explanation.subject import AnySubject
from rlab.explanation.words import IN_PLACES, frame_shares, frames_that_matter
from rlab.stats import Estimate, mean_estimate

SCORES = ("queries", "dice", "iou", "pointing", "energy", "dice_map", "deletion", "insertion", "stability", "sanity")


@dataclass(frozen=True, repr=False)
class Explained(Rows):
    """Maps by one method. A higher value means that the decision depends more on that point of the sample."""

    method: str
    maps: Tensor  # (n, *size) float32
    mask: Tensor  # (n, *size) bool, by `rule`
    labels: Tensor  # (n,) explained class
    queries: Tensor  # (n,) rows that reached the model for the map, the clean prediction included
    rule: str
    seconds: float = 0.0
    gradients: bool = False  # whether the method used the model's gradients or layers
    deviation: Tensor | None = None  # (n, *size) standard deviation of the maps, if the method knows it
    effects: Effects | None = (
        None  # of removing each region, or each wave in each group of leads, if the method knows it
    )
    by_lead: Tensor | None = None  # (n, c, *size) the map of each lead, if the method tells leads apart
    drops: Tensor | None = None  # (n, c, *size) the effect of the wave at each point, if the method removes whole waves
    probabilities: Tensor | None = None  # (n, k) of the clean inputs
    in_waves: Tensor | None = None  # (n, 4) the share of the map in each of `PLACES`, for beats
    subject: AnySubject | None = None  # what was explained, to score the maps
    scores: Mapping[str, Tensor] = field(default_factory=dict)  # each (n,), if a judge scored the maps
    ids: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    inputs: Batch | None = None  # what was explained; None if it was not kept

    def __len__(self) -> int:
        return len(self.maps)

    def __repr__(self) -> str:
        maps = f"{len(self)} maps {'×'.join(map(str, self.maps.shape[1:]))} by {self.method}"
        return f"{type(self).__name__}({maps}, masks cover {self.mask_share:.0%}, {self.effort})"

    @property
    def mask_share(self) -> float:
        return float(self.mask.float().mean())

    @property
    def mean_queries(self) -> float:
        return float(self.queries.float().mean())

    @property
    def effort(self) -> str:
        """The mean number of queries as a phrase."""
        count = round(self.mean_queries)
        return f"{count:,} {'query' if count == 1 else 'queries'} per sample"

    @property
    def names(self) -> list[str]:
        """The explained class of each sample."""
        return [self.classes[k] if k < len(self.classes) else str(k) for k in self.labels.tolist()]

    @property
    def sample_ids(self) -> Sequence[str]:
        return self.ids or [str(row) for row in range(len(self))]

    @property
    def figures(self) -> dict[str, Tensor]:
        """Figures (n,) of the samples by name: queries, the mask, the class's probability, waves of beats, and scores."""
        found = {"queries": self.queries, "mask_share": self.mask.flatten(1).float().mean(1)}
        if self.probabilities is not None:
            found["probability"] = self.probabilities.gather(1, self.labels[:, None])[:, 0]
        if self.in_waves is not None:
            found |= {f"map {phrase}": shares for phrase, shares in zip(IN_PLACES, self.in_waves.T, strict=True)}
        return {**found, **self.scores}

    def mean(self, figure: str, seed: int = 0) -> Estimate:
        """The mean over samples that have the figure, with its bootstrap interval; NaN if none has it."""
        return mean_estimate(self.figures.get(figure, self.queries[:0]).double().numpy(), seed)

    def records(self) -> list[dict[str, Any]]:
        """One row per sample: the explained class, and every figure."""
        columns = {"id": self.sample_ids, "method": [self.method] * len(self), "explained": self.labels.tolist()}
        columns |= {"explained_name": self.names} | {name: values.tolist() for name, values in self.figures.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def statements(self, row: int) -> list[str]:
        """Sentences about one sample, the most important first."""
        name, lines = self.names[row], []
        if self.in_waves is not None and self.drops is None and not self.in_waves[row].isnan().any():
            shares = zip(self.in_waves[row].tolist(), IN_PLACES, strict=True)
            parts = [f"{share:.0%} {phrase}" for share, phrase in sorted(shares, key=lambda each: -each[0])]
            lines.append(f"the evidence for {name} lies {', '.join(parts)}")
        if kind_of(self.maps.shape[1:]) == "video":
            run, held = frames_that_matter(frame_shares(self.maps[row]))
            which = f"frames {run.start + 1} to {run.stop} of {self.maps.shape[1]}"
            lines.append(f"{which} hold {held:.0%} of the evidence for {name}")
        return lines + ([] if self.effects is None else self.effects.statements(row, name))
