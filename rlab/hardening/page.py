"""The page that shows what hardening did: one HTML file with everything inside."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from rlab.core.result import AttackResult
from rlab.hardening.estimates import over_seeds, ratio_over_seeds
from rlab.hardening.hardened import Hardened
from rlab.hardening.measure import Measured
from rlab.hardening.pictures import draw_robustness
from rlab.hardening.table import COLUMNS, interval, shares
from rlab.present.plots.sample import draw_sample
from rlab.runs.files import write_atomically

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:1180px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}img{max-width:100%}h2{margin-top:2em}.pair{border-left:3px solid #eee;
padding-left:1em;margin:1.5em 0}p.note{color:#666}"""


def write_page(path: Path, hardened: Hardened, before: Measured, after: Measured, samples: int = 4) -> Path:
    """Figures, curves, and for some samples what it took to flip the model before and after."""
    parts = [
        "<h1>Before and after hardening</h1>",
        "".join(f"<p>{escape(line)}</p>" for line in str(hardened).splitlines()),
        _table({"before": before, "after": after}),
        "<p class=note>Measured on test samples that were not trained on. L2 to flip is a median over the samples the model "
        "had right, ∞ where the budget did not do for half of them. Brackets are 95% bootstrap intervals over "
        "samples.</p>",
        "<h2>As things get worse</h2>",
        _image(draw_robustness({"before": before, "after": after}), "accuracy by severity, and the distance to flip"),
        "<h2>What it takes to flip it</h2>",
        *_pairs(before, after, samples),
    ]
    text = f"<!doctype html><meta charset=utf-8><title>Hardening</title><style>{_STYLE}</style>" + "\n".join(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode())
    return path


def _table(measured: Mapping[str, Measured]) -> str:
    first = next(iter(measured.values()))
    rows = []
    for figure, heading in COLUMNS.items():
        cells = []
        for one in measured.values():
            if figure == "l2_ratio":
                times = ratio_over_seeds("agent_l2", one.figures["agent_l2"][None], first.figures["agent_l2"][None])
                cells.append(interval(times))
            elif figure in one.figures:
                e = over_seeds(figure, one.figures[figure][None])
                cells.append(interval(e) if figure == "agent_l2" else shares(e))
            else:
                cells.append("–")
        rows.append(f"<tr><td>{escape(heading)}</td>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in measured)
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _pairs(before: Measured, after: Measured, samples: int) -> list[str]:
    assert before.attack is not None
    assert after.attack is not None
    found = []
    for i in choose(before.attack, after.attack, samples):
        found.append(f"<div class=pair><h3>{escape(before.attack.ids[i])}</h3>")
        found += [
            f"<p>{word}: {escape(one.status[i].value)}, {_touched(one, i)}</p>{_image(draw_sample(one, i), word)}"
            for word, one in (("before", before.attack), ("after", after.attack))
        ]
        found.append("</div>")
    return found or ["<p>The policy flipped neither model on any sample.</p>"]


def choose(before: AttackResult, after: AttackResult, samples: int) -> Sequence[int]:
    """Samples that both models had right and the policy flipped before: spread over how much farther it had to go."""
    both = (before.succeeded & after.attacked).nonzero().flatten().tolist()
    times = [float(after.final["l2"][i] / before.final["l2"][i]) for i in both]
    order = [both[j] for j in np.argsort(times, kind="stable")]
    places = np.linspace(0, len(order) - 1, min(samples, len(order))).round().astype(int)
    return [order[place] for place in places.tolist()]


def _touched(result: AttackResult, i: int) -> str:
    return f"L2 {float(result.final['l2'][i]):.3g}, {int(result.final['l0_patches'][i])} of {len(result.setting.grid)} patches"


def _image(figure: Figure, about: str) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png")
    data = base64.b64encode(content.getvalue()).decode()
    return f'<img alt="{escape(about)}" src="data:image/png;base64,{data}">'
