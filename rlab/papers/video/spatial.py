"""The spatial agent: on every kept frame a coarse cell, then a finer one inside it, then what to do there.

An LSTM cell goes from kept frame to kept frame and carries what was chosen before, and staying with it is a learned
preference, so that regions follow each other into a tube. Beside its choices the agent foresees what each single change
would do to the margin: that guides the choices and tells the cleanup what is of little use.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.papers.video.choices import FORBIDDEN, LEVELS, Hierarchy, choose
from rlab.papers.video.view import EFFECT, PATCH_MAPS, SCALARS, TRY_MAPS, PairConfig, Trunk, View, costs


@dataclass(frozen=True)
class Maps:
    """What is known before anything is chosen; q patches of a frame, entry 0 restores."""

    embedding: Tensor  # (n, t, q, w)
    entry: Tensor  # (n, t, f + 1, q, e)
    effect: Tensor  # (n, t, f + 1, q) foreseen drop in margin, see view.EFFECT
    net_effect: Tensor  # (n, t, f + 1, q) the same less what it costs; choices go by it, and teach it nothing
    tried: Tensor  # (n, t, f + 1, q)
    here: Tensor  # (n, t, f + 1, q) 1 where the entry is assigned

    def frames(self) -> list[Maps]:
        """Frame by frame, without the axis t."""
        parts = zip(*(getattr(self, f.name).unbind(1) for f in fields(self)), strict=True)
        return [Maps(*part) for part in parts]


@dataclass(frozen=True)
class Choice:
    """Where and what on each frame; `option` (n, t, levels + 1) holds a cell at each level and the entry."""

    option: Tensor
    region: Tensor  # (n, t, q) bool
    entry: Tensor  # (n, t)
    log_prob: Tensor  # (n,) over the kept frames
    entropy: Tensor  # (n,)


class SpatialAgent(nn.Module):
    def __init__(self, config: PairConfig) -> None:
        super().__init__()
        w, e = config.width, config.entry_width
        self.distortion_weight = config.distortion_weight
        self.trunk = Trunk(config.encoder, config.channels, w)
        self.look_entry = nn.Sequential(nn.Linear(config.changes + TRY_MAPS, e), nn.SiLU(), nn.Linear(e, e), nn.SiLU())
        self.gather = nn.Conv3d(3 * config.wide + PATCH_MAPS + 2 * e, w, (1, 3, 3), padding=(0, 1, 1))
        self.situation = nn.Linear(SCALARS, w)
        self.blocks = nn.ModuleList(_Block(w) for _ in range(config.blocks))
        self.no_entry = nn.Parameter(torch.zeros(e))
        self.foresee = nn.Sequential(nn.Linear(w + e, e), nn.SiLU(), nn.Linear(e, 1))
        self.remember = nn.LSTMCell(3 * w, w)
        self.want = nn.ModuleList(nn.Linear(w, w) for _ in LEVELS)
        self.like = nn.ModuleList(nn.Linear(w, 1) for _ in LEVELS)
        self.whole = nn.ModuleList(nn.Linear(w, 1) for _ in LEVELS[1:])
        self.take = nn.Sequential(nn.Linear(w + e, e), nn.SiLU(), nn.Linear(e, 1))
        # staying with the cell, and the entry, of the frame before; trust in what is foreseen; tiring of what was tried
        self.stay = nn.Parameter(torch.full((len(LEVELS) + 1,), 2.0))
        self.trust = nn.Parameter(torch.full((len(LEVELS) + 1,), 2.0))
        self.tire = nn.Parameter(torch.zeros(len(LEVELS) + 1))

    def see(self, view: View, distortion_weight: float | None = None) -> Maps:
        """`distortion_weight` in place of the agent's own, see PairConfig."""
        n, t = view["cells"].shape[:2]
        inputs = torch.cat([view["changes"], view["tries"]], 3)  # (n, f, t, 6 + heads, rows, columns)
        entry = self.look_entry(inputs.flatten(4).permute(0, 2, 1, 4, 3))  # (n, t, f, q, e)
        wide = torch.cat([entry.amax(2), entry.mean(2)], 3)
        own = torch.cat([*_over_time(view["cells"]), view["patches"]], 2)
        mixed = torch.cat([own, wide.transpose(2, 3).unflatten(3, own.shape[3:])], 2).transpose(1, 2)
        embedding = F.silu(self.gather(mixed) + self.situation(view["scalars"])[:, :, None, None, None])
        for block in self.blocks:
            embedding = block(embedding)
        at = embedding.flatten(3).permute(0, 2, 3, 1)  # (n, t, q, w)
        entry = torch.cat([self.no_entry.expand(n, t, 1, *entry.shape[3:]), entry], 2)
        both = torch.cat([at[:, :, None].expand(*entry.shape[:4], at.shape[3]), entry], 4)
        patches = view["patches"].flatten(3)
        here = view["tries"][:, :, :, 0].flatten(3).transpose(1, 2)
        often = view["tries"][:, :, :, 2].flatten(3).transpose(1, 2)
        assigned = torch.cat([1 - patches[:, :, None, 0], here], 2)
        effect = self.foresee(both).squeeze(4) * (1 - assigned)  # writing what stands there does nothing
        weight = self.distortion_weight if distortion_weight is None else distortion_weight
        net_effect = effect.detach() - EFFECT * weight * costs(view)
        return Maps(at, entry, effect, net_effect, torch.cat([patches[:, :, None, 2], often], 2), assigned)

    def forward(
        self,
        view: View,
        kept: Tensor,
        hierarchy: Hierarchy,
        draw: Tensor | None = None,
        taken: Tensor | None = None,
        temperature: Tensor | None = None,
        distortion_weight: float | None = None,
    ) -> Choice:
        """kept (n, t) bool with draws (n, t, levels + 1), or the options taken before -> a choice on every frame."""
        return self.choose(self.see(view, distortion_weight), view, kept, hierarchy, draw, taken, temperature)

    def choose(
        self,
        maps: Maps,
        view: View,
        kept: Tensor,
        hierarchy: Hierarchy,
        draw: Tensor | None = None,
        taken: Tensor | None = None,
        temperature: Tensor | None = None,
    ) -> Choice:
        """The same where the maps are at hand."""
        even = torch.ones(len(kept), device=kept.device)
        walk = _Walk(self, maps, hierarchy, even if temperature is None else temperature)
        vector, nothing = self.trunk(view["frames"]), [None] * kept.shape[1]
        draws, options = (nothing if t is None else t.unbind(1) for t in (draw, taken))
        chosen = [walk.step(i, vector[:, i], kept[:, i], draws[i], options[i]) for i in range(kept.shape[1])]
        option, region, log_prob, entropy = (torch.stack(part, 1) for part in zip(*chosen, strict=True))
        on = kept.to(log_prob.dtype)
        return Choice(option, region, option[..., -1], (log_prob * on).sum(1), (entropy * on).sum(1))


