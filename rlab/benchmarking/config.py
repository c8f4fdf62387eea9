"""The declaration of a benchmark: an attack's options, the models it is made against, and a ladder of severities."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rlab.benchmarking.formats import usual_format
from rlab.benchmarking.ladder import Ladder, parse_ladder
from rlab.data.batch import Batch
from rlab.data.load import BY_ENDING, DEMO, DataOptions
from rlab.data.wfdb_records import wfdb_records
from rlab.options import AttackOptions
from rlab.victims.options import ModelOptions


class BenchmarkOptions(AttackOptions):
    """Everything `rlab benchmark make` takes. What is None follows the kind of data; `model` alone is one of `models`."""

    models: dict[str, ModelOptions] = Field(
        default_factory=dict, description="those it is made against, by the names they get in it"
    )
    data: DataOptions | None = Field(None, description="the samples")
    ladder: str = Field(
        str(Ladder()), description="times:1.25,1.5,2 (of the flip's L2), l2:1,2,4, probability:0.5,0.1 or flip"
    )
    steps: int = Field(40, ge=1, description="most queries a sample and level beyond the flip")
    lead: float = Field(0.05, ge=0, description="log-probability by which a wrong class must lead")
    per_class: int | None = Field(None, ge=1, description="so many samples of every class; all where not said")
    format: Literal["png", "npz", "wfdb", "mp4"] | None = Field(
        None, description="of the files: png, npz, wfdb or mp4; by the kind of data if left out"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_model(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "model" not in values:
            return values
        single, others = values["model"], dict(values.get("models") or {})
        spec = single.get("name", "") if isinstance(single, Mapping) else getattr(single, "name", single)
        shared = {key: value for key, value in values.items() if key != "model"}
        return shared | {"models": {folder_name(str(spec)): single} | others}

    @field_validator("ladder", mode="before")
    @classmethod
    def _ladder(cls, value: Any) -> Any:
        return str(parse_ladder(value)) if isinstance(value, str) else str(value)

    def filled(self, batch: Batch) -> tuple[Self, dict[str, Any]]:
        """The effective options for these data, and what of them was defaulted: a file to make the same from."""
        whole, defaulted = super().filled(batch)
        if whole.format is None:
            defaulted |= {"format": usual_format(batch, self._from_files())}
        return whole.model_copy(update=defaulted), defaulted

    def _from_files(self) -> bool:
        """Whether a sample has a file of its own where the data come from."""
        if self.data is None or self.data.path.startswith(DEMO):
            return False
        return BY_ENDING.get(Path(self.data.path).suffix.lower(), wfdb_records) is wfdb_records


def folder_name(spec: str, taken: Collection[str] = ()) -> str:
    """'demo:digits' -> 'demo-digits', 'my_models:resnet' -> 'my_models-resnet'; a number tells equal ones apart."""
    base = re.sub(r"[^\w.+-]+", "-", re.sub(r"^https?://([^/@]*@)?", "", spec)).strip("-.") or "model"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    return name
