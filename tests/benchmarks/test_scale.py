"""The page of what was measured on one machine and on another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import common, scale_page

HERE = {
    "http_speedup": 25.0, "http_rows_per_second": 500.0, "http_rows_per_second_alone": 20.0, "bit_equal": True,
    "bit_equal_over": ["1 worker", "2 workers"], "workers_speedup": 1.9, "workers_seconds_1": 3.8,
    "workers_seconds_2": 2.0, "memory_ratio_100k": 1.125, "memory_mb_1k": 320.0, "memory_mb_100k": 360.0,
    "measured_on": "a machine with two cores",
}  # fmt: skip
THERE = {
    "gpu_over_forward": 1.08, "gpu_over_forward_200": 1.08, "gpu_over_forward_200_each": [1.07, 1.08, 1.1],
    "gpu_rows_per_second": 3000.0, "gpu_attack_seconds": 5.4,
    "gpu_forward_seconds": 5.0, "gpu_rows": 10240, "gpu_device": "a GPU", "gpu_profile_seconds": {"model": 5.0, "bank": 1.0},
}  # fmt: skip


def test_figures_of_two_machines_are_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_page, "RAW", tmp_path / "scale.json")
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    scale_page.collect([HERE])
    page = (tmp_path / "scale.md").read_text()
    assert "| 2 | 2.00 | 1.90 | ≥ 1.8 |" in page
    assert "| 100,000 images of 32x32 | 360 | 1.125 | ≤ 1.3 |" in page
    assert "GPU" not in page
    assert "photos" not in page
    (tmp_path / "said").write_text(f"words that were printed before\n{json.dumps(THERE)}\n")
    scale_page.collect([scale_page.last_line(tmp_path / "said")])
    again = (tmp_path / "scale.md").read_text()
    assert "| 200 | 1.070, 1.080, 1.100 | 1.080 | ≤ 1.1 |" in again
    assert "| bank | 1.000 | 16.7% |" in again
    assert json.loads((tmp_path / "scale.json").read_text()) == HERE | THERE
