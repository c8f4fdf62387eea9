"""The sections of an attack: its figures and curves, the easiest flips, the classes."""

from __future__ import annotations

import torch

from rlab.core.result import AttackResult
from rlab.present.inline import figure_address, moving_address
from rlab.present.page import Block, Facts, Gallery, Picture, Section, Text
from rlab.present.plots import draw_overview, draw_sample
from rlab.present.plots.facts import Sample
from rlab.present.table import number
from rlab.present.tables import breakdown_tables, figures_line, unit_of
from rlab.stats import median_of
from rlab.victims.base import PHASES

_SHARP = 90  # dots an inch: the page shows pictures smaller than files are looked at


def attack_sections(result: AttackResult, samples: int = 6) -> list[Section]:
    """Summary, gallery of the easiest flips, and the table by class."""
    classes = breakdown_tables(result, limit=1000)
    made = [Section("Attack", summary_blocks(result)), Section("Easiest flips", gallery_blocks(result, samples))]
    return [*made, Section("By class", classes)] if classes else made


def summary_blocks(result: AttackResult) -> list[Block]:
    s, unit = result.summary(), unit_of(result.setting)
    won = result.succeeded

    spread = [f"{int(result.queries[:, i].sum()):,} {phase}" for i, phase in enumerate(PHASES[:3])]
    facts = {
        "flipped": f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples"
        + (f" ({s['success']:.1%})" if s["attacked"] else ""),
        "how they ended": figures_line(result),
        "median queries": f"{number(s['median_queries'])}, of them {number(s['median_search'])} until the flip",
        "median L2": f"{number(s['median_l2_flip'])}{unit} at the flip, {number(s['median_l2'])}{unit} after cleanup",
        "median SNR": f"{number(median_of(result.final['snr_db'], won))} dB after cleanup",
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
