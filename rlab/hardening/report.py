"""The report of a hardening: its epochs, and the figures and flips of the model before and after."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import matplotlib
import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pydantic import InstanceOf, PlainSerializer
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.data.kinds import kind_of
from rlab.errors import FolderError
from rlab.hardening.batches import imbalance
from rlab.hardening.evaluation import Robustness
from rlab.hardening.options import HardenOptions
from rlab.hardening.trainable import Epoch, best_epoch
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Code, Number, Page, Section, Text
from rlab.present.report import Metric, PathLike, Report
from rlab.present.style import HUES, STYLE, WIDE, headed_figure, tidy
from rlab.present.table import Share, Table, number
from rlab.results.plots.sample import Sample
from rlab.results.result import AttackResult
from rlab.results.viewers import make_viewer, shelf
from rlab.stats import NOTHING, Estimate
from rlab.storage.files import write_atomically
from rlab.victims.torch_module import TorchVictim

WEIGHTS = "hardened.safetensors"
BEFORE, AFTER = "before", "after"  # measurements, and the folders of their attacks
GROUPS = {"corruptions": "filters of the palette", "held_out": "filters outside the palette"}
COLUMNS = {
    "clean": "clean",
    "agent_l2": "L2 to flip",
    "l2_ratio": "times unchanged",
    "agent": "attacked",
    "transfer": "flips of the original",
    "square": "Square",
    "pgd": "PGD",
    "corruptions": "corruptions",
    "held_out": "held-out",
}
PLAIN = ("agent_l2", "l2_ratio")  # the other figures are shares
RULES = (
    "Shares of samples on which the model stays right; attacked: by the policy on this model; flips of the original: inputs that "
    "the policy found on the original model; corruptions: the palette's filters over the whole input; held-out: all other "
    "filters. L2 to flip is the median distance that the policy needs on this model, ∞ if its budget was too small for half of "
    "the samples; times unchanged: its ratio to that of the original model. Brackets are 95% bootstrap intervals over seeds and "
    "samples."
)
_SHOWN, _AXIS = "share of samples that stay right", "epoch (0: original)"
_PAIRS = 4  # samples that are shown before and after
_UNSAVED = PlainSerializer(lambda value: None)
Estimates = Mapping[str, Estimate]


@dataclass(frozen=True)
class Hardened(Report):
    """The hardened model as `victim`, and the unchanged one as `original`; a stored report has its weights in a file."""

    verb: ClassVar[str] = "harden"

    options: HardenOptions
    history: tuple[Epoch, ...]  # the first is the original
    stopped: str  # why training stopped early, if it did
    flipped: Tensor  # (k,) number of flipped samples by class
    rows: int  # inputs sent to the model by attacks, training and validation
    classes: tuple[str, ...] = ()
    measured: Mapping[str, Robustness] = field(default_factory=dict)  # before and after, if test data were given
    attacks: Annotated[Mapping[str, InstanceOf[AttackResult]] | None, _UNSAVED] = None
    victim: Annotated[InstanceOf[TorchVictim] | None, _UNSAVED] = None
    original: Annotated[InstanceOf[TorchVictim] | None, _UNSAVED] = None

    def __repr__(self) -> str:
        return f"Hardened({str(self).splitlines()[0]})"

    @property
    def model(self) -> nn.Module:
        if self.victim is None:
            raise FolderError(f"a stored report holds no model: load the weights from {WEIGHTS} into yours")
        return self.victim.model

    @property
    def best(self) -> Epoch:
        """The epoch whose weights are kept."""
        return best_epoch(self.history)

    @property
    def queries(self) -> int:
        """Inputs sent to the model and its copies, for training and measuring."""
        return self.rows + sum(each.rows for each in self.measured.values())

    @property
    def imbalance(self) -> str:
        """A sentence if the classes of the flipped samples are uneven, otherwise an empty string."""
        sentence = imbalance(self.flipped, self.classes)
        then = "rare classes were drawn more often" if self.options.balance else "balance=True compensates for that"
        return sentence and f"{sentence}: {then}"

    def summary(self) -> dict[str, float]:
        first, best = self.history[0], self.best
        return {
            "clean_before": first.clean,
            "clean_after": best.clean,
            "robust_before": first.robust,
            "robust_after": best.robust,
            "epoch": best.number,
            "share": best.share,
            "rows": self.rows,
        }

    def __str__(self) -> str:
        first, best = self.history[0], self.best
        accuracies = f"clean accuracy {first.clean:.1%} -> {best.clean:.1%}, under attack {first.robust:.1%} -> {best.robust:.1%}"
        where = f"(validation samples, epoch {best.number}, {best.share:.0%} of the change in weights)"
        sent = f"{self.rows:,} inputs were sent to the model to make samples, train and validate"
        sent += "".join(f", {each.rows:,} to measure it {when}" for when, each in self.measured.items())
        sent += f": {self.queries:,} in all" if self.measured else ""
        kept = "" if best.number else "no epoch improved on the original, so its weights are kept"
        return "\n".join(line for line in (f"{accuracies} {where}", sent, self.imbalance, self.stopped, kept) if line)

    def records(self) -> list[dict[str, Any]]:
        """One row per epoch; the first is the original."""
        return [asdict(epoch) for epoch in self.history]

    def metrics(self) -> dict[str, Metric]:
        figures: dict[str, Metric] = {name.replace("_", " "): value for name, value in self.summary().items()}
        for when, each in self.measured.items():
            figures |= {f"{COLUMNS[k]}, {when}": shown(k, v) for k, v in each.figures.items() if k in COLUMNS}
        return figures

    def series(self) -> list[tuple[int, Mapping[str, float]]]:
        """The figures of every epoch."""
        rows = [{k: float(v) for k, v in row.items() if math.isfinite(v)} for row in self.records()]
        return [*enumerate(rows)]

    def settings(self) -> Mapping[str, Any]:
        return self.options.plain()

    def plot(self) -> Figure:
        """Draw the accuracy on validation samples by epoch, clean and under attack."""
        with share_axes(WIDE / 2, 3.0, "hardening, on validation samples", 0.3) as (figure, ax):
            for curve, colour in zip(self._curves(), HUES, strict=False):
                ax.plot(curve.x, curve.y, label=curve.name, color=colour, marker="o", markersize=3)
            ax.set(xlabel=_AXIS)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.legend(frameon=False)
        return figure

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """Figures before and after, epochs, and options."""
        s, shares = self.summary(), {"clean": "clean", "robust": "under attack"}
        numbers = [Number(f"{w} {e}", Share(s[f"{n}_{e}"])) for n, w in shares.items() for e in (BEFORE, AFTER)]
        numbers.append(Number("inputs to make samples, train and validate", self.rows))
        numbers += [Number(f"inputs to measure {when}", each.rows) for when, each in self.measured.items()]
        options = Code(yaml.safe_dump(self.options.plain(), sort_keys=False, allow_unicode=True))
        sections = [*self.sections(samples, folder), Section("Options", [options])]
        return Page(f"Hardening {folder.name}" if folder else "Hardening", sections, numbers=numbers)

    def sections(self, samples: int = 24, folder: Path | None = None) -> list[Section]:
        """What is measured before and after, and the epochs; `folder` holds the attacks of a stored report."""
        head = ["epoch", "clean", "under attack", "share of the change", "flipped", "inputs so far"]
        rows: list[list[int | Share]] = [
            [e.number, Share(e.clean), Share(e.robust), Share(e.share), e.flipped, e.rows] for e in self.history
        ]
        chart = Chart("On validation samples", self._curves(), _AXIS, _SHOWN, percent=True)
        table = Table(head, rows, "On validation samples (epoch 0: original)")
        epochs = Section("Epochs", [*map(Text, str(self).splitlines()), Charts([chart]), table])
        if not self.measured:
            return [epochs]
        attacks = self.attacks or {when: AttackResult.load((folder or Path()) / when) for when in self.measured}
        note = Text(f"Measured on test samples that the model was not trained on. {RULES}", quiet=True)
        figures = figures_table({when: each.figures for when, each in self.measured.items()})
        curves = robustness_charts({when: each.curves for when, each in self.measured.items()})
        count = min(samples, _PAIRS)
        return [
            Section("Before and after", [figures, note, curves]),
            Section("Flips before and after", _pairs(attacks[BEFORE], attacks[AFTER], count)),
            Section("Remaining failures", _failures(attacks[AFTER], count)),
            epochs,
        ]

    def _curves(self) -> list[Curve]:
        numbers = [e.number for e in self.history]
        values = {"clean": [e.clean for e in self.history], "under attack": [e.robust for e in self.history]}
        return [Curve(name, numbers, each) for name, each in values.items()]

    def write(self, folder: Path) -> None:
        """Also write hardened.safetensors, the state dict of the model."""
        super().write(folder)
        weights = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        write_atomically(folder / WEIGHTS, to_bytes(weights))

    def export_onnx(self, path: PathLike, shape: tuple[int, ...]) -> Path:
        """Export the hardened model with its normalisation, for inputs (b, *shape) in the data's range."""
        from rlab.hardening.onnx import export_onnx

        assert self.victim is not None
        return export_onnx(self.victim, Path(path), shape)


