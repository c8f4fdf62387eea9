"""The temporal agent: an LSTM reads the frames one after the other and says of each whether to keep it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlab.policies.video.choose import toss
from rlab.policies.video.config import PairConfig
from rlab.policies.video.encoder import Trunk
from rlab.policies.video.view import SCALARS, View

_STANDING = 7  # numbers of `_standing`
_KEEPS = -2.0  # the logit by which an untrained agent keeps a frame


class TemporalAgent(nn.Module):
    def __init__(self, config: PairConfig) -> None:
        super().__init__()
        self.trunk = Trunk(config.encoder, config.channels, config.width)
        self.read = nn.LSTM(config.width + _STANDING + SCALARS, config.width, batch_first=True)
        self.keep = nn.Linear(config.width, 1)
        self.effect = nn.Linear(config.width, 1)
        self.trust = nn.Parameter(torch.tensor(2.0))
        nn.init.constant_(self.keep.bias, _KEEPS)

    def foresee(self, view: View) -> tuple[Tensor, Tensor]:
        """What was read (n, t, w), and the largest drop in margin foreseen of one change on each frame (n, t), see view.EFFECT."""
        n, t = view["frames"].shape[:2]
        said = view["scalars"][:, None].expand(n, t, SCALARS)
        read, _ = self.read(torch.cat([self.trunk(view["frames"]), _standing(view), said], 2))
        return read, self.effect(read).squeeze(2)

    def forward(
        self, view: View, draw: Tensor | None = None, given: Tensor | None = None, heat: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draws (n, t), or what was kept (n, t) -> kept (n, t) bool, log-probability (n,), entropy (n,).

        `heat` (n,) divides the logits: above 1 leaves more to chance.
        """
        return self.choose(*self.foresee(view), draw, given, heat)

    def choose(
        self, read: Tensor, effect: Tensor, draw: Tensor | None, given: Tensor | None, heat: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same where the frames have been read."""
        logits = self.keep(read).squeeze(2) + self.trust * effect.detach()
        return toss(logits if heat is None else logits / heat[:, None], draw, given)


def _standing(view: View) -> Tensor:
    """(n, t, 7): of each frame its place, motion, and what was held, tried and gained there."""
    cells, patches, tries = view["cells"], view["patches"], view["tries"]
    n, t = cells.shape[:2]
    place = torch.linspace(0, 1, t, device=cells.device).expand(n, t)
    moved = motion(cells).mean((2, 3))
    held, restored = patches[:, :, 0].mean((2, 3)), patches[:, :, 1].mean((2, 3))
    gained = tries[:, :, :, 1].amax(1)
    often = tries[:, :, :, 2].mean((1, 3, 4))
    return torch.stack([place, 4 * moved, 4 * held, restored, gained.amax((2, 3)), gained.mean((2, 3)), often], 2)


def motion(cells: Tensor) -> Tensor:
    """Maps (n, t, m, rows, columns) -> (n, t, rows, columns): mean absolute difference to the frame before."""
    before = torch.cat([cells[:, :1], cells[:, :-1]], 1)
    return (cells - before).abs().mean(2)


def at_least_one(kept: Tensor, draw: Tensor) -> Tensor:
    """kept (n, t) -> the same, but where no frame was kept the one a draw (n,) names."""
    one = torch.nn.functional.one_hot((draw * kept.shape[1]).long(), kept.shape[1]).bool()
    return kept | (one & ~kept.any(1, keepdim=True))
