"""A model as options: the one declaration of what can be said about it, in Python, in files and on the command line."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_serializer, model_validator

from rlab.errors import InputError
from rlab.redact import HIDDEN, PLAIN_HEADERS, address, stored
from rlab.storage.config import Bounds, Options
from rlab.victims.base import Outputs
from rlab.victims.torch_module import Channels, Layout


class ModelOptions(Options):
    """A model as `rlab.load_victim` takes it; a bare string is its name."""

    name: str = Field(
        description="module:function, timm:NAME, model.onnx, weights.safetensors, an address, demo:digits"
    )
    weights: str | None = Field(None, description="a file of weights for the named model")
    factory: str | None = Field(None, description="module:function that makes the model whose weights the name is")
    mean: Channels | None = Field(None, description="of each channel, in the data's range; subtracted in the wrapper")
    std: Channels | None = Field(None, description="of each channel, in the data's range")
    bounds: Bounds | None = Field(None, description="the range of values the model takes")
    outputs: Outputs = Field(
        "auto", description="what the model returns: logits or probabilities, auto looks; labels or topk: only classes"
    )
    multilabel: bool = Field(False, description="whether classes may be true together")
    classes: int | None = Field(
        None, ge=1, description="how many, where published weights are replaced or the model tells only class numbers"
    )
    output: str | int | None = Field(None, description="the name or place of the scores in an answer of several parts")
    score: str | None = Field(
        None,
        description="module:function of the answer, of a detector say: a number above 0 where it finds what it should",
    )
    device: str | None = Field(None, description="cpu, cuda, cuda:1")
    autocast: bool = Field(False, description="half precision")
    compile: bool | None = Field(
        None, description="ask by torch.compile: slow to begin with, quicker in long runs on a GPU"
    )
    chunk: int | None = Field(None, ge=1, description="rows the model gets at once")
    timeout: float | None = Field(
        None,
        gt=0,
        exclude=True,
        description="seconds a model may take for one answer; 10 behind an address, else any time",
    )  # not written down: a run that was stopped by it goes on with another
    concurrency: int | None = Field(
        None, ge=1, exclude=True, description="most requests at once to a model behind an address; 32 where not said"
    )  # nor is this
    layout: Layout = Field("channels_first", description="of video models' inputs")
    http: dict[str, Any] | None = Field(None, description="further arguments of rlab.HttpVictim")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"name": values} if isinstance(values, str) else values

    @field_serializer("http", when_used="json")
    def _without_secrets(self, http: dict[str, Any] | None) -> dict[str, Any] | None:
        """Headers carry tokens: their names are written down, of their values only references such as ${TOKEN}."""
        headers = (http or {}).get("headers")
        if not isinstance(headers, dict):
            return http
        kept = {
            name: str(value) if name.lower() in PLAIN_HEADERS else stored(str(value)) for name, value in headers.items()
        }
        return {**(http or {}), "headers": kept}

    @field_serializer("name", when_used="json")
    def _without_password(self, name: str) -> str:
        return address(name) if name.startswith(("http://", "https://")) else name

    @model_validator(mode="after")
    def _secrets_are_given(self) -> ModelOptions:
        headers = (self.http or {}).get("headers") or {}
        if not isinstance(headers, dict):
            raise ValueError("expected the http headers by name, like {Authorization: ...}")
        if HIDDEN in self.name or HIDDEN in headers.values():
            raise ValueError("the file does not hold the model's secrets: give its address or headers again")
        return self

    def only(self, *names: str) -> dict[str, Any]:
        """What was said of `names` beyond the defaults; anything else would have no effect, and is refused."""
        fields = type(self).model_fields
        settings = {name: value for name, value in self if name != "name" and value != fields[name].default}
        if foreign := [name for name in settings if name not in names]:
            raise InputError(f"the model {self.name!r} does not take {', '.join(foreign)}: leave it out")
        return settings
