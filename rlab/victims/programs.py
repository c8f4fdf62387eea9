"""TorchScript and torch.export files, which are programs: they can read and write files, or run code when torch opens them."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

from rlab.errors import ModelError
from rlab.victims.batches import in_sizes
from rlab.victims.failures import first_line


def is_torchscript(path: Path) -> bool:
    """Whether the file is an archive with code."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def load_program(path: Path, trust: bool) -> nn.Module:
    """The module in a .pt2 file of `torch.export.save`, or in a file of `torch.jit.save`."""
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    if not trust:
        raise ModelError(
            f"{path} is a program, which can run any code: if you know where it comes from, pass trust=True (-M trust=true), "
            "otherwise ask for the model as ONNX"
        )
    try:
        if path.suffix.lower() == ".pt2":
            return _exported(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            model: nn.Module = torch.jit.load(path, map_location="cpu")
            return model
    except ModelError:
        raise
    except Exception as error:  # torch raises anything on files of other versions
        raise ModelError(f"cannot read {path} as a program of torch: {first_line(error)}") from error


class Exported(nn.Module):
    """An exported program, which is always in evaluation mode; a fixed number of rows is filled up."""

    def __init__(self, program: nn.Module, rows: int | None) -> None:
        super().__init__()
        self.program, self.rows = program, rows

    def train(self, mode: bool = True) -> Exported:
        self.training = False  # the mode was fixed when the program was exported
        return self

    def forward(self, x: Tensor) -> object:
        return self.program(x) if self.rows is None else in_sizes(x, (self.rows,), self.program)


def _exported(path: Path) -> nn.Module:
    program = torch.export.load(path)
    inputs = [node.meta["val"] for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor) or not inputs[0].dim():
        raise ModelError(f"expected {path} to take one tensor, got {len(inputs)} inputs: wrap it in a function")
    rows = inputs[0].shape[0]
    return Exported(program.module(), rows if isinstance(rows, int) else None)
