"""Digest everything that decides what an object does, so that a later run recognises it.

An object is followed part by part: the code of the user's functions and classes with the closures, defaults, globals and
imports that they use, attributes, arrays and weights. Installed packages count by name and version. Each part has a path such
as `net.scale`. Parts that change while the object is used, such as a counter of calls, can be left out by their paths.
"""

from __future__ import annotations

import enum
import hashlib
import importlib
import io
import logging
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import singledispatch
from itertools import chain
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from rlab.storage.code import code_digest, is_installed, names_in, package

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), range, torch.dtype, torch.device, torch.Size)
_BOXES = (list, tuple, set, frozenset, dict, types.MappingProxyType)
_TYPING = (types.GenericAlias, types.UnionType, typing.TypeVar, type(typing.Any), type(typing.Optional[int]))  # noqa: UP045
_PASSIVE = (type(threading.Lock()), type(threading.RLock()), threading.local, logging.Logger)  # they decide nothing
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_HEAP = 1 << 9  # the flag of classes that Python code made
_HELD, _HOOKS = ("_parameters", "_buffers", "_modules"), ("_forward_hooks", "_forward_pre_hooks")
_OWN = frozenset(vars(nn.Module())) - {"training"}  # torch's own attributes of every module
_GRAPH = frozenset({"_graph", "meta", "_codegen"})  # of modules whose code torch writes; the code is digested
SAME = "="  # before the path of an object that was met before


@singledispatch
def parts_of(thing: object) -> Mapping[str, object] | None:
    """The parts that decide what an object of rlab does, if some of its attributes do not."""
    return None


