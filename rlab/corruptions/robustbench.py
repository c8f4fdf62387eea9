"""Results and weights as RobustBench (https://github.com/RobustBench/robustbench) stores and loads them."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path

import torch

from rlab import __version__
from rlab.corruptions import KINDS, LEVELS
from rlab.corruptions.report import CorruptionReport
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.storage.files import write_atomically, write_json, write_text
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

# The fields of its ModelInfo that only the authors know.
_YOURS = ("link", "name", "authors", "additional_data", "venue", "eps", "reported", "autoattack_acc")


def check_robustbench(batch: Batch, kinds: Collection[str], levels: tuple[int, ...]) -> None:
    """Refuse what RobustBench's table has no place for."""
    if batch.shape[0] != 3 or batch.rank != 2 or batch.bounds != (0.0, 1.0):
        raise OptionError(f"RobustBench needs images of three channels in [0, 1], got {batch}: leave out robustbench")
    if set(kinds) != set(KINDS) or levels != LEVELS:
        raise OptionError("RobustBench needs the fifteen kinds at five levels: leave out kinds and levels")


def write_robustbench(report: CorruptionReport, dataset: str, made: str, victim: Victim, folder: Path) -> None:
    """Write model_info/DATASET/corruptions/{NAME.json, unaggregated_results.csv} and, of a torch model, models/.../NAME.pt.

    NAME is the name of the run folder; `made` says where the corrupted images came from.
    """
    name, where = folder.name, Path(dataset, "corruptions")
    about, models = (folder / "robustbench" / part / where for part in ("model_info", "models"))
    cells = [(kind, str(level)) for kind in KINDS for level in LEVELS]
    accuracies = [f"{tally.accuracy.value:.6g}" for kind in KINDS for tally in report.kinds[kind]]
    text = io.StringIO()
    csv.writer(text).writerows([["", *row] for row in zip(*cells, strict=True)] + [[name, *accuracies]])
    write_text(about / "unaggregated_results.csv", text.getvalue())
    clean, samples = report.clean, report.kinds[KINDS[0]][0].samples
    figures = {
        "number_forward_passes": 1, "dataset": dataset, "architecture": type(getattr(victim, "model", victim)).__name__,
        "clean_acc": f"{100 * clean.accuracy.value:.2f}" if clean.samples else None,
        "corruptions_acc": f"{100 * report.accuracy:.2f}", "footnote": f"{samples} samples {made} {__version__}",
    }  # fmt: skip
    write_json(about / f"{name}.json", dict.fromkeys(_YOURS) | figures)
    if isinstance(victim, TorchVictim):
        models.mkdir(parents=True, exist_ok=True)
        write_atomically(models / f"{name}.pt", checkpoint(victim))


def checkpoint(victim: TorchVictim) -> bytes:
    """The weights, with the normalisation as the buffers `mu` and `sigma` (1, c, 1, 1) that RobustBench's networks have."""
    state = {name: value.detach().cpu().contiguous() for name, value in victim.model.state_dict().items()}
    if (own := victim.reading.normalise) is not None:
        for name, values in (("mu", own.mean), ("sigma", own.std)):
            state[name] = torch.tensor(values).expand(3).reshape(1, 3, 1, 1).clone()
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()
