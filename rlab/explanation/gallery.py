"""One page that needs nothing else: the same inputs side by side, one column a method, the scores above."""

from __future__ import annotations

import base64
import io
import math
from html import escape
from pathlib import Path

from PIL import Image

from rlab.explanation.judge import HEADINGS, RULES, Judged, MethodComparison
from rlab.explanation.pictures import arrays, picture
from rlab.present.tables import number
from rlab.runs.files import write_atomically

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:100rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left}.best{font-weight:700}.small{color:#666;font-size:12px}
.wide{overflow-x:auto}.shots td{text-align:center;vertical-align:top;border:0}.shots img{width:13rem;height:auto;display:block}
"""


def write_gallery(comparison: MethodComparison, path: Path, title: str, limit: int = 12) -> Path:
    """Writes the page; of the samples, the first `limit` are shown."""
    notes = "".join(f"<p>{escape(text)}.</p>" for text in comparison.left_out)
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>{notes}<div class='wide'>{_scores(comparison)}</div>",
        f"<p class='small'>{escape(RULES)} Brackets: 95% bootstrap intervals.</p>",
        "<p>Heat is where the decision rests, by each method; the line is its mask.</p>",
        f"<div class='wide'>{_shots(comparison, limit)}</div></html>",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(parts).encode())
    return path


def _scores(comparison: MethodComparison) -> str:
    head = "".join(f"<th>{HEADINGS[name]}</th>" for name in comparison.names)
    rows = "".join(
        f"<tr><td>{escape(method)}</td>{_cells(comparison, one)}</tr>" for method, one in comparison.judged.items()
    )
    return f"<table><tr><th>method</th>{head}</tr>{rows}</table>"


def _cells(comparison: MethodComparison, one: Judged) -> str:
    cells = []
    for name in comparison.names:
        found = one.mean(name, comparison.seed)
        if math.isnan(found.value):
            cells.append("<td>–</td>")
        elif name == "queries":
            cells.append(f"<td>{found.value:,.0f}</td>")
        else:
            span = f"<br><span class='small'>[{number(found.low)}, {number(found.high)}]</span>"
            cells.append(f"<td>{number(found.value)}{span}</td>")
    return "".join(cells)


def _shots(comparison: MethodComparison, limit: int) -> str:
    batch = comparison.batch
    head = "".join(f"<th>{escape(name)}</th>" for name in ("input", *comparison.judged))
    rows = []
    for row in range(min(limit, len(batch))):
        x = batch.x[row].numpy()
        truth = None if batch.masks is None else batch.masks[row].numpy()
        shown = [inline(picture(x, None, truth, batch.bounds))]
        notes = [_name(comparison, row)]
        for one in comparison.judged.values():
            x, heat, mask = arrays(one.explanation, batch, row)
            shown.append(inline(picture(x, heat, mask, batch.bounds)))
            dice = one.scores.get("dice")
            notes.append("" if dice is None else f"Dice {float(dice[row]):.2f}")
        cells = zip(shown, notes, strict=True)
        rows.append("<tr>" + "".join(f"<td>{a}<span class='small'>{escape(b)}</span></td>" for a, b in cells) + "</tr>")
    return f"<table class='shots'><tr>{head}</tr>{''.join(rows)}</table>"


def _name(comparison: MethodComparison, row: int) -> str:
    label = int(next(iter(comparison.judged.values())).explanation.labels[row])
    truth = "" if comparison.batch.masks is None else "; the line is the ground truth"
    return f"{comparison.batch.ids[row]}: {comparison.batch.label_name(label)}{truth}"


def inline(shown: Image.Image) -> str:
    """As an <img> that holds its own bytes."""
    buffer = io.BytesIO()
    shown.save(buffer, format="PNG", optimize=True)
    return f"<img alt='' src='data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}'>"
