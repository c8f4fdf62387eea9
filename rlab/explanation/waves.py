"""The method 'waves': how much removing P, QRS, ST or T in a group of leads lowers the class's probability of an ECG.

A removed wave becomes the isoelectric line of its lead. No delineation is exact, and definitions of the waves differ, so each part
is removed several times: as it was found, and then in other windows, whose starts and stops move by up to 40 ms in all beats alike
and by up to 20 ms in each of them. The interval is the range over all these cuts. A part's effect is shared equally by its
points, so that sums over a map are effects; pictures show the effects themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, interpolate

from rlab.core.channels import EACH, TWELVE, group_names, is_twelve_lead
from rlab.core.rng import uniform
from rlab.data.ecg_masks import SEGMENTS, segment_masks
from rlab.errors import OptionError
from rlab.explanation.base import ByLead, Drawn, ExplanationTask, lead_groups, removed
from rlab.explanation.effects import WAVES, Effects, span

NAMES = {"P": "the P wave", "QRS": "the QRS complex", "ST": "the ST segment", "T": "the T wave"}
ISOELECTRIC = "isoelectric"
FEWEST = 3  # cuts per part, for a range
WINDOW = 0.04  # seconds by which the starts and stops of a wave move, alike in all beats
EDGE, KNOT = 0.02, 0.1  # seconds by which edges move, and over which they move alike
LEVEL_OVER = 0.1  # seconds over which the isoelectric line is a mean


@dataclass(frozen=True)
class Waves(ByLead):
    """`channels` are the groups of leads (default: four groups of twelve leads, otherwise each lead); `remove` says what
    replaces a wave: 'isoelectric', or what other methods take."""

    name = "waves"
    queries: int = 385  # at most, including the clean prediction
    remove: str = ISOELECTRIC

    def draw(self, task: ExplanationTask) -> Drawn:
        groups = lead_groups(task, self.channels or (TWELVE if is_twelve_lead(task.batch.leads) else EACH))
        masks = torch.stack(list(segment_masks(task.inputs).values()), 1).to(task.x0.device)  # (n, w, time)
        if self.remove == ISOELECTRIC:
            fill = isoelectric(task.x0, masks.any(1), task.batch.rate or 1)
        else:
            fill = removed(task, self.remove)
        after = self._after(task, masks, groups, fill)  # (n, w, g, cuts)
        leads = task.batch.leads or tuple(f"lead {number + 1}" for number in range(groups.shape[1]))
        names = group_names([g.nonzero().flatten().tolist() for g in groups], leads)
        parts = tuple((wave, group) for wave in SEGMENTS for group in names)
        phrases = tuple(f"{NAMES[wave]} in {group}" for wave, group in parts)
        there = masks.any(2).cpu().repeat_interleave(len(groups), 1)
        cuts = after.shape[3]
        effects = Effects(WAVES, parts, phrases, task.before, *span(after.flatten(1, 2).cpu()), there, cuts)
        points = masks.sum(2)[:, :, None] * groups.sum(1)  # (n, w, g)
        effect = effects.effect.to(points.device).view_as(points)

        def lead_maps(values: Tensor) -> Tensor:
            """(n, w, g) -> (n, c, time)"""
            return torch.einsum("nwg,nwt,gc->nct", values, masks.float(), groups.float())

        by_lead = lead_maps(effect / points.clamp(min=1))
        total = by_lead.sum(1)
        return Drawn(total, total.clamp(min=0), by_lead=by_lead, effects=effects, drops=lead_maps(effect))

    def _after(self, task: ExplanationTask, masks: Tensor, groups: Tensor, fill: Tensor) -> Tensor:
        """(n, w, g, cuts): the class's probability after each cut of each part."""
        parts = len(SEGMENTS) * len(groups)
        cuts = (self.queries - 1) // parts
        if cuts < FEWEST:
            least = f"expected at least {1 + FEWEST * parts} queries of the method 'waves' for {len(groups)} groups of leads"
            raise OptionError(f"{least}, got {self.queries}: raise queries, or name fewer groups with channels")

        def answer(samples: Tensor, items: Tensor) -> Tensor:
            part, cut = items // cuts, items % cuts
            hidden = moved(masks[samples, part // len(groups)], task.seeds[samples], cut, task.batch.rate or 1)
            chosen = hidden[:, None] & groups[part % len(groups)][:, :, None]
            return task.probability(torch.where(chosen, fill[samples], task.x0[samples]), samples)

        return task.answers(parts * cuts, answer).view(len(task), len(SEGMENTS), len(groups), cuts)


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
    level, at = total / count.clamp(min=1e-6), torch.arange(x0.shape[2], device=x0.device)
    last = torch.where(waves, -1, at).cummax(1).values
    following = torch.where(waves, len(at), at).flip(1).cummin(1).values.flip(1)
    first, second = (torch.where(last < 0, following, last), torch.where(following == len(at), last, following))
    way = ((at - first) / (second - first).clamp(min=1)).clamp(0, 1)[:, None]
    ends = [level.gather(2, end.clamp(0, len(at) - 1)[:, None].expand_as(x0)) for end in (first, second)]
    line = ends[0] + way * (ends[1] - ends[0])
    return torch.where(waves.all(1)[:, None, None], x0.median(2, keepdim=True).values, line)
