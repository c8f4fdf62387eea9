"""`rlab init`: write a commented configuration for your data, from the descriptions of the options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rlab.auditing.load import class_indices
from rlab.cli.build import declared
from rlab.cli.fields import pairs, pairs_option
from rlab.cli.folder import tell_data
from rlab.cli.speak import out
from rlab.data.batch import Batch
from rlab.data.load import DEMO, DataOptions, find_loader, options_of
from rlab.diagnosis import Diagnosis, data_checks, findings_table
from rlab.errors import DataError, InputError, OptionError
from rlab.filters.palettes import is_ecg
from rlab.present.table import plain, terminal
from rlab.runs.options import RunOptions
from rlab.runs.understood import Understood
from rlab.storage.config import Options, check
from rlab.storage.files import refuse_existing, write_new
from rlab.victims.options import ModelOptions

FIRST = {"limit": 32, "shuffle": True}  # a first run is small and has all classes
_WIDE, _MOST = 120, 20  # characters per line, classes to name
_FEW = 100  # queries for each record of a first audit


class InitOptions(Options):
    data: DataOptions | None = None


@declared(without=("config",))
def command(
    options: InitOptions,
    model: Annotated[
        str | None,
        typer.Option(help="Model to write into the file; it is not queried (default for demo data: the demo model)"),
    ] = None,
    words: Annotated[list[str] | None, pairs_option("model")] = None,
    file: Annotated[Path, typer.Option("--out", "-o", help="File to write")] = Path("rlab.yaml"),
) -> None:
    """Inspect your data, without querying a model, and write a commented configuration for `rlab attack --config`.

    For an ECG, also write NAME-audit.yaml, a file for `rlab audit` that requires the model to detect each class in noise.
    DATA defaults to the .npz file in the current folder, or else to the folder itself. An existing file is not overwritten.
    """
    data = options.data or DataOptions(path=_at_hand())
    if data.limit is None:
        data = data.model_copy(update=FIRST)
    batch = data.load()
    tell_data(Understood(batch))
    if findings := Diagnosis.of(data_checks(batch)).findings:
        out.print(terminal(findings_table(findings)))
    name = data.path if model is None and data.path.startswith(DEMO) else model
    if words and not name:
        raise OptionError(
            "expected --model with -M, got -M alone: name the model too, e.g. --model model.onnx -M output=logits"
        )
    named = check(ModelOptions, {"name": name} | pairs(words, "-M"), "the model") if name else None
    texts = {file: configuration(data, batch, named)}
    then = [f"{verb} --config {file}" for verb in ("doctor", "attack")]
    if is_ecg(batch.rank, batch.rate, batch.unit):
        audit = file.with_name(f"{file.stem}-audit.yaml")
        texts[audit] = audit_configuration(data, batch, named)
        then.append(f"audit {audit}")
    for path in texts:
        refuse_existing(path)
    for path, text in texts.items():
        write_new(path, text)
    written = " and ".join(f"[bold]{plain(path)}[/bold]" for path in texts)
    out.print(f"Wrote {written}. {'Next:' if name else 'Enter your model there, then:'}")
    for command in then:
        out.print(f"  rlab {plain(command)}", soft_wrap=True)


def _at_hand() -> str:
    files = sorted(map(str, Path().glob("*.npz")))
    if len(files) > 1:
        raise DataError(f"there are several .npz files here, {', '.join(files[:5])}: name one, rlab init {files[0]}")
    if files:
        return files[0]
    try:
        find_loader(DataOptions(path="."))
    except InputError as error:
        raise DataError(f"{error}, or name your data: rlab init DATA, e.g. rlab init demo:digits") from error
    return "."


def configuration(data: DataOptions, batch: Batch, model: ModelOptions | None) -> str:
    """The text of the file; options without a value become comments."""
    _, named = _named(batch, model)
    attack, _ = RunOptions(model=named, data=data).filled(batch)
    others = RunOptions.model_fields.keys() - {"model", "data"}
    lines = [
        "# Configuration of rlab attack. Command-line options override this file.",
        *_described(batch),
        "# Lines like '# key: ...' describe options that are not set.",
        "",
        *_model_and_data(data, named, model is None),
        *_lines(attack, attack.model_copy(update={"chunk": None}).plain(), others),
    ]
    return "\n".join(lines) + "\n"


def audit_configuration(data: DataOptions, batch: Batch, model: ModelOptions | None) -> str:
    """The text of an audit file for an ECG: each class has to be detected in noise, in any one group of leads."""
    several, named = _named(batch, model)
    attack, _ = RunOptions(model=named, data=data).filled(batch)
    plain = attack.plain() | {"budget": _FEW}
    found = [{"class": batch.label_name(k)} for k in class_indices(batch)[:_MOST]]
    noise, off = {"distortion": "muscle_noise", "at": {"snr": "12dB"}}, {"distortion": "lead_dropout"}
    lines = [
        "# An audit: rlab audit runs it, checks the requirements and writes a report. docs/audit.md explains every key.",
        *_described(batch),
        "# These are few records: raise data.limit until no verdict says that there are too few samples.",
        "",
        *_model_and_data(data, named, model is None, only_set=True),
        *_lines(attack, plain, ("palette", "channels", "goal", "budget")),
        *(["benchmark: false  # it needs one label per record"] if several else []),
        "",
        "requirements:",
        "  # No errors in how the model and the data fit together.",
        _required({"metric": "errors", "at_most": 0}),
        "  # The model still detects the class with muscle noise of 12 dB in any one group of leads: the worst group counts.",
        "  # Records count that have the class, and in which the model detects it without noise.",
        *(_required({"metric": "detection", **one, **noise, "at_least": "80%"}) for one in found),
        "  # The same with the leads of any one group off. Remove the # to require it:",
        *(f"  # {_required({'metric': 'detection', **one, **off, 'at_least': '80%'}).strip()}" for one in found),
        "  # At most half of the records flip with natural distortions that are 20 dB below the signal or quieter.",
        _required({"metric": "success", "at": {"snr": "20dB"}, "at_most": "50%"}),
    ]
    return "\n".join(lines) + "\n"


def _named(batch: Batch, model: ModelOptions | None) -> tuple[bool, ModelOptions]:
    """Whether several labels can be true at once, and the model, which has to know it."""
    several = batch.target == "classes" and batch.y.dim() > 1
    named = model or ModelOptions(name="my_module:function")
    known: dict[str, object] = {} if "multilabel" in named.model_fields_set else {"multilabel": several}
    if batch.target != "classes" and "outputs" not in named.model_fields_set:
        known["outputs"] = batch.target
    return several, named.model_copy(update=known)


def _model_and_data(data: DataOptions, named: ModelOptions, missing: bool, only_set: bool = False) -> list[str]:
    """The sections `model` and `data`; a missing model is commented out."""
    own = options_of(find_loader(data))
    applied = [name for name in own.model_fields if name not in ("order", "seed", "stream")]
    model, given = _changed(named), _changed(data)
    sections = {
        "model": _lines(named, model, model if only_set else None),
        "data": _lines(data, given, given if only_set else applied),
    }
    written = {name: [f"{name}:", *(f"  {line}" for line in lines), ""] for name, lines in sections.items()}
    if missing:
        commented = [f"# {line}" for line in written["model"][:-1]]
        written["model"] = ["# Enter your model here and remove the # from these lines:", *commented, ""]
    return [*written["model"], *written["data"]]


def _required(requirement: Mapping[str, Any]) -> str:
    """A requirement as an item of a list on one line."""
    written = yaml.safe_dump(
        dict(requirement), default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
    )
    return f"  - {written.strip()}"


def _described(batch: Batch) -> list[str]:
    """What was understood of the data, as comments, without the control characters that YAML refuses."""
    texts = [f"# {name}: {text}" for name, text in Understood(batch).lines().items()]
    return ["".join(letter if letter.isprintable() else " " for letter in text) for text in texts]


def _changed(options: Options) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    return options.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


def _lines(options: Options, values: Mapping[str, Any], names: Collection[str] | None = None) -> Iterator[str]:
    """`key: value` for fields in `values`, `# key: description` for the others; `names` limits the fields."""
    for name, field in type(options).model_fields.items():
        if names is not None and name not in names:
            continue
        if name in values:
            written = yaml.safe_dump([values[name]], default_flow_style=True, width=10**6, allow_unicode=True)
            line = f"{name}: {written.strip()[1:-1]}"
            about = f"# {field.description}"
            yield from [f"{line}  {about}"] if len(line + about) < _WIDE else [about, line]
        else:
            yield f"# {name}: {field.description}"
