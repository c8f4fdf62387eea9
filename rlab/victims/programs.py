"""TorchScript and torch.export files, loaded only if nothing in them can reach beyond the operators of torch.

`torch.jit.load` runs no Python: the file is a program for torch's own interpreter, which can still read and write files through
a few operators. `torch.export.load` opens pickles, evaluates text and looks up any name in torch. Both files are therefore checked
first, and refused if they hold anything but tensors and operators on tensors.
"""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlab.errors import ModelError
from rlab.victims.batches import in_sizes
from rlab.victims.failures import first_line

INSTEAD = "load it in a function of your own, module:function, if you trust it, or export the model to ONNX"
_FILES = re.compile(
    r"[^/]+/(models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)|archive_(format|version)|byteorder"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt|\.data/\w+)"
)
_OPERATORS = re.compile(
    r"torch\.ops\.(aten|higher_order|prims)\.\w+(\.\w+)?|math\.\w+|torch\.sym_\w+"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|not_)"
)
_EXPRESSION = re.compile(
    r"(\b(Symbol|Integer|Add|Mul|Pow|Mod|FloorDiv|Max|Min|positive|integer|nonnegative|True|False)\b|'?\b[us]\d+\b'?"
    r"|[\d\s+*/,()<>=-])*"
)
_TEXTS = {"target": _OPERATORS, "expr_str": _EXPRESSION}
_NAME = re.compile(r"[\w.:+-]*")
_TREES = {None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}
_REACHES_OUT = re.compile(r"\b(from_file|save|load|_cuda_\w+|classes\.\w+)\s*\(")


def is_torchscript(path: Path) -> bool:
    """Whether the file is an archive with code."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def load_torchscript(path: Path) -> nn.Module:
    """The module in a file of `torch.jit.save`; refuse programs that read or write files."""
    names = [name for name in _entries(path) if "/code/" in name and name.endswith(".py")]
    if not names:
        raise ModelError(f"expected {path} to be a TorchScript file, got another archive: {INSTEAD}")
    with zipfile.ZipFile(path) as archive:
        for name in names:
            if found := _REACHES_OUT.search(archive.read(name).decode(errors="replace")):
                raise ModelError(f"the TorchScript program {path} calls {found[1]}, which reaches beyond it: {INSTEAD}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            model: nn.Module = torch.jit.load(path, map_location="cpu")
    except RuntimeError as error:
        raise ModelError(f"cannot read {path} as a TorchScript file: {first_line(error)}") from error
    return model


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


def load_exported(path: Path) -> nn.Module:
    """The module in a .pt2 file of `torch.export.save`; refuse all that its loader would unpickle, evaluate or look up."""
    names = _entries(path)
    if foreign := [name for name in names if not _FILES.fullmatch(name)]:
        raise _refused(path, f"{foreign[0]}, which may be code")
    with zipfile.ZipFile(path) as archive:
        for name in names:
            if name.endswith(".json"):
                _check_json(path, archive.read(name))
            elif name.endswith(".pt"):
                try:
                    torch.load(io.BytesIO(archive.read(name)), weights_only=True)
                except Exception as error:
                    raise _refused(path, "a pickle") from error
    try:
        program = torch.export.load(path)
        inputs = [node.meta["val"] for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
        module = program.module(check_guards=False)  # guards are text that would be run
    except Exception as error:  # torch raises anything on files of other versions
        raise ModelError(f"cannot read {path} as a torch.export file: {first_line(error)}") from error
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor) or not inputs[0].dim():
        raise ModelError(f"expected {path} to take one tensor, got {len(inputs)} inputs: wrap it in a function")
    rows = inputs[0].shape[0]
    return Exported(module, rows if isinstance(rows, int) else None)


def _entries(path: Path) -> list[str]:
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile as error:
        raise ModelError(f"expected {path} to be an archive of torch, got another or damaged file") from error
    if len(set(names)) != len(names):  # readers may choose differently
        raise _refused(path, "two parts of the same name")
    return names


def _refused(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} contains {what}, and torch.export would run it: {INSTEAD}")


def _check_json(path: Path, text: bytes) -> None:
    """Names become Python code, so they may hold nothing else; guards are not used, and metadata only describe."""
    try:
        for key, value in _pairs("", json.loads(text)):
            if key in ("in_spec", "out_spec") and value:
                kinds = {inner for name, inner in _pairs("", json.loads(value)) if name == "type"}
                allowed = kinds <= _TREES
            elif key == "use_pickle":
                allowed = value is False
            elif key in _TEXTS:
                allowed = isinstance(value, str) and bool(_TEXTS[key].fullmatch(value)) and "from_file" not in value
            else:
                allowed = (
                    not isinstance(value, str) or key in ("as_string", "guards_code") or bool(_NAME.fullmatch(value))
                )
            if not allowed:
                raise _refused(path, f"the {key} {str(value)[:80]!r}")
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"cannot read {path} as a torch.export file: {first_line(error)}") from error


def _pairs(key: str, content: Any) -> Iterator[tuple[str, Any]]:
    """All values in nested objects and lists, each with the nearest key."""
    yield key, content
    if isinstance(content, dict):
        for inner, value in content.items():
            if inner != "metadata":
                yield from _pairs(inner, value)
    elif isinstance(content, list):
        for value in content:
            yield from _pairs(key, value)
