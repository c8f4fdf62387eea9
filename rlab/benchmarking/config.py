"""A benchmark as a file: everything `rlab benchmark make` takes, checked before anything is spent."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rlab.benchmarking.formats import usual_format
from rlab.benchmarking.ladder import parse_ladder
from rlab.core import defaults
from rlab.data.batch import Batch
from rlab.data.load import BY_ENDING, DEMO, DataOptions
from rlab.data.wfdb_records import wfdb_records
from rlab.filters.palette import Palette
from rlab.victims.options import ModelOptions, check


class BenchmarkConfig(BaseModel):
    """Models by the names they get in the benchmark. Fields left out follow the kind of data."""

    model_config = ConfigDict(extra="forbid")
    models: dict[str, ModelOptions] = Field(min_length=1)
    data: DataOptions
    ladder: str = "times:1.25,1.5,2"
    goal: str = "untargeted"
    palette: list[str] | None = None
    patch: int | list[int] | None = None
    budget: int | None = Field(None, ge=1)  # queries a sample until it is flipped and cleaned up
    steps: int = Field(40, ge=1)  # queries a sample and level beyond the flip
    policy: str = defaults.POLICY
    lead: float = Field(0.05, ge=0)
    per_class: int | None = Field(None, ge=1)
    format: Literal["png", "npz", "wfdb", "mp4"] | None = None
    chunk: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=-(2**63), lt=2**63)

    @field_validator("ladder")
    @classmethod
    def _ladder(cls, text: str) -> str:
        return str(parse_ladder(text)) if text != "flip" else text

    def plain(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    def filled(self, batch: Batch) -> tuple[BenchmarkConfig, dict[str, Any]]:
        """The effective configuration for these data, and what of it was defaulted: a file to make the same from."""
        palette = self.palette or list(defaults.palette(batch))
        entries = len(Palette.of(palette, batch.rank, batch.x.shape[1], batch.rate, batch.unit))
        found = {
            "palette": palette,
            "patch": list(defaults.patch(batch)),
            "budget": defaults.BUDGETS[batch.kind],
            "format": usual_format(batch, self._from_files()),
            "chunk": defaults.chunk(batch, entries),
        }
        defaulted = {name: value for name, value in found.items() if getattr(self, name) is None}
        return self.model_copy(update=defaulted), defaulted

    def _from_files(self) -> bool:
        """Whether a sample has a file of its own where the data come from."""
        path = self.data.path
        ending = path[path.rfind(".") :].lower() if "." in path else ""
        return not path.startswith(DEMO) and BY_ENDING.get(ending, wfdb_records) is wfdb_records

    def options(self) -> dict[str, Any]:
        """Arguments of `make_benchmark` besides victims, data and folder."""
        return self.model_dump(exclude={"models", "data", "format"})


def make_benchmark_config(values: dict[str, Any]) -> BenchmarkConfig:
    """Checked; a bare string for the data is its path, for a model its name."""
    whole = dict(values)
    if isinstance(whole.get("data"), str):
        whole["data"] = {"path": whole["data"]}
    models = whole.get("models")
    if isinstance(models, dict):
        whole["models"] = {k: {"name": v} if isinstance(v, str) else v for k, v in models.items()}
    return check(BenchmarkConfig, whole)
