"""The page of what was measured on one machine and on another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.raw import Origin, Raw, Store
from benchmarks.scale import page

HERE: dict[str, Any] = {
    "http_speedup": 25.0, "http_rows_per_second": 500.0, "http_rows_per_second_alone": 20.0, "bit_equal": True,
    "bit_equal_over": ["1 worker", "2 workers"], "workers_speedup": 1.9, "workers_seconds_1": 3.8,
    "workers_seconds_2": 2.0, "memory_ratio_100k": 1.125, "memory_mb_1k": 320.0, "memory_mb_100k": 360.0,
}  # fmt: skip
THERE: dict[str, Any] = {
    "gpu_over_forward": 1.08, "gpu_over_forward_200": 1.08, "gpu_over_forward_200_each": [1.07, 1.08, 1.1],
    "gpu_rows_per_second": 3000.0, "gpu_attack_seconds": 5.4,
    "gpu_forward_seconds": 5.0, "gpu_rows": 10240, "gpu_device": "a GPU", "gpu_profile_seconds": {"model": 5.0, "bank": 1.0},
}  # fmt: skip


def write(store: Store, name: str, figures: dict[str, Any]) -> None:
    facts = {key: value for key, value in figures.items() if isinstance(value, str | bool | list)}
    store.write(name, Raw({key: value for key, value in figures.items() if key not in facts}, facts), Origin())


def test_figures_of_two_machines_make_one_page(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write(store, "workers", HERE)
    text = "\n".join(page.sections(store))
    assert "| 2 | 2.00 | 1.90 | ≥ 1.8 |" in text
    assert "| 100,000 images of 32x32 | 360 | 1.125 | ≤ 1.3 |" in text
    assert "GPU" not in text
    assert "photos" not in text
    write(store, "gpu", THERE)
    again = "\n".join(page.sections(store))
    assert "| 200 | 1.070, 1.080, 1.100 | 1.080 | ≤ 1.1 |" in again
    assert "| bank | 1.000 | 16.7% |" in again
    assert page.figures(store) == HERE | THERE