class _Block(nn.Module):
    """Within each frame, then along time, then what the clip has in all: (n, w, t, rows, columns) -> the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Conv3d(width, width, (1, 3, 3), padding=(0, 1, 1))
        self.time = nn.Conv3d(width, width, (3, 1, 1), padding=(1, 0, 0))
        self.context = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.silu(self.space(x))
        return x + F.silu(self.time(x) + self.context(x.mean((2, 3, 4)))[:, :, None, None, None])


def _over_time(cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maps (n, t, m, rows, columns), and how they differ from the frame before and the frame after."""
    step = 4 * (cells[:, 1:] - cells[:, :-1])
    none = torch.zeros_like(cells[:, :1])
    return cells, torch.cat([none, step], 1), torch.cat([step, none], 1)


class _Walk:
    """From frame to frame: what was chosen last, and the LSTM's state."""

    def __init__(self, agent: SpatialAgent, maps: Maps, hierarchy: Hierarchy, temperature: Tensor) -> None:
        self.agent, self.temperature = agent, temperature[:, None]
        self.frames = maps.frames()
        device, n = maps.embedding.device, len(maps.embedding)
        self.members = [member.to(device) for member in hierarchy.members]
        self.children = [child.to(device) for child in hierarchy.children]
        width = maps.embedding.shape[3]
        self.state = (maps.embedding.new_zeros(n, width), maps.embedding.new_zeros(n, width))
        self.before = maps.embedding.new_zeros(n, width)  # the region chosen last
        self.last = torch.full((n, len(self.members) + 1), -1, device=device)
        last = len(self.members) - 1
        self.cells = [_Cells.of(agent, i, maps, member, i == last) for i, member in enumerate(self.members)]
        self.mean = maps.embedding.mean(2).unbind(1)

    def step(
        self, i: int, vector: Tensor, kept: Tensor, draw: Tensor | None, taken: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Frame i -> options (n, levels + 1), region (n, q), log-probability (n,), entropy (n,)."""
        state = self.agent.remember(torch.cat([vector, self.mean[i], self.before], 1), self.state)
        options, region, log_prob, entropy = self._where(i, state[0], draw, taken)
        entry, part_log_prob, part_entropy = self._what(i, state[0], region, draw, taken)
        options.append(entry)
        now, on = torch.stack(options, 1), kept[:, None]
        inside = (_evenly(region)[:, None] @ self.frames[i].embedding).squeeze(1)
        self.before = torch.where(on, inside, self.before)
        self.state = (torch.where(on, state[0], self.state[0]), torch.where(on, state[1], self.state[1]))
        self.last = torch.where(on, now, self.last)
        return now, region, log_prob + part_log_prob, entropy + part_entropy

    def _where(
        self, i: int, hidden: Tensor, draw: Tensor | None, taken: Tensor | None
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """Level by level; a row that stops at a cell takes the whole of it, and its finer choices count for nothing."""
        cell, log_prob, entropy = self._choose(0, self._logits(0, i, hidden), draw, taken)
        options, region, going = [cell], self.members[0][cell], torch.ones_like(cell, dtype=torch.bool)
        same = cell == self.last[:, 0]
        for level in range(1, len(self.members)):
            below = self.children[level - 1][cell]  # (n, m)
            logits = self._logits(level, i, hidden).gather(1, below.clamp(min=0)).masked_fill(below < 0, FORBIDDEN)
            whole = self.cells[level - 1].total[i].gather(1, cell[:, None])
            whole = F.softplus(self.agent.trust[level]) * whole + self.agent.whole[level - 1](hidden)
            logits = torch.cat([logits, whole], 1)
            stays = (same & (self.last[:, level] >= 0))[:, None]
            again = F.one_hot(self.last[:, level].clamp(min=0), logits.shape[1]) * stays
            part, part_log_prob, part_entropy = self._choose(
                level, logits + self.agent.stay[level] * again, draw, taken
            )
            options.append(part)
            stops = part == below.shape[1]
            finer = below.gather(1, part.clamp(max=below.shape[1] - 1)[:, None]).squeeze(1).clamp(min=0)
            log_prob, entropy = log_prob + part_log_prob * going, entropy + part_entropy * going
            same, going = same & (part == self.last[:, level]), going & ~stops
            cell = torch.where(going, finer, 0)
            region = torch.where(going[:, None], self.members[level][cell], region)
        return options, region, log_prob, entropy

    def _logits(self, level: int, i: int, hidden: Tensor) -> Tensor:
        """(n, cells of the level)."""
        cells = self.cells[level]
        want = self.agent.want[level](hidden)
        logits = cells.like[i] + (cells.embedding[i] @ want[:, :, None]).squeeze(2) / want.shape[1] ** 0.5
        if level == 0:  # below it staying is counted among the chosen cell's children
            again = F.one_hot(self.last[:, 0].clamp(min=0), logits.shape[1]) * (self.last[:, :1] >= 0)
            logits = logits + self.agent.stay[0] * again
        return logits

    def _what(
        self, i: int, hidden: Tensor, region: Tensor, draw: Tensor | None, taken: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        maps, agent, even = self.frames[i], self.agent, _evenly(region)
        entry = torch.einsum("nq,nfqe->nfe", even, maps.entry)
        logits = agent.take(torch.cat([hidden[:, None].expand(-1, entry.shape[1], -1), entry], 2)).squeeze(2)
        effect = (maps.net_effect * region[:, None]).sum(2)
        logits = logits + F.softplus(agent.trust[-1]) * effect
        logits = logits - F.softplus(agent.tire[-1]) * (maps.tried @ even[:, :, None]).squeeze(2)
        again = F.one_hot(self.last[:, -1].clamp(min=0), logits.shape[1]) * (self.last[:, -1:] >= 0)
        logits = logits + agent.stay[-1] * again
        done = (maps.here @ even[:, :, None]).squeeze(2) > 1 - 1e-4  # writing it would change nothing
        return self._choose(-1, logits.masked_fill(done, FORBIDDEN), draw, taken)

    def _choose(
        self, level: int, logits: Tensor, draw: Tensor | None, taken: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits = logits / self.temperature
        return choose(logits, None if draw is None else draw[:, level], None if taken is None else taken[:, level])


@dataclass(frozen=True)
class _Cells:
    """The cells of one level on every frame."""

    embedding: tuple[Tensor, ...]  # of each frame (n, cells, w), the mean over the cell's patches
    like: tuple[Tensor, ...]  # of each frame (n, cells), the part of the logit that no earlier frame sets
    total: tuple[Tensor, ...]  # of each frame (n, cells), what changing the whole cell is worth

    @classmethod
    def of(cls, agent: SpatialAgent, level: int, maps: Maps, member: Tensor, last: bool) -> _Cells:
        """`last`: there is no finer level, so that a cell means all of its patches and not the best of them."""
        inside = member.to(maps.embedding.dtype)
        size = inside.sum(1)
        embedding = (inside @ maps.embedding) / size[:, None]
        total = (maps.net_effect @ inside.T).amax(2)
        best = total if last else maps.net_effect.amax(2)[:, :, None].masked_fill(~member, -torch.inf).amax(3)
        tried = (maps.tried.mean(2) @ inside.T) / size
        like = agent.like[level](embedding).squeeze(3) + F.softplus(agent.trust[level]) * best
        like = like - F.softplus(agent.tire[level]) * tried
        return cls(embedding.unbind(1), like.unbind(1), total.unbind(1))


def _evenly(region: Tensor) -> Tensor:
    """(n, q) bool -> weights (n, q) that sum to one over the region."""
    return region / region.sum(1, keepdim=True).clamp(min=1)
