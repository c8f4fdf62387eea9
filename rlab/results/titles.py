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

_DEMOS = {  # what the model and the data of a demo are
    "demo:digits": ("digits CNN", "handwritten digits"),
    "demo:ecg": ("beat CNN", "simulated heartbeats"),
    "demo:clips": ("clip CNN", "clips of moving digits"),
}
_ZOOS = ("timm:", "torchvision:", "hf:")  # where a model comes from, not what it is
_THINGS: dict[Kind, str] = {"signal": "signal", "image": "image", "video": "clip"}


def title_of(config: Path | None, count: int, size: Sequence[int]) -> str:
    """'resnet18: 12 images from photos'; a missing or damaged configuration names nothing."""
    values: Mapping[str, Any] = {}
    if config is not None and config.is_file():
        with suppress(OptionError):  # the page shows it as it is
            values = read_config(config)
    model, data = _short(values.get("model"), "name"), _short(values.get("data"), "path")
    model = _DEMOS[model][0] if model in _DEMOS else model
    if data in _DEMOS:
        return f"{model or 'Attack'}: {count:,} {_DEMOS[data][1]}"
    things = f"{count:,} {_THINGS[kind_of(size)]}{'s' * (count != 1)}"
    return f"{model or 'Attack'}: {things}{f' from {data}' if data else ''}"


def _short(value: Any, key: str) -> str:
    """The end of a path or the host of an address, which is a text or a field of a mapping."""
    name = value.get(key) if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        return ""
    if "://" in name:
        return urlsplit(name).hostname or ""
    return next((name.removeprefix(zoo) for zoo in _ZOOS if name.startswith(zoo)), Path(name).name)
