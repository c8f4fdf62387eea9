"""The dataset card: what is in the folder, how it was made, how to make it again."""

from __future__ import annotations

from dataclasses import replace

import yaml

from rlab.benchmarking.folder import CARD, METADATA, Benchmark
from rlab.benchmarking.tables import queries_of, sets_table
from rlab.present.table import Table, markdown
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
        ("versions", ", ".join(f"{name} {number}" for name, number in m.versions.items())),
        ("queries", f"{sum(map(queries_of, benchmark.rows)):,}" + _again(m.interrupted)),
        ("hash", f"`{m.hash}`"),
    ]
    sets, table = sets_table(benchmark), Table(["", ""], facts, words=2)
    return _PAGE.format(facts=markdown(table), sets=markdown(replace(sets, title="")), remake=_remake(benchmark))


_PAGE = """# Robustness benchmark

Inputs on which models err, graded by severity. At the level `flip` each sample holds the smallest distortion found
that makes its victim err; every further level adds to it. Every file was read back and given to its victim again.

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
