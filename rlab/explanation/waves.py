"""The method 'waves': how much removing P, QRS, ST or T in a group of leads lowers the class's probability of an ECG.

A removed wave becomes the isoelectric line of its lead. No delineation is exact, and definitions of the waves differ, so each part
is removed several times: as it was found, and then in other windows, whose starts and stops move by up to 40 ms in all beats alike
and by up to 20 ms in each of them. The interval is the range over all these cuts. A part's effect is shared equally by its
points, so that sums over a map are effects; pictures show the effects themselves.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, interpolate

from rlab.core.channels import EACH, TWELVE, group_names, is_twelve_lead
from rlab.core.rng import uniform
from rlab.data.ecg_masks import SEGMENTS, segment_masks
from rlab.errors import OptionError
from rlab.explanation.base import Count, Drawn, ExplanationTask, lead_groups, removed
from rlab.explanation.effects import WAVES, Effects

ISOELECTRIC = "isoelectric"
FEWEST = 3  # cuts per part, for a range
WINDOW = 0.04  # seconds by which the starts and stops of a wave move, alike in all beats
EDGE, KNOT = 0.02, 0.1  # seconds by which edges move, and over which they move alike
LEVEL_OVER = 0.1  # seconds over which the isoelectric line is a mean


def waves(
    task: ExplanationTask, *, channels: str | None = None, queries: Count = 385, remove: str = ISOELECTRIC
) -> Drawn:
    """The effect of removing each wave in each group of leads, with its range over the ways to cut it.

    `channels` are the groups (default: four groups of twelve leads, otherwise each lead); `queries` includes the clean prediction;
    `remove` says what replaces a wave: 'isoelectric', or what other methods take.
    """
    groups = lead_groups(task, channels or (TWELVE if is_twelve_lead(task.batch.leads) else EACH))
    masks = torch.stack(list(segment_masks(task.batch).values()), 1).to(task.x0.device)  # (n, w, time)
    rate = task.batch.rate or 1.0
    fill = isoelectric(task.x0, masks.any(1), rate) if remove == ISOELECTRIC else removed(task, remove)
    cuts = (queries - 1) // (len(SEGMENTS) * len(groups))
    if cuts < FEWEST:
        least = 1 + FEWEST * len(SEGMENTS) * len(groups)
        expected = f"expected at least {least} queries of the method 'waves' for {len(groups)} groups of leads"
        raise OptionError(f"{expected}, got {queries}: raise queries, or name fewer groups with channels")

    def answer(samples: Tensor, items: Tensor) -> Tensor:
        part, cut = items // cuts, items % cuts
        hidden = moved(masks[samples, part // len(groups)], task.seeds[samples], cut, rate)
        chosen = hidden[:, None] & groups[part % len(groups)][:, :, None]
        return task.probability(torch.where(chosen, fill[samples], task.x0[samples]), samples)

    after = task.answers(len(SEGMENTS) * len(groups) * cuts, answer).view(len(task), -1, cuts).cpu()
    leads = task.batch.leads or tuple(f"lead {number + 1}" for number in range(groups.shape[1]))
    names = group_names([group.nonzero().flatten().tolist() for group in groups], leads)
    parts = tuple((wave, group) for wave in SEGMENTS for group in names)
    there = masks.any(2).cpu().repeat_interleave(len(groups), 1)
    effects = Effects(WAVES, parts, task.before, after[:, :, 0], after.amin(2), after.amax(2), there, cuts)
    points = masks.sum(2)[:, :, None] * groups.sum(1)  # (n, w, g)
    effect = effects.effect.to(points.device).view_as(points)

    def lead_maps(values: Tensor) -> Tensor:
        """(n, w, g) -> (n, c, time)"""
        return torch.einsum("nwg,nwt,gc->nct", values, masks.float(), groups.float())

    by_lead = lead_maps(effect / points.clamp(min=1))
    total = by_lead.sum(1)
    return Drawn(total, total.clamp(min=0), by_lead=by_lead, effects=effects, drops=lead_maps(effect))


def moved(mask: Tensor, seeds: Tensor, cuts: Tensor, rate: float) -> Tensor:
    """mask (m, time) bool -> its windows and edges moved at random, by seed (m,) and cut (m,); cut 0 moves nothing."""
    time = mask.shape[1]
    draws = (2 * uniform(seeds, cuts, 4 + int(time / (KNOT * rate))) - 1) * (cuts > 0)[:, None]
    earlier, later = (draws[:, :2] * WINDOW * rate).round().long().T
    mask = ends_moved(ends_moved(mask.flip(1), earlier).flip(1), later)
    shift = interpolate(draws[:, None, 2:], size=time, mode="linear", align_corners=True)[:, 0] * EDGE * rate
    at = (torch.arange(time, device=mask.device) + shift.round().long()).clamp(0, time - 1)
    return mask.gather(1, at)


def ends_moved(mask: Tensor, by: Tensor) -> Tensor:
    """mask (m, time) bool -> the same with the stop of every stretch moved by (m,) points; a stretch may vanish."""
    at, by = torch.arange(mask.shape[1], device=mask.device), by[:, None]
    since = at - torch.where(mask, at, -len(at)).cummax(1).values  # points since the last inside
    until = (
        torch.where(mask, len(at) + at.max(), at).flip(1).cummin(1).values.flip(1) - at
    )  # points to the next outside
    return torch.where(by >= 0, since <= by, until > -by)


def isoelectric(x0: Tensor, waves: Tensor, rate: float) -> Tensor:
    """x0 (n, c, time), waves (n, time) bool -> (n, c, time): lines between the local means of what lies between the waves.

    A record whose waves leave nothing between them gets the median of each lead.
    """
    between, reach = (~waves).float()[:, None], 2 * round(LEVEL_OVER * rate / 2) + 1
    total, count = (avg_pool1d(each, reach, 1, reach // 2) for each in (x0 * between, between))
    level, at = (total / count.clamp(min=1e-6)).cpu().numpy(), np.arange(x0.shape[2])
    line = x0.median(2, keepdim=True).values.expand_as(x0).clone()
    for row, known in enumerate((~waves).cpu().numpy()):
        if known.any():
            lines = [np.interp(at, at[known], lead[known]) for lead in level[row]]
            line[row] = torch.from_numpy(np.stack(lines)).to(line)
    return line
