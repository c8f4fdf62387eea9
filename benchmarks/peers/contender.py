"""An attack of `benchmarks.peers.attacks` by its name, as a contender in a comparison or as a function for `rlab compare`."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.peers.attacks import INSIDE, PEERS, STRENGTHS
from benchmarks.peers.trial import Ensemble, FreePixels, InPalette, Peer, Space, Trial
from rlab.comparison.outcome import FREE_PIXELS, PALETTE, SURROGATES, AttackOutcome, Contender
from rlab.comparison.recorder import REDUCED, VALUES, Decided, QueryRecorder, check_unit, run_recorded
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
from rlab.victims.torch_module import TorchVictim


@dataclass(frozen=True)
class PeerContender(Contender):
    """An attack from a paper at a strength; surrogates, palette and patch come from the options."""

    name: str
    strength: float
    peer: Peer
    options: AttackOptions
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
        if self.peer.surrogates and not self.options.surrogate:
            raise OptionError(f"the attack {self.name!r} needs the gradients of surrogates")

    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        self.check(batch, budget)
        unit = check_unit(batch)
        seeds, peer, models = sample_seeds(seed, 0, len(batch)), self.peer, None
        if peer.surrogates:
            models = Ensemble(load_surrogates(self.options.surrogate or (), batch), unit)
        inside = self._palette(batch) if self.inside else None

        def run(recorder: QueryRecorder, rows: Tensor) -> None:
            space: Space = FreePixels(recorder.x)
            if inside is not None:
                palette, grid = inside
                bank = palette.bank(batch.x[rows].to(recorder.x.device), batch.bounds, seeds[rows].tolist())
                space = InPalette((bank - unit[0]) / unit[1], grid)
            trial = Trial(recorder, space, seeds[rows].to(recorder.x.device), self.strength, models)
            with suppress(Decided):
                peer.run(trial)
            if self._reduces:
                recorder.reduce(space.nearer if isinstance(space, InPalette) else None)

        copies = 1 if inside is None else len(inside[0]) + 1
        together = max(1, VALUES // (batch.x[0].numel() * copies))
        return run_recorded(victim, batch, budget, run, peer.until, together, progress=progress)

    def _palette(self, batch: Batch) -> tuple[Palette, PatchGrid]:
        """The palette and grid that policies get."""
        whole, _ = self.options.filled(batch)
        assert whole.palette is not None
        assert whole.patch is not None
        own = whole.gradients(batch)
        palette = make_palette(whole.palette, batch, own, whole.rounded(batch))
        return palette, make_grid(batch, whole.patch, whole.channels)


def parse_peer(spec: str, options: AttackOptions, reduce: bool = False) -> PeerContender:
    """'gfcs', 'gfcs@0.16' or 'gfcs+palette@1'."""
    name, at, text = spec.partition("@")
    if name not in STRENGTHS:
        raise OptionError(f"unknown attack {name!r}.{did_you_mean(name, STRENGTHS)}")
    strength = float(text) if at else STRENGTHS[name] or math.inf
    return PeerContender(name, strength, PEERS[name.removesuffix(INSIDE)], options, reduce)


def function(name: str, surrogates: tuple[TorchVictim, ...] = ()) -> Callable[[QueryRecorder, Tensor], None]:
    """An attack on free pixels at its usual strength, as `rlab compare --attacks` takes functions: it goes on to the budget."""
    peer = PEERS[name]
    if peer.surrogates and not surrogates:
        raise OptionError(f"the attack {name!r} needs the gradients of surrogates")

    def run(recorder: QueryRecorder, rows: Tensor) -> None:
        seeds = torch.randint(2**62, (len(rows),)).to(recorder.x.device)
        models = Ensemble(SurrogatePrior(surrogates), recorder.scale) if surrogates else None
        peer.run(Trial(recorder, FreePixels(recorder.x), seeds, peer.strength or math.inf, models))

    run.__name__ = name
    return run
