"""An audit as a file: what is tested, how hard, and what it must achieve; checked before anything is spent."""

from __future__ import annotations

import difflib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rlab.benchmarking import BenchmarkConfig, make_benchmark_config, parse_ladder
from rlab.benchmarking.make import folder_name
from rlab.core import defaults
from rlab.data.load import DataOptions
from rlab.errors import InputError
from rlab.explanation import parse_methods
from rlab.hardening import HardenConfig
from rlab.victims.options import ModelOptions, RunOptions, check

SWITCHED = ("doctor", "explain", "benchmark", "harden")  # sections that may be false


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DoctorSection(Section):
    samples: int = Field(16, ge=2)
    stop: bool = True  # spend nothing further where it finds errors


class AttackSection(Section):
    """As `rlab attack`; palette, patch and seed are the audit's."""

    goal: str = "untargeted"
    budget: int | None = Field(None, ge=1)
    policy: str = defaults.POLICY
    keep: Literal["better", "always"] = "better"
    l2_penalty: float = Field(0.0, ge=0)
    cleanup: bool = True
    patience: int | None = Field(None, ge=1)
    chunk: int | None = Field(None, ge=1)


class ExplainSection(Section):
    methods: tuple[str, ...] = ("credit", "middle")
    samples: int = Field(8, ge=1)  # of those the model has right
    steps: int = Field(20, ge=2)  # of deletion and insertion
    checks: bool = False  # stability and the sanity check, which run every method twice more
    rule: str = "otsu"

    @field_validator("methods")
    @classmethod
    def _known(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        parse_methods(methods)
        return methods


class BenchmarkSection(Section):
    """As `rlab benchmark make` and `run`; `models` are further ones to grade, `against: all` makes sets against them too."""

    models: dict[str, ModelOptions] = Field(default_factory=dict)
    against: Literal["own", "all"] = "own"
    ladder: str = "times:1.5,2"
    goal: str = "untargeted"
    budget: int | None = Field(None, ge=1)
    steps: int = Field(40, ge=1)
    policy: str | None = None
    lead: float = Field(0.05, ge=0)
    per_class: int | None = Field(None, ge=1)
    format: Literal["png", "npz", "wfdb", "mp4"] | None = None
    chunk: int | None = Field(None, ge=1)
    corruptions: bool = True

    @field_validator("ladder")
    @classmethod
    def _ladder(cls, text: str) -> str:
        parse_ladder(text)
        return text


class HardenSection(HardenConfig):
    """As `rlab harden`: `data` are what it trains on; before and after are measured on the audit's own."""

    data: DataOptions
    attacked: int | None = Field(64, ge=1)  # samples attacked with queries when before and after are measured


class AuditConfig(Section):
    """Doctor, explain and benchmark run unless they are false; harden runs where it is declared."""

    title: str = ""
    model: ModelOptions
    data: DataOptions
    palette: tuple[str, ...] | None = None
    patch: int | tuple[int, ...] | None = None
    seed: int = Field(0, ge=0, lt=2**31)
    doctor: DoctorSection | None = DoctorSection()  # type: ignore[call-arg]  # fields with defaults
    attack: AttackSection = AttackSection()  # type: ignore[call-arg]
    explain: ExplainSection | None = ExplainSection()  # type: ignore[call-arg]
    benchmark: BenchmarkSection | None = BenchmarkSection()  # type: ignore[call-arg]
    harden: HardenSection | None = None
    requirements: tuple[str, ...] = Field(min_length=1)

    @property
    def own(self) -> str:
        """The audited model's name beside others."""
        return folder_name(self.model.model_dump(mode="json")["name"])

    def plain(self) -> dict[str, Any]:
        """As plain values, fit for a file."""
        found = self.model_dump(mode="json", exclude_none=True)
        return found | {name: False for name in SWITCHED[:3] if getattr(self, name) is None}

    def run_config(self) -> RunOptions:
        shared = self.model_dump(include={"model", "data", "palette", "patch", "seed"}, exclude_none=True)
        return check(RunOptions, shared | self.attack.model_dump(exclude_none=True))

    def benchmark_config(self) -> BenchmarkConfig:
        assert self.benchmark is not None
        own = self.benchmark.model_dump(exclude={"models", "against", "corruptions"}, exclude_none=True)
        shared = self.model_dump(include={"data", "palette", "patch", "seed"}, exclude_none=True)
        models = {self.own: self.model} | (self.benchmark.models if self.benchmark.against == "all" else {})
        usual = {"policy": self.attack.policy} | ({"budget": self.attack.budget} if self.attack.budget else {})
        plain = {name: one.model_dump() for name, one in models.items()}
        return make_benchmark_config({"models": plain, **shared, **usual, **own})


def make_audit_config(values: dict[str, Any]) -> AuditConfig:
    """Checked; a bare string for a model or data is its name or path, and `false` leaves a stage out."""
    whole = dict(values)
    for name in SWITCHED:
        if whole.get(name) is False:
            whole[name] = None
        elif name in whole and whole[name] in (None, True):
            whole[name] = {}
    for field, key in (("model", "name"), ("data", "path")):
        whole = _spelled(whole, field, key)
    if isinstance(whole.get("harden"), dict):
        whole["harden"] = _spelled(whole["harden"], "data", "path")
    graded = whole.get("benchmark")
    if isinstance(graded, dict) and isinstance(graded.get("models"), dict):
        named = {name: {"name": one} if isinstance(one, str) else one for name, one in graded["models"].items()}
        whole["benchmark"] = graded | {"models": named}
    try:
        found = AuditConfig.model_validate(whole)
    except ValidationError as error:
        raise InputError(_sentence(error)) from error
    if found.benchmark and found.own in found.benchmark.models:
        raise InputError(
            f"benchmark.models names {found.own!r}, which is the audited model itself: give it another name"
        )
    return found


def _spelled(values: dict[str, Any], field: str, key: str) -> dict[str, Any]:
    said = values.get(field)
    return values | {field: {key: said}} if isinstance(said, str) else values


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    steps = [str(step) for step in first["loc"]]
    place = ".".join(steps)
    if first["type"] == "extra_forbidden":
        known = _keys(steps[:-1])
        near = difflib.get_close_matches(steps[-1], known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"unknown key {place!r} in the audit.{hint} The keys there are {', '.join(known)}"
    if first["type"] == "missing":
        whose = "the audit" if len(steps) == 1 else f"the audit's section {'.'.join(steps[:-1])!r}"
        return f"{whose} has no {steps[-1]!r}: declare it, for instance {_INSTANCES.get(place, f'{steps[-1]}: ...')}"
    if first["type"] == "too_short" and place == "requirements":
        return f"the audit has no requirements: declare some, for instance {_INSTANCES[place]}"
    return f"the audit's field {place!r} will not do: {first['msg']}, got {first['input']!r}"


_INSTANCES = {
    "model": "model: my_models:resnet",
    "data": "data: {path: photos/, labels: labels.csv}",
    "requirements": "requirements: [clean accuracy at least 90%, success below 50% at L2 1.0]",
    "harden.data": "data: {path: photos/train}",
}
_SECTIONS: dict[str, type[BaseModel]] = {
    "model": ModelOptions, "data": DataOptions, "doctor": DoctorSection, "attack": AttackSection,
    "explain": ExplainSection, "benchmark": BenchmarkSection, "harden": HardenSection,
}  # fmt: skip


def _keys(steps: list[str]) -> list[str]:
    """The keys a section knows."""
    kind = _SECTIONS.get(steps[0], AuditConfig) if steps else AuditConfig
    if "models" in steps:
        kind = ModelOptions
    elif steps[1:] == ["data"]:
        kind = DataOptions
    return list(kind.model_fields)
