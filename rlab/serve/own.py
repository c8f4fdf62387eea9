"""Attack or explain an uploaded file: the server starts `python -m rlab.serve.own` and writes the job to its standard input.

The size and range of the input follow the data in the model's configuration. The file has no label, so the model's prediction
counts as correct.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlab.data.batch import Batch
from rlab.data.own import read_own
from rlab.errors import InputError, MissingExtra, VictimError
from rlab.explanation.options import ExplainJob, ExplainOptions
from rlab.predictions.targets import own_targets
from rlab.progress import bar
from rlab.redact import redact
from rlab.runs.attack import run_attack
from rlab.runs.options import RunOptions
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model


def predicted(victim: Victim, batch: Batch) -> Batch:
    scores = victim(batch.x.to(victim.device), "search").cpu()
    if victim.prediction != "classes":
        return replace(batch, y=own_targets(victim.prediction, scores, batch.size), target=victim.prediction)
    y = (scores >= 0.5).long() if victim.multilabel else scores.argmax(1)
    return replace(batch, y=y)


def examine(spec: Mapping[str, Any], folder: Path) -> None:
    options = check(RunOptions if spec["do"] == "attack" else ExplainOptions, spec["config"])
    like = options.model_copy(update={"data": options.data.model_copy(update={"limit": 1})}).data.load()
    batch = read_own(Path(spec["file"]), spec["name"], like)
    victim = load_model(options.model, batch.bounds)
    if isinstance(options, ExplainOptions):
        ExplainJob(options, victim, batch, options.methods()[:1], folder, pictures=1).explain()
        return
    batch = predicted(victim, batch)
    filled, _ = options.filled(batch)
    asked = {**filled.plain(), "data": {"path": spec["name"]}}
    with bar(1) as progress:
        run_attack(filled, victim, batch, folder, asked, progress)


def main() -> None:
    spec: dict[str, Any] = {}
    try:
        spec = json.loads(sys.stdin.read() or "{}")  # empty if the server ended first
        if spec:
            examine(spec, Path(spec["out"]))
    except (InputError, VictimError, MissingExtra, OSError, MemoryError) as error:
        text = str(redact(f"error: {error}"))
        for kept in (spec["file"], Path(spec["file"]).name) if spec else ():  # the server's own name of the file
            text = text.replace(kept, spec["name"])
        sys.stderr.write(text + "\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
