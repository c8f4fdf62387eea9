"""An attack on your own model as a gymnasium environment; importing this module registers rlab/Attack-v0.

gymnasium.make("rlab.training.registered:rlab/Attack-v0", model=..., data=...)
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Unpack

from rlab.errors import MissingExtra, OptionError, optional
from rlab.filters.palette import refuse_pixels
from rlab.runs.inputs import Data, Model, taken
from rlab.runs.options import AttackOptions
from rlab.storage.config import check, did_you_mean, takes
from rlab.training.episodes import EpisodeSampler, teachable

if TYPE_CHECKING:
    from rlab.keywords import EnvironmentKeywords
    from rlab.training.environments import GymnasiumEnv

gymnasium = optional("gymnasium", MissingExtra("gymnasium", "train"))
NAME = "rlab/Attack-v0"
TAKEN = ("palette", "patch", "channels", "goal", "budget", "accept", "distance", "seed")  # options of an attack


@takes(AttackOptions, *(AttackOptions.model_fields.keys() - TAKEN))
def make_environment(
    model: Model,
    data: Data,
    *,
    limit: int | None = None,
    render_mode: str | None = None,
    **options: Unpack[EnvironmentKeywords],
) -> GymnasiumEnv:
    """Episodes of `budget` steps on samples that the model classifies correctly; options as for `rlab.attack`."""
    from rlab.training.environments import GymnasiumEnv

    if unknown := sorted(options.keys() - TAKEN):
        hint = did_you_mean(unknown[0], TAKEN)
        raise OptionError(f"an environment does not take {unknown[0]!r}.{hint} It takes {', '.join(TAKEN)}")
    declared = check(AttackOptions, {"distance": "l2", **options}, "the environment's options")
    refuse_pixels(declared.palette, "an environment")
    with taken(model, data, limit) as (victim, batch):
        palette = declared.filled(batch)[0].palette or ()
        specs = [spec for spec in palette if isinstance(spec, str)]
        if len(specs) < len(palette):
            raise OptionError("an environment takes filters by name: register your function with rlab.register")
        task = declared.build(batch).task
        x, y = batch.x.to(victim.device), batch.y.to(victim.device)
        rows, rng = teachable(victim, x, y, task), random.Random(declared.seed)
        sampler = EpisodeSampler(
            victim, x[rows], y[rows], batch.bounds, task, [specs], rng=rng, rate=batch.rate, unit=batch.unit
        )
        return GymnasiumEnv(sampler, render_mode)


if NAME not in gymnasium.registry:
    gymnasium.register(NAME, entry_point=f"{__name__}:make_environment")
