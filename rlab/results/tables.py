"""Tables and sentences about an attack's result, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch

from rlab.core.distances import frames
from rlab.core.status import Status
from rlab.core.trace import DISTANCE_NAMES
from rlab.data.kinds import KINDS, kind_of
from rlab.filters import FAMILIES
from rlab.present.table import Cell, Cells, Table, number
from rlab.results.data import WITHIN, ResultData
from rlab.results.metrics import Figure, figures_of
from rlab.results.predicted import answer_words, class_words, true_label
from rlab.results.tones import status_cell
from rlab.stats import median_of
from rlab.victims.account import STORED

QUERIES = (
    "Queries per sample run from the clean prediction to the end of cleanup; the query that verifies a flip counts only "
    "towards the budget and the total."
)
MEDIANS = (
    "Medians over flipped samples; 'within N' is the nearest flip so far, covers all attacked samples and is ∞ if at most half "
    f"flipped; 'in the end' is the stored flip, which has few patches and may lie up to a tenth farther. {QUERIES}"
)
_REACH = (("MAP", "map255", 255), ("Linf", "linf", 1))  # of values in [0, 1], as elsewhere


def summary_table(results: Mapping[str, ResultData], title: str = "") -> Table:
    """One column per run; if their distances differ, a row of its own names them."""
    named = len({result.setting.distance for result in results.values()}) == 1
    columns = {name: summary_facts(result, "" if named else "distance") for name, result in results.items()}
    labels = dict.fromkeys(label for facts in columns.values() for label in facts)
    rows = [[label, *(facts.get(label) for facts in columns.values())] for label in labels]
    return Table(["medians", *columns], rows, title)


def summary_facts(result: ResultData, distance: str = "") -> dict[str, str]:
    """The figures of a run as text, in the same form for every policy; `distance` replaces the name of the distance."""
    figures, won, attacked = figures_of(result, distance), int(result.succeeded.sum()), int(result.attacked.sum())
    plain = [figures[f"within_{q}"] for q in WITHIN if q < result.setting.budget] + [figures["flip"]]
    return {
        "flipped, verified": f"{won} of {attacked}" + (f" ({number(100 * won / attacked)}%)" if attacked else ""),
        **({"distance": DISTANCE_NAMES[result.setting.distance]} if distance else {}),
        **{each.name: each.text for each in plain},
        figures["end"].name: _with_mean(figures["end"]),
        "queries to flip": figures["queries_flip"].text,
        "queries": _with_mean(figures["queries"]),
        "patches": f"{figures['patches'].text} of {len(result.setting.grid)}",
    }


def run_facts(result: ResultData) -> dict[str, str]:
    """All figures of a run as text."""
    sums = dict(zip(STORED, result.queries.sum(0).tolist(), strict=False))
    spread = [f"{count:,} {phase}" for phase, count in sums.items()]
    spread += [f"{result.learning_queries:,} learn"] if result.learning_queries else []
    return {
        **summary_facts(result),
        "SNR": f"{figures_of(result)['snr'].text} dB",
        **_reach(result),
        "status": figures_line(result),
        "total queries": f"{result.total_queries:,} ({', '.join(spread)})",
        **({} if result.setting.learned is None else {"learning": str(result.setting.learned)}),
    }


def _with_mean(figure: Figure) -> str:
    return figure.text + ("" if math.isnan(figure.mean) else f" (mean {number(figure.mean)})")


def _reach(result: ResultData) -> dict[str, str]:
    """MAP, Linf and frames of the flipped samples, as the video papers report them; only of values with bounds."""
    won = result.succeeded
    if not won.any() or not result.setting.bounded:
        return {}
    facts = {name: number(median_of(result.final[key], won) / by) for name, key, by in _REACH}
    flipped = won.nonzero().flatten()
    if kind_of(result.setting.size) == "video" and all(map(result.inputs.has, flipped.tolist())):
        few = flipped.split(16)  # a few at a time: they may be on disk
        changed = torch.cat([frames(*result.inputs.read(rows.tolist())) for rows in few])
        facts["frames"] = f"{number(median_of(changed))} of {result.setting.size[0]}"
    return facts


def detail_table(result: ResultData, limit: int = 20, links: Mapping[int, str] = MappingProxyType({})) -> Table:
    """One row per sample, up to `limit`; `links` holds ids on the page by sample."""
    rows: list[Cells] = []
    for i in range(min(limit, len(result))):
        rows.append([
            Cell(result.ids[i], link=links.get(i, "")),
            status_cell(result.status[i]),
            class_words(result.setting, true_label(result.setting, result.labels[i])),
            " → ".join(answer_words(result.setting, p[i], result.labels[i]) for p in (result.before, result.after)),
            int(result.effort[i]),
            float(result.final["l2"][i]),
            int(result.final["l0_patches"][i]),
        ])  # fmt: skip
    return Table(["id", "status", "label", "before → after", "queries", "L2", "patches"], rows, words=4)


def figures_line(result: ResultData) -> str:
    """The number of samples by status."""
    counts = {status: result.status.count(status) for status in Status}
    return ", ".join(f"{count} {status.label}" for status, count in counts.items() if count)


def filters_table(rank: int | None = None) -> Table:
    """The built-in filters, one row per name."""
    rows = []
    for name, family in sorted(FAMILIES.items()):
        members = family(3)
        ranks = members[0].ranks
        if rank is None or rank in ranks:
            kinds = " ".join(KINDS[r - 1] for r in sorted(ranks))
            severities = " ".join(f"{s:g}" for s in members[0].severities) + (f" {members[0].unit}".rstrip())
            more = f"\n({' '.join(member.name for member in members)})" if len(members) > 1 else ""
            rows.append([name + more, kinds, severities, members[0].about])
    return Table(["filter", "for", "severities", "what it imitates"], rows, words=4)
