"""The sections of an attack: its figures and curves, the easiest flips, the classes."""

from __future__ import annotations

import torch

from rlab.core.result import AttackResult
from rlab.present.inline import figure_address, moving_address
from rlab.present.page import Block, Facts, Gallery, Picture, Section, Text
from rlab.present.plots import draw_overview, draw_sample
from rlab.present.plots.sample import Sample
from rlab.present.table import number
from rlab.present.tables import MEDIANS, breakdown_tables, figures_line, summary_facts
from rlab.stats import median_of
from rlab.victims.base import PHASES

_SHARP = 90  # dots an inch: the page shows pictures smaller than files are looked at


def attack_sections(result: AttackResult, samples: int = 6) -> list[Section]:
    """Summary, gallery of the easiest flips, and the table by class."""
    classes = breakdown_tables(result, limit=1000)
    sections = [Section("Attack", summary_blocks(result)), Section("Easiest flips", gallery_blocks(result, samples))]
    return [*sections, Section("By class", classes)] if classes else sections


def summary_blocks(result: AttackResult) -> list[Block]:
    spread = [f"{int(result.queries[:, i].sum()):,} {phase}" for i, phase in enumerate(PHASES[:3])]
    facts = {
        **summary_facts(result),
        "SNR": f"{number(median_of(result.final['snr_db'], result.succeeded))} dB",
        "how they ended": figures_line(result),
        "queries in all": f"{int(result.queries.sum()):,} ({', '.join(spread)})",
    }
    about = "How many flipped within how many queries, how near, where and by what"
    note = f"{MEDIANS} Every flip was predicted once more from the stored file."
    overview = Picture(figure_address(draw_overview(result), _SHARP), about)
    return [Text(f"{result.sentence}."), Facts(facts), Text(note, quiet=True), Gallery([overview])]


def easiest(result: AttackResult, samples: int) -> list[int]:
    """Flipped samples that took the least distortion."""
    won = result.succeeded.nonzero().flatten()
    order = torch.argsort(result.final["l2"][won], stable=True)
    rows: list[int] = won[order][:samples].tolist()
    return rows


def gallery_blocks(result: AttackResult, samples: int) -> list[Block]:
    rows = easiest(result, samples)
    if not rows:
        return [Text("No sample was flipped within the budget.")]
    moving = result.setting.grid.rank == len(("frames", "height", "width"))
    shown = []
    for i in rows:
        title, words = (
            f"{result.ids[i]}: L2 {number(float(result.final['l2'][i]))}{result.setting.l2_unit}",
            result[i].sentence,
        )
        picture = figure_address(draw_sample(result, i), _SHARP)
        shown.append(Picture(picture, "Before, after, and where it was distorted by what", title, words))
        if moving:
            caption = "The same clip, moving: before, after, and where"
            shown.append(Picture(moving_address(Sample.of(result, i)), "The same clip, moving", caption=caption))
    return [Text(f"The {len(rows)} flipped samples that took the least distortion (L2)."), Gallery(shown)]
