"""The declaration of workers: command-line flags, YAML keys and keywords all come from these fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from rlab.runs.cluster import FOUND, HERE
from rlab.storage.config import Accepts, Options

MOST_WORKERS = 1024


class WorkerOptions(Options):
    """Who does the work; it does not change the results and is not stored, so a stopped run may resume with other workers."""

    workers: int | None = Field(
        None,
        ge=1,
        le=MOST_WORKERS,
        exclude=True,
        description="number of parallel processes, each with a copy of the model; it does not change the results",
    )
    devices: Annotated[tuple[str, ...] | None, Accepts(str | Sequence[str] | None)] = Field(
        None,
        exclude=True,
        description="one device per worker, e.g. cuda:0,cuda:1 (default: workers share the CPU's threads)",
    )
    cluster: str | None = Field(
        None,
        exclude=True,
        description="Ray cluster to run on: ray://host:port, auto or local (default number of workers: as many as fit)",
    )

    @field_validator("devices", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Accept 'cuda:0,cuda:1' or a list."""
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple):
            return value
        names = [name.strip() for text in listed for name in str(text).split(",") if name.strip()]
        if not names:
            raise ValueError("expected devices such as cuda:0,cuda:1")
        return tuple(names)

    @field_validator("cluster")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value not in (None, HERE, FOUND) and not re.fullmatch(r"ray://[^/?#]+:\d+", str(value)):
            forms = f"ray://HOST:PORT, {FOUND} for the cluster this machine belongs to, or {HERE} for one started here"
            raise ValueError(f"expected {forms}")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> WorkerOptions:
        if self.cluster and self.devices:
            raise ValueError("a cluster assigns a GPU to each worker with the device cuda: leave out the devices")
        return self

    @property
    def shared(self) -> bool:
        """Whether the work is done outside this process."""
        return self.cluster is not None or (self.workers or len(self.devices or ())) > 1
