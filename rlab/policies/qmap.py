"""The Q-map: one convolutional network that values every change, for any palette, input size and rank.

    q: (n, planes, f + 1, p); entry 0 restores a patch, entry i writes palette entry i there

Plane 0 values single changes, q = V + A - mean A (dueling: Wang et al. 2016, https://arxiv.org/abs/1511.06581). Palette entries
are scored with shared weights from what they would change. The other planes value sets: the most promising share of the patches
along a direction of the compass (or by plane 0 where there is no compass), one plane for each direction and share. Within such a
plane the values differ only to rank the patches; a set is worth the mean of its members.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlab.policies.features import CELLS, ENTRY_MAPS, PATCH_MAPS, SCALARS, Features
from rlab.priors.blocks import CONV, Block, spread
from rlab.priors.trained import DirectionPrior

SET_FACTS = 7
_RANKING = 1e-4  # what ranking may add to a value: too little to matter between planes


@dataclass(frozen=True)
class QMapConfig:
    """The shape of the network."""

    rank: int
    channels: int = 3
    width: int = 32
    blocks: int = 2
    entry_width: int = 16
    shares: tuple[float, ...] = (0.02, 0.06, 0.2)  # of the patches that a set changes
    heads: int = 0  # directions of the compass; 0 is an agent without one
    compass_width: int = 32
    compass_levels: int = 3
    shrink: int = 1  # by how much the compass reduces the input's sides

    @property
    def planes(self) -> int:
        return 1 + max(1, self.heads) * len(self.shares)

    def counts(self, patches: int) -> tuple[int, ...]:
        """How many patches each plane changes at once."""
        sets = tuple(max(1, round(share * patches)) for share in self.shares)
        return (1, *sets * max(1, self.heads))


class QMap(nn.Module):
    """Features of n states -> values (n, planes, f + 1, p)."""

    def __init__(self, config: QMapConfig) -> None:
        super().__init__()
        conv, c, w, e, k = CONV[config.rank], config.channels, config.width, config.entry_width, config.heads
        self.config = config
        self.compass = _compass(config) if k else None
        self.look = nn.Sequential(conv(2 * c, w, 3, padding=1), nn.SiLU(), conv(w, w, CELLS, stride=CELLS))
        self.entry = nn.Sequential(conv(2 * c + ENTRY_MAPS + 1 + k, e, 1), nn.SiLU(), conv(e, e, 1), nn.SiLU())
        self.gather = conv(2 * e + PATCH_MAPS + c, w, 1)
        self.situation = nn.Sequential(nn.Linear(SCALARS, w), nn.SiLU(), nn.Linear(w, w))
        self.blocks = nn.ModuleList(Block(conv, w) for _ in range(config.blocks))
        self.place = conv(w, e, 1)
        self.add = nn.Sequential(conv(3 * e, e, 1), nn.SiLU(), conv(e, 1, 1))
        self.restore = conv(w, 1, 1)
        self.value = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 1))
        self.set_value = nn.Sequential(
            nn.Linear(w + SET_FACTS, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
        )

    def forward(self, seen: Features) -> Tensor:
        n, f = seen["entries"].shape[:2]
        slope, guess = linear_guess(seen["entries"][:, :, : self.config.channels], seen["entry_maps"])
        known = torch.cat([seen["entries"], seen["entry_maps"], guess, seen["projection"]], 2)
        entry = self.entry(known.flatten(0, 1)).unflatten(0, (n, f))
        summary = torch.cat([entry.mean(1), entry.amax(1), seen["patch_maps"], slope], 1)
        h = self.look(torch.cat([seen["before"], seen["now"]], 1)) + self.gather(summary)
        h = h + spread(self.situation(seen["scalars"]), h)
        for block in self.blocks:
            h = block(h)
        place = self.place(h)[:, None].expand(-1, f, *(-1,) * (h.dim() - 1))
        both = torch.cat([place, entry, place * entry], 2).flatten(0, 1)
        add = self.add(both).unflatten(0, (n, f)).squeeze(2)
        single = torch.cat([self.restore(h), add], 1).flatten(2).float()  # half precision would lose what follows
        overall = h.flatten(2).mean(2)
        value = self.value(overall)[:, :, None].float()
        single = value + single - single.mean((1, 2), keepdim=True)
        return torch.cat([single[:, None], self._sets(seen, single, overall, value)], 1)

    def _sets(self, seen: Features, single: Tensor, overall: Tensor, value: Tensor) -> Tensor:
        """(n, heads * shares, f + 1, p): each set's value, the same for all patches but for what ranks them."""
        lead = seen["projection"].flatten(3).float() if self.config.heads else single[:, 1:, None].detach()
        score = ranking(lead, seen["entries"].flatten(3).float())
        facts = set_facts(lead, score, seen, self.config.counts(single.shape[-1])[1 : 1 + len(self.config.shares)])
        wide = overall[:, None].expand(-1, facts.shape[1], -1).float()
        worth = value + self.set_value(torch.cat([wide, facts], 2)).float()  # (n, heads * shares, 1)
        size = score.abs().amax((1, 3), keepdim=True).clamp(min=1e-9)
        order = (_RANKING * score / size).transpose(1, 2).repeat_interleave(len(self.config.shares), 1)
        restore = torch.full_like(
            order[:, :, :1], -2 * _RANKING
        )  # a set takes back only where nothing is left to write
        return torch.cat([restore, order], 2) + worth[..., None]


