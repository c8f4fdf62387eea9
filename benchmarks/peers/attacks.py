"""Attacks from papers, by name: 'gfcs', and 'gfcs+palette' for those that can also stay inside a palette."""

from __future__ import annotations

from benchmarks.peers.bases import bases_linf
from benchmarks.peers.clips import geo_trap, vbad
from benchmarks.peers.pbo import pbo
from benchmarks.peers.pixel_steps import hop_skip_jump, simba_dct, square_min
from benchmarks.peers.sparse import patch_rs, sparse_rs
from benchmarks.peers.surfree import surfree
from benchmarks.peers.surrogate_steps import bases, ensemble_pgd, ensemble_pgd_min, gfcs, prgf, simba_ods
from benchmarks.peers.trial import Peer

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
    "pbo": Peer(pbo, 1.0),
    "bases_linf": Peer(bases_linf, 16 / 255),
    "sparse_rs": Peer(sparse_rs, 24.0, surrogates=False, images_only=True),  # pixels
    "patch_rs": Peer(patch_rs, 20.0, surrogates=False, images_only=True),  # pixels along each side
    "surfree": Peer(surfree, None, surrogates=False, until="budget", answers="labels"),
    "vbad": Peer(vbad, 2.0),
    "geo_trap": Peer(geo_trap, 2.0, surrogates=False),
}
STRENGTHS: dict[str, float | None] = {name: peer.strength for name, peer in PEERS.items()} | {
    f"{name}{INSIDE}": peer.palette for name, peer in PEERS.items() if peer.palette is not None
}  # the usual strength of each name, free or inside a palette
