"""Log a finished run to an experiment tracker: settings, figures, curve, pictures and page."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from PIL import Image

from rlab.errors import InputError, MissingExtra, OptionError, optional
from rlab.folders.records import RunRecord, read_record
from rlab.redact import redact

PROJECT = "rlab"
_PICTURES = 24  # maximum to log
_REPORT = "report.html"
_VALUE = 500  # characters of a setting that every tracker accepts


@dataclass(frozen=True)
class _Tracked:
    """What a tracker gets, in names that every tracker accepts."""

    folder: Path
    settings: Mapping[str, str]
    values: Mapping[str, float]
    series: Sequence[tuple[int, Mapping[str, float]]]

    @classmethod
    def of(cls, record: RunRecord) -> _Tracked:
        settings = {_word(name): str(redact(value))[:_VALUE] for name, value in record.settings.items()}
        values = {_word(name): value for name, value in record.values.items()}
        series = [(at, {_word(name): value for name, value in row.items()}) for at, row in record.report.series()]
        return cls(record.folder, {"command": record.report.verb, **settings}, values, series)


def _pictures(run: _Tracked) -> list[Path]:
    return sorted((run.folder / "pictures").glob("*.png"))[:_PICTURES]


def _page(run: _Tracked) -> Path | None:
    path = run.folder / _REPORT
    return path if path.is_file() else None


def _word(name: str) -> str:
    """The name with only characters that every tracker accepts."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w./ -]", " ", str(redact(name)))).strip()


def check_tracker(name: str) -> Any:
    """Import the tracker's package."""
    if name not in _TRACKERS:
        raise OptionError(f"expected --track to be one of {', '.join(_TRACKERS)}, got {name!r}")
    return optional(*_TRACKERS[name][:2])


def track_run(folder: str | Path, name: str) -> str:
    """Log a finished run -> where to find it. If the tracker fails, the run folder is not affected."""
    module, run = check_tracker(name), _Tracked.of(read_record(folder))
    try:
        return _TRACKERS[name][2](module, run)
    except Exception as error:
        raise InputError(
            f"{name} did not accept the run ({type(error).__name__}: {error}): it is complete in {folder}, log it again with "
            f"rlab report {quote(str(folder))} --track {name}"
        ) from error


def _mlflow(mlflow: Any, run: _Tracked) -> str:
    """Configured by MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""
    with mlflow.start_run(run_name=run.folder.resolve().name) as started:
        mlflow.log_params(run.settings)
        mlflow.log_metrics(run.values)
        for step, values in run.series:
            mlflow.log_metrics(values, step=step)
        for path in _pictures(run):
            mlflow.log_artifact(str(path), "pictures")
        if page := _page(run):
            mlflow.log_artifact(str(page))
        return f"MLflow run {started.info.run_id} at {mlflow.get_tracking_uri()}"


def _wandb(wandb: Any, run: _Tracked) -> str:
    """Configured by WANDB_MODE, WANDB_DIR, WANDB_ENTITY and WANDB_PROJECT (default: rlab)."""
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(project=project, name=run.folder.resolve().name, config=dict(run.settings)) as started:
        for step, values in run.series:
            started.log(dict(values), step=step)
        if pictures := _pictures(run):
            started.log({f"pictures/{path.stem}": wandb.Image(str(path)) for path in pictures})
        if page := _page(run):
            started.log({"page": wandb.Html(page.read_text(encoding="utf-8"), inject=False)})
        for name, value in run.values.items():
            started.summary[name] = value
        return f"Weights & Biases run {started.name} of project {project}"


def _tensorboard(tensorboard: Any, run: _Tracked) -> str:
    """Written into the run folder."""
    where = run.folder / "tensorboard"
    with tensorboard.SummaryWriter(str(where)) as writer:
        rows = "\n".join(f"| {name} | {value} |" for name, value in run.settings.items())
        writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        for name, value in run.values.items():
            writer.add_scalar(f"figures/{name}", value)
        for step, values in run.series:
            for name, value in values.items():
                writer.add_scalar(f"curves/{name}", value, step)
        for path in _pictures(run):
            writer.add_image(path.stem, np.asarray(Image.open(path).convert("RGB")), dataformats="HWC")
    return f"tensorboard --logdir {where}"


_TRACKERS: dict[str, tuple[str, MissingExtra, Callable[[Any, _Tracked], str]]] = {
    "mlflow": ("mlflow", MissingExtra("mlflow-skinny", "mlflow"), _mlflow),
    "wandb": ("wandb", MissingExtra("wandb", "wandb"), _wandb),
    "tensorboard": ("torch.utils.tensorboard", MissingExtra("tensorboard", "tensorboard"), _tensorboard),
}
