"""`--help`: options in groups, the most used first, with two examples, in two columns that stay readable at 80 characters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

WRITTEN = Path(__file__).with_name("help.json")  # `make stubs` writes it
LEFT, WIDEST = 30, 110  # characters before a description, and of a whole line
OWN = "Options"  # the group of options that only one command has
GROUPS: dict[str, tuple[str, ...]] = {
    "Model": (
        "model", "models", "device", "batch_size", "timeout", "rate", "price", "max_cost", "max_queries", "model_option", "words",
    ),
    "Data": ("data", "limit", "labels", "size", "test", "masks", "mask_values", "data_option", "test_option"),
    OWN: (),
    "Attack": (
        "palette", "patch", "channels", "budget", "policy", "policies", "attacks", "goal", "distance", "until", "surrogate",
        "simulator", "learn", "noisy", "cleanup", "patience", "accept", "l2_penalty", "reduce",
    ),
    "Run": ("config", "seed", "dry_run", "workers", "devices", "cluster", "chunk", "wait", "trust"),
    "Output": ("folder", "page", "no_page", "pictures", "keep", "tracker", "as_json", "quiet", "help"),
}  # parameters in the order of the help  # fmt: skip
_VALUES = {
    "palette": "FILTER", "patch": "SIZE", "channels": "GROUPS",
    "limit": "N", "batch_size": "N", "timeout": "SECONDS", "labels": "FILE", "size": "N",
    "rate": "N/s", "price": "X/query", "max_cost": "X",
}  # of flags that take any text, so that the options model refuses a wrong one  # fmt: skip
_METAVARS = {"int": "N", "float": "X", "path": "PATH"}  # by a part of the type's name
Row = tuple[str, str]  # flags and description


@dataclass(frozen=True)
class Help:
    """What `--help` shows of a command."""

    usage: str
    text: str
    groups: Mapping[str, Sequence[Row]]

    @classmethod
    def of(cls, command: Any) -> Help:
        text, groups = cleandoc(command.help or ""), grouped_rows(command)
        if commands := getattr(command, "commands", None):
            about = {name: cleandoc(each.help or "").partition("\n\n")[0] for name, each in commands.items()}
            options = [row for rows in groups.values() for row in rows]
            groups = {"Commands": [(name, _sentence(each)) for name, each in about.items()], OWN: options}
        return cls(" ".join(usage_words(command)), text, groups)

    def write(self, path: str, formatter: Any) -> None:
        """`path` is the command as it is called, such as rlab benchmark make."""
        formatter.width = min(get_terminal_size().columns, WIDEST)
        formatter.write_usage(path, self.usage)
        for paragraph in self.text.replace("`", "").replace("**", "").split("\n\n"):
            formatter.write_paragraph()
            formatter.write_text(" ".join(paragraph.split()))
        if examples := EXAMPLES.get(path.partition(" ")[2]):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {words}\n      {about}\n" for words, about in examples))
        for group, rows in self.groups.items():
            with formatter.section(group):
                formatter.write_dl([(flags, about) for flags, about in rows], col_max=LEFT - 4)


class Command(TyperCommand):
    """A command whose help has groups and examples."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        Help.of(self).write(ctx.command_path, formatter)


class Group(TyperGroup):
    """A command with commands of its own; alone it shows its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit(2)
        return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        Help.of(self).write(ctx.command_path, formatter)


def written_help(words: Sequence[str]) -> str | None:
    """The help that a command line asks for, read from `WRITTEN`: the options themselves would import torch; None if it asks
    for none, or for that of `rlab` itself."""
    words = words[: words.index("--")] if "--" in words else words
    if "--help" not in words:
        return None
    pages = json.loads(WRITTEN.read_text(encoding="utf-8"))
    path = " ".join([word for word in words if not word.startswith("-")][:2])
    path = path if path in pages else path.partition(" ")[0]
    if path not in pages:
        return None
    formatter = typer.Context(TyperCommand("rlab")).make_formatter()
    Help(**pages[path]).write(f"rlab {path}", formatter)
    return str(formatter.getvalue()).rstrip("\n")


def grouped_rows(command: Any) -> dict[str, list[Row]]:
    """Flags and descriptions of a command's parameters by group, without empty groups."""
    places = {name: (group, at) for group, names in GROUPS.items() for at, name in enumerate(names)}
    params = [*command.params, command.get_help_option(typer.Context(command))]
    shown = [param for param in params if param is not None and not getattr(param, "hidden", False)]
    panels = dict.fromkeys(panel for param in shown if (panel := getattr(param, "rich_help_panel", None)))
    first, last = list(GROUPS)[:2], list(GROUPS)[2:]
    groups: dict[str, list[tuple[int, Row]]] = {group: [] for group in (*first, *panels, *last)}
    for param in shown:
        group, at = places.get(param.name, (OWN, 0))
        rows = (_row(param), *_keys(param.name))
        groups[getattr(param, "rich_help_panel", None) or group] += [(at, row) for row in rows]
    return {group: [row for _, row in sorted(rows, key=lambda r: r[0])] for group, rows in groups.items() if rows}


def usage_words(command: Any) -> Iterator[str]:
    """The words after the command's name."""
    yield "[OPTIONS]"
    for param in command.params:
        if param.param_type_name == "argument":
            name = f"{_name(param)}..." if param.nargs == -1 else _name(param)
            yield name if param.required else f"[{name}]"
    if getattr(command, "commands", None):
        yield "COMMAND"