def ranking(lead: Tensor, entries: Tensor) -> Tensor:
    """lead (n, f, k, p), entries (n, f, 2c, p) -> (n, f, k, p): the lead over the L2 it costs."""
    cost = entries[:, :, entries.shape[2] // 2 :].square().sum(2).sqrt()
    return lead / (cost[:, :, None] + 1e-3)


def set_facts(lead: Tensor, score: Tensor, seen: Features, counts: tuple[int, ...]) -> Tensor:
    """What is known of each direction's best set of each size: (n, k * sizes, SET_FACTS).

    How far it goes along the direction, what it costs, how often its members were tried and what they brought, how many
    there are, and how well the direction has foretold the drops so far, alone and times how far the set goes.
    """
    p = lead.shape[-1]
    here, drop, tried = (seen["entry_maps"].flatten(3)[:, :, i].float() for i in range(3))  # (n, f, p) each
    power = seen["entries"].flatten(3).float()
    cost = power[:, :, power.shape[2] // 2 :].square().sum(2)
    told = ((drop * (tried > 0))[:, :, None] * lead).sum((1, 3)) / (
        ((tried > 0)[:, :, None] * lead.square()).sum((1, 3)) + 0.1
    )  # (n, k)
    open_ = score.masked_fill((here > 0.5)[:, :, None], -1e9)
    best, entry = open_.max(1)  # (n, k, p)
    order = best.argsort(2, descending=True)
    most = max(counts)

    def along(values: Tensor) -> Tensor:
        """(n, f, k, p) -> (n, k, most): sums over the best entries of the best patches."""
        picked = values.gather(1, entry[:, None]).squeeze(1)
        return picked.gather(2, order[:, :, :most]).cumsum(2)

    sums = [along(lead), *(along(v[:, :, None].expand_as(lead)) for v in (cost, tried, drop))]
    rows = []
    for count in counts:
        far, spent, often, brought = (one[:, :, min(count, p) - 1] for one in sums)
        size = torch.full_like(far, count / p)
        mean = brought / count
        rows.append(torch.stack([far / p, (spent / p).sqrt(), often / count, mean, size, told, told * far / p], 2))
    return torch.stack(rows, 2).flatten(1, 2).clamp(-10, 10)


def _compass(config: QMapConfig) -> DirectionPrior:
    return DirectionPrior(
        config.rank, config.channels, config.compass_width, config.heads, config.compass_levels, config.shrink
    )


def linear_guess(change: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
    """What the tries so far say of a patch if the margin were linear in its mean: a slope, and each entry's drop from it.

    change (n, f, c, *grid), maps (n, f, 3, *grid) with the drop second and the tries third -> (n, c, *grid), (n, f, 1, *grid)
    """
    drop, tried = maps[:, :, 1:2], (maps[:, :, 2:3] > 0).to(change.dtype)
    weight = (change.square().sum(2, keepdim=True) * tried).sum(1) + 0.05
    slope = (drop * change).sum(1) / weight
    return slope, (slope[:, None] * change).sum(2, keepdim=True)


def best_set(q: Tensor, counts: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Values (n, counts, f + 1, p), illegal ones -inf -> plane (n,), entries (n, m), patches (n, m), m = max(counts).

    Each plane's best set takes the best entry of each of its best patches; the plane whose set has the best mean is chosen.
    Places beyond the plane's count are -1.
    """
    patches, most = q.shape[-1], min(max(counts), q.shape[-1])
    value, entry = q.max(2)
    value, patch = value.topk(most, 2)
    entry = entry.gather(2, patch)
    place = torch.arange(most, device=q.device)
    size = torch.tensor([min(count, patches) for count in counts], device=q.device)
    inside = (place < size[:, None])[None] & torch.isfinite(value)
    # a plane with too few legal patches takes those there are
    mean = torch.where(inside, value, 0).sum(2) / inside.sum(2).clamp(min=1)
    plane = torch.where(inside.any(2), mean, -torch.inf).argmax(1)
    pick = plane.view(-1, 1, 1).expand(-1, 1, most)
    inside, entry, patch = (t.gather(1, pick).squeeze(1) for t in (inside, entry, patch))
    return plane, torch.where(inside, entry, -1), torch.where(inside, patch, -1)
