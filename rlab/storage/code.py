"""The code of a function: its source if its file still holds it, else its bytecode; and the names that it uses.

The file may have changed since Python loaded it, so its text counts only if it compiles to the code that runs.
"""

from __future__ import annotations

import dis
import hashlib
import linecache
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from site import getsitepackages, getusersitepackages
from types import CodeType

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
    return file.startswith("<frozen") or f"{file}/".startswith(_libraries()) or file.startswith(_libraries())


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


def code_digest(code: CodeType) -> str:
    """Digest the source of a function, or its bytecode without a file that holds it; a lambda has only bytecode."""
    text = None if code.co_name == "<lambda>" else _texts(code.co_filename, _read(code.co_filename)).get(code)
    return hashlib.sha256((_bytecode(code) if text is None else text).encode()).hexdigest()


def _read(file: str) -> str:
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


@lru_cache(maxsize=64)
def _texts(file: str, source: str) -> dict[CodeType, str]:
    """The lines of every function in a source, by the code that they compile to."""
    try:
        whole = compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    lines = source.splitlines(keepends=True)
    return {code: "".join(lines[code.co_firstlineno - 1 : _last(code)]) for code in _nested(whole)}


def _last(code: CodeType) -> int:
    return max(line for each in _nested(code) for _, _, line in each.co_lines() if line is not None)


def _nested(code: CodeType) -> Iterator[CodeType]:
    """The code itself and that of functions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested(each)


def _bytecode(value: object) -> str:
    """A constant as text; of code, everything but its name, its place and its documentation."""
    if isinstance(value, CodeType):
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        sizes = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
        return repr([value.co_code, names, sizes, value.co_exceptiontable, *map(_bytecode, value.co_consts)])
    if isinstance(value, tuple | frozenset):
        parts = map(_bytecode, value)
        return f"{type(value).__name__}({', '.join(parts if isinstance(value, tuple) else sorted(parts))})"
    return f"{type(value).__name__} {value!r}"


@dataclass(frozen=True)
class Names:
    """What the code of a function names: globals, imported modules, and everything else, such as attributes."""

    globals: set[str] = field(default_factory=set)
    imports: set[tuple[str, int]] = field(default_factory=set)  # with the number of dots before the name
    others: set[str] = field(default_factory=set)


@lru_cache(maxsize=1024)
def names_in(code: CodeType) -> Names:
    names, level = Names(), 0
    for each in _nested(code):
        names.others.update(each.co_names)
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.globals.add(step.argval)
            elif step.opname == "LOAD_CONST" and type(step.argval) is int:
                level = step.argval
            elif step.opname == "IMPORT_NAME":  # after the number of dots and the names to import
                names.imports.add((step.argval, level))
    return names
