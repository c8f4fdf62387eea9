"""Export a hardened model as ONNX, with its normalisation."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from rlab.errors import MissingExtra, ModelError, optional
from rlab.victims.answers import read_answer
from rlab.victims.torch_module import TorchVictim


class _WithNormalisation(nn.Module):
    """The model with its normalisation, for inputs in the data's range."""

    def __init__(self, victim: TorchVictim) -> None:
        super().__init__()
        self.model = copy.deepcopy(victim.model)
        self.reading, self.score, self.dtype = victim.reading, victim.score, victim.dtype

    def forward(self, x: Tensor) -> Tensor:
        answer = self.model(self.reading.arrange(x).to(self.dtype))
        return read_answer(answer, self.reading.output, self.score)


def export_onnx(victim: TorchVictim, path: Path, shape: tuple[int, ...]) -> Path:
    """Export the model for inputs (b, *shape)."""
    optional("onnx", MissingExtra("onnx", "harden"))  # torch's exporter needs it, and its own error is less clear
    whole = _WithNormalisation(victim).cpu().eval()
    example = torch.full((2, *shape), max(victim.bounds[0], 0.0))
    axes = {"x": {0: "b"}, "scores": {0: "b"}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from the exporter itself
            torch.onnx.export(
                whole,
                (example,),
                str(path),
                input_names=["x"],
                output_names=["scores"],
                dynamic_axes=axes,
                dynamo=False,
            )
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"this model does not export to ONNX ({reason}): save its state dict instead") from error
    return path
