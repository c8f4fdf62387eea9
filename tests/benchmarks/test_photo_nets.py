"""Published ImageNet networks, read as their authors describe: they recognise most photos."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.data import Absent, photos
from benchmarks.victims.photo_nets import mobilenet_victim, squeezenet_victim
from rlab.errors import MissingExtra
from rlab.victims.base import Victim


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("load", [squeezenet_victim, mobilenet_victim])
def test_published_networks_recognise_photos(load: Callable[[], Victim]) -> None:
    try:
        victim, batch = load(), photos(24)
    except (Absent, MissingExtra) as why:
        pytest.skip(str(why))
    assert float((victim(batch.x).argmax(1) == batch.y).float().mean()) > 0.5
