"""A long clip's cost is measured in a process of its own."""

from __future__ import annotations

import pytest

from benchmarks.video import memory as video_memory


@pytest.mark.slow
def test_figures_of_a_long_clip() -> None:
    found = video_memory.measure(frames=48, policy="random", net="slowfast", budget=4)
    assert (found["frames"], found["policy"], found["net"]) == (48, "random", "slowfast")
    assert found["clip_mib"] == pytest.approx(48 * 3 * 72 * 96 * 4 / 2**20, abs=1e-3)
    assert found["clip_mib"] <= found["decode_peak_mib"] <= 150  # 144 frames of 160 x 120 are in the file
    assert found["decode_peak_mib"] <= found["peak_mib"] <= 1500
    assert found["queries"] <= 4
    assert min(found[name] for name in ("decode_seconds", "answer_seconds", "clip_seconds")) > 0


def test_a_measurement_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "false")
    with pytest.raises(RuntimeError, match="nonsense"):
        video_memory.measure(frames=8, policy="nonsense", net="slowfast", budget=4)
