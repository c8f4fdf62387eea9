"""The epochs of a hardening as a page and as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlab.hardening.trainable import Epoch
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Code, Number, Page, Section, Text
from rlab.present.style import HUES, STYLE, WIDE, headed_figure, tidy
from rlab.present.table import Share, Table

_SHOWN, _AXIS = "share of samples that stay right", "epoch (0: original)"


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
    numbers.append(Number("inputs sent to the model", int(s["rows"])))
    curves = [Curve(name, [e.number for e in epochs], values) for name, values in _curves(epochs).items()]
    chart = Chart("On validation samples", curves, _AXIS, _SHOWN, percent=True)
    notes = [Text(f"{log[key]}.") for key in ("stopped", "imbalance") if log[key]]
    head = ["epoch", "clean", "under attack", "share of the change", "flipped", "inputs"]
    blocks: list[Block] = [*notes, Charts([chart]), Table(head, rows, "On validation samples (epoch 0: original)")]
    options = Code(yaml.safe_dump(log["config"], sort_keys=False, allow_unicode=True))
    return Page(title, [Section("Hardening", blocks), Section("Options", [options])], numbers=numbers)


def _curves(epochs: Sequence[Epoch]) -> dict[str, list[float]]:
    return {"clean": [e.clean for e in epochs], "under attack": [e.robust for e in epochs]}


def draw_epochs(epochs: Sequence[Epoch]) -> Figure:
    """Accuracy on validation samples by epoch, clean and under attack."""
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(WIDE / 2, ["hardening, on validation samples"], [3.0], 0.3)
        ax = figure.add_subplot(body)
        for (name, values), colour in zip(_curves(epochs).items(), HUES, strict=False):
            ax.plot([e.number for e in epochs], values, label=name, color=colour, marker="o", markersize=3)
        ax.set(ylim=(-0.02, 1.03), xlabel=_AXIS, ylabel=_SHOWN)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False)
        tidy(ax)
        return figure
