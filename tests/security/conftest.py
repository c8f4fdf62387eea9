from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from rlab import demo_victim
from tests.victims.faults import Server, fault_server


@pytest.fixture
def server() -> Iterator[Server]:
    """An HTTP model that answers like demo:digits."""
    model = demo_victim("digits")
    with fault_server() as server:
        server.model = lambda inputs: model(torch.tensor(inputs, dtype=torch.float32)).numpy()
        yield server
