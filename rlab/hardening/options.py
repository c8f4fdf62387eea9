"""The options of hardening, of measuring robustness, and of the command `rlab harden`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, InstanceOf, field_serializer, field_validator, model_validator
from torch import Tensor

from rlab.core import defaults
from rlab.core.channels import parse_channels
from rlab.core.goals import Goal
from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.data.take import Take
from rlab.filters.named import Distortion
from rlab.hardening.adversaries import AdversaryGenerator, GradientAdversary, PerturbationSpace, PolicyAdversary
from rlab.hardening.baselines import OURS, AugMix, InTurn, Norm, baseline, method_values
from rlab.hardening.trainable import Consistency
from rlab.policies import parse_policy
from rlab.runs.options import AttackOptions, RunOptions
from rlab.runs.palette_options import single_filters
from rlab.storage.config import Accepts, Options, check

GRADIENT = "gradient"
# Training from random weights: in place of the defaults for fine-tuning. Nesterov momentum and a cosine schedule come with it.
RECIPE: Mapping[str, Any] = {
    "epochs": 30,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "distillation_weight": 0.0,
    "ema_decay": 0.999,
    "validation_attacked": 2000,
    "shift": 0.125,
    "amp": True,
}


class HardenOptions(Options):
    """How to train; None means a default for the kind of data."""

    method: str = Field(
        OURS,
        description="training method: ours, or a published one to compare with: standard, augment, augmix, trades, fgsm or pgd, "
        "with an optional radius as in pgd_l2@0.5 (default: ours)",
    )
    from_scratch: bool = Field(False, description="train from random weights with SGD, instead of fine-tuning")
    epochs: int = Field(9, ge=1, description="passes over the data (default: 9; from scratch 30)")
    adversarial_share: float = Field(1.0, gt=0, le=1, description="share of each batch to attack (default: 1)")
    palettes: Annotated[tuple[tuple[str, ...], ...] | None, Accepts(Sequence[Sequence[str | Distortion]] | None)] = (
        Field(None, description="palettes to draw from for each batch; a@0.1..0.4 is a range")
    )
    entries: int = Field(8, ge=1, le=255, description="palette entries per batch")
    patches: tuple[int | tuple[int, ...], ...] | None = Field(None, description="patch sizes to draw from")
    channels: str | None = Field(
        None, description="channels that a patch distorts together: together, each, or groups (default: as in attacks)"
    )
    adversary: str | InstanceOf[AdversaryGenerator] = Field(
        GRADIENT,
        description="source of training samples: gradient, augmix, augmix+gradient, a policy or an agent's file "
        "(default: gradient)",
    )
    adversary_budget: int = Field(24, ge=2, description="queries per sample if the adversary is a policy (default: 24)")
    overshoot: float = Field(1.0, ge=0, description="continue after a flip for this multiple of the queries it took")
    radius_range: tuple[float, float] = Field(
        (0.02, 0.2),
        description="gradient adversary: L2 as a share of the data's range times the root of the number of values",
    )
    gradient_steps: int = Field(2, ge=0, description="steps of the gradient adversary; 0 distorts at random")
    aimed_share: float = Field(0.5, ge=0, le=1, description="share of samples that follow the gradient, not chance")
    views: int = Field(
        1, ge=0, le=4, description="adversarial versions of each sample in a batch; 0 trains on clean samples alone"
    )
    distorted_weight: float = Field(1.0, ge=0, description="weight of the cross-entropy on adversarial samples")
    consistency: Consistency = Field("jsd", description="loss between clean and adversarial outputs: jsd, kl (TRADES)")
    consistency_weight: float = Field(4.0, ge=0, description="weight of the consistency loss")
    learning_rate: float = Field(
        1e-3, gt=0, description="peak learning rate of AdamW, or SGD from scratch (default: 0.001; from scratch 0.1)"
    )
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of the optimizer")
    training_batch: int = Field(128, ge=2, description="samples in a training step (default: 128)")
    distillation_weight: float = Field(0.5, ge=0, le=1, description="weight of the original's output in the targets")
    ema_decay: float = Field(0.99, ge=0, lt=1, description="decay of the exponential moving average of the weights")
    batch_norm: Literal["frozen", "train"] = Field("train", description="freeze or train BatchNorm statistics")
    max_clean_drop: Annotated[float, Accepts(float | str)] = Field(
        0.01, ge=0, le=1, description="maximum loss of clean accuracy (default: 0.01 or 1%)"
    )
    validation_split: float = Field(0.1, gt=0, lt=1, description="share held out if you pass no validation data")
    validation_attacked: int = Field(512, ge=1, description="validation samples attacked after each epoch")
    patience: int | None = Field(None, ge=1, description="stop after this many epochs without gain (default: never)")
    balance: bool = Field(True, description="attack or draw classes less often if they flip more often")
    shift: float = Field(
        0.0, ge=0, le=0.5, description="move inputs at random by up to this share of their size (from scratch: 0.125)"
    )
    mirror: bool = Field(False, description="mirror half of the inputs along their last axis")
    amp: bool = Field(False, description="train in bfloat16 on a GPU (default: only from scratch)")
    seed: int = Field(0, ge=0, lt=2**31, description="random seed")
    step: Callable[..., Any] | None = Field(
        None, exclude=True, description="your own training step(model, x, y, optimizer) -> loss"
    )
    augment: Callable[[Tensor], Tensor] | None = Field(
        None, exclude=True, description="your own augmentation, applied before the attack"
    )

    @model_validator(mode="before")
    @classmethod
    def _recipe(cls, values: Any) -> Any:
        """The values of the recipe from scratch and of the method replace the defaults."""
        if not isinstance(values, Mapping):
            return values
        recipe = RECIPE if values.get("from_scratch") is True else {}
        return {**recipe, **method_values(values.get("method", OURS)), **values}

    @field_validator("palettes", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Accept objects such as GaussianNoise(0.1) beside names."""
        if not isinstance(value, list | tuple) or not all(isinstance(palette, list | tuple) for palette in value):
            return value
        return [[str(spec) if isinstance(spec, Distortion) else spec for spec in palette] for palette in value]

    @field_validator("max_clean_drop", mode="before")
    @classmethod
    def _percent(cls, value: Any) -> Any:
        """Accept '1%' as well as 0.01."""
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*%\s*", value) if isinstance(value, str) else None
        return float(match[1]) / 100 if match else value

    @field_serializer("adversary", when_used="json")
    def _adversary_name(self, value: str | AdversaryGenerator) -> str:
        """Its fields, if it has any; `repr` of another object may hold an address."""
        return value if isinstance(value, str) else repr(value) if is_dataclass(value) else type(value).__name__

    def updated(self, values: Mapping[str, Any]) -> Self:
        """A checked copy with these values in place of earlier ones."""
        return check(type(self), {name: getattr(self, name) for name in self.model_fields_set} | dict(values))

    def following(self, attack: AttackOptions) -> Self:
        """A copy that uses the attack's palette, patch, channels and seed unless they are set here."""
        usual: dict[str, Any] = {"seed": attack.seed}
        usual |= {} if attack.palette is None else {"palettes": [attack.palette]}
        usual |= {} if attack.patch is None else {"patches": [attack.patch]}
        usual |= {} if attack.channels is None else {"channels": attack.channels}
        return self.updated({name: value for name, value in usual.items() if name not in self.model_fields_set})

    def filled(self, batch: Batch) -> Self:
        """A copy with default palettes and patches for these data."""
        palettes, patches = (defaults.palette(batch),), (defaults.patch(batch),)
        return self.model_copy(update={"palettes": self.palettes or palettes, "patches": self.patches or patches})

    def space(self, batch: Batch, goal: Goal) -> PerturbationSpace:
        palettes, patches = self.palettes or (defaults.palette(batch),), self.patches or (defaults.patch(batch),)
        groups = parse_channels(self.channels or defaults.channels(batch), batch.shape[0], batch.leads)
        found = [single_filters(specs, batch) for specs in palettes]
        names = [[str(spec) for spec in single] for single, _ in found]
        own = {name: filter for _, filters in found for name, filter in filters.items()}
        return PerturbationSpace(batch.bounds, names, patches, self.entries, goal, groups, batch.rate, batch.unit, own)

    def generator(self, batch: Batch, goal: Goal) -> AdversaryGenerator:
        if isinstance(self.adversary, AdversaryGenerator):
            return self.adversary
        gradient = GradientAdversary(self.space(batch, goal), self.radius_range, self.gradient_steps, self.aimed_share)
        augmix = AugMix(batch.bounds)
        trades = replace(gradient, steps=max(1, self.gradient_steps), aimed=1.0, from_clean=True)
        named = {
            GRADIENT: gradient,
            "augmix": augmix,
            f"augmix+{GRADIENT}": InTurn((gradient, augmix)),
            "trades": trades,
        }
        if self.adversary in named:
            return named[self.adversary]
        published = baseline(self.adversary, self.space(batch, goal), batch.kind)
        return published or PolicyAdversary(
            self.space(batch, goal), parse_policy(self.adversary), self.adversary_budget, self.overshoot
        )


