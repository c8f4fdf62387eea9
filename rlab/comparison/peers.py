"""Attacks from papers, implemented here ('gfcs', 'ensemble_pgd@0.5', 'gfcs+palette' inside a palette), and from libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.comparison.libraries import ATTACKS, load_library
from rlab.comparison.outcome import FREE_PIXELS, PALETTE, SURROGATES, AttackOutcome, Contender
from rlab.comparison.pixel_steps import hop_skip_jump, simba_dct, square_min
from rlab.comparison.recorder import REDUCED, VALUES, Decided, QueryRecorder, check_unit, run_recorded
from rlab.comparison.surrogate_steps import bases, ensemble_pgd, ensemble_pgd_min, gfcs, prgf, simba_ods
from rlab.comparison.trial import Ensemble, FreePixels, InPalette, Space, Trial
from rlab.comparison.trial import Peer as Peer
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters.palette import Palette
from rlab.priors.surrogates import SurrogatePrior, load_surrogates
from rlab.progress import Progress, quiet
from rlab.runs.options import AttackOptions
from rlab.runs.palette_options import make_grid, make_palette
from rlab.storage.config import did_you_mean
from rlab.victims.base import Victim

INSIDE = "+palette"  # suffix of an attack that stays inside the palette


PEERS: dict[str, Peer] = {
    "gfcs": Peer(gfcs, 0.16, 1.0),
    "simba_ods": Peer(simba_ods, 0.2, 1.0),
    "prgf": Peer(prgf, 0.16),
    "ensemble_pgd": Peer(ensemble_pgd, 1.0, 4.0),
    "ensemble_pgd_min": Peer(ensemble_pgd_min, 0.5, 4.0, until="budget"),
    "bases": Peer(bases, 1.0, 4.0),
    "simba_dct": Peer(simba_dct, 0.2, surrogates=False, images_only=True),
    "square_min": Peer(square_min, 3.0, surrogates=False, until="budget", images_only=True),
    "hopskipjump": Peer(hop_skip_jump, None, surrogates=False, until="budget", answers="labels"),
}


def strengths(peers: Mapping[str, Peer]) -> dict[str, float | None]:
    """The default strength of each name, free or inside a palette."""
    inside = {f"{name}{INSIDE}": peer.palette for name, peer in peers.items() if peer.palette is not None}
    return {name: peer.strength for name, peer in peers.items()} | inside


NAMES = strengths(PEERS)


class SurrogateSet:
    """The surrogates that all attacks of a comparison share, loaded once."""

    def __init__(self, options: AttackOptions) -> None:
        self.named = options.surrogate
        self._loaded: SurrogatePrior | None = None

    def load(self, batch: Batch, name: str) -> SurrogatePrior:
        if not self.named:
            how = "such as --surrogate timm:resnet18 (surrogate= in Python)"
            raise OptionError(f"the attack {name!r} needs the gradients of surrogates: name models of yours, {how}")
        if self._loaded is None:
            self._loaded = load_surrogates(self.named, batch)
        return self._loaded


@dataclass(frozen=True)
class PeerContender(Contender):
    """An attack from a paper or library at a strength; surrogates, palette and patch come from the options."""

    name: str
    strength: float
    peer: Peer
    options: AttackOptions
    surrogates: SurrogateSet = field(compare=False)
    reduce: bool = False  # bisect towards the original in attacks that stop at the flip

    @property
    def inside(self) -> bool:
        return self.name.endswith(INSIDE)

    @property
    def needs(self) -> tuple[str, ...]:
        models, stage = (SURROGATES,) if self.peer.surrogates else (), (REDUCED,) if self._reduces else ()
        return (self.peer.answers, *models, PALETTE if self.inside else FREE_PIXELS, *stage)

    @property
    def _reduces(self) -> bool:
        return self.reduce and self.peer.until == "flip"

    def check(self, batch: Batch, budget: int) -> None:
        check_unit(batch, self.peer.images_only)
        if self.peer.library:
            load_library(self.peer.library)
        if self.peer.surrogates:  # a gradient now shows whether each can be differentiated
            self.surrogates.load(batch, self.name).directions(batch.x[:1], batch.y[:1], torch.ones(1), Untargeted())
        if self.inside:
            self._palette(batch)

    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        self.check(batch, budget)
        low, span = check_unit(batch)
        seeds, peer = sample_seeds(seed, 0, len(batch)), self.peer
        models = Ensemble(self.surrogates.load(batch, self.name), (low, span)) if peer.surrogates else None
        inside = self._palette(batch) if self.inside else None

        def run(recorder: QueryRecorder, rows: Tensor) -> None:
            space: Space = FreePixels(recorder.x)
            if inside is not None:
                palette, grid = inside
                bank = palette.bank(batch.x[rows].to(recorder.x.device), batch.bounds, seeds[rows].tolist())
                space = InPalette((bank - low) / span, grid)
            trial = Trial(recorder, space, seeds[rows].to(recorder.x.device), self.strength, models)
            with suppress(Decided):
                peer.run(trial)
            if self._reduces:
                recorder.reduce(space.nearer if isinstance(space, InPalette) else None)

        copies = 1 if inside is None else len(inside[0]) + 1
        together = max(1, min(peer.together, VALUES // (batch.x[0].numel() * copies)))
        return run_recorded(victim, batch, budget, run, peer.until, together, progress=progress)

    def _palette(self, batch: Batch) -> tuple[Palette, PatchGrid]:
        """The palette and grid that policies get."""
        whole, _ = self.options.filled(batch)
        assert whole.palette is not None
        assert whole.patch is not None
        own = whole.gradients(batch)
        palette = make_palette(whole.palette, batch, own, whole.rounded(batch))
        return palette, make_grid(batch, whole.patch, whole.channels)


def parse_peer(
    spec: str,
    options: AttackOptions,
    surrogates: SurrogateSet,
    reduce: bool = False,
    peers: Mapping[str, Peer] | None = None,
) -> PeerContender:
    """'gfcs', 'gfcs@0.16', 'gfcs+palette@1' or 'art:simba'; `peers`: the attacks to choose from (default: all)."""
    known = PEERS | ATTACKS if peers is None else peers
    usual, (name, at, text) = strengths(known), spec.partition("@")
    if name not in usual:
        raise OptionError(f"unknown attack {name!r}.{did_you_mean(name, usual)} Known attacks: {', '.join(usual)}")
    default = usual[name]
    if at and default is None:
        raise OptionError(f"the attack {name!r} finds its own strength: omit '@{text}'")
    try:
        strength = float(text) if at else default or math.inf
    except ValueError:
        strength = math.nan
    if at and not 0 < strength < math.inf:
        raise OptionError(f"expected a strength above 0 after '@', such as {name}@{default:g}, got {spec!r}")
    return PeerContender(name, strength, known[name.removesuffix(INSIDE)], options, surrogates, reduce)
