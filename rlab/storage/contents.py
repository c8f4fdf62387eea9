"""Recognise an object in a later run: digests of all parts that decide what it does, and one mark of them all.

An object is followed part by part: the code of the user's functions and classes with the closures, defaults, globals and
imports that they use, attributes, arrays and weights. Installed packages count by name and version. Each part has a path such
as `net.scale`. Parts that change while the object is used, such as a counter of calls, can be left out by their paths.
"""

from __future__ import annotations

import enum
import hashlib
import io
import logging
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from itertools import chain
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from rlab.storage.code import bytecode, is_installed, package, used_by

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), range, torch.dtype, torch.device, torch.Size)
_TYPING = (types.GenericAlias, types.UnionType, typing.TypeVar, type(typing.Any), type(typing.Optional[int]))  # noqa: UP045
_PASSIVE = (type(threading.Lock()), type(threading.RLock()), threading.local, logging.Logger)  # they decide nothing
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_COPIED = (Tensor, np.ndarray, np.generic, tuple)  # equal ones count alike, whether they are the same or not
_HEAP = 1 << 9  # the flag of classes that Python code made
_HELD, _HOOKS = ("_parameters", "_buffers", "_modules"), ("_forward_hooks", "_forward_pre_hooks")
_OWN = frozenset(vars(nn.Module())) - {"training"}  # torch's own attributes of every module
_GRAPH = frozenset({"_graph", "meta", "_codegen"})  # of modules whose code torch writes; the code is digested
_SAME = "="  # before the path of an object that was met before
_WITHOUT, _AND = " without ", "; "
Parts = Mapping[str, object]


@singledispatch
def parts_of(thing: object) -> Parts | None:
    """The parts that decide what an object of rlab does, if some of its attributes do not."""
    return None


