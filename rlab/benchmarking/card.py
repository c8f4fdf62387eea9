"""The dataset card: what a benchmark's folder holds, how to read it, and how to make it again."""

from __future__ import annotations

from dataclasses import replace

import yaml

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.formats import FormatName
from rlab.benchmarking.manifest import METADATA
from rlab.present.table import Table, markdown

_LISTED = """import csv

{imports}

with open("{level}/labels.csv") as table:
    samples = [({read}, int(row["label"])) for row in csv.DictReader(table)]"""
_SNIPPETS: dict[FormatName, tuple[str, str]] = {  # what a snippet imports, and how it reads the sample of a row
    "png": ("from PIL import Image", 'Image.open("{level}/" + row["file"])'),
    "mp4": (  # (time, height, width, 3)
        "import av\nimport numpy as np\n\ndef read(file):\n"
        '    return np.stack([frame.to_ndarray(format="rgb24") for frame in av.open(file).decode(video=0)])',
        'read("{level}/" + row["file"])',
    ),
}
_NAMES = ("distortions", "surrogates", "ladder", "hash")  # facts that are code
_ARRAYS = """import numpy as np

with np.load("{level}.npz") as data:
    samples = list(zip(data["x"], data["y"]))"""


def snippet(benchmark: Benchmark) -> str:
    """Python code that reads the first set when run in the folder."""
    victim, level, _ = next(benchmark.sets())
    place = f"{victim}/{level}"
    if benchmark.manifest.storage not in _SNIPPETS:
        return _ARRAYS.format(level=place)
    imports, read = _SNIPPETS[benchmark.manifest.storage]
    return _LISTED.format(imports=imports, level=place, read=read.format(level=place))


def card(benchmark: Benchmark) -> str:
    """The dataset card in Markdown."""
    facts = {name: f"`{fact}`" if name in _NAMES else fact for name, fact in benchmark.facts().items()}
    parts = {
        "facts": markdown(Table(["", ""], [*facts.items()], words=2)),
        "sets": markdown(replace(benchmark.table(), title="")),
    }
    return _PAGE.format(**parts, snippet=snippet(benchmark), remake=_remake(benchmark))


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
phase, the palette entry of each patch (`assignment`), the victim's prediction, policy and seed.

```python
{snippet}
```

## Make it again

{remake}

## Licence

The samples are derived from the source data and keep its licence; name it here before you share the folder.
"""


def _remake(benchmark: Benchmark) -> str:
    config = dict(benchmark.manifest.config)
    declared = yaml.safe_dump(config, sort_keys=False, allow_unicode=True).rstrip()
    how = "It was made in Python, by `rlab.make_benchmark(victims, batch, folder, ...)`, with these options:"
    if "data" in config:
        how = "Run `rlab benchmark make --config config.yaml --out NEW`; `config.yaml` is in this folder:"
    return f"{how}\n\n```yaml\n{declared}\n```\n\n{METADATA} and the manifest hold the rest."
