"""Log a finished run to an experiment tracker: settings, figures, curve, pictures and page."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from rlab.errors import InputError, MissingExtra, OptionError
from rlab.folders.kinds import read_record
from rlab.folders.records import RunRecord
from rlab.redact import redact

PROJECT = "rlab"
_MODULES = {"mlflow": "mlflow", "wandb": "wandb", "tensorboard": "torch.utils.tensorboard"}
_PICTURES = 24  # maximum to log
_PAGES = ("report.html", "before-after.html")  # the first that exists
_VALUE = 500  # characters of a setting that every tracker accepts


@dataclass(frozen=True)
class Tracked:
    """What to log, in names that every tracker accepts."""

    name: str
    settings: Mapping[str, str]
    figures: Mapping[str, float]
    series: Sequence[tuple[int, Mapping[str, float]]]
    pictures: Sequence[Path]
    page: Path | None

    @classmethod
    def of(cls, record: RunRecord) -> Tracked:
        settings = {_word(name): str(redact(value))[:_VALUE] for name, value in record.settings.items()}
        verdict = {} if record.passed is None else {"passed": float(record.passed)}
        pictures = sorted((record.folder / "pictures").glob("*.png"))[:_PICTURES]
        pages = [path for name in _PAGES if (path := record.folder / name).is_file()]
        return cls(
            record.folder.resolve().name,
            {"command": record.command, **settings},
            {_word(name): value for name, value in {**record.values, **verdict}.items()},
            [(step, {_word(name): value for name, value in values.items()}) for step, values in record.series],
            pictures,
            pages[0] if pages else None,
        )


def _word(name: str) -> str:
    """The name with only characters that every tracker accepts."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w./ -]", " ", str(redact(name)))).strip()


def check_tracker(name: str) -> Any:
    """Import the tracker's package."""
    if name not in _MODULES:
        raise OptionError(f"expected --track to be one of {', '.join(_MODULES)}, got {name!r}")
    try:
        return import_module(_MODULES[name])
    except ImportError as error:
        raise MissingExtra("mlflow-skinny" if name == "mlflow" else name, name) from error


def track_run(folder: str | Path, name: str) -> str:
    """Log a finished run -> where to find it. If the tracker fails, the run folder is not affected."""
    module, tracked = check_tracker(name), Tracked.of(read_record(folder))
    try:
        return _TRACKERS[name](module, tracked, Path(folder))
    except Exception as error:
        raise InputError(
            f"{name} did not accept the run ({type(error).__name__}: {error}): it is complete in {folder}, log it again with "
            f"rlab report {folder} --track {name}"
        ) from error


def _mlflow(mlflow: Any, tracked: Tracked, folder: Path) -> str:
    """Configured by MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME."""
    with mlflow.start_run(run_name=tracked.name) as run:
        mlflow.log_params(tracked.settings)
        mlflow.log_metrics(tracked.figures)
        for step, values in tracked.series:
            mlflow.log_metrics(values, step=step)
        for path in tracked.pictures:
            mlflow.log_artifact(str(path), "pictures")
        if tracked.page:
            mlflow.log_artifact(str(tracked.page))
        return f"MLflow run {run.info.run_id} at {mlflow.get_tracking_uri()}"


def _wandb(wandb: Any, tracked: Tracked, folder: Path) -> str:
    """Configured by WANDB_MODE, WANDB_DIR, WANDB_ENTITY and WANDB_PROJECT (default: rlab)."""
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(project=project, name=tracked.name, config=dict(tracked.settings)) as run:
        for step, values in tracked.series:
            run.log(dict(values), step=step)
        if tracked.pictures:
            run.log({f"pictures/{path.stem}": wandb.Image(str(path)) for path in tracked.pictures})
        if tracked.page:
            run.log({"page": wandb.Html(tracked.page.read_text(encoding="utf-8"), inject=False)})
        for name, value in tracked.figures.items():
            run.summary[name] = value
        return f"Weights & Biases run {run.name} of project {project}"


def _tensorboard(tensorboard: Any, tracked: Tracked, folder: Path) -> str:
    """Written into the run folder."""
    where = folder / "tensorboard"
    with tensorboard.SummaryWriter(str(where)) as writer:
        rows = "\n".join(f"| {name} | {value} |" for name, value in tracked.settings.items())
        writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        for name, value in tracked.figures.items():
            writer.add_scalar(f"figures/{name}", value)
        for step, values in tracked.series:
            for name, value in values.items():
                writer.add_scalar(f"curves/{name}", value, step)
        for path in tracked.pictures:
            writer.add_image(path.stem, np.asarray(Image.open(path).convert("RGB")), dataformats="HWC")
    return f"tensorboard --logdir {where}"


_TRACKERS: dict[str, Callable[[Any, Tracked, Path], str]] = {
    "mlflow": _mlflow,
    "wandb": _wandb,
    "tensorboard": _tensorboard,
}
