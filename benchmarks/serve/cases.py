"""Made-up runs to look at: photographs of 224 x 224 pixels, beats of 12 leads, short clips, and 100,000 small samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rlab.core.distances import NAMES, measure
from rlab.core.grid import PatchGrid
from rlab.results.kept import HeldInputs
from rlab.results.result import AttackResult, Setting, Status, to_rows
from rlab.storage import files

SAMPLES, BATCH, ROWS = 500, 50, 100_000
QUESTIONS = (
    "",
    "page=1500",
    "sort=l2",
    "status=succeeded&label=3&queries_to=200&l2_from=0.5&sort=-queries",
    "entry=2&sort=-l2",
    "words=99&sort=id&page=3",
)
PALETTE = ("gaussian_noise@0.1", "gaussian_blur@2", "dead_pixel@1")
KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int]] = {  # size, patch, channels, samples
    "images": ((224, 224), (16, 16), 3, SAMPLES),
    "beats": ((500,), (20,), 12, SAMPLES),
    "clips": ((16, 112, 112), (4, 16, 16), 3, 24),
}


def made_up(size: tuple[int, ...], patch: tuple[int, ...], channels: int, samples: int, seed: int = 0) -> AttackResult:
    """Smooth inputs with some noise, a twelfth of their patches distorted, all flipped; repeated after 50."""
    if samples > BATCH:
        part = made_up(size, patch, channels, BATCH, seed)
        result = part.where(torch.arange(samples) % BATCH)
        return replace(result, ids=tuple(f"sample-{i:04d}" for i in range(samples)))
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(samples, channels, *(max(2, side // 8) for side in size), generator=generator)
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size)]
    x0 = torch.nn.functional.interpolate(coarse, size=size, mode=mode)
    x0 = (x0 + 0.03 * torch.randn(x0.shape, generator=generator)).clamp(0, 1)
    grid = PatchGrid(size, patch)
    assignment = torch.randint(1, len(PALETTE) + 1, (samples, len(grid)), generator=generator, dtype=torch.uint8)
    assignment *= torch.rand(samples, len(grid), generator=generator) < 1 / 12
    assignment[:, 0] = 1
    noise = 0.15 * torch.randn(x0.shape, generator=generator) * grid.expand(assignment != 0)[:, None]
    x = (x0 + noise).clamp(0, 1)
    before, after = (torch.rand(samples, 10, generator=generator).softmax(1) for _ in range(2))
    final = measure(x0, x, assignment, (0.0, 1.0))
    queries = torch.zeros(samples, 4, dtype=torch.int64)
    queries[:, 0] = torch.randint(2, 400, (samples,), generator=generator)
    bounds = (0.0, 1.0)
    setting = Setting(
        size, patch, PALETTE, "untargeted", "auto", 1000, bounds, seed, rate=500.0 if len(size) == 1 else None
    )
    flips = zip(queries[:, 0].tolist(), final["l2"].tolist(), strict=True)
    return AttackResult(
        setting=setting, ids=tuple(f"sample-{i:04d}" for i in range(samples)), labels=torch.arange(samples) % 10,
        status=(Status.SUCCEEDED,) * samples,
        queries=queries, before=before, after=after, final=final,
        flip={name: 1.3 * final[name] for name in NAMES},
        assignment=assignment, inputs=HeldInputs(x0, x), seeds=torch.arange(samples),
        improvements=tuple((flip,) for flip in flips),
    )  # fmt: skip


def many_samples(folder: Path) -> Path:
    """Write a run of 100,000 samples: a thousand small inputs, repeated with their own ids, queries and distances."""
    result = made_up((8, 8), (2, 2), 1, 1000)
    times, chance = ROWS // len(result), np.random.default_rng(0)
    table = pa.concat_tables([pa.Table.from_pylist(to_rows(result))] * times)
    own = {
        "id": [f"sample-{i:06d}" for i in range(ROWS)],
        "queries_search": chance.integers(2, 400, ROWS),
        "final_l2": chance.gamma(2.0, 0.5, ROWS),
    }
    for name, values in own.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    folder.mkdir()
    setting = result.setting.to_json()
    pq.write_table(table.replace_schema_metadata({files.SETTING: setting}), folder / files.SAMPLES)
    once = {name: getattr(result, name) for name in ("assignment", "original", "perturbed")}
    arrays = {name: array.repeat(times, *(1,) * (array.dim() - 1)) for name, array in once.items()}
    files.write_arrays(folder / files.ARRAYS, arrays, setting)
    return folder
