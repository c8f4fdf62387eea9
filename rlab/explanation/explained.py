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
from rlab.explanation.words import PLACES, frame_shares, frames_that_matter
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
    seconds: float
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

    def mean(self, score: str, seed: int = 0) -> Estimate:
        """The mean over samples that have the score, with its bootstrap interval; NaN if none has it."""
        values = self.queries if score == "queries" else self.scores.get(score, self.queries[:0])
        return mean_estimate(values.double().numpy(), seed)

    def records(self) -> list[dict[str, Any]]:
        """One row per sample: the explained class, its probability, the size of the mask, the queries and the scores."""
        records = []
        for i, (sample, name, label) in enumerate(zip(self.sample_ids, self.names, self.labels.tolist(), strict=True)):
            probability = None if self.probabilities is None else float(self.probabilities[i, label])
            record = {"id": sample, "method": self.method, "explained": label, "explained_name": name}
            figures = {"mask_share": float(self.mask[i].float().mean()), "queries": int(self.queries[i])}
            scores = {score: values[i].item() for score, values in self.scores.items()}
            records.append(record | {"probability": probability} | figures | scores)
        return records

    def by_class(self) -> list[dict[str, Any]]:
        """One row per explained class: its samples, probability, mask size, the waves of beats, and mean scores."""
        rows = []
        for label in self.labels.unique().tolist():
            at = (self.labels == label).nonzero().flatten()
            figures: dict[str, Any] = {"mask covers": self.mask[at].float().mean()}
            if self.probabilities is not None:
                figures = {"probability": self.probabilities[at, label].mean()} | figures
            if self.in_waves is not None:
                figures |= {
                    f"map in {place}": share for place, share in zip(PLACES, self.in_waves[at].nanmean(0), strict=True)
                }
            figures |= {
                name: self.scores[name][at].nanmean()
                for name in ("dice", "deletion", "insertion")
                if name in self.scores
            }
            row = {"class": self.names[int(at[0])], "method": self.method, "samples": len(at)}
            rows.append(row | {name: round(float(value), 4) for name, value in figures.items()})
        return rows

    def statements(self, row: int) -> list[str]:
        """Sentences about one sample, the most important first."""
        name, lines = self.names[row], []
        if self.in_waves is not None and self.drops is None and not self.in_waves[row].isnan().any():
            shares = dict(zip(PLACES, self.in_waves[row].tolist(), strict=True))
            order = sorted(shares, key=lambda place: -shares[place])
            parts = [f"{shares[place]:.0%} {'' if place == 'elsewhere' else 'in '}{place}" for place in order]
            lines.append(f"the evidence for {name} lies {', '.join(parts)}")
        if kind_of(self.maps.shape[1:]) == "video":
            run, held = frames_that_matter(frame_shares(self.maps[row]))
            which = f"frames {run.start + 1} to {run.stop} of {self.maps.shape[1]}"
            lines.append(f"{which} hold {held:.0%} of the evidence for {name}")
        return lines + ([] if self.effects is None else self.effects.statements(row, name))