def _row(param: Any) -> Row:
    about = _sentence(getattr(param, "help", "") or "")
    if param.param_type_name == "argument":
        return _name(param), about + (" (required)" if param.required and not about.endswith(")") else "")
    shown, default = getattr(param, "show_default", False), param.default
    if shown and default not in (None, False, (), []) and "default" not in about:
        about += f" (default: {', '.join(map(str, default)) if isinstance(default, list | tuple) else default})"
    flags = ", ".join(
        sorted((*param.opts, *param.secondary_opts), key=lambda flag: (flag[:2] == "--", flag[2:5] == "no-"))
    )
    return f"{flags} {_metavar(param)}".rstrip(), about


def _name(param: Any) -> str:
    return (param.metavar or param.name).removesuffix("...").upper()


def _metavar(param: Any) -> str:
    if getattr(param, "is_flag", False):
        return ""
    described = getattr(param, "type_descriptor", None)  # older versions of typer have a type with a name
    kind = str(param.type.name if described is None else described.annotation).lower()
    return str(
        param.metavar
        or _VALUES.get(param.name)
        or next((sign for name, sign in _METAVARS.items() if name in kind), "TEXT")
    )


def _sentence(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def _keys(name: str) -> list[Row]:
    """What KEY can be in -M KEY=VALUE and -D KEY=VALUE."""
    section = {"model_option": "model", "words": "model", "data_option": "data"}.get(name)
    if section is None:
        return []
    from rlab.cli.fields import option_keys  # imports torch

    return [(f"    {key}", about) for key, about in option_keys(section)]


# Two examples for every command: what you type, and what it does.
_EXAMPLES = (
    ("rlab demo", "Attack three small models and write one page about them."),
    ("rlab demo --samples 8 --out runs/demo", "Use fewer samples and choose the folder."),
    ("rlab init photos --out photos.yaml", "Inspect a folder of images and write a configuration."),
    ("rlab init beats.npz --model my_module:net", "Also write the model into the configuration."),
    ("rlab doctor demo:digits demo:digits", "Check a model and data that come with rlab."),
    ("rlab doctor my_module:net photos -M mean=[0.5] -M std=[0.5]", "Check your model with its normalisation."),
    ("rlab attack demo:digits demo:digits --limit 12", "Attack twelve digits and write a page."),
    ("rlab attack my_module:net photos --budget 300 -p 'gaussian_blur dead_pixel'", "Choose budget and filters."),
    ("rlab learn my_module:net photos --out runs/students", "Train students on the model's answers."),
    ("rlab learn --from runs/attack-1 --out runs/students", "Learn from the answers of an earlier attack."),
    ("rlab show runs/digits", "Print the summary and the first samples."),
    ("rlab show runs/digits --samples 3 --pictures 3", "Also draw three samples."),
    ("rlab compare demo:digits demo:digits --policies auto,random", "Compare two search policies."),
    ("rlab compare my_module:net photos --attacks 'art:simba foolbox:boundary'", "Add attacks of other libraries."),
    ("rlab explain demo:ecg demo:ecg --limit 4", "Show where the model looks in four beats."),
    ("rlab explain my_module:net photos --compare --method belief,rise", "Score two methods."),
    ("rlab benchmark make demo:digits demo:digits --limit 20", "Store the smallest flip of each sample."),
    ("rlab benchmark make none photos --ladder severity:1..5", "Use no model, only severities."),
    ("rlab benchmark verify bench/digits", "Check every file of a benchmark."),
    ("rlab benchmark verify bench/digits -m digits=demo:digits", "Also check that the model still errs."),
    ("rlab benchmark run bench/digits -m my=my_module:net", "Grade a model."),
    ("rlab benchmark run bench/digits -m my_module:net --require flip=0.5", "Exit with 1 if its accuracy is lower."),
    ("rlab corrupt demo:digits demo:digits", "Measure a model under fifteen kinds of corruptions."),
    ("rlab corrupt my_module:net photos --baseline runs/old", "Also show the mean corruption error (mCE)."),
    ("rlab harden demo:digits demo:digits", "Train a model on its failures, and measure it before and after."),
    ("rlab harden my_module:net photos --epochs 5 --test held-out", "Choose the epochs and test on other data."),
    ("rlab audit audit.yaml --out runs/audit", "Run the pipeline and check the file's requirements."),
    ("rlab audit audit.yaml --device cuda --json", "Use a GPU, and print the verdict as JSON."),
    ("rlab report runs/digits", "Write the page of a run again."),
    ("rlab report runs/before runs/after --out changes.html", "Compare two runs on a page."),
    ("rlab serve runs", "Browse the runs in this folder."),
    ("rlab serve runs --host 0.0.0.0", "Let other machines in, with the token in the printed address."),
    ("rlab train agents/images.yaml --out runs/prior", "Train the prior that a file declares."),
    ("rlab train agents/images.yaml --minutes 5 --device cuda --out runs/prior", "Train for five minutes on a GPU."),
    ("rlab examples", "List the examples."),
    ("rlab examples audit", "Write one of them to the current folder."),
    ("rlab agents", "List the priors and agents."),
    ("rlab agents images", "Show what one was trained on."),
    ("rlab filters", "List all filters."),
    ("rlab filters --rank 1", "List only those for signals."),
)


def _command(example: tuple[str, str]) -> str:
    """'rlab benchmark make none photos' -> 'benchmark make'."""
    _, first, second, *_ = [*example[0].split(), ""]
    return f"{first} {second}" if first == "benchmark" else first


EXAMPLES = {name: tuple(own) for name, own in groupby(_EXAMPLES, _command)}
