"""The page of `benchmarks.scale`, made from what its parts found, perhaps on several machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import common

RAW = common.RAW / "scale.json"
Figures = Mapping[str, Any]
RULES = """What `python -m benchmarks.scale` measured; each ratio is of one run on one machine. *Aim* was set before it was built.
How it is used is in [Many at once](../../docs/scale.md)."""


def last_line(path: Path) -> dict[str, Any]:
    """The figures that a benchmark printed."""
    figures: dict[str, Any] = json.loads(path.read_text().strip().splitlines()[-1])
    return figures


def collect(found: Iterable[Figures]) -> dict[str, Any]:
    """Joins figures with those that are kept, newer ones in place of older, and writes the page; -> all."""
    figures: dict[str, Any] = json.loads(RAW.read_text()) if RAW.exists() else {}
    for part in found:
        figures.update(part)
    RAW.write_text(json.dumps(figures, indent=1) + "\n")
    sections = [make(figures) for key, make in SECTIONS.items() if key in figures]
    page = "\n\n".join(["# Many at once", RULES, *sections, *_circumstances(figures)]) + "\n"
    (common.RESULTS / "scale.md").write_text(page, encoding="utf-8")
    return figures


def _circumstances(figures: Figures) -> list[str]:
    names = {"measured_on": "", "gpu_measured_on": "On a GPU: "}
    return [told + figures[name] for name, told in names.items() if name in figures]


def workers(f: Figures) -> str:
    alone, two = f["workers_seconds_1"], f["workers_seconds_2"]
    rows = [["1", f"{alone:.2f}", "1", "1"], ["2", f"{two:.2f}", f"{alone / two:.2f}", "≥ 1.8"]]
    equal = "the same bits" if f["bit_equal"] else "**not** the same bits"
    about = (
        "Seconds from the second finished chunk to the last, of ten with 8 samples and 40 queries each; a ResNet-20 that has one "
        "thread."
    )
    table = common.table(["workers", "seconds", "times as fast", "aim"], rows)
    bits = f"{', '.join(f['bit_equal_over'])}: {equal}. With one killed in the middle it is a test's (`tests/runs`)."
    return "\n\n".join(["## Several processes", about, table, bits])


def requests(f: Figures) -> str:
    rows = [
        ["1", f"{f['http_rows_per_second_alone']:.1f}", "1", "1"],
        ["32", f"{f['http_rows_per_second']:.1f}", f"{f['http_speedup']:.1f}", "≥ 20"],
    ]
    about = "A model that answers after 50 ms, asked for one row a request."
    return "\n\n".join(
        ["## A model behind an address", about, common.table(["requests at once", "rows/s", "times", "aim"], rows)]
    )


def memory(f: Figures) -> str:
    rows = [
        ["1,000 images of 32x32", f"{f['memory_mb_1k']:.0f}", "1", "1"],
        ["100,000 images of 32x32", f"{f['memory_mb_100k']:.0f}", f"{f['memory_ratio_100k']:.3f}", "≤ 1.3"],
    ]
    if "memory_mb_photos" in f:
        rows.append(["2,000 photos at 224x224", f"{f['memory_mb_photos']:.0f}", "–", "≤ 2,000 MB"])
    about = (
        "The most memory that the process of an attack held, Python and torch among it, with a model that costs nothing, three "
        "queries a sample, every tenth sample attacked, `keep: flips`."
    )
    return "\n\n".join(["## Memory", about, common.table(["samples", "MB", "ratio", "aim"], rows)])


def seconds(f: Figures) -> str:
    told = {
        "start_seconds": "until a run works on its first sample",
        "resume_seconds": "until a run that was stopped at 90% works on the next",
        "show_seconds": "`rlab show` of the finished run",
    }
    rows = [[words, f"{f[name]:.2f}", "≤ 3"] for name, words in told.items()]
    about = f"From the start of Python, of which {f['loading_seconds']:.2f} s are importing it all."
    return "\n\n".join(["## Seconds with 100,000 samples", about, common.table(["what", "seconds", "aim"], rows)])


def gpu(f: Figures) -> str:
    budgets = [word.group(1) for word in map(re.compile(r"gpu_over_forward_(\d+)$").match, f) if word]
    rows = [
        [queries, ", ".join(f"{one:.3f}" for one in f[f"gpu_over_forward_{queries}_each"]),
         f"{f[f'gpu_over_forward_{queries}']:.3f}", "≤ 1.1"]
        for queries in budgets
    ]  # fmt: skip
    whole = sum(f["gpu_profile_seconds"].values())
    parts = [[name, f"{taken:.3f}", f"{taken / whole:.1%}"] for name, taken in f["gpu_profile_seconds"].items()]
    return "\n\n".join(
        [
            "## On a GPU",
            "512 photos at once, `auto`, on a net with the layers of a ResNet-50: wall time of the attack over that of the bare "
            f"model for the same rows. {f['gpu_device']}; {f['gpu_rows_per_second']:,.0f} rows a second with {budgets[0]} queries.",
            common.table(["queries a sample", "ratio of each repeat", "median", "aim"], rows),
            f"Where an attack of {budgets[-1]} queries spends its time; each part waits for the device here, so the sum is larger.",
            common.table(["part", "seconds", "share"], parts),
        ]
    )


# By a figure that tells whether the part was measured.
SECTIONS = {
    "workers_speedup": workers,
    "http_speedup": requests,
    "memory_ratio_100k": memory,
    "start_seconds": seconds,
    "gpu_over_forward": gpu,
}
