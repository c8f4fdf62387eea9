"""Features as a state would give them, at random."""

import torch

from rlab.policies.features import CELLS, ENTRY_MAPS, PATCH_MAPS, SCALARS, Features


def features(rank: int, n: int, entries: int, side: int, channels: int = 2, seed: int = 0, heads: int = 0) -> Features:
    chance = torch.Generator().manual_seed(seed)
    grid, fine = (side,) * rank, (side * CELLS,) * rank

    def some(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=chance)

    return {
        "before": some(n, channels, *fine),
        "now": some(n, channels, *fine),
        "entries": some(n, entries, 2 * channels, *grid),
        "projection": some(n, entries, heads, *grid),
        "entry_maps": some(n, entries, ENTRY_MAPS, *grid),
        "patch_maps": some(n, PATCH_MAPS, *grid),
        "scalars": some(n, SCALARS),
    }
