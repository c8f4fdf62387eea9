"""A run as a file: everything `rlab attack` takes, in YAML or TOML, checked before anything is spent."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, model_validator

from rlab import defaults
from rlab.data.batch import Batch
from rlab.data.load import DataConfig
from rlab.errors import InputError
from rlab.filters.palette import Palette
from rlab.loop import Attack, make_attack
from rlab.victims.base import Victim
from rlab.victims.resolve import load_victim

Checked = TypeVar("Checked", bound=BaseModel)
HIDDEN = "(hidden)"  # in place of a secret, in everything that is written down


class ModelConfig(BaseModel):
    """A model as `rlab.load_victim` takes it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    weights: str | None = None
    factory: str | None = None
    mean: list[float] | None = None
    std: list[float] | None = None
    bounds: tuple[float, float] | None = None
    outputs: Literal["auto", "logits", "probabilities"] = "auto"
    multilabel: bool = False
    classes: int | None = Field(None, ge=1)
    device: str | None = None
    autocast: bool = False
    chunk: int | None = Field(None, ge=1)
    layout: Literal["channels_first", "frames_first"] = "channels_first"
    http: dict[str, Any] | None = None  # further arguments of rlab.HttpVictim

    @field_serializer("http", when_used="json")
    def _without_secrets(self, http: dict[str, Any] | None) -> dict[str, Any] | None:
        """Headers carry tokens: their names are written down, their values are not."""
        headers = (http or {}).get("headers")
        return http if not headers else {**(http or {}), "headers": dict.fromkeys(headers, HIDDEN)}

    @field_serializer("name", when_used="json")
    def _without_password(self, name: str) -> str:
        return re.sub(r"^(https?://)[^/@]*@", rf"\g<1>{HIDDEN}@", name)

    @model_validator(mode="after")
    def _told_again(self) -> ModelConfig:
        headers = (self.http or {}).get("headers") or {}
        if HIDDEN in (*headers.values(), self.name.partition("@")[0].partition("://")[2]):
            raise ValueError("the file does not hold the model's secrets: give its headers or password again")
        return self

    def load(self, batch: Batch) -> Victim:
        """The model for these data; values other than 0..1 are taken to be meant for it."""
        given = self.model_dump(exclude={"name"}, exclude_none=True, exclude_defaults=True)
        if batch.bounds != (0.0, 1.0):
            given.setdefault("bounds", batch.bounds)
        return load_victim(self.name, **given)


class RunConfig(BaseModel):
    """What to attack, with what, how hard. Fields left out follow the kind of data."""

    model_config = ConfigDict(extra="forbid")
    model: ModelConfig
    data: DataConfig
    palette: list[str] | None = None
    patch: int | list[int] | None = None
    goal: str = "untargeted"
    budget: int | None = Field(None, ge=1)
    policy: str = defaults.POLICY
    keep: Literal["better", "always"] = "better"
    price: float | None = Field(None, ge=0)  # the policy's own where none is given
    cleanup: bool = True
    patience: int | None = Field(None, ge=1)
    chunk: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=-(2**63), lt=2**63)

    def filled(self, batch: Batch) -> tuple[RunConfig, dict[str, Any]]:
        """The effective configuration for these data, and what of it was defaulted."""
        palette = list(defaults.palette(batch)) if self.palette is None else self.palette
        entries = len(Palette.of(palette, batch.rank, batch.x.shape[1], batch.rate, batch.unit))
        found = {
            "palette": palette,
            "patch": list(defaults.patch(batch)),
            "budget": defaults.BUDGETS[batch.kind],
            "chunk": defaults.chunk(batch, entries),
        }
        defaulted = {name: value for name, value in found.items() if getattr(self, name) is None}
        return self.model_copy(update=defaulted), defaulted

    def plain(self) -> dict[str, Any]:
        """As plain values, fit for a file."""
        return self.model_dump(mode="json", exclude_none=True)

    def attack(self, batch: Batch) -> Attack:
        options = self.model_dump(exclude={"model", "data", "seed"})
        return make_attack(batch, **options)


def read_config(path: Path) -> dict[str, Any]:
    """The file's values as they stand; YAML, or TOML by its ending."""
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read the configuration {path}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise InputError(f"expected {path} to hold fields like 'model:' and 'data:', got {type(found).__name__}")
    return found


def make_config(values: dict[str, Any]) -> RunConfig:
    """Checked; a bare string for model or data is its name or path."""
    whole = dict(values)
    for field, key in (("model", "name"), ("data", "path")):
        if isinstance(whole.get(field), str):
            whole[field] = {key: whole[field]}
    return check(RunConfig, whole)


def check(kind: type[Checked], values: dict[str, Any]) -> Checked:
    """The values as a configuration of this kind; what will not do is named in one sentence."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise InputError(
            f"the configuration's field {place!r} will not do: {first['msg']}, got {first['input']!r}"
        ) from error
