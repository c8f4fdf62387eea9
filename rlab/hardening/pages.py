"""What people see of a hardening: tables, page sections, charts and figures of models before and after, methods and epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlab.data.kinds import kind_of
from rlab.hardening.trainable import Epoch
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Code, Number, Page, Section, Text, write_page
from rlab.present.style import HUES, INK, STYLE, WIDE, headed_figure, plain, tidy
from rlab.present.table import Share, Table, number
from rlab.results.plots.sample import Sample
from rlab.results.result import AttackResult
from rlab.results.viewers import make_viewer, shelf
from rlab.stats import NOTHING, Estimate
from rlab.storage.files import read_json

if TYPE_CHECKING:
    from rlab.hardening.evaluation import RobustnessMeasurement
    from rlab.hardening.run import Hardened

LOG = "log.json"
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
RULES = (
    "Shares of samples on which the model stays right; attacked: by the policy on this model; flips of the original: inputs that "
    "the policy found on the original model; corruptions: the palette's filters over the whole input; held-out: all other "
    "filters. L2 to flip is the median distance that the policy needs on this model, ∞ if its budget was too small for half of "
    "the samples; times unchanged: its ratio to that of the original model. Brackets are 95% bootstrap intervals over seeds and "
    "samples."
)
_PLAIN = ("agent_l2", "l2_ratio")  # the other figures are shares
_SHOWN, _AXIS = "share of samples that stay right", "epoch (0: original)"


# Methods, and one model before and after.


def methods_table(estimates: Mapping[str, Mapping[str, Estimate]]) -> Table:
    """One row per method, one column per figure that any method has."""
    names = [name for name in COLUMNS if any(name in each for each in estimates.values())]
    rows = [[method, *_cells(each, names)] for method, each in estimates.items()]
    return Table(["method", *(COLUMNS[name] for name in names)], rows)


def before_after_table(estimates: Mapping[str, Mapping[str, Estimate]]) -> Table:
    """One row per figure, with 'before' and 'after' side by side."""
    names = [name for name in COLUMNS if name in estimates["before"]]
    columns = [_cells(estimates[when], names) for when in ("before", "after")]
    rows = [[COLUMNS[name], *cells] for name, *cells in zip(names, *columns, strict=True)]
    return Table(["", "before", "after"], rows, "Before and after")


def _cells(estimates: Mapping[str, Estimate], names: Sequence[str]) -> list[Estimate | Share]:
    each = [(name, estimates.get(name, NOTHING)) for name in names]
    return [estimate if name in _PLAIN else Share(estimate) for name, estimate in each]


def _stored_estimate(stored: Mapping[str, Any]) -> Estimate:
    return Estimate(*(math.nan if stored[key] is None else float(stored[key]) for key in ("value", "low", "high")))


def methods_page(title: str, records: Sequence[Mapping[str, Any]]) -> Page:
    """The page of a comparison, from the records of `HardeningComparison`, perhaps read from JSON."""
    estimates: dict[str, dict[str, Estimate]] = {}
    for row in records:
        estimates.setdefault(row["method"], {})[row["figure"]] = _stored_estimate(row)
    return Page(title, [Section("Methods", [methods_table(estimates), Text(RULES, quiet=True)])])


@contextmanager
def _share_axes(width: float, height: float, title: str, spare: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure whose vertical axis is a share of samples."""
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(width, [title], [height], spare)
        ax = figure.add_subplot(body)
        yield figure, ax
        ax.set(ylim=(-0.02, 1.03), ylabel=_SHOWN)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        tidy(ax)


def draw_methods(estimates: Mapping[str, Mapping[str, Estimate]]) -> Figure:
    """Every share of every method with its interval, one group of points per figure."""
    names = [name for name in COLUMNS if name not in _PLAIN and any(name in each for each in estimates.values())]
    colours, places = (INK, *HUES), np.arange(len(names))
    with _share_axes(WIDE, 3.6, "hardening methods compared", 0.7) as (figure, ax):
        for at, (method, own) in enumerate(estimates.items()):
            each = [own.get(name, NOTHING) for name in names]
            values, low, high = (np.array([getattr(e, end) for e in each]) for end in ("value", "low", "high"))
            x, colour = places + 0.7 * ((at + 0.5) / len(estimates) - 0.5), colours[at % len(colours)]
            spread = np.stack([values - low, high - values]).clip(min=0)
            ax.errorbar(x, values, spread, fmt="o", markersize=4, color=colour, label=plain(method, 30))
        ax.set(xticks=places, xticklabels=[COLUMNS[name] for name in names])
        figure.legend(loc="outside lower left", ncols=len(estimates))
    return figure


def write_before_after(
    path: Path, hardened: Hardened, measured: Mapping[str, RobustnessMeasurement], samples: int = 4
) -> Path:
    """Write the page of a hardening; `measured` has 'before' and 'after'."""
    before, after = measured["before"], measured["after"]
    assert before.attack is not None
    assert after.attack is not None
    table = before_after_table({when: m.estimates(before) for when, m in measured.items()})
    summary = [Text(line) for line in str(hardened).splitlines()]
    note = Text(f"Measured on test samples that the model was not trained on. {RULES}", quiet=True)
    curves = robustness_charts({when: measurement.means for when, measurement in measured.items()})
    sections = [
        Section("Figures", [*summary, table, note]),
        Section("Accuracy by severity", [curves]),
        Section("Flips before and after", _pairs(before.attack, after.attack, samples)),
        Section("Remaining failures", _failures(after.attack, samples)),
    ]
    return write_page(Page("Before and after hardening", sections), path)


