"""One sample of a result: its layers, the text above its picture, and the model's answers before and after."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from rlab.errors import OptionError
from rlab.predictions.maps import decode_map
from rlab.present.layers import Layers, Mark, Rectangle, Version, outline
from rlab.present.style import flow, hatch, hue, plain
from rlab.present.viewer import Answer
from rlab.results.change import entry_shares, that_count, weigh
from rlab.results.data import ResultData, SampleData
from rlab.results.predicted import answer_words, box_changes, class_words, figures, name_of
from rlab.results.sentences import sample_sentence

TOP = 5  # number of classes with bars
FAINT = 0.1  # of full strength, for patches that hardly changed
OTHERS = "#999999"  # entries that hardly count
FATES: dict[str, tuple[str, tuple[Version, ...]]] = {
    "kept": ("#1b9e77", ("original", "perturbed")),
    "lost": ("#e7298a", ("original",)),
    "new": ("#7570b3", ("perturbed",)),
}  # colours of boxes, and the versions that they are in


class Look(NamedTuple):
    """How a picture shows a palette entry."""

    colour: str
    hatch: str
    name: str


class Sample(SampleData):
    """A sample to draw."""

    @classmethod
    def of(cls, result: ResultData, index: int) -> Sample:
        if not 0 <= index < len(result):
            raise OptionError(f"expected the index of a sample in 0..{len(result) - 1}, got {index}")
        return cls(**vars(result.sample(index)))

    @cached_property
    def layers(self) -> Layers:
        s = self.setting
        x0, x1 = (each[0].float().cpu().numpy() for each in self.inputs.all())
        marks = [*self._patches(len(x0)), *self._predictions()]
        return Layers(x0, s.bounds, x1, None, marks, False, s.rate, s.unit, s.leads, self.r_peaks)

    @property
    def sentence(self) -> str:
        """Without the distance, which stands beside it."""
        return sample_sentence(self, distance=False)

    @property
    def true(self) -> tuple[int, ...]:
        """The true classes; none for boxes, maps and numbers."""
        return self.label if isinstance(self.label, tuple) else (self.label,) if isinstance(self.label, int) else ()

    @property
    def touched(self) -> list[tuple[int, int]]:
        """(patch, entry) of every distorted patch."""
        return [(patch, int(self.entries[patch])) for patch in self.entries.nonzero().flatten().tolist()]

    @cached_property
    def looks(self) -> dict[int, Look]:
        """How to show each entry in use, those that made most of the change first; the others share the last look."""
        used = sorted({entry for _, entry in self.touched})
        shares = entry_shares(self.entries[None], weigh(self)[None], len(self.setting.palette))[0].tolist()
        strong = [used[k] for k in that_count([shares[entry - 1] for entry in used])]
        rest = [entry for entry in used if entry not in strong]
        names = {entry: plain(self.setting.palette[entry - 1], 36) for entry in strong}
        looks = {k: Look(hue(k), hatch(k), f"{name}: {shares[k - 1]:.0%} of the change") for k, name in names.items()}
        many = f"{len(rest)} other{'s' * (len(rest) > 1)}: {sum(shares[entry - 1] for entry in rest):.0%}"
        return looks | dict.fromkeys(rest, Look(OTHERS, "", many))

    def _patches(self, channels: int) -> list[Mark]:
        """The distorted patches, one mark per look, strength and range of frames; those that changed most are shaded most."""
        grid, looks = self.setting.grid, list(dict.fromkeys(self.looks.values()))
        size = weigh(self).sqrt()
        strengths = (size / size.max().clamp(min=1e-12)).clamp(min=FAINT).mul(10).round().div(10).tolist()
        places: dict[tuple[int, float, tuple[int, int]], list[Rectangle]] = defaultdict(list)
        for patch, entry in self.touched:
            *when, last = (slice(each.start, each.stop) for each in grid.box(patch))
            if when:
                rows, frames = when[-1], when[0] if len(when) > 1 else slice(0, 1)
                own: list[Rectangle] = [(last.start, rows.start, last.stop - last.start, rows.stop - rows.start)]
            else:
                held, frames = [k for k in range(channels) if grid.holds(patch, k)], slice(0, 1)
                own = [(last.start, k, last.stop - last.start, 1) for k in held]
            places[looks.index(self.looks[entry]), strengths[patch], (frames.start, frames.stop - 1)] += own
        return [
            Mark(looks[k].colour, looks[k].name, each, frames, looks[k].hatch, strength=strength)
            for (k, strength, frames), each in sorted(places.items())
        ]

    def _predictions(self) -> list[Mark]:
        """The boxes that are kept, lost and new, and the edges of where a map changes."""
        marks, size = [], self.setting.size
        if self.setting.target == "boxes":
            for box in box_changes(self.setting, self.before, self.after):
                (x1, y1, x2, y2), (colour, versions) = box.xyxy, FATES[box.fate]
                place = (x1, y1, x2 - x1, y2 - y1)
                marks.append(Mark(colour, f"{box.fate}: {box.words}", [place], frame=True, versions=versions))
        if self.setting.target == "map" and len(size) == 2:
            before, after = (decode_map(rows[None], size)[0] for rows in (self.before, self.after))
            changed = before != after
            for axis, length in enumerate(size):
                changed = changed.index_select(axis, torch.arange(length) * changed.shape[axis] // length)
            if changed.any():
                edges, versions = outline(changed.numpy()), FATES["new"][1]
                marks.append(Mark(FATES["lost"][0], "class changed", edges, frame=True, versions=versions))
        return marks

    def title(self, inches: float) -> list[str]:
        """Lines for id and label, the sentence, and then predictions, status, queries and the distance."""
        s, far, flip = self.setting, self.final["l2"], self.flip["l2"]
        read = " → ".join(plain(answer_words(s, p, self.truth), 40) for p in (self.before, self.after))
        total = sum(self.phases.values())
        parts = ", ".join(f"{count} {phase}" for phase, count in self.phases.items() if count)
        notes = [f"{flip:.3g} at the flip"] * math.isfinite(flip) + ["values in [0, 1]"] * s.bounded
        facts = [
            f"predicted {read}",
            self.status.label,
            f"{total} {'query' if total == 1 else 'queries'}" + (f" ({parts})" if total else ""),
            f"L2 {far:.3g}{s.l2_unit and ' ' + plain(s.unit, 12)}" + (f" ({', '.join(notes)})" if notes else ""),
            f"{len(self.touched)} of {len(self.entries)} patches",
        ]
        first = f"{plain(self.id)}  ·  true: {plain(class_words(s, self.label), 40)}"
        return [first, *flow([plain(self.sentence, 300)], inches), *flow(facts, inches)]

    def answers(self) -> list[Answer]:
        """Figures before and after: of the first classes and the true ones, of objects, of classes in a map, or numbers."""
        if self.setting.target != "classes":
            return figures(self.setting, self.truth, self.before, self.after)
        before, after = (np.nan_to_num(values.float().cpu().numpy()) for values in (self.before, self.after))
        order = np.argsort(-np.maximum(before, after), kind="stable").tolist()
        shown = [*order[:TOP], *(k for k in order[TOP:] if k in self.true)]
        names = {k: plain(name_of(self.setting, k), 28) for k in shown}
        return [Answer(names[k], k in self.true, float(before[k]), float(after[k])) for k in shown]
