"""The title of a run's page: its model and its data, as the run's configuration names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError
from rlab.storage.config import read_config

_DEMOS = {  # model and data of demo:NAME
    "digits": ("digits CNN", "handwritten digits"),
    "ecg": ("beat CNN", "simulated heartbeats"),
    "clips": ("clip CNN", "clips of moving digits"),
}
_ZOOS = ("timm", "torchvision", "hf")  # prefixes that say where a model comes from, not what it is
_THINGS: dict[Kind, str] = {"signal": "signal", "image": "image", "video": "clip"}


@dataclass(frozen=True)
class Names:
    """What a run's configuration calls its model and its data; empty where it says nothing."""

    model: str = ""
    data: str = ""

    @classmethod
    def read(cls, config: Path) -> Names:
        """The names in a run's configuration; a damaged file names nothing, and the page shows it as it is."""
        try:
            values = read_config(config)
        except OptionError:
            return cls()
        return cls(_value(values.get("model"), "name"), _value(values.get("data"), "path"))

    @property
    def model_words(self) -> str:
        """'demo:digits' -> 'digits CNN', 'timm:resnet18' -> 'resnet18', 'nets/small.onnx' -> 'small.onnx'."""
        first, _, rest = self.model.partition(":")
        if first == "demo" and rest in _DEMOS:
            return _DEMOS[rest][0]
        if "://" in self.model:
            return urlsplit(self.model).hostname or ""
        return rest if first in _ZOOS else Path(self.model).name.replace(":", ".")

    def data_words(self, count: int, size: Sequence[int]) -> str:
        """'12 handwritten digits', or '12 images from photos'."""
        first, _, rest = self.data.partition(":")
        if first == "demo" and rest in _DEMOS:
            return f"{count:,} {_DEMOS[rest][1]}"
        things = f"{count:,} {_THINGS[kind_of(size)]}{'s' * (count != 1)}"
        return f"{things} from {Path(self.data).name}" if self.data else things

    def title(self, count: int, size: Sequence[int]) -> str:
        return f"{self.model_words or 'Attack'}: {self.data_words(count, size)}"


def _value(values: Any, key: str) -> str:
    """A field that is a text, or a mapping that holds the text."""
    found = values.get(key) if isinstance(values, dict) else values
    return found if isinstance(found, str) else ""
