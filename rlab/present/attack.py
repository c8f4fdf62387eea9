"""The sections of an attack: its figures and curves, the easiest flips, the classes."""

from __future__ import annotations

import math

import torch

from rlab.core.breakdown import by_class, by_distortion, by_label, has_classes
from rlab.core.result import AttackResult, Setting
from rlab.present.inline import figure_address, moving_address
from rlab.present.page import Block, Facts, Gallery, Picture, Section, Table, Text
from rlab.present.plots import draw_overview, draw_sample
from rlab.present.plots.facts import Sample
from rlab.present.tables import figures_line, number
from rlab.victims.base import PHASES

_SHARP = 90  # dots an inch: the page shows pictures smaller than files are looked at


def attack_sections(result: AttackResult, samples: int = 6) -> list[Section]:
    """Summary, gallery of the easiest flips, and the table by class."""
    classes = class_blocks(result)
    made = [Section("Attack", summary_blocks(result)), Section("Easiest flips", gallery_blocks(result, samples))]
    return [*made, Section("By class", classes)] if classes else made


def summary_blocks(result: AttackResult) -> list[Block]:
    s, unit = result.summary(), unit_of(result.setting)
    won = result.succeeded

    def median(name: str) -> str:
        return number(float(result.final[name][won].double().quantile(0.5))) if won.any() else "–"

    spread = [f"{int(result.queries[:, i].sum()):,} {phase}" for i, phase in enumerate(PHASES[:3])]
    facts = {
        "flipped": f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples"
        + (f" ({s['success']:.1%})" if s["attacked"] else ""),
        "how they ended": figures_line(result),
        "median queries": f"{number(s['median_queries'])}, of them {number(s['median_search'])} until the flip",
        "median L2": f"{number(s['median_l2_flip'])}{unit} at the flip, {number(s['median_l2'])}{unit} after cleanup",
        "median SNR": f"{median('snr_db')} dB after cleanup",
        "median patches": f"{number(s['median_patches'])} of {len(result.setting.grid)}",
        "queries in all": f"{int(s['queries']):,} ({', '.join(spread)})",
    }
    shown = Picture(
        figure_address(draw_overview(result), _SHARP),
        "How many flipped, after how many queries, how far, where and by what",
    )
    return [
        Facts(facts),
        Text("Medians are over flipped samples. Every flip was predicted once more from the stored file.", quiet=True),
        Gallery([shown]),
    ]


def unit_of(setting: Setting) -> str:
    """Behind an L2: bounded data count in [0, 1]."""
    bounded = all(map(math.isfinite, setting.bounds))
    return "" if bounded or not setting.unit else f" {setting.unit}"


def easiest(result: AttackResult, samples: int) -> list[int]:
    """Flipped samples that took the least distortion."""
    won = result.succeeded.nonzero().flatten()
    order = torch.argsort(result.final["l2"][won], stable=True)
    found: list[int] = won[order][:samples].tolist()
    return found


def gallery_blocks(result: AttackResult, samples: int) -> list[Block]:
    rows = easiest(result, samples)
    if not rows:
        return [Text("No sample was flipped within the budget.")]
    moving = result.setting.grid.rank == len(("frames", "height", "width"))
    shown = []
    for i in rows:
        title = f"{result.ids[i]}: L2 {number(float(result.final['l2'][i]))}{unit_of(result.setting)}"
        shown.append(
            Picture(
                figure_address(draw_sample(result, i), _SHARP),
                "Before, after, and where it was distorted by what",
                title,
            )
        )
        if moving:
            shown.append(
                Picture(
                    moving_address(Sample.of(result, i)),
                    "The same clip, moving",
                    caption="The same clip, moving: before, after, and where",
                )
            )
    return [Text(f"The {len(rows)} flipped samples that took the least distortion (L2 after cleanup)."), Gallery(shown)]


def class_blocks(result: AttackResult) -> list[Block]:
    """Nothing where there is one class only."""
    if not has_classes(result):
        return []
    head = [
        "class",
        "samples",
        "attacked",
        "flipped",
        "success",
        "queries",
        f"L2{unit_of(result.setting)}",
        "SNR dB at flip",
        "SNR dB",
    ]
    rows = [
        [row.name, f"{row.samples}", f"{row.attacked}", f"{row.succeeded}", _share(row.success),
         *map(number, (row.median_queries, row.median_l2, row.snr_flip, row.snr_final))]
        for row in by_class(result)
    ]  # fmt: skip
    blocks: list[Block] = [Table(head, rows, "By class, easiest first")]
    if result.succeeded.any():
        blocks.append(_distortions(result))
    if result.labels.shape[1:]:
        labels = [[one.name, f"{one.switched_off} of {one.true}", f"{one.switched_on} of {one.absent}", number(one.median_queries)]
                  for one in by_label(result)]  # fmt: skip
        blocks.append(Table(["label", "switched off", "switched on", "queries"], labels, "By label"))
    return blocks


def _distortions(result: AttackResult) -> Table:
    found = by_distortion(result)
    classes = list(found)
    rows = [[one, *(f"{found[name][one]:.0%}" for name in classes)] for one in found[classes[0]]]
    return Table(["distortion", *classes], rows, "Share of a class's flips in which a distortion took part")


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.0%}"
