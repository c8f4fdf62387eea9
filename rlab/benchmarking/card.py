"""The dataset card: what is in the folder, how it was made, how to make it again."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import yaml

from rlab.benchmarking.folder import CARD, METADATA, Benchmark, Row
from rlab.benchmarking.ladder import FLIP
from rlab.runs.files import write_atomically

_LAYOUT = {
    "png": "8-bit PNG files, one folder a class (named by its index)",
    "npz": "one .npz a level with x (samples, channels, size), y and ids, float32",
    "wfdb": "WFDB records of 16 bits with their labels.csv, values in the unit of the source",
    "mp4": "lossless H.264 (RGB, 4:4:4) in .mp4, one folder a class (named by its index)",
}


def write_card(benchmark: Benchmark) -> None:
    write_atomically(benchmark.folder / CARD, card(benchmark).encode())


def card(benchmark: Benchmark) -> str:
    """Markdown."""
    m = benchmark.manifest
    size = "×".join(map(str, m.shape.size))
    kind = "untargeted: the correct class is missed" if m.goal == "untargeted" else f"{m.goal}: that class is claimed"
    facts = [
        ("samples", f"{len(benchmark.originals())} {m.shape.kind}s, {m.shape.channels} × {size}, in `originals`"),
        ("victims", ", ".join(f"`{name}`" for name in benchmark.victims)),
        ("direction", kind),
        ("distortions", " ".join(f"`{name}`" for name in m.entries)),
        ("patch", " × ".join(map(str, m.patch))),
        ("policy", f"`{m.policy}`, {m.budget} queries a sample to the flip, {m.steps} a level beyond it"),
        ("ladder", f"`{m.ladder}`"),
        ("seed", str(m.seed)),
        ("classes", ", ".join(f"{i} {name}" for i, name in enumerate(m.classes)) or f"{m.outputs}, unnamed"),
        ("files", _LAYOUT[m.storage]),
        ("versions", ", ".join(f"{name} {found}" for name, found in m.versions.items())),
        ("queries", f"{sum(_queries(row) for row in benchmark.rows):,}" + _again(m.interrupted)),
        ("hash", f"`{m.hash}`"),
    ]
    sets = "\n\n".join(f"### Against `{name}`\n\n{_levels(benchmark, name)}" for name in benchmark.victims)
    return _PAGE.format(facts="\n".join(f"| {a} | {b} |" for a, b in facts), sets=sets, remake=_remake(benchmark))


_PAGE = """# Robustness benchmark

Inputs on which models err, graded by severity. At the level `flip` each sample holds the smallest distortion found
that makes its victim err; every further level adds to it. Every file was read back and given to its victim again.

| | |
|---|---|
{facts}

## Levels

Not every sample reaches every level. What was not reached is in `metadata.parquet` with its reason, and has no file.

{sets}

## Use it

`rlab benchmark verify FOLDER` checks every file; `rlab benchmark run FOLDER --model MODEL` grades a model.
`metadata.parquet` has a row for each sample, victim and level: source id, label, file and its sha256, distances, queries by
phase, the palette entry of each patch (`assignment`), the victim's answer, policy and seed.

## Make it again

{remake}

## Licence

The samples are derived from the source data and stay under the source's licence; add its name here before you pass
the folder on.
"""


def _levels(benchmark: Benchmark, victim: str) -> str:
    lines = ["| level | samples | L2 mean | L2 median | patches | queries a sample |", "|---|---:|---:|---:|---:|---:|"]
    for level in benchmark.ladder.names:
        rows = benchmark.of(victim, level)
        there = [row for row in rows if row["reached"]]
        tried = [row for row in rows if _queries(row) > (1 if level == FLIP else 0)]
        cost = fmean(_queries(row) for row in tried) if tried else 0.0
        lines.append(f"| `{level}` | {len(there)} of {len(rows)} | {_figures(there)} | {cost:.1f} |")
    return "\n".join(lines)


def _figures(there: Sequence[Row]) -> str:
    if not there:
        return "– | – | –"
    l2 = [row["l2"] for row in there]
    return f"{fmean(l2):.3g} | {median(l2):.3g} | {median(row['l0_patches'] for row in there):g}"


def _queries(row: Row) -> int:
    return int(row["queries_search"] + row["queries_cleanup"] + row["queries_verify"])


def _again(interrupted: int) -> str:
    return f", and {interrupted} interrupted chunks whose queries were spent twice" if interrupted else ""


def _remake(benchmark: Benchmark) -> str:
    config = dict(benchmark.manifest.config)
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True).rstrip()
    if "models" in config:
        how = "`rlab benchmark make --config config.yaml --out NEW`, `config.yaml` being in this folder:"
    else:
        how = "It was made from Python, `rlab.make_benchmark(victims, batch, folder, ...)`, with these options:"
    return f"{how}\n\n```yaml\n{text}\n```\n\nColumns of {METADATA} and the manifest hold the rest."
