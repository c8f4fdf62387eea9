"""The page of `benchmarks.scale`, from raw files that may come from several machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.raw import Store
from benchmarks.tables import section, table

Figures = Mapping[str, Any]
RULES = """
Each ratio is from one run on one machine. *Aim* was set before the code was written. How to use it is in [Many at
once](../../docs/scale.md).
"""


def figures(store: Store) -> dict[str, Any]:
    """All figures, as one object."""
    raws = [store.read(name) for name in store.names()]
    found = {name: value for raw in raws for part in (raw.numbers, raw.facts) for name, value in part.items()}
    equal = [raw.facts["bit_equal"] for raw in raws if "bit_equal" in raw.facts]
    return found | ({"bit_equal": all(equal)} if equal else {})


def sections(store: Store) -> Iterator[str]:
    found = figures(store)
    for key, make in SECTIONS.items():
        if key in found:
            yield make(found)


def workers(f: Figures) -> str:
    alone, two = f["workers_seconds_1"], f["workers_seconds_2"]
    rows = [["1", f"{alone:.2f}", "1", "1"], ["2", f"{two:.2f}", f"{alone / two:.2f}", "≥ 1.8"]]
    about = (
        "Seconds from the second finished chunk to the last, for ten chunks of 8 samples with 40 queries each; a ResNet-20 on one "
        "thread."
    )
    equal = "the same bits" if f["bit_equal"] else "**not** the same bits"
    bits = f"{', '.join(f['bit_equal_over'])}: {equal}. A test kills a worker in the middle (`tests/runs`)."
    return section("Several processes", about, table("workers | seconds | times as fast | aim", rows), bits)


def requests(f: Figures) -> str:
    alone, many = f["http_rows_per_second_alone"], f["http_rows_per_second"]
    rows = [["1", f"{alone:.1f}", "1", "1"], ["32", f"{many:.1f}", f"{f['http_speedup']:.1f}", "≥ 20"]]
    if "kserve_speedup" in f:
        rows.append(["32, KServe's protocol, answers cached", "–", f"{f['kserve_speedup']:.1f}", "≥ 15"])
    about = "A model that answers after 50 ms; each request has one row."
    paid = (
        f"Of 1,920 answers from the cache, {f['cache_hits_paid']:.0f} were paid again."
        if "cache_hits_paid" in f
        else ""
    )
    return section(
        "An HTTP model", about, table("requests at once | rows/s | times | aim", rows), *([paid] if paid else [])
    )


def memory(f: Figures) -> str:
    rows = [
        ["1,000 images of 32x32", f"{f['memory_mb_1k']:.0f}", "1", "1"],
        ["100,000 images of 32x32", f"{f['memory_mb_100k']:.0f}", f"{f['memory_ratio_100k']:.3f}", "≤ 1.3"],
    ]
    if "memory_mb_photos" in f:
        rows.append(["2,000 photos at 224x224", f"{f['memory_mb_photos']:.0f}", "–", "≤ 2,000 MB"])
    about = (
        "Peak memory of the process of an attack, Python and torch included, with a model that costs nothing, three queries for "
        "each sample, every tenth sample attacked, `keep: flips`."
    )
    return section("Memory", about, table("samples | MB | ratio | aim", rows))


def seconds(f: Figures) -> str:
    names = {
        "start_seconds": "until a run starts on its first sample",
        "resume_seconds": "until a run that was stopped at 90% starts on the next",
        "show_seconds": "`rlab show` of the finished run",
    }
    rows = [[words, f"{f[name]:.2f}", "≤ 3"] for name, words in names.items()]
    about = f"From the start of Python; imports take {f['loading_seconds']:.2f} s of it."
    return section("Seconds with 100,000 samples", about, table("step | seconds | aim", rows))


def gpu(f: Figures) -> str:
    budgets = [word.group(1) for word in map(re.compile(r"gpu_over_forward_(\d+)$").match, f) if word]
    rows = [
        [queries, ", ".join(f"{one:.3f}" for one in f[f"gpu_over_forward_{queries}_each"]),
         f"{f[f'gpu_over_forward_{queries}']:.3f}", "≤ 1.1"]
        for queries in budgets
    ]  # fmt: skip
    about = (
        "512 photos at once, `auto`, on a net with the layers of a ResNet-50: wall time of the attack over that of the bare "
        f"model for the same rows. {f['gpu_device']}; {f['gpu_rows_per_second']:,.0f} rows per second with {budgets[0]} queries."
    )
    body = table("queries for each sample | ratio of each repeat | median | aim", rows)
    return section("On a GPU", about, body, *_profile(f, budgets[-1]))


def _profile(f: Figures, queries: str) -> list[str]:
    """Recorded with rlab 0.2.0."""
    seconds = f.get("gpu_profile_seconds", {})
    parts = [[name, f"{taken:.3f}", f"{taken / sum(seconds.values()):.1%}"] for name, taken in seconds.items()]
    about = f"Where an attack of {queries} queries spends its time; here each part waits for the device, so the sum is larger."
    return [about, table("part | seconds | share", parts)] if parts else []


# By a figure that shows whether the part was measured.
SECTIONS = {
    "workers_speedup": workers,
    "http_speedup": requests,
    "memory_ratio_100k": memory,
    "start_seconds": seconds,
    "gpu_over_forward": gpu,
}
