"""The options of an audit: an attack, the stages around it, and the requirements; checked before the first query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import Field, field_validator, model_serializer, model_validator

from rlab.benchmarking.config import BenchmarkOptions, folder_name
from rlab.benchmarking.requirements import Requirement, Stage, quantity
from rlab.data.load import DataOptions
from rlab.explanation import parse_methods
from rlab.hardening.options import HardenOptions
from rlab.runs.options import AttackOptions, RunOptions, SharedRunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import Options, check

STAGES: tuple[Stage, ...] = get_args(Stage)
SECTIONS = ("doctor", "explain", "benchmark", "harden")  # stages with options of their own, which `false` skips


class Condition(NamedTuple):
    """A distortion that fills one group of channels, at an SNR in dB or, without one, at the severities of the palette."""

    distortion: str
    snr: float | None

    @classmethod
    def of(cls, requirement: Requirement) -> Condition:
        """What a requirement on `detection` is about."""
        assert requirement.distortion is not None
        return cls(requirement.distortion, quantity(requirement.at["snr"])[0] if requirement.at else None)


_OTHERS = "grade further models on its benchmark with `rlab benchmark run AUDIT/benchmark --model NAME=MODEL`"


class DoctorStage(Options):
    samples: int = Field(16, ge=2, description="number of samples for the doctor")
    stop: bool = Field(True, description="stop the audit if the doctor finds errors")


class ExplainStage(Options):
    methods: tuple[str, ...] = Field(("belief", "middle"), description="methods, as in `rlab explain --method`")
    samples: int = Field(8, ge=1, description="number of correctly classified samples to explain")
    steps: int = Field(20, ge=2, description="number of deletion and insertion steps")
    checks: bool = Field(False, description="score stability and run the sanity check: two more runs of every method")
    rule: str = Field("otsu", description="rule that turns a map into a mask")

    @field_validator("methods")
    @classmethod
    def _exist(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        parse_methods(methods, scored=True)
        return methods


class BenchmarkStage(BenchmarkOptions):
    """Options of `rlab benchmark make` over the audit's attack options."""

    removed: ClassVar[Mapping[str, str]] = {
        **BenchmarkOptions.removed,
        "against": _OTHERS,
        "folder": "grade the model on an existing benchmark with `rlab benchmark run FOLDER --model MODEL --require LEVEL=SHARE`",
    }
    ladder: str = Field("times:1.5,2", description="severity levels, as in `rlab benchmark make`")

    @model_validator(mode="after")
    def _own(self) -> BenchmarkStage:
        if self.sets != "each":
            raise ValueError("an audit makes one set for its model: omit 'sets'")
        if self.models:
            raise ValueError(f"an audit has one model: omit 'benchmark.models', and {_OTHERS}")
        if self.data is not None:
            raise ValueError("the benchmark is made from the audit's data: omit 'benchmark.data'")
        return self

    @model_serializer(mode="wrap")
    def _without_inherited(self, dump: Any) -> dict[str, Any]:
        inherited = AttackOptions.model_fields.keys() - self.model_fields_set
        return {name: value for name, value in dump(self).items() if name not in inherited}


class HardenStage(HardenOptions):
    """Options of `rlab harden`: it trains on `data` and is measured on the audit's data before and after."""

    data: DataOptions
    attacked: int | None = Field(64, ge=1, description="number of samples to attack before and after")


class AuditOptions(WorkerOptions, RunOptions):
    """Doctor and benchmark run unless they are false, harden if it is declared, explain also if a requirement needs it."""

    title: str = ""
    doctor: DoctorStage | Literal[False] = check(DoctorStage, {})
    explain: ExplainStage | Literal[False] | None = None
    benchmark: BenchmarkStage | Literal[False] = check(BenchmarkStage, {})
    harden: HardenStage | None = None
    requirements: tuple[Requirement, ...] = Field(
        (),
        description="requirements, such as {metric: clean_accuracy, at_least: 90%}; without any, the audit only reports",
    )

    @model_validator(mode="before")
    @classmethod
    def _sections(cls, values: Any) -> Any:
        """A section that is empty or true has every default."""
        if not isinstance(values, Mapping):
            return values
        if "attack" in values:
            raise ValueError("the section 'attack' is gone: write its keys beside 'model' and 'data'")
        whole = {name: {} if name in SECTIONS and value in (None, True) else value for name, value in values.items()}
        return whole | ({"harden": None} if whole.get("harden") is False else {})

    @property
    def own(self) -> str:
        """The audited model's name in its benchmark."""
        return folder_name(self.model.model_dump(mode="json")["name"])

    @property
    def steps(self) -> tuple[str, ...]:
        """The stages that run; `detect` and `corrupt` run if a requirement needs them."""
        runs: set[str] = {"attack", *(requirement.figure.stage for requirement in self.requirements)}
        for stage in SECTIONS:
            declared = getattr(self, stage)
            runs = runs | {stage} if declared else runs - {stage} if declared is False or stage == "harden" else runs
        return tuple(stage for stage in STAGES if stage in runs)

    @property
    def explaining(self) -> ExplainStage | None:
        """The options of the stage `explain`, if it runs."""
        return (self.explain or check(ExplainStage, {})) if "explain" in self.steps else None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The distortions under which the model has to detect something, each once."""
        asked = (Condition.of(requirement) for requirement in self.requirements if requirement.metric == "detection")
        return tuple(dict.fromkeys(asked))

    def shared_options(self) -> SharedRunOptions:
        """The options of `rlab attack`: model, data, attack and workers."""
        return SharedRunOptions(**{name: getattr(self, name) for name in SharedRunOptions.model_fields})

    def harden_options(self) -> HardenOptions:
        """The section's options, with the attack's palette, patch and seed as defaults."""
        assert self.harden is not None
        own = {name for name in HardenOptions.model_fields if name in self.harden.model_fields_set}
        return HardenOptions(**{name: getattr(self.harden, name) for name in own}).following(self)

    def benchmark_options(self) -> BenchmarkOptions:
        """The options of the section 'benchmark' over those of the attack."""
        stage = self.benchmark or check(BenchmarkStage, {})
        own = {name: getattr(stage, name) for name in BenchmarkOptions.model_fields if name in stage.model_fields_set}
        attack = {name: getattr(self, name) for name in (*AttackOptions.model_fields, *WorkerOptions.model_fields)}
        return BenchmarkOptions(
            **attack | {"ladder": stage.ladder} | own | {"models": {self.own: self.model}, "data": self.data}
        )
