"""Attacks from papers that only the benchmarks compare with; `rlab compare` has the others."""

from __future__ import annotations

from benchmarks.peers.bases import bases_linf
from benchmarks.peers.clips import geo_trap, vbad
from benchmarks.peers.pbo import pbo
from benchmarks.peers.sparse import patch_rs, sparse_rs
from benchmarks.peers.surfree import surfree
from rlab.comparison import PEERS
from rlab.comparison.peers import Peer

MORE: dict[str, Peer] = {
    "pbo": Peer(pbo, 1.0),
    "bases_linf": Peer(bases_linf, 16 / 255),
    "sparse_rs": Peer(sparse_rs, 24.0, surrogates=False, images_only=True),  # pixels
    "patch_rs": Peer(patch_rs, 20.0, surrogates=False, images_only=True),  # pixels along each side
    "surfree": Peer(surfree, None, surrogates=False, until="budget", answers="labels"),
    "vbad": Peer(vbad, 2.0),
    "geo_trap": Peer(geo_trap, 2.0, surrogates=False),
}
KNOWN = PEERS | MORE