def harden_section(figures: Mapping[str, Any], folder: Path, samples: int = 3) -> Section:
    """A section about a folder with the attack runs `before` and `after`, and their figures from JSON."""
    ends = ("before", "after")
    estimates = {when: {name: _stored_estimate(stored) for name, stored in figures[when].items()} for when in ends}
    note = "Shares of the audit's samples that the model gets right, and the median L2 to flip, with 95% bootstrap intervals."
    blocks: list[Block] = [before_after_table(estimates), Text(note, quiet=True)]
    blocks += [Text(figures["stopped"])] if figures["stopped"] else []
    before, after = (AttackResult.load(folder / when) for when in ends)
    return Section("Hardening", [*blocks, robustness_charts(figures["curves"]), *_pairs(before, after, samples)])


def _pairs(before: AttackResult, after: AttackResult, samples: int) -> list[Block]:
    rows = spread_samples(before, after, samples)
    if not rows:
        return [Text("The policy did not flip any sample of either model.")]
    viewers = [
        make_viewer(Sample.of(result, i), f"{when}-{i}", 2 * len(rows), _ending(result, i, when))
        for i in rows
        for when, result in (("before", before), ("after", after))
    ]
    shown = shelf(viewers, kind_of(before.setting.size), columns=2)
    return [Text("The distortions that flip the same samples before and after."), *shown]


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
    ends = {i: _ending(after, i, "after") for i in nearest}
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


def robustness_charts(curves: Mapping[str, Mapping[str, Sequence[float | str]]]) -> Charts:
    """Accuracy by severity, within and outside the palette, and the share of samples not flipped within a distance.

    `curves` are those of `RobustnessMeasurement.means` by name, perhaps read from JSON.
    """
    charts = []
    for group, about in GROUPS.items():
        means = {name: list(map(float, each[group])) for name, each in curves.items() if group in each}
        lines = [Curve(name, range(1, len(mean) + 1), mean) for name, mean in means.items()]
        charts += [Chart(f"accuracy under {about}", lines, "severity", percent=True)] if lines else []
    lines = []
    for name, each in curves.items():
        reached = [distance for distance in map(float, each["l2"]) if math.isfinite(distance)]
        share = 1 - np.arange(len(reached) + 1) / max(1, len(each["l2"]))  # samples that were never flipped stay
        lines.append(Curve(name, [0.0, *reached], share))
    return Charts([*charts, Chart("not flipped by the policy within this L2", lines, "L2", percent=True, steps=True)])


# Epochs.


def hardening_page(folder: Path) -> Page:
    """The page of a `rlab harden` folder: figures before and after, epochs, and options."""
    return epochs_page(read_json(folder / LOG), f"Hardening {folder.name}")


def epochs_page(log: Mapping[str, Any], title: str) -> Page:
    """The page of a hardening, from the content of `log.json`: figures before and after, epochs, and options."""
    s = log["summary"]
    epochs = [Epoch(**row) for row in log["history"]]
    rows: list[list[int | Share]] = [
        [e.number, Share(e.clean), Share(e.robust), Share(e.share), e.flipped, e.rows] for e in epochs
    ]
    names = {"clean_before": "clean before", "clean_after": "clean after"}
    names |= {"robust_before": "under attack before", "robust_after": "under attack after"}
    numbers = [Number(heading, Share(float(s[name]))) for name, heading in names.items()]
    numbers.append(Number("inputs to make samples, train and validate", int(s["rows"])))
    numbers += [Number(f"inputs to measure {when}", rows) for when, rows in log.get("measuring", {}).items()]
    curves = [Curve(name, [e.number for e in epochs], values) for name, values in _curves(epochs).items()]
    chart = Chart("On validation samples", curves, _AXIS, _SHOWN, percent=True)
    notes = [Text(f"{log[key]}.") for key in ("stopped", "imbalance") if log[key]]
    head = ["epoch", "clean", "under attack", "share of the change", "flipped", "inputs so far"]
    blocks: list[Block] = [*notes, Charts([chart]), Table(head, rows, "On validation samples (epoch 0: original)")]
    options = Code(yaml.safe_dump(log["config"], sort_keys=False, allow_unicode=True))
    return Page(title, [Section("Hardening", blocks), Section("Options", [options])], numbers=numbers)


def _curves(epochs: Sequence[Epoch]) -> dict[str, list[float]]:
    return {"clean": [e.clean for e in epochs], "under attack": [e.robust for e in epochs]}


def draw_epochs(epochs: Sequence[Epoch]) -> Figure:
    """Accuracy on validation samples by epoch, clean and under attack."""
    with _share_axes(WIDE / 2, 3.0, "hardening, on validation samples", 0.3) as (figure, ax):
        for (name, values), colour in zip(_curves(epochs).items(), HUES, strict=False):
            ax.plot([e.number for e in epochs], values, label=name, color=colour, marker="o", markersize=3)
        ax.set(xlabel=_AXIS)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False)
    return figure