class Contents:
    """Digests of an object's parts by path. A mark is one digest of all as text, with the paths that it leaves out."""

    def __init__(self, thing: object, known: Mapping[int, tuple[int, str]] | None = None) -> None:
        """`known` are digests of tensors by id; those that have not been written to since keep them."""
        self.thing, self._known = thing, known or {}
        self._tensors = dict[int, tuple[int, str]]()  # by id: version and digest
        self.parts = dict[str, str]()
        self.unknown = dict[str, str]()  # the type of each part that a later run could not recognise
        self._seen = dict[int, tuple[str, object]]()  # by id: where it was met; kept, so that no other gets its id
        self._waiting = deque[tuple[str, object]]()
        self._follow("", thing)
        while self._waiting:  # breadth first
            path, each = self._waiting.popleft()
            try:
                self._digest(path, each)
            except Exception:  # an object of the user may raise anything when it is read
                self.unknown[path] = type(each).__name__
                self._note(path, "unknown", type(each).__name__)

    def _follow(self, path: str, thing: object) -> None:
        """Note the digest of a value, or of an object that was met before; others wait for their turn."""
        if type(thing) in _PLAIN or isinstance(thing, _TYPING):
            self._note(path, type(thing).__name__, repr(thing))
        elif id(thing) in self._seen and not isinstance(thing, _COPIED):
            self.parts[path] = f"{_SAME}{self._seen[id(thing)][0]}"
        else:
            self._seen[id(thing)] = path, thing
            self._waiting.append((path, thing))

    def _note(self, path: str, *texts: str | bytes) -> None:
        whole = hashlib.sha256()
        for text in texts:
            whole.update(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
            whole.update(b"\0")
        self.parts[path] = whole.hexdigest()[:24]

    def _digest(self, path: str, thing: Any) -> None:
        kind = type(thing)
        if isinstance(thing, Tensor):
            return self._tensor(path, thing)
        if isinstance(thing, np.ndarray | np.generic) and not thing.dtype.hasobject:
            dense = np.ascontiguousarray(thing).reshape(-1)
            return self._note(path, f"{thing.dtype.str} {thing.shape}", dense.tobytes())
        if kind in (list, tuple, set, frozenset):
            return self._items(path, kind.__name__, _in_order(thing))
        if kind in (dict, types.MappingProxyType):
            self._items(path, "keys", list(thing))
            return self._all(path, {f"{number}.value": value for number, value in enumerate(thing.values())})
        if isinstance(thing, _PASSIVE) or (isinstance(thing, io.IOBase) and thing.writable()):
            return self._note(path, kind.__name__)
        return self._all(path, _parts(thing))

    def _all(self, path: str, parts: Parts) -> None:
        for name, part in parts.items():
            self._follow(f"{path}.{name}" if path else name, part)

    def _items(self, path: str, kind: str, items: Sequence[object]) -> None:
        plain = all(type(item) in _PLAIN for item in items)  # a list of numbers is one part
        self._note(path, kind, repr(items) if plain else str(len(items)))
        self._all(path, {} if plain else {str(number): item for number, item in enumerate(items)})

    def _tensor(self, path: str, tensor: Tensor) -> None:
        version, value = -1 if tensor.is_inference() else tensor._version, tensor.detach()
        before, digest = self._known.get(id(tensor), (-1, ""))
        if version == before != -1:
            self.parts[path] = digest
            return
        dense = value.dequantize() if value.is_quantized else value
        dense = (dense if dense.layout == torch.strided else dense.to_dense()).cpu().contiguous()
        self._note(path, f"{value.dtype} {tuple(value.shape)}", dense.flatten().view(torch.uint8).numpy().tobytes())
        self._tensors[id(tensor)] = version, self.parts[path]

    @property
    def likeness(self) -> str:
        """One digest of all parts, in which an unknown part counts by its type."""
        return self._whole(())

    def _whole(self, left_out: Sequence[str]) -> str:
        kept = (f"{path}\0{digest}" for path, digest in sorted(self.parts.items()) if not _below(path, left_out))
        return hashlib.sha256("\0".join(kept).encode()).hexdigest()[:24]

    def mark(self, without: Iterable[str] = ()) -> str:
        """A mark that only the same contents fit; if a part is unknown, none do."""
        left_out = sorted(without)
        whole = uuid4().hex[:24] if self.lost(left_out) else self._whole(left_out)
        return whole + (_WITHOUT + _AND.join(left_out) if left_out else "")

    def lost(self, left_out: Sequence[str] = ()) -> list[str]:
        """The unknown parts in words."""
        return [f"{path or 'itself'} ({kind})" for path, kind in self.unknown.items() if not _below(path, left_out)]

    def fits(self, mark: object) -> bool:
        """Whether these contents have this mark, but for the parts that it leaves out."""
        return isinstance(mark, str) and self.mark(left_out_of(mark)) == mark

    def mark_among(self, marks: Iterable[str]) -> str:
        """The first of these marks that fits, or else a new one."""
        return next((mark for mark in sorted({*marks}) if self.fits(mark)), self.mark())

    def settled(self, mark: str = "") -> str:
        """A mark that also leaves out what changed since these contents were digested, because the object was used."""
        before, after = self.parts, Contents(self.thing, self._tensors).parts
        differ = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        moved = {path for path in differ for part in (before, after) if part.get(path, "").startswith(_SAME)}
        left_out = {path for path in differ if not _below(path, moved)}  # what only moved still decides
        return self.mark({*left_out_of(mark), *left_out})


def left_out_of(mark: str) -> list[str]:
    """The paths that a mark leaves out."""
    names = mark.partition(_WITHOUT)[2]
    return names.split(_AND) if names else []


def _below(path: str, names: Iterable[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _in_order(items: Any) -> list[object]:
    """The items of a list; those of a set by their digests, because its order is none."""
    if not isinstance(items, set | frozenset):
        return list(items)
    return sorted(items, key=lambda item: repr(sorted(Contents(item).parts.items())))


# The parts of objects by their type. Other objects have a class and attributes, or what they would be pickled with.


def _parts(thing: Any) -> Parts:
    if (own := parts_of(thing)) is not None:
        return {"<type>": type(thing), **own}
    return next(parts(thing) for kind, parts in _PARTS.items() if isinstance(thing, kind))


def _instance(thing: Any) -> Parts:
    kind, own = type(thing), package(type(thing).__module__) is None
    attributes = _attributes(object.__getstate__(thing)) if own else {}
    if own and all(base.__flags__ & _HEAP for base in kind.__mro__[:-1]):
        return {"<type>": kind, **attributes}
    if not own and (wrapped := getattr(thing, "__wrapped__", None)) is not None:  # functools.cache, jax.jit
        return {"<type>": kind, "wrapped": wrapped}
    if isinstance(thing, set | frozenset):  # pickled without an order
        return {"<type>": kind, "items": _in_order(thing), **attributes}
    how = thing.__reduce_ex__(4)
    if isinstance(how, str):
        return {"<type>": kind, "name": how}
    make, arguments, state, items, pairs = (*how, None, None, None)[:5]
    made = {"make": make, "arguments": arguments, "items": list(items or ()), "pairs": list(pairs or ())}
    return {"<type>": kind, **attributes, **made, **_attributes(state)}


def _attributes(state: object) -> Parts:
    """The state of an object as it is pickled: attributes by name where it has such."""
    if isinstance(state, tuple) and len(state) == 2 and all(isinstance(each, dict | None) for each in state):
        return {**(state[0] or {}), **(state[1] or {})}  # of a class with slots
    return {str(name): part for name, part in state.items()} if isinstance(state, dict) else {"(state)": state}


def _module(module: nn.Module) -> Parts:
    """Weights, buffers, layers, hooks and plain attributes."""
    own = vars(module)
    held = dict(chain.from_iterable(own[each].items() for each in _HELD))
    hooks = {each: list(own[each].values()) for each in _HOOKS if own[each]}  # their keys count modules
    passing = _OWN | (_GRAPH if isinstance(module, torch.fx.GraphModule) else frozenset())
    return {"<type>": type(module), **held, **hooks, **{name: own[name] for name in sorted(own.keys() - passing)}}


def _class(kind: type) -> Parts:
    """The name of a class; of a user's class its members and bases, of an installed one the functions put into it."""
    installed = package(kind.__module__)
    parts: dict[str, object] = {"(name)": f"{kind.__qualname__} of {installed}"}
    hidden = "_" if issubclass(kind, enum.Enum) else "__"
    for name, member in sorted(vars(kind).items()):
        inner = getattr(member, "__func__", member)
        called = isinstance(member, property | staticmethod | classmethod | types.FunctionType)
        foreign = isinstance(inner, types.FunctionType) and not is_installed(inner.__code__.co_filename)
        plain = name != "_abc_impl" and (called or not name.startswith(hidden)) and not isinstance(member, _SLOTS)
        if foreign if installed else plain:
            parts[name] = member
    return parts if installed else {**parts, **{f"<{base.__name__}>": base for base in kind.__mro__[1:-1]}}


def _function(function: types.FunctionType) -> Parts:
    """A function with what it uses; an installed one with what the user gave it."""
    if is_installed(function.__code__.co_filename):
        return {"(name)": f"{package(function.__module__ or '')} {function.__qualname__}", **used_by(function)}
    own = {"(defaults)": function.__defaults__, "(keywords)": function.__kwdefaults__, **vars(function)}
    return {"(code)": bytecode(function.__code__), **used_by(function), **own}


def _script(thing: Any) -> Parts:
    return {"graph": str(thing.inlined_graph), **(thing.state_dict() if isinstance(thing, nn.Module) else {})}


_PARTS: Mapping[Any, Callable[[Any], Parts]] = {
    type: _class,
    types.FunctionType: _function,
    types.MethodType: lambda method: {"(function)": method.__func__, "(self)": method.__self__},
    types.ModuleType: lambda module: {"(name)": package(module.__name__) or module.__name__},
    property: lambda each: {"get": each.fget, "set": each.fset},
    (staticmethod, classmethod): lambda each: {"function": each.__func__},
    weakref.ref: lambda each: {"referent": each()},
    np.ndarray: lambda array: {"dtype": f"{array.dtype} {array.shape}", "items": array.ravel().tolist()},  # of objects
    torch.Generator: lambda each: {"state": each.get_state()},
    (torch.jit.ScriptModule, torch.jit.ScriptFunction): _script,
    nn.Module: _module,
    BaseModel: lambda each: {"<type>": type(each), **vars(each)},
    (bytearray, memoryview): lambda each: {"bytes": bytes(each)},
    object: _instance,
}
