"""What `rlab explain` takes beyond an attack's options, and ground truth from a folder of mask images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from pydantic import AliasChoices, Field, ValidationInfo, field_validator
from torch import Tensor

from rlab.data.batch import Batch
from rlab.data.images import IMAGES, fit
from rlab.errors import InputError
from rlab.explanation.base import Method
from rlab.explanation.minimal import Instant
from rlab.explanation.run import parse_methods
from rlab.explanation.scores import STEPS
from rlab.options import RunOptions


class ExplainOptions(RunOptions):
    """Methods, the class they explain, and how their maps are cut and scored; the attack is for the method 'mask'."""

    method: tuple[str, ...] | None = Field(
        None,
        description="methods: belief, credit, mask, instant, rise, occlusion, gradcam, ...; repeat it or use commas",
    )
    agent: str | None = Field(None, description="an agent's .safetensors file, for the method 'instant'")
    label: int | None = Field(
        None,
        validation_alias=AliasChoices("class", "label"),
        description="class to explain (default: the predicted class)",
    )
    masks: str | None = Field(None, description="folder of ground-truth masks with the same names as the images")
    mask_values: tuple[int, ...] | None = Field(
        None, description="mask values that mean inside, e.g. 1,3 (default: any but 0)"
    )
    rule: str = Field("otsu", description="rule that turns a map into a mask: otsu or share:0.2 (default: otsu)")
    steps: int = Field(STEPS, ge=2, description="number of insertion and deletion steps")
    checks: bool = Field(True, description="score stability over seeds and run the sanity check (default: yes)")

    @field_validator("method", "mask_values", mode="before")
    @classmethod
    def _listed(cls, value: Any, info: ValidationInfo) -> Any:
        """One alone; values of masks also with commas, as on the command line."""
        if isinstance(value, str) and info.field_name == "mask_values":
            return value.split(",")
        return (value,) if isinstance(value, str | int) else value

    def methods(self, default: Sequence[str]) -> list[Method]:
        methods = parse_methods(self.method or default, self.attack_options())
        return [replace(m, policy=self.agent) if self.agent and isinstance(m, Instant) else m for m in methods]

    def labels(self, batch: Batch) -> Tensor | None:
        """(n,) the class to explain; None is the predicted one."""
        return None if self.label is None else torch.full((len(batch),), self.label)

    def with_masks(self, batch: Batch) -> Batch:
        """The batch with the ground truth of the folder, where one is named."""
        if self.masks is not None:
            return replace(batch, masks=read_masks(Path(self.masks), batch, self.mask_values))
        if self.mask_values is not None:
            raise InputError("--mask-values says which values of --masks mean inside: pass the folder of masks too")
        return batch


def read_masks(folder: Path, batch: Batch, values: Sequence[int] | None = None) -> Tensor:
    """(n, h, w) bool: where a mask image holds one of `values`, or anything but 0; resized and cut as the images were."""
    if batch.kind != "image":
        raise InputError(f"mask images are for images, but the data are {batch.kind}: put masks into the .npz")
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r} of masks: expected an image for each sample, by its name")
    paths = {path.stem: path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES}
    stems = [Path(name).stem for name in batch.ids]
    missing = [stem for stem in stems if stem not in paths]
    if missing:
        some = f"{len(missing)} of {len(stems)} samples have no mask in {str(folder)!r}, first {missing[0]!r}"
        raise InputError(f"{some}: name a mask as its image")
    return torch.stack([_read(paths[stem], batch.size, values) for stem in stems])


def _read(path: Path, size: tuple[int, ...], values: Sequence[int] | None) -> Tensor:
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"cannot read the mask {str(path)!r}: {error}") from error
    inside = np.isin(pixels, list(values)) if values else pixels != 0
    inside = inside.any(-1) if inside.ndim > 2 else inside
    scaled = fit(Image.fromarray(inside.astype(np.uint8) * 255), (size[0], size[1]))
    return torch.from_numpy(np.asarray(scaled) > 127)
