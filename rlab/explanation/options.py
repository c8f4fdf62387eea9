"""Options of `rlab explain`, and ground truth from a folder of mask images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from pydantic import AliasChoices, Field, ValidationInfo, field_validator, model_validator
from torch import Tensor

from rlab.data.batch import Batch
from rlab.data.fitting import fit
from rlab.data.images import IMAGES
from rlab.errors import DataError, OptionError
from rlab.explanation.base import RULE, Method
from rlab.explanation.method_comparison import ScoredMethod
from rlab.explanation.run import DEFAULT, parse_methods
from rlab.explanation.scores import STEPS, MethodJudge
from rlab.runs.options import RunOptions
from rlab.storage.config import Accepts

COMPARED = ("belief", "credit", "rise(masks=1000)", "occlusion", "middle")  # default methods of a comparison
COMPARED_LAYERS = ("gradcam", "gradcam++", "ablationcam", "scorecam")  # and those for torch models


class ExplainOptions(RunOptions):
    """Methods, the class they explain, and how maps become masks and scores; attack options are for the method 'mask', and
    `channels` for 'waves', 'rise' and 'occlusion' too."""

    method: Annotated[tuple[str, ...] | None, Accepts(str | Sequence[str] | None)] = Field(
        None,
        description="methods: belief, waves, credit, mask, rise, occlusion, gradcam, ..., repeated or separated by commas, with "
        "options in brackets (default: belief, which we recommend; several with --compare)",
    )
    label: int | None = Field(
        None,
        validation_alias=AliasChoices("class", "label"),
        description="class to explain (default: the predicted one)",
    )
    masks: str | None = Field(None, description="folder of ground-truth mask images, named like the images")
    mask_values: Annotated[tuple[int, ...] | None, Accepts(int | str | Sequence[int] | None)] = Field(
        None, description="mask values that mean inside, e.g. 1,3 (default: all but 0)"
    )
    rule: str = Field(RULE, description="rule that turns a map into a mask: otsu, or share:0.2")
    steps: int = Field(STEPS, ge=2, description="steps for insertion and deletion")
    checks: bool = Field(True, description="score stability over seeds and run the sanity check")

    @model_validator(mode="before")
    @classmethod
    def _without_agent(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "agent" in values:
            raise ValueError("the option 'agent' was removed with the method 'instant': use the method 'belief'")
        return values

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

    def judge(self, tell: Callable[[str, ScoredMethod], None] = lambda name, method: None) -> MethodJudge:
        return MethodJudge(self.steps, self.checks, rule=self.rule, tell=tell)

    def rows_at_most(self, methods: Sequence[Method], batch: Batch, compare: bool) -> dict[str, int | None]:
        """The largest number of rows for each method, and for its scores in a comparison; None if it depends on the layers."""
        judge, size = self.judge(), batch.size
        each = {method.name: judge.most(method, size) if compare else method.most(size) for method in methods}
        return {name: None if most is None else most * len(batch) for name, most in each.items()}

    def labels(self, batch: Batch) -> Tensor | None:
        """(n,) the class to explain; None for the predicted one."""
        return None if self.label is None else torch.full((len(batch),), self.label)

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
    missing = [stem for stem in stems if stem not in paths]
    if missing:
        some = f"{len(missing)} of {len(stems)} samples have no mask in {str(folder)!r}, first {missing[0]!r}"
        raise DataError(f"{some}: name each mask like its image")
    return torch.stack([_read(paths[stem], batch.size, values) for stem in stems])


def _read(path: Path, size: tuple[int, ...], values: Sequence[int] | None) -> Tensor:
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image)
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"cannot read the mask {str(path)!r}: {error}") from error
    inside = np.isin(pixels, list(values)) if values else pixels != 0
    inside = inside.any(-1) if inside.ndim > 2 else inside
    scaled = fit(Image.fromarray(inside.astype(np.uint8) * 255), (size[0], size[1]))
    return torch.from_numpy(np.asarray(scaled) > 127)