class Parts:
    """Digests of an object's parts, breadth first."""

    def __init__(self, thing: object, tensors: Mapping[int, tuple[int, str]] | None = None) -> None:
        """With the `tensors` of an earlier walk, those that have not been written to since keep their digests."""
        self.known, self.tensors = tensors or {}, dict[int, tuple[int, str]]()  # by id: version and digest
        self.digests: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.seen: dict[int, tuple[str, object]] = {}  # by id: where it was met; kept, so that no other gets its id
        self.waiting = deque[tuple[str, object]]()
        self.follow("", thing)
        while self.waiting:
            path, each = self.waiting.popleft()
            try:
                self._digest(path, each)
            except Exception:  # an object of the user may raise anything when it is read
                self.unknown[path] = type(each).__name__
                self._note(path, "unknown", type(each).__name__)

    def follow(self, path: str, thing: object) -> None:
        """Note the digest of a value, or of an object that was met before; others wait for their turn."""
        if type(thing) in _PLAIN or isinstance(thing, _TYPING):
            self._note(path, type(thing).__name__, repr(thing))
        elif type(thing) in _BOXES and not thing:
            self._note(path, type(thing).__name__)
        elif id(thing) in self.seen and not isinstance(thing, Tensor | np.ndarray | np.generic | tuple):
            self.digests[path] = f"{SAME}{self.seen[id(thing)][0]}"
        else:
            self.seen[id(thing)] = path, thing
            self.waiting.append((path, thing))

    def _note(self, path: str, *texts: str | bytes) -> None:
        whole = hashlib.sha256()
        for text in texts:
            whole.update(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
            whole.update(b"\0")
        self.digests[path] = whole.hexdigest()[:24]

    def _all(self, path: str, parts: Mapping[str, object]) -> None:
        for name, part in parts.items():
            self.follow(f"{path}.{name}" if path else name, part)

    def _items(self, path: str, kind: str, items: Iterable[object]) -> None:
        listed = list(items)
        if all(type(item) in _PLAIN for item in listed):  # a list of numbers is one part
            return self._note(path, kind, repr(sorted(map(repr, listed)) if "set" in kind else listed))
        self._note(path, kind, str(len(listed)))
        for number, item in enumerate(sorted(listed, key=_text) if "set" in kind else listed):
            self.follow(f"{path}[{number}]", item)

    def _digest(self, path: str, thing: Any) -> None:
        if (parts := parts_of(thing)) is not None:
            self._type(path, thing)
            return self._all(path, parts)
        match thing:
            case Tensor():
                return self._tensor(path, thing)
            case np.ndarray() | np.generic():
                return self._array(path, np.asarray(thing))
            case type():
                return self._class(path, thing)
            case types.FunctionType():
                return self._function(path, thing)
            case types.MethodType():
                return self._all(path, {"(function)": thing.__func__, "(self)": thing.__self__})
            case types.ModuleType():
                return self._note(path, package(thing.__name__) or thing.__name__)
            case property():
                return self._all(path, {"get": thing.fget, "set": thing.fset})
            case staticmethod() | classmethod():
                return self.follow(f"{path}.function", thing.__func__)
            case types.CellType():
                return self.follow(path, thing.cell_contents)
            case weakref.ref():
                return self.follow(f"{path}.referent", thing())
            case torch.Generator():
                return self.follow(f"{path}.state", thing.get_state())
            case torch.jit.ScriptModule() | torch.jit.ScriptFunction():
                weights = thing.state_dict() if isinstance(thing, nn.Module) else {}
                return self._all(path, {"graph": str(thing.inlined_graph), **weights})
            case nn.Module():
                self._type(path, thing)
                return self._all(path, dict(_module_parts(thing)))
            case BaseModel():
                self._type(path, thing)
                return self._all(path, vars(thing))
            case enum.Enum():
                self._type(path, thing)
                return self._all(path, {"name": thing.name, "value": thing.value})
            case bytearray() | memoryview():
                return self._note(path, bytes(thing))
            case _ if isinstance(thing, _PASSIVE) or (isinstance(thing, io.IOBase) and thing.writable()):
                return self._note(path, type(thing).__name__)
        return self._instance(path, thing)

    def _tensor(self, path: str, tensor: Tensor) -> None:
        version, value = -1 if tensor.is_inference() else tensor._version, tensor.detach()
        before, digest = self.known.get(id(tensor), (-1, ""))
        if version == before != -1:
            self.digests[path] = digest
            return
        dense = value.dequantize() if value.is_quantized else value
        dense = (dense if dense.layout == torch.strided else dense.to_dense()).cpu().contiguous()
        self._note(path, f"{value.dtype} {tuple(value.shape)}", dense.flatten().view(torch.uint8).numpy().tobytes())
        self.tensors[id(tensor)] = version, self.digests[path]

    def _array(self, path: str, value: np.ndarray[Any, Any]) -> None:
        if value.dtype.hasobject:
            return self._items(path, f"{value.dtype} {value.shape}", value.ravel().tolist())
        return self._note(path, f"{value.dtype.str} {value.shape}", np.ascontiguousarray(value).reshape(-1).tobytes())

    def _instance(self, path: str, thing: Any) -> None:
        """Any other object: a container by its items, the user's by its attributes, others as they would be pickled."""
        kind, inside = type(thing), path
        if kind not in _BOXES:
            self._type(path, thing)
            inside = f"{path}.(items)"
        match thing:
            case list() | tuple() | set() | frozenset():
                self._items(inside, "set" if isinstance(thing, set | frozenset) else "list", thing)
            case dict() | types.MappingProxyType():
                self._items(inside, "keys", thing)
                for number, value in enumerate(thing.values()):
                    self.follow(f"{inside}[{number}].value", value)
        if kind in _BOXES:
            return None
        if package(kind.__module__) is None:
            self._all(path, _attributes(thing))
            if all(base.__flags__ & _HEAP or base in _BOXES for base in kind.__mro__[:-1]):
                return None
        elif (wrapped := getattr(thing, "__wrapped__", None)) is not None:  # functools.cache, jax.jit
            return self._all(path, {"wrapped": wrapped})
        elif is_dataclass(thing):
            return self._all(path, {each.name: getattr(thing, each.name, None) for each in fields(thing)})
        elif hasattr(thing, "__array__"):
            return self.follow(f"{path}.array", np.asarray(thing))
        return self._pickled(path, thing.__reduce_ex__(4))

    def _pickled(self, path: str, how: str | tuple[Any, ...]) -> None:
        if isinstance(how, str):
            return self._note(f"{path}.name", how)
        make, arguments, state, items, pairs = (*how, None, None, None)[:5]
        own = [make, list(arguments), state, list(items or ()), list(pairs or ())]
        return self._items(f"{path}.(state)", "object", own)

    def _type(self, path: str, thing: object) -> None:
        self.follow(f"{path}<{type(thing).__name__}>", type(thing))

    def _class(self, path: str, kind: type) -> None:
        """The name of a class; of a user's class its members and bases, of an installed one the functions put into it."""
        installed = package(kind.__module__)
        self._note(path, kind.__qualname__, installed or "")
        for name, member in sorted(vars(kind).items()):
            inner = getattr(member, "__func__", member)
            called = isinstance(member, property | staticmethod | classmethod | types.FunctionType)
            hidden = name == "_abc_impl" or (
                name.startswith("__" if not issubclass(kind, enum.Enum) else "_") and not called
            )
            foreign = isinstance(inner, types.FunctionType) and not is_installed(inner.__code__.co_filename)
            if (foreign if installed else not hidden) and not isinstance(member, _SLOTS):
                self.follow(f"{path}.{name}", member)
        for base in kind.__mro__[1:-1] if not installed else ():
            self.follow(f"{path}<{base.__name__}>", base)

    def _function(self, path: str, function: types.FunctionType) -> None:
        """A function with what it uses; an installed one with what the user gave it."""
        code, around = function.__code__, function.__globals__
        used = dict(_closure(function))
        if is_installed(code.co_filename):
            self._note(path, package(function.__module__ or "") or "", function.__qualname__)
            return self._all(path, used)
        self._note(path, code_digest(code))
        names = names_in(code)
        used |= {name: around[name] for name in sorted(names.globals) if name in around}
        used |= {f"import {name}": _imported(name, level, around) for name, level in sorted(names.imports)}
        own = {"(defaults)": function.__defaults__, "(keywords)": function.__kwdefaults__, **vars(function)}
        self._all(path, used | {name: value for name, value in own.items() if value is not None})
        done, modules = set[int](), [(f"{path}.{name}", value) for name, value in used.items()]
        for inner, module in modules:  # the files of the user's modules, and what these names can mean in them
            if isinstance(module, types.ModuleType) and not package(module.__name__) and id(module) not in done:
                done.add(id(module))
                self._file(inner, module)
                found = [(f"{inner}.{name}", vars(module)[name]) for name in sorted(names.others & vars(module).keys())]
                self._all("", dict(found))
                modules += found
        return None

    def _file(self, path: str, module: types.ModuleType) -> None:
        if module.__file__ is not None:
            with open(module.__file__, "rb") as file:
                self._note(f"{path}.file", file.read())


def _text(item: object) -> str:
    return repr(sorted(Parts(item).digests.items()))


def _module_parts(module: nn.Module) -> Iterator[tuple[str, object]]:
    """Weights, buffers, layers, hooks and plain attributes."""
    own = vars(module)
    yield from chain.from_iterable(own[held].items() for held in _HELD)
    yield from ((hooks, list(own[hooks].values())) for hooks in _HOOKS if own[hooks])  # their keys count modules
    passing = _OWN | (_GRAPH if isinstance(module, torch.fx.GraphModule) else frozenset())
    yield from sorted((name, value) for name, value in own.items() if name not in passing)


def _attributes(thing: object) -> dict[str, object]:
    """The attributes of an object of a user's class, by name."""
    slots = (vars(each).get("__slots__", ()) for each in type(thing).__mro__)
    names = {name for each in slots for name in ((each,) if isinstance(each, str) else each)} - {
        "__dict__",
        "__weakref__",
    }
    found = {name: getattr(thing, name) for name in names if hasattr(thing, name)}
    return dict(sorted({**found, **getattr(thing, "__dict__", {})}.items()))


def _closure(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is still empty
            continue


def _imported(name: str, level: int, around: Mapping[str, Any]) -> object:
    """The module that a function imports while it runs; None if there is none."""
    try:
        return importlib.import_module("." * level + name, around.get("__package__"))
    except ImportError:
        return None
