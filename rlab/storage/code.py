"""The code of functions: digests of bytecode, the names that it uses, and the installed package that code belongs to.

Comments, documentation and places in a file do not count; the version of Python does, because it compiles differently.
"""

from __future__ import annotations

import dis
import importlib
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from site import getsitepackages, getusersitepackages
from types import CodeType
from typing import Any

_SAID = ("rlab", "torch")  # a run folder notes their versions and Python's; a run may go on with others


@cache
def _libraries() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages."""
    known = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {*getsitepackages(), getusersitepackages(), str(Path(__file__).parents[1])}
    return tuple(f"{folder}/" for path in known for folder in {path, str(Path(path).resolve())})


@cache
def is_installed(file: str) -> bool:
    """Whether a file of code belongs to Python, to rlab or to an installed package."""
    return file.startswith(("<frozen", *_libraries())) or f"{file}/".startswith(_libraries())


@cache
def package(module: str) -> str | None:
    """The installed package of a module with its version, such as 'timm 1.0.9'; None if the module is the user's."""
    root = module.partition(".")[0]
    loaded = sys.modules.get(module) or sys.modules.get(root)
    file = getattr(loaded, "__file__", None)
    if module == "__main__" or loaded is None or (file is not None and not is_installed(file)):
        return None
    if root in _SAID or root in sys.stdlib_module_names:
        return root
    try:
        return f"{root} {getattr(sys.modules[root], '__version__', None) or version(root)}"
    except (KeyError, PackageNotFoundError):
        return root


def bytecode(value: object) -> str:
    """A constant as text; of code, everything but its name, its place and its documentation."""
    if isinstance(value, CodeType):
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        sizes = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
        return repr([value.co_code, names, sizes, value.co_exceptiontable, *map(bytecode, value.co_consts)])
    if isinstance(value, tuple | frozenset):
        parts = map(bytecode, value)
        return f"{type(value).__name__}({', '.join(parts if isinstance(value, tuple) else sorted(parts))})"
    return f"{type(value).__name__} {value!r}"


def _nested(code: CodeType) -> Iterator[CodeType]:
    """The code itself and that of functions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested(each)


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[set[str], set[tuple[str, int]]]:
    """The global names of a function, and the modules that it imports, with the number of dots before their names."""
    names, imports, level = set[str](), set[tuple[str, int]](), 0
    for step in (step for each in _nested(code) for step in dis.get_instructions(each)):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(step.argval)
        elif step.opname == "LOAD_CONST" and type(step.argval) is int:
            level = step.argval
        elif step.opname == "IMPORT_NAME":  # after the number of dots and the names to import
            imports.add((step.argval, level))
    return names, imports


def used_by(function: types.FunctionType) -> dict[str, object]:
    """What the code of a function uses: its closure, and if it is the user's also globals, imports, and members of modules."""
    code, around, used = function.__code__, function.__globals__, dict[str, object]()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            used[name] = cell.cell_contents
        except ValueError:  # it is still empty
            continue
    if is_installed(code.co_filename):
        return used
    names, imports = _names(code)
    used |= {name: around[name] for name in sorted(names) if name in around}
    used |= {f"import {name}": _imported(name, level, around) for name, level in sorted(imports)}
    members, found = {name for each in _nested(code) for name in each.co_names}, dict[str, object]()
    modules = [(name, value) for name, value in used.items() if is_own(value)]
    for path, module in modules:  # members of modules of the user, which these names can mean
        found[f"{path} (file)"] = _text(module)
        inner = {f"{path}.{name}": vars(module)[name] for name in sorted(members & vars(module).keys())}
        seen = [one for _, one in modules]
        modules += [(at, value) for at, value in inner.items() if is_own(value) and value not in seen]
        found |= inner
    return used | found


def is_own(value: object) -> bool:
    """Whether a value is a module of the user."""
    return isinstance(value, types.ModuleType) and not package(value.__name__)


def _text(module: Any) -> bytes | None:
    return None if module.__file__ is None else Path(module.__file__).read_bytes()


def _imported(name: str, level: int, around: Mapping[str, Any]) -> object:
    """The module that a function imports while it runs; None if there is none."""
    try:
        return importlib.import_module("." * level + name, around.get("__package__"))
    except ImportError:
        return None