def shown(name: str, estimate: Estimate) -> Estimate | Share:
    """A figure for display: a distance or a ratio as it is, the others in percent."""
    return estimate if name in PLAIN else Share(estimate)


def figures_table(estimates: Mapping[str, Estimates], of: str = "") -> Table:
    """One row per model, one column per figure that any of them has."""
    names = [name for name in COLUMNS if any(name in each for each in estimates.values())]
    rows = [[model, *(shown(name, each.get(name, NOTHING)) for name in names)] for model, each in estimates.items()]
    return Table([of, *(COLUMNS[name] for name in names)], rows)


@contextmanager
def share_axes(width: float, height: float, title: str, spare: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure whose vertical axis is a share of samples."""
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(width, [title], [height], spare)
        ax = figure.add_subplot(body)
        yield figure, ax
        ax.set(ylim=(-0.02, 1.03), ylabel=_SHOWN)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        tidy(ax)


def _pairs(before: AttackResult, after: AttackResult, samples: int) -> list[Block]:
    rows = spread_samples(before, after, samples)
    if not rows:
        return [Text("The policy did not flip any sample of either model.")]
    viewers = [
        make_viewer(Sample.of(result, i), f"{when}-{i}", 2 * len(rows), _ending(result, i, when))
        for i in rows
        for when, result in ((BEFORE, before), (AFTER, after))
    ]
    shelved = shelf(viewers, kind_of(before.setting.size), columns=2)
    return [Text("The distortions that flip the same samples before and after."), *shelved]


def _failures(after: AttackResult, samples: int) -> list[Block]:
    """The samples on which the smallest distortions flip the hardened model."""
    flipped = after.succeeded.nonzero().flatten()
    if not len(flipped):
        return [Text("The policy did not flip any sample that the model got right.")]
    nearest = flipped[after.final["l2"][flipped].argsort()][:samples].tolist()
    wrong = len(after) - int(after.attacked.sum())
    summary = (
        f"Of {len(after)} samples, the model is wrong on {wrong} unchanged ones and {len(flipped)} more can be flipped; "
        "these need the smallest distortions."
    )
    ends = {i: _ending(after, i, AFTER) for i in nearest}
    viewers = [make_viewer(Sample.of(after, i), f"fails-{i}", len(nearest), end) for i, end in ends.items()]
    return [Text(summary), *shelf(viewers, kind_of(after.setting.size), columns=2)]


def _ending(result: AttackResult, i: int, when: str) -> str:
    distance, patches = number(float(result.final["l2"][i])), int(result.final["l0_patches"][i])
    return f"{result.ids[i]}, {when}: L2 {distance}, {patches} of {len(result.setting.grid)} patches"


def spread_samples(before: AttackResult, after: AttackResult, samples: int) -> list[int]:
    """Samples that both models got right and the policy flipped before, spread over the increase in distance."""
    both = (before.succeeded & after.attacked).nonzero().flatten().tolist()
    ratios = [float(after.final["l2"][i] / before.final["l2"][i]) for i in both]
    order = [both[j] for j in np.argsort(ratios, kind="stable")]
    places = np.linspace(0, len(order) - 1, min(samples, len(order))).round().astype(int)
    return [order[at] for at in places.tolist()]


def robustness_charts(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Charts:
    """Accuracy by severity, within and outside the palette, and the share of samples not flipped within a distance."""
    charts = []
    for group, about in GROUPS.items():
        lines = [Curve(k, range(1, len(each[group]) + 1), each[group]) for k, each in curves.items() if group in each]
        charts += [Chart(f"accuracy under {about}", lines, "severity", percent=True)] if lines else []
    lines = []
    for name, each in curves.items():
        reached = [distance for distance in each["l2"] if math.isfinite(distance)]
        share = 1 - np.arange(len(reached) + 1) / max(1, len(each["l2"]))  # samples that were never flipped stay
        lines.append(Curve(name, [0.0, *reached], share))
    return Charts([*charts, Chart("not flipped by the policy within this L2", lines, "L2", percent=True, steps=True)])
