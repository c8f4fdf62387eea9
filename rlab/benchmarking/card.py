"""The dataset card: what a benchmark's folder holds, how to read it, and how to make it again."""

from __future__ import annotations

from dataclasses import replace

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.manifest import METADATA
from rlab.present.table import Table, markdown

_NAMES = ("distortions", "surrogates", "ladder", "hash")  # facts that are code


def card(benchmark: Benchmark) -> str:
    """The dataset card in Markdown."""
    facts = {name: f"`{fact}`" if name in _NAMES else fact for name, fact in benchmark.facts().items()}
    parts = {
        "facts": markdown(Table(["", ""], [*facts.items()], words=2)),
        "sets": markdown(replace(benchmark.table(), title="")),
    }
    python = "`rlab.make_benchmark(victims, batch, folder, ...)`, with your models and data and"
    command = "`rlab benchmark make --config config.yaml --out NEW`, with"
    how = command if "data" in benchmark.manifest.config else python
    return _PAGE.format(**parts, how=how, metadata=METADATA)


_PAGE = """# Robustness benchmark

Inputs graded by severity. The level `flip` holds the smallest distortion found that makes the victim err on a sample.
Further levels add to it: a multiple of the flip's L2 (`x1.5`), or up to a fixed L2 (`l2-2`) or severity (`s3`). Every file was
read back, and its victim was queried with it again.

{facts}
## Levels

Not every sample reaches every level. For a missing file, `metadata.parquet` gives the reason.

{sets}
## Use it

`rlab benchmark verify FOLDER` checks every file; `rlab benchmark run FOLDER --model MODEL` grades a model.
`metadata.parquet` has one row per sample, victim and level: source id, label, file and its sha256, distances, queries by
phase, the palette entry of each patch (`assignment`), the victim's prediction, policy and seed. A `labels.csv` in the folder of
a level names each file with its label; an `.npz` holds `x`, `y` and `ids`.

## Make it again

Run {how} the options in `config.yaml`. `{metadata}` and the manifest hold the rest.

## Licence

The samples are derived from the source data and keep its licence; name it here before you share the folder.
"""
