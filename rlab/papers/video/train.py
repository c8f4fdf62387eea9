"""Training of the two agents for video: samplers over models and patch sizes, validation with the real attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import DataError, ModelError, OptionError
from rlab.papers.video import Pair, PairConfig, PairPolicy
from rlab.papers.video.file import read_pair
from rlab.papers.video.loop import Training
from rlab.papers.video.ppo import PPOConfig, PPOTrainer, RewardedSampler
from rlab.papers.video.saliency import kept_maps, over
from rlab.papers.video.view import Encoder, MobileNet, read_mobilenet
from rlab.priors.file import read_header, read_prior
from rlab.training.config import Patch, TrainingOptions, hold_out
from rlab.training.trainer import Figures, Tell, Validation, open_folder, samplers_for
from rlab.victims.base import Victim


class PairOptions(TrainingOptions):
    """The options of every training and of the two agents. A patch given as one number is a square on a single frame."""

    kind: Literal["clips"] = "clips"
    entries: int = Field(3, ge=1)
    success: float = Field(0.5, ge=0)
    horizon: int = Field(40, ge=2)
    validation_samples: int = Field(32, ge=1)
    budget: int = Field(1000, ge=3)
    width: int = Field(32, ge=2)
    entry_width: int = Field(16, ge=1)
    blocks: int = Field(2, ge=0)
    levels: int = Field(2, ge=1, le=3)
    coarse: int = Field(4, ge=1)
    heads: int = Field(0, ge=0)
    prior_width: int = Field(16, ge=8, multiple_of=8)
    shrink: int = Field(2, ge=1)
    distortion_weight: float = Field(0.0, ge=0)
    keeps: float | None = None  # logit of keeping a frame for an untrained temporal agent
    encoder: Encoder = "small"
    mobilenet: str | None = None  # weights of MobileNet-V2 if it is the encoder
    temporal: bool = True  # False trains the spatial agent alone, on every frame
    hints: bool = False  # show the agents objectness and motion; using them then needs OpenCV too
    flips: bool = False  # also train on mirrored clips that the models classify correctly
    saliency: str | None = None  # a file to cache objectness and motion; needs OpenCV when it is made
    learner: PPOConfig = PPOConfig()


def train(
    victims: Sequence[Victim],
    batch: Batch,
    validation: Batch | None,
    options: PairOptions,
    folder: Path,
    tell: Tell = lambda figures: None,
) -> Path:
    """Write FOLDER/agent.safetensors, the best on validation, or resume the training in FOLDER."""
    if batch.kind != "video":
        raise DataError(f"expected clips to train the two agents on, got {batch.kind} samples: leave out 'kind: clips'")
    with open_folder(folder, options, victims, batch) as resume:
        torch.manual_seed(options.seed)
        batch, validation = hold_out(batch, validation, options)
        for victim in victims:
            victim.chunk = max(victim.chunk, options.learner.rows)
        mobilenet, pair = _mobilenet(options), _pair(options, batch.x.shape[1])
        rewarded = _rewarded(options, pair, victims, batch)
        trainer = PPOTrainer(pair, rewarded, options.learner, mobilenet)
        policy = PairPolicy(pair, mobilenet=mobilenet)
        judge = Validation(victims, validation, sides(options.patches[0]), policy, _score)
        return Training(options, pair, trainer, judge, resume, tell).run([each.sampler for each in rewarded])


def _pair(options: PairOptions, channels: int) -> Pair:
    pair = Pair(options.shape(PairConfig, channels=channels))
    if options.keeps is not None:
        torch.nn.init.constant_(pair.temporal.keep.bias, options.keeps)
    if options.start is not None:
        start = Path(options.start)
        try:
            if read_header(start).kind == "prior" and pair.compass is not None:
                pair.compass.load_state_dict(read_prior(start)[0].network.state_dict())
            else:
                pair.load_state_dict(read_pair(start)[0].state_dict())
        except RuntimeError as error:
            raise ModelError(f"the agents in {start} do not have the shape given by the options") from error
    return pair.to(options.device)


def _mobilenet(options: PairOptions) -> MobileNet | None:
    if options.encoder != "mobilenet":
        return None
    if options.mobilenet is None:
        raise OptionError("the encoder 'mobilenet' needs weights: name their file in the field 'mobilenet'")
    return read_mobilenet(options.mobilenet).to(options.device)


def sides(patch: Patch) -> tuple[int, ...]:
    """One number is a square on a single frame."""
    return (1, patch, patch) if isinstance(patch, int) else patch


def _rewarded(options: PairOptions, pair: Pair, victims: Sequence[Victim], batch: Batch) -> list[RewardedSampler]:
    """A sampler for every victim and patch size, with mirrored clips if the options ask for them."""
    maps, grids = _maps(options, batch), [PatchGrid.of(batch.size, sides(patch)) for patch in options.patches]
    if options.flips:
        x, y = torch.cat([batch.x, batch.x.flip(-1)]), torch.cat([batch.y, batch.y])
        batch, maps = Batch(x, y, bounds=batch.bounds), None if maps is None else torch.cat([maps, maps.flip(-1)])
    rewarded = []
    for sampler, rows in samplers_for(options, victims, batch, grids):
        grid = sampler.task.grid
        salient = None if maps is None else over(maps[rows.cpu()], grid).to(sampler.x.device)
        rewarded.append(RewardedSampler(sampler, salient, pair.hierarchy(grid)))
    return rewarded


def _maps(options: PairOptions, batch: Batch) -> Tensor | None:
    """Objectness and motion of the training clips if a reward uses them."""
    if not (options.learner.objectness or options.learner.motion):
        return None
    low, high = batch.bounds
    unit = (batch.x - low) / (high - low) if math.isfinite(high - low) else batch.x
    return kept_maps(unit, batch.ids, None if options.saliency is None else Path(options.saliency))


def _score(figures: Figures, options: TrainingOptions) -> float:
    """Success first, then few queries, then little distortion."""
    queries, distortion = figures["median_queries"], figures["median_map255"]
    if math.isnan(queries):
        return -0.002 * options.budget
    return figures["success"] - 0.002 * queries - 0.01 * distortion
