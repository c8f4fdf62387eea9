"""How a model is hardened: every option of `rlab.hardening`, checked before anything is spent."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlab.core import defaults
from rlab.data.batch import Batch


class HardenConfig(BaseModel):
    """Training goes over the data `rounds` times `epochs`; fields left None follow the kind of data."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    mode: Literal["live", "rounds"] = "live"  # attack every batch as it is trained on, or all data before each round
    rounds: int = Field(3, ge=1)
    epochs: int = Field(3, ge=1)  # of each round
    fresh: bool = True  # rounds only: attack the current weights before every round, not just before the first
    share: float = Field(0.5, gt=0, le=1)  # of adversarial samples in a batch
    palettes: list[list[str]] | None = (
        None  # one is drawn a batch; severities may be ranges: 'gaussian_noise@0.05..0.4'
    )
    entries: int = Field(8, ge=1, le=255)  # palette entries a batch is attacked with
    patches: list[int | list[int]] | None = None  # one is drawn a batch
    policy: str = defaults.POLICY  # who makes the samples; 'slope' takes the model's own gradient
    budget: int = Field(24, ge=2)  # queries a sample while training
    beyond: float = Field(1.0, ge=0)  # how long it goes on after a flip, as a share of the queries the flip took
    reach: tuple[float, float] = (
        0.02,
        0.2,
    )  # slope only: how far it may go, L2 as a share of the range times root of the values
    rate: float = Field(1e-3, gt=0)  # learning rate of AdamW, at the top of a cosine
    decay: float = Field(1e-4, ge=0)  # of the weights
    together: int = Field(128, ge=2)  # samples of a training step
    anchor: float = Field(
        0.5, ge=0, le=1
    )  # how much of a target is what the original model said of the untouched input
    average: float = Field(0.99, ge=0, lt=1)  # of the weights over steps
    norm: Literal["frozen", "train"] = "train"  # whether statistics of BatchNorm layers stay or follow
    drop: float = Field(
        0.005, ge=0, le=1
    )  # clean accuracy that may be lost, by which the result is drawn back to the original
    hold_out: float = Field(0.1, gt=0, lt=1)  # share of the data held out, where no validation data are given
    judged: int = Field(512, ge=1)  # validation samples attacked after each epoch
    patience: int | None = Field(None, ge=1)  # epochs without a better one before it stops
    balance: bool = True  # classes that are found more often are attacked or drawn less often
    amp: bool = False  # bfloat16 where the device has it
    seed: int = Field(0, ge=0, lt=2**31)

    @property
    def total(self) -> int:
        return self.rounds * self.epochs

    def filled(self, batch: Batch) -> HardenConfig:
        """With palettes and patches for these data."""
        found: dict[str, Any] = {}
        if self.palettes is None:
            found["palettes"] = [list(defaults.palette(batch))]
        if self.patches is None:
            found["patches"] = [list(defaults.patch(batch))]
        return self.model_copy(update=found)
