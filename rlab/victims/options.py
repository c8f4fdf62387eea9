"""The options of a model, declared once for Python, configuration files and the command line."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_serializer, model_validator

from rlab.errors import OptionError
from rlab.redact import HIDDEN, PLAIN_HEADERS, address, stored
from rlab.storage.config import Bounds, Options
from rlab.victims.base import Outputs
from rlab.victims.readers import BoxColumns, BoxFormat, BoxLayout, BoxOutputs, BoxScale
from rlab.victims.torch_module import Channels, Layout


class ModelOptions(Options):
    """A model as `rlab.load_victim` takes it; a bare string is its name."""

    name: str = Field(
        description="module:function, timm:NAME, model.onnx, model.tflite, weights.safetensors, a URL, ..."
    )
    weights: str | None = Field(None, description="file with weights for the named model")
    factory: str | None = Field(None, description="module:function that builds the model of a weights file")
    trust: bool = Field(False, description="load a .pt2 or TorchScript file, which can run code (default: no)")
    mean: Channels | None = Field(None, description="mean of each channel in the data's range (default: none)")
    std: Channels | None = Field(None, description="standard deviation of each channel (default: none)")
    bounds: Bounds | None = Field(
        None, description="range of values the model expects, to which data are rescaled (default: the data's)"
    )
    outputs: Outputs = Field(
        "auto",
        description="what the model returns: logits, probabilities, labels or topk of classes, or boxes, a map of classes, or "
        "numbers (default: auto, which checks whether classes have logits or probabilities)",
    )
    box_format: BoxFormat | None = Field(
        None, description="boxes in arrays: corners (xyxy, default) or xywh, by centre"
    )
    box_scale: BoxScale | None = Field(
        None, description="boxes in arrays: in pixels (default), or a share of the input"
    )
    box_columns: BoxColumns | None = Field(
        None,
        description="boxes in arrays: what follows the four coordinates: scores of all classes (scores), an objectness before them "
        "(objectness), or one score and the class number (class) (default: scores)",
    )
    box_layout: BoxLayout | None = Field(None, description="boxes in arrays: a box is a row (default), or a column")
    box_overlap: float | None = Field(
        None,
        gt=0,
        le=1,
        description="boxes in arrays: of boxes of a class that overlap more, keep the best (default: 0.5)",
    )
    multilabel: bool = Field(False, description="several classes can be true at once (default: no)")
    classes: int | None = Field(None, ge=1, description="number of classes, for new weights or a model without scores")
    output: str | int | None = Field(None, description="name or index of the scores if there are several outputs")
    score: str | None = Field(
        None, description="module:function that turns the output into a score above 0 if it is right"
    )
    device: str | None = Field(
        None, description="device: cpu, cuda or cuda:1, for ONNX also tensorrt (default: where the model is)"
    )
    autocast: bool = Field(False, description="run in half precision (default: no)")
    compile: bool | None = Field(None, description="use torch.compile: a slow start, but faster in long runs on a GPU")
    chunk: int | None = Field(None, ge=1, description="maximum batch size for the model")
    # what follows with exclude=True is not stored, so that a run can be resumed with other values
    timeout: float | None = Field(
        None, gt=0, exclude=True, description="seconds for an answer (default: 10 for HTTP, else no limit)"
    )
    concurrency: int | None = Field(
        None, ge=1, exclude=True, description="maximum concurrent requests to an HTTP model (default: 32)"
    )
    template: str | None = Field(
        None,
        description="protocol of an HTTP model, such as kserve(input='x'), or a .yaml file (default: by the address)",
    )
    rate: float | str | None = Field(None, exclude=True, description="maximum HTTP requests, such as 10/s or 600/min")
    price: float | str | None = Field(None, exclude=True, description="price of an HTTP query, such as 0.0015/query")
    max_cost: float | None = Field(None, gt=0, exclude=True, description="stop before this command's queries cost more")
    cache: str | None = Field(None, exclude=True, description="file of answers: no input goes to an HTTP model twice")
    layout: Layout = Field(
        "channels_first",
        description="axis order that the model expects: channels_first (default), channels_last, frames_first or no_channels",
    )
    pad: bool | None = Field(None, description="send batches of 1, 8, 64 or 256 rows (default: only for jax.jit)")
    names: tuple[str, ...] | str | None = Field(
        None, description="class names in order, for clip: or a server that names classes; or a file with one per line"
    )
    prompt: str | None = Field(None, description="sentence that clip: gets for a class (default: a photo of a {})")
    http: dict[str, Any] | None = Field(None, description="further arguments for rlab.HttpVictim")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"name": values} if isinstance(values, str) else values

    @property
    def boxes(self) -> BoxOutputs | None:
        """How arrays of boxes are read, if these options say so."""
        given = {name: getattr(self, f"box_{name}") for name in BoxOutputs.__dataclass_fields__}
        stated = {name: value for name, value in given.items() if value is not None}
        if stated and self.outputs != "boxes":
            raise OptionError(f"the option box_{next(iter(stated))} needs outputs=boxes, got outputs={self.outputs}")
        return BoxOutputs(**stated) if stated else None

    @field_serializer("http", when_used="json")
    def _without_secrets(self, http: dict[str, Any] | None) -> dict[str, Any] | None:
        """Headers carry tokens: only their names and references such as ${TOKEN} are stored."""
        headers = (http or {}).get("headers")
        if not isinstance(headers, dict):
            return http
        plain = {name: str(value) for name, value in headers.items()}
        kept = {name: value if name.lower() in PLAIN_HEADERS else stored(value) for name, value in plain.items()}
        return {**(http or {}), "headers": kept}

    @field_serializer("name", when_used="json")
    def _without_password(self, name: str) -> str:
        return address(name) if "://" in name else name

    @model_validator(mode="after")
    def _secrets_are_given(self) -> ModelOptions:
        headers = (self.http or {}).get("headers") or {}
        if not isinstance(headers, dict):
            raise ValueError("expected http headers as a mapping, e.g. {Authorization: ...}")
        if HIDDEN in self.name or HIDDEN in headers.values():
            raise ValueError("the file does not contain the model's secrets: give its address or headers again")
        return self

    def only(self, *names: str) -> dict[str, Any]:
        """The options that differ from their defaults; refuse any not in `names`, which would have no effect."""
        fields = type(self).model_fields
        settings = {name: value for name, value in self if name != "name" and value != fields[name].default}
        if foreign := [name for name in settings if name not in names]:
            raise OptionError(f"the model {self.name!r} does not take {', '.join(foreign)}: omit it")
        return settings
