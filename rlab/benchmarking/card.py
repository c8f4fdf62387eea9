"""The dataset card: what a benchmark's folder holds, how to read it, and how to make it again."""

from __future__ import annotations

from dataclasses import replace

import yaml

from rlab.benchmarking.config import ORIGINALS
from rlab.benchmarking.folder import Benchmark, queries_of
from rlab.benchmarking.formats import Parquet
from rlab.benchmarking.manifest import METADATA
from rlab.present.table import Table, markdown

_LAYOUT = {
    "png": "8-bit PNG files, one folder per class (named by its index), with labels.csv",
    "npz": "one .npz per level with x (samples, channels, size), y and ids, float32",
    "wfdb": "16-bit WFDB records with labels.csv, values in the unit of the source",
    "mp4": "lossless H.264 (RGB, 4:4:4) in .mp4, one folder per class (named by its index), with labels.csv",
    "frames": "a folder of exact 8-bit PNG frames per clip, an .mp4 for viewing, and labels.csv",
    "parquet": "one Parquet table per level: image (PNG) or signal (float32), label, id",
}
_TABLE = """import csv

with open("{level}/labels.csv") as table:
    rows = list(csv.DictReader(table))
samples = [(load(row["{key}"]), int(row["label"])) for row in rows]"""
_SNIPPETS = {
    "png": ("""from PIL import Image

def load(file):
    return Image.open(f"{level}/{{file}}")
""", "file"),
    "wfdb": ("""import wfdb

def load(record):  # (time, leads)
    return wfdb.rdrecord(f"{level}/{{record}}").p_signal
""", "record"),
    "mp4": ("""import av
import numpy as np

def load(file):  # (time, height, width, 3)
    with av.open(f"{level}/{{file}}") as clip:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in clip.decode(video=0)])
""", "file"),
    "frames": ("""from pathlib import Path

import numpy as np
from PIL import Image

def load(file):  # (time, height, width) or (time, height, width, 3)
    frames = sorted(Path(f"{level}/{{file}}").with_suffix("").glob("*.png"))
    return np.stack([np.asarray(Image.open(frame)) for frame in frames])
""", "file"),
    "npz": ("""import numpy as np

with np.load("{level}.npz") as data:
    samples = list(zip(data["x"], data["y"]))""", ""),
    "parquet": ("""from datasets import load_dataset

rows = load_dataset("parquet", data_files="{level}.parquet", split="train")
samples = [(row["{column}"], row["label"]) for row in rows]""", ""),
}  # fmt: skip


def snippet(benchmark: Benchmark) -> str:
    """Python code that reads the first set when run in the folder."""
    victim, level, _ = next(benchmark.sets())
    text, key = _SNIPPETS[benchmark.manifest.storage]
    form = benchmark.format
    column = "image" if isinstance(form, Parquet) and form.as_png else "signal"
    names = {"level": f"{victim}/{level}", "key": key, "column": column}
    return (f"{text}\n\n{_TABLE}" if key else text).format(**names)


def _front(benchmark: Benchmark) -> str:
    """The YAML header that tells `datasets` which Parquet table is which set."""
    if benchmark.manifest.storage != "parquet":
        return ""
    files = {f"{victim}-{level}": f"{victim}/{level}.parquet" for victim, level, _ in benchmark.sets()}
    files = {ORIGINALS: f"{ORIGINALS}.parquet"} | files
    configs = [{"config_name": name, "data_files": [{"split": "test", "path": file}]} for name, file in files.items()]
    return f"---\n{yaml.safe_dump({'configs': configs}, sort_keys=False)}---\n"


def card(benchmark: Benchmark) -> str:
    """The dataset card in Markdown."""
    m, size = benchmark.manifest, "×".join(map(str, benchmark.manifest.shape.size))
    direction = f"{m.goal}: the model predicts {'any wrong' if m.goal == 'untargeted' else 'that'} class"
    how = f"`{m.policy}`, up to {m.budget} queries per sample for the flip and {m.steps} for each level beyond it"
    facts = {
        "samples": f"{len(benchmark.originals())} {m.shape.kind}s, {m.shape.channels} × {size}, in `originals`",
        "victims": ", ".join(f"`{name}`" for name in benchmark.models),
        "direction": direction,
        "distortions": " ".join(f"`{name}`" for name in m.entries),
        **({"surrogates": ", ".join(f"`{name}`" for name in named)} if (named := m.config.get("surrogate")) else {}),
        "patch": " × ".join(map(str, m.patch)),
        "policy": how,
        "ladder": f"`{m.ladder}`",
        "reach": f"L2 {benchmark.reach:.4g}: distances are scored from 0 to this value, for every model",
        "seed": str(m.seed),
        "classes": ", ".join(f"{i} {name}" for i, name in enumerate(m.classes)) or f"{m.outputs}, unnamed",
        "files": _LAYOUT[m.storage],
        "versions": ", ".join(f"{name} {number}" for name, number in m.versions.items()),
        "queries": f"{sum(map(queries_of, benchmark.rows)):,}; those of interrupted chunks are not counted",
        "hash": f"`{m.hash}`",
    }
    if benchmark.free:
        none = "none: no model was queried; patches and their distortions are random"
        facts |= {"victims": none, "direction": "none", "policy": m.policy}
    sets, table = replace(benchmark.table(), title=""), Table(["", ""], [*facts.items()], words=2)
    parts = {"facts": markdown(table), "sets": markdown(sets), "snippet": snippet(benchmark)}
    return _front(benchmark) + _PAGE.format(**parts, remake=_remake(benchmark))


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
