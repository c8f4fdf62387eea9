"""The title of a run's page: its model and its data, as the run's configuration names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError
from rlab.storage.config import read_config

_DEMOS = {  # model and data
    "demo:digits": ("digits CNN", "handwritten digits"),
    "demo:ecg": ("beat CNN", "simulated heartbeats"),
    "demo:clips": ("clip CNN", "clips of moving digits"),
}
_ZOOS = ("timm", "torchvision", "hf")  # prefixes that say where a model comes from, not what it is
_THINGS: dict[Kind, str] = {"signal": "signal", "image": "image", "video": "clip"}


def title_of(config: Path | None, count: int, size: Sequence[int]) -> str:
    """'resnet18: 12 images from photos'; a missing or damaged configuration names nothing."""
    values: Mapping[str, Any] = {}
    if config is not None and config.is_file():
        with suppress(OptionError):  # the page shows it as it is
            values = read_config(config)
    model, data = _text(values.get("model"), "name"), _text(values.get("data"), "path")
    things = f"{_THINGS[kind_of(size)]}{'s' * (count != 1)}" + (f" from {Path(data).name}" if data else "")
    return f"{_model_words(model) or 'Attack'}: {count:,} {_DEMOS[data][1] if data in _DEMOS else things}"


def _model_words(name: str) -> str:
    """'demo:digits' -> 'digits CNN', 'timm:resnet18' -> 'resnet18', 'nets/small.onnx' -> 'small.onnx'."""
    first, _, rest = name.partition(":")
    if name in _DEMOS:
        return _DEMOS[name][0]
    if "://" in name:
        return urlsplit(name).hostname or ""
    return rest if first in _ZOOS else Path(name).name.replace(":", ".")


def _text(value: Any, key: str) -> str:
    """A field that is a text, or a mapping that holds the text."""
    found = value.get(key) if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else ""
