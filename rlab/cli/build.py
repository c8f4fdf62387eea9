"""Commands from declarations: a parameter of options becomes one flag for each field, with the field's description as its help.

    @declared(queries=True)
    def command(options: SharedRunOptions, run: RunFlags) -> None: ...

A parameter that is a dataclass becomes one flag for each of its fields. Command-line options override the --config file, which
overrides the defaults of the options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import is_dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.models import ArgumentInfo

from rlab.cli.speak import speaking
from rlab.storage.config import Options

if TYPE_CHECKING:
    from rlab.cli.fields import Section

Function = Callable[..., None]
Maker = Callable[[Mapping[str, Any]], Any]  # of a parameter of a command, from the words of the command line


def parameter(name: str, kind: Any, how: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, how])


_JSON = typer.Option("--json", help="Print the results as one JSON object, and other text on standard error")
_QUIET = typer.Option("--quiet", "-q", help="Print only errors and the JSON object")
_MOST = typer.Option(
    "--max-queries", min=1, help="Stop before the models get more queries; repeat the command to go on"
)
COMMON = {"as_json": parameter("as_json", bool, _JSON, False), "quiet": parameter("quiet", bool, _QUIET, False)}
LIMIT = {"max_queries": parameter("max_queries", int | None, _MOST)}


def declared(
    without: Sequence[str] = (),
    only: Sequence[str] | None = None,
    section: Section | None = None,
    queries: bool = False,
) -> Callable[[Function], Function]:
    """Give a function the flags of its parameters, --json, --quiet and, if it queries models, --max-queries.

    Fields of options in `without`, or not in `only`, get no flag.
    """

    def decorate(function: Function) -> Function:
        own, makers, known = dict[str, inspect.Parameter](), dict[str, Maker](), dict[str, inspect.Parameter]()
        for each in inspect.signature(function, eval_str=True).parameters.values():
            kind, inner = each.annotation, {each.name: each}
            if isinstance(kind, type) and issubclass(kind, Options):
                from rlab.cli.fields import flags_of, gather  # imports torch

                fields = {flag.name: flag for flag in flags_of(kind, section)}
                makers[each.name] = partial(gather, kind, fields)
                known = {name: parameter(name, flag.kind | None, flag.how) for name, flag in fields.items()}
                continue
            if isinstance(kind, type) and is_dataclass(kind):
                inner = dict(inspect.signature(kind, eval_str=True).parameters)
                makers[each.name] = partial(_made, kind, list(inner))
            else:
                makers[each.name] = itemgetter(each.name)
            own |= {name: one.replace(kind=one.KEYWORD_ONLY) for name, one in inner.items()}
        hidden = {name for name in known if name in without or not (only is None or name in only)}
        flags = {name: flag for name, flag in known.items() if name not in {*own, *hidden}}
        arguments = {name: one for name, one in own.items() if _is_argument(one)}  # they go before DATA
        flags = arguments | flags | own | COMMON | (LIMIT if queries else {})

        def run(**words: Any) -> None:
            with speaking(words["as_json"], words["quiet"]), _limited(words.get("max_queries")):
                function(**{name: make(words) for name, make in makers.items()})

        run.__signature__ = inspect.Signature([*flags.values()])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        return run

    return decorate


def _limited(most: int | None) -> AbstractContextManager[None]:
    if most is None:
        return nullcontext()
    from rlab.victims.limit import query_limit

    return query_limit(most)


def _made(kind: Callable[..., Any], names: Sequence[str], words: Mapping[str, Any]) -> Any:
    return kind(**{name: words[name] for name in names})


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(how, ArgumentInfo) for how in get_args(parameter.annotation)[1:])
