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

_THINGS: dict[Kind, str] = {"signal": "signal", "image": "image", "video": "clip"}


def title_of(config: Path | None, count: int, size: Sequence[int]) -> str:
    """'timm:resnet18: 12 images from photos'; a missing or damaged configuration names nothing."""
    values: Mapping[str, Any] = {}
    if config is not None and config.is_file():
        with suppress(OptionError):  # the page shows it as it is
            values = read_config(config)
    model, data = _short(values.get("model"), "name"), _short(values.get("data"), "path")
    things = f"{count:,} {_THINGS[kind_of(size)]}{'s' * (count != 1)}"
    return f"{model or 'Attack'}: {things}{f' from {data}' if data else ''}"


def _short(value: Any, key: str) -> str:
    """The end of a path or the host of an address, which is a text or a field of a mapping."""
    name = value.get(key) if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        return ""
    return urlsplit(name).hostname or "" if "://" in name else Path(name).name
