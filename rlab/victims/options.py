"""The options of a model by name, for Python, configuration files and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_serializer, model_validator

from rlab.errors import OptionError
from rlab.redact import HIDDEN, address
from rlab.storage.config import Options
from rlab.victims.address import HttpOptions


class _Named(Options):
    name: str = Field(
        description="module:function, timm:NAME, model.onnx, model.tflite, weights.safetensors, a URL, ..."
    )


class ModelOptions(HttpOptions, _Named):
    """A model as `rlab.load_victim` takes it; a bare string is its name."""

    removed: ClassVar[Mapping[str, str]] = {
        "http": "write its keys as options of their own, such as headers or retries"
    }

    weights: str | None = Field(None, description="file with weights for the named model")
    factory: str | None = Field(None, description="module:function that builds the model of a weights file")
    trust: bool = Field(False, description="load a .pt2 or TorchScript file, which can run code (default: no)")
    score: str | None = Field(
        None, description="module:function that turns the output into a score above 0 if it is right"
    )
    device: str | None = Field(
        None, description="device: cpu, cuda or cuda:1, for ONNX also tensorrt (default: where the model is)"
    )
    autocast: bool = Field(False, description="run in half precision (default: no)")
    pad: bool | None = Field(None, description="send batches of 1, 8, 64 or 256 rows (default: only for jax.jit)")
    names: tuple[str, ...] | str | None = Field(
        None, description="class names in order, for clip: or a server that names classes; or a file with one per line"
    )
    prompt: str | None = Field(None, description="sentence that clip: gets for a class (default: a photo of a {})")
    template: str | None = Field(None, description=HttpOptions.model_fields["template"].description)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, values: Any) -> Any:
        return {"name": values} if isinstance(values, str) else values

    @model_validator(mode="after")
    def _consistent(self) -> ModelOptions:
        """Replaces the check of `Reading`, which the victim makes: new weights take `classes`, too."""
        if HIDDEN in self.name or HIDDEN in (self.headers or {}).values():
            raise ValueError("the file does not contain the model's secrets: give its address or headers again")
        return self

    @field_serializer("name", when_used="json")
    def _without_password(self, name: str) -> str:
        return address(name) if "://" in name else name

    def only(self, *names: str) -> dict[str, Any]:
        """The given options; refuse any not in `names`, which would have no effect."""
        given = {name: value for name, value in self.given().items() if name != "name"}
        if foreign := [name for name in given if name not in names]:
            raise OptionError(f"the model {self.name!r} does not take {', '.join(foreign)}: omit it")
        return given
