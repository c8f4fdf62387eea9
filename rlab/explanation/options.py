"""Options of `rlab explain`, ground truth from a folder of mask images, and the run that the options declare.

`rlab.explain`, `rlab explain` and the server call it; a folder gets the results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from PIL import Image
from pydantic import AliasChoices, Field, ValidationInfo, field_validator
from torch import Tensor

from rlab.data.batch import Batch
from rlab.data.fitting import fit
from rlab.data.images import IMAGES
from rlab.errors import DataError, OptionError
from rlab.explanation.base import RULE, SCORE, Method
from rlab.explanation.explanation import PICTURED, MethodComparison
from rlab.explanation.run import DEFAULT, parse_methods
from rlab.explanation.scores import STEPS, MethodJudge
from rlab.explanation.subject import find_subject
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.inputs import Data, Model, taken
from rlab.runs.options import RunOptions
from rlab.runs.understood import Announce, Understood, show
from rlab.storage.config import Accepts
from rlab.storage.contents import Contents
from rlab.storage.resume import open_run
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

COMPARED = ("belief", "rise(masks=1000)", "occlusion", "middle")  # default methods of a comparison
COMPARED_LAYERS = ("gradcam", "gradcam++", "ablationcam", "scorecam")  # and those for torch models
NOT_FOUND = "holds nothing that the model finds"


class ExplainOptions(RunOptions):
    """Methods, the class they explain, and how maps become masks and scores; attack options are for the method 'mask', and
    `channels` for 'waves', 'rise' and 'occlusion' too."""

    method: Annotated[tuple[str, ...] | None, Accepts(str | Sequence[str] | None)] = Field(
        None,
        description="methods: belief, waves, mask, rise, occlusion, gradcam, ..., repeated or separated by commas, with "
        "options in brackets (default: belief, which we recommend; several with --compare)",
    )
    label: int | str | None = Field(
        None,
        validation_alias=AliasChoices("class", "label"),
        description="class to explain, by its number or name (default: the predicted one)",
    )
    masks: str | None = Field(None, description="folder of ground-truth mask images, named like the images")
    mask_values: Annotated[tuple[int, ...] | None, Accepts(int | str | Sequence[int] | None)] = Field(
        None, description="mask values that mean inside, e.g. 1,3 (default: all but 0)"
    )
    rule: str = Field(RULE, description="rule that turns a map into a mask: otsu, or share:0.2")
    steps: int = Field(STEPS, ge=2, description="steps for insertion and deletion")
    checks: bool = Field(True, description="score stability over seeds and run the sanity check")
    pictures: int = Field(PICTURED, ge=0, description="number of samples to draw and to keep in the folder")

    @field_validator("method", "mask_values", mode="before")
    @classmethod
    def _listed(cls, value: Any, info: ValidationInfo) -> Any:
        """Accept a single value, and mask values separated by commas."""
        if isinstance(value, str) and info.field_name == "mask_values":
            return value.split(",")
        return (value,) if isinstance(value, str | int) else value

    def methods(self, compare: bool = False, layers: bool = False) -> list[Method]:
        """The named methods or the default ones; `layers` adds default methods that need a torch model to a comparison."""
        default = (COMPARED + (COMPARED_LAYERS if layers else ())) if compare else (DEFAULT,)
        return parse_methods(self.method or default, self.attack_options(), scored=compare)

    def labels(self, batch: Batch) -> Tensor | None:
        """(n,) the class to explain; None for the predicted one."""
        if self.label is None:
            return None
        if isinstance(self.label, str) and self.label in batch.classes:
            return torch.full((len(batch),), batch.classes.index(self.label))
        if not str(self.label).isdecimal():
            known = ", ".join(batch.classes[:12]) or "no names: write its number"
            raise OptionError(f"there is no class {self.label!r} to explain: the data have {known}")
        return torch.full((len(batch),), int(self.label))

    def with_masks(self, batch: Batch) -> Batch:
        """The batch with ground truth from the folder, if one is named."""
        if self.masks is not None:
            return replace(batch, masks=read_masks(Path(self.masks), batch, self.mask_values))
        if self.mask_values is not None:
            raise OptionError("--mask-values needs a folder of masks: add --masks")
        return batch


def read_masks(folder: Path, batch: Batch, values: Sequence[int] | None = None) -> Tensor:
    """(n, h, w) bool: pixels of the mask images with one of `values` (default: all but 0), resized like the images."""
    if batch.kind != "image":
        raise DataError(f"expected images for a folder of masks, got {batch.kind} data: put masks into the .npz")
    if not folder.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}: expected one mask image per sample, named like it")
    paths = {path.stem: path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES}
    stems = [Path(name).stem for name in batch.ids]
    if missing := [stem for stem in stems if stem not in paths]:
        some = f"{len(missing)} of {len(stems)} samples have no mask in {str(folder)!r}, first {missing[0]!r}"
        raise DataError(f"{some}: name each mask like its image")
    masks = []
    for path in (paths[stem] for stem in stems):
        try:
            with Image.open(path) as image:
                pixels = np.asarray(image)
        except OSError as error:
            raise DataError(f"cannot read the mask {str(path)!r}: {error}") from error
        inside = np.isin(pixels, list(values)) if values else pixels != 0
        inside = inside.any(-1) if inside.ndim > 2 else inside
        masks.append(
            np.asarray(fit(Image.fromarray(inside.astype(np.uint8) * 255), (batch.size[0], batch.size[1]))) > 127
        )
    return torch.from_numpy(np.stack(masks))


def explain_declared(
    options: ExplainOptions,
    model: Model,
    data: Data,
    compare: bool,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    announce: Announce = show,
) -> MethodComparison:
    """Explain the data with every named method, and score the maps if you `compare`; a folder gets the results."""
    options.methods(compare)  # refuse unknown names before loading anything
    with taken(model, data, limit) as (victim, batch):
        announce(Understood(batch, (victim,)))
        if batch.numbered and victim.prediction == "classes":  # one query shows whether the names fit
            batch.check_numbers(victim(batch.x[:1].to(victim.device), SCORE).shape[1])
        batch = keep_found(victim, options.with_masks(batch), options.labels(batch))
        methods = options.methods(compare, isinstance(victim, TorchVictim))
        judge = MethodJudge(options.steps, options.checks, None, options.rule, compare)
        if out is None:
            return judge(victim, batch, methods, options.labels(batch), options.seed)
        with open_run(Path(out), _question(options, victim, batch, compare)) as resume:
            found = judge(victim, batch, methods, options.labels(batch), options.seed)
            resume.create()
            found.kept(options.pictures).write(Path(out))
    return found


def _question(options: ExplainOptions, victim: Victim, batch: Batch, compare: bool) -> dict[str, Any]:
    """What a folder of explanations belongs to."""
    own = {name: value for name, value in options.plain().items() if name not in ("model", "data", "pictures")}
    facts = {"the model": Contents(victim), "the data": data_fingerprint(batch)}
    return {"command": MethodComparison.verb, "compare": compare, **own, **facts, **named_in(own)}


def keep_found(victim: Victim, batch: Batch, labels: Tensor | None) -> Batch:
    """The samples in which the model finds the object or the class (n,) to explain, which takes a query for each."""
    if victim.prediction == "classes":
        return batch
    clean = victim(batch.x.to(victim.device), SCORE)
    subject, found = find_subject(victim, clean, batch, labels)
    rows = found.nonzero().flatten().tolist()
    if not rows:
        what = "an object" if victim.prediction == "boxes" else "a class other than 0"
        raise OptionError(
            f"the model finds {what} to explain in none of {len(batch)} samples: check the data and the class"
        )
    lost = [(name, NOT_FOUND) for name, there in zip(batch.ids, found.tolist(), strict=True) if not there]
    masks = subject.truth(batch.size) if batch.masks is None else batch.masks
    return replace(replace(batch, masks=masks)[rows], left_out=(*batch.left_out, *lost))