class EvaluationOptions(Options):
    """How to measure robustness: the declared attack, Square, PGD, and the built-in filters on whole inputs."""

    attack: AttackOptions = AttackOptions.model_validate({})  # the same before and after hardening
    attacked: int | None = Field(
        64, ge=1, description="maximum number of samples to attack with queries, spread over the classes (default: 64)"
    )
    square_radius: float | None = Field(None, gt=0, description="radius of the boxes that Square shifts")
    square_budget: int = Field(500, ge=1, description="queries per sample for Square")
    pgd_radius: float | None = Field(None, gt=0, description="radius of PGD in the data's range")
    pgd_norm: Norm = "linf"
    pgd_steps: int = Field(20, ge=1)

    def few(self, batch: Batch) -> Batch:
        """The samples to attack with queries."""
        return batch[Take(limit=self.attacked).rows(batch.y)]


class HardenRunOptions(RunOptions):
    """A model, data for training and testing, the attack that measures it, and the options of hardening."""

    harden: HardenOptions = HardenOptions.model_validate({})
    evaluation: EvaluationOptions = EvaluationOptions.model_validate({})
    test: DataOptions | None = Field(None, description="data to measure on (default: a fifth of the data)")

    @field_validator("evaluation")
    @classmethod
    def _one_attack(cls, value: EvaluationOptions) -> EvaluationOptions:
        if "attack" in value.model_fields_set:
            raise ValueError("declare the attack once, outside of 'evaluation'")
        return value

    def evaluation_options(self) -> EvaluationOptions:
        return self.evaluation.model_copy(update={"attack": self.attack_options()})
