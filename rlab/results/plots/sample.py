"""One sample of a result: the text above its picture, and the bars of the model's output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray
from torch import Tensor

from rlab.core.setting import Setting
from rlab.errors import OptionError
from rlab.predictions.kinds import Prediction
from rlab.present.style import BEFORE, INK, TITLE_SIZE, flow, hatch, hue, plain, swatch, tidy
from rlab.present.viewer import Answer
from rlab.results.change import entry_shares, that_count, weigh
from rlab.results.data import ResultData, SampleData
from rlab.results.predicted import answer_words, class_words, figures, name_of
from rlab.results.sentences import sample_sentence

Array = NDArray[np.float32]
TOP = 5  # number of classes with bars
FAINT = 0.1  # of full strength, for patches that hardly changed
OTHERS = "#999999"  # entries that hardly count


class Sample(SampleData):
    """A sample to draw, with its inputs as arrays."""

    @classmethod
    def of(cls, result: ResultData, index: int) -> Sample:
        if not 0 <= index < len(result):
            raise OptionError(f"expected the index of a sample in 0..{len(result) - 1}, got {index}")
        return cls(**vars(result.sample(index)))

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        x0, x1 = self.inputs.all()
        return x0[0].float().cpu().numpy(), x1[0].float().cpu().numpy()

    @property
    def x0(self) -> Array:
        """(c, *size): the original."""
        return self._arrays[0]

    @property
    def x1(self) -> Array:
        """(c, *size): the perturbed input."""
        return self._arrays[1]

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
    def strengths(self) -> list[float]:
        """How strongly to shade each patch, in steps from FAINT to 1 for the patch that changed most."""
        size = self._change.sqrt()
        return (size / size.max().clamp(min=1e-12)).clamp(min=FAINT).mul(10).round().div(10).tolist()

    @cached_property
    def looks(self) -> dict[int, Look]:
        """How to show each entry in use, those that made most of the change first; the others share the last look."""
        used = sorted({entry for _, entry in self.touched})
        shares = entry_shares(self.entries[None], self._change[None], len(self.setting.palette))[0].tolist()
        strong = [used[k] for k in that_count([shares[entry - 1] for entry in used])]
        rest = [entry for entry in used if entry not in strong]
        looks = {
            entry: Look(
                hue(entry), hatch(entry), f"{entry_name(self.setting, entry)}: {shares[entry - 1]:.0%} of the change"
            )
            for entry in strong
        }
        many = f"{len(rest)} other{'s' * (len(rest) > 1)}: {sum(shares[entry - 1] for entry in rest):.0%}"
        return looks | dict.fromkeys(rest, Look(OTHERS, "", many))

    @cached_property
    def _change(self) -> Tensor:
        """(p,)."""
        return weigh(self)

    @property
    def swatches(self) -> list[Patch]:
        """The legend of the entries in use."""
        return [swatch(look.colour, look.hatch, look.name) for look in dict.fromkeys(self.looks.values())]

    def title(self, inches: float, more: Sequence[str] = ()) -> list[str]:
        """Lines for id and label, the sentence, and then predictions, status, queries and distances."""
        first, *rest = flow(
            [plain(self.id), f"true: {plain(class_words(self.setting, self.label))}"], inches, TITLE_SIZE, "bold"
        )
        patches = f"{len(self.touched)} of {len(self.entries)} patches"
        read = " → ".join(plain(answer_words(self.setting, p, self.truth), 60) for p in (self.before, self.after))
        facts = [f"predicted {read}", self.status.label, self._cost(), *self._distances(), patches, *more]
        return [first, *flow([*rest, plain(self.sentence, 300)], inches), *flow(facts, inches)]

    def figures(self) -> list[Answer]:
        """Figures before and after: of the first classes and the true ones, of objects, of classes in a map, or numbers."""
        if self.setting.target != "classes":
            return figures(self.setting, self.truth, self.before, self.after)
        before, after = (np.nan_to_num(values.float().cpu().numpy()) for values in (self.before, self.after))
        order = np.argsort(-np.maximum(before, after), kind="stable").tolist()
        shown = [*order[:TOP], *(k for k in order[TOP:] if k in self.true)]
        names = {k: plain(name_of(self.setting, k), 28) for k in shown}
        return [Answer(names[k], k in self.true, float(before[k]), float(after[k])) for k in shown]

    def _cost(self) -> str:
        total = sum(self.phases.values())
        parts = ", ".join(f"{count} {phase}" for phase, count in self.phases.items() if count)
        return f"{total} {'query' if total == 1 else 'queries'}" + (f" ({parts})" if total else "")

    def _distances(self) -> list[str]:
        flip, final, bounded = self.flip["l2"], self.final["l2"], self.setting.bounded
        unit = f" {plain(self.setting.unit, 12)}" if self.setting.l2_unit else ""
        notes = [f"{flip:.3g} at the flip"] if math.isfinite(flip) else []
        notes += ["values in [0, 1]"] if bounded else []
        far = f"L2 {final:.3g}{unit}" + (f" ({', '.join(notes)})" if notes else "")
        if bounded:
            return [far]
        rms, share, snr = final / math.sqrt(self.x0.size), self.final["relative_l2"], self.final["snr_db"]
        change = [f"largest change {self.final['linf']:.2g}{unit}"]
        change += [f"RMS of the change {rms:.2g}{unit} ({share:.0%} of the signal's)"]
        return [far, *change, *([] if math.isnan(snr) else [f"SNR {'∞' if math.isinf(snr) else f'{snr:.1f}'} dB"])]


@dataclass(frozen=True)
class Look:
    """Colour, hatching and name of a palette entry in a picture."""

    colour: str
    hatch: str
    name: str


def entry_name(setting: Setting, entry: int) -> str:
    return plain(setting.palette[entry - 1], 36)


_AXES: dict[Prediction, str] = {
    "classes": "probability",
    "boxes": "score of the object",
    "map": "intersection over union",
    "numbers": "value",
}


def draw_bars(ax: Axes, sample: Sample) -> None:
    """Bars of the classes with the highest probabilities before or after; true classes are marked."""
    shown = sample.figures()[:TOP]
    at = np.arange(len(shown))
    before, after = [one.before for one in shown], [one.after for one in shown]
    for offset, values, colour, name in ((-0.2, before, BEFORE, "before"), (0.2, after, INK, "after")):
        bars = ax.barh(at + offset, values, 0.36, color=colour, label=name)
        ax.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontsize=8)
    ax.set_yticks(at, [_broken(one.name + (" ✓" if one.true else "")) for one in shown])
    for label, one in zip(ax.get_yticklabels(), shown, strict=True):
        label.set_fontweight("bold" if one.true else "normal")
    ax.set(ylim=(max(len(shown), 3) - 0.4, -0.6))
    if sample.setting.target != "numbers":
        ax.set(xlim=(0, 1.16), xticks=[0, 0.5, 1])
    ax.set_xlabel(_AXES[sample.setting.target])
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.985), "ncols": 2, "borderaxespad": 0.0}
    ax.legend(fontsize=8.5, handlelength=0.9, columnspacing=1.0, handletextpad=0.4, borderpad=0.2, **above)
    tidy(ax)
    ax.tick_params(axis="y", length=0)


def _broken(name: str, width: int = 16) -> str:
    """Break long names into two lines."""
    cut = name.rfind(" ", 0, width + 1)
    return name if len(name) <= width or cut <= 0 else f"{name[:cut]}\n{name[cut + 1 :]}"
