"""`rlab.harden`: fine-tune a model on samples that fool it."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from matplotlib.figure import Figure
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.core.checks import need_classes
from rlab.data.batch import Batch
from rlab.errors import DataError, MissingExtra, ModelError, optional
from rlab.hardening.batches import imbalance
from rlab.hardening.options import HardenOptions
from rlab.hardening.pages import LOG, draw_epochs, epochs_page
from rlab.hardening.trainable import Epoch, best_epoch, fitting_threads, trainable, twin
from rlab.hardening.trainer import HardeningTrainer
from rlab.present.page import Page
from rlab.present.result import PathLike, Result
from rlab.progress import Progress, showing, shown
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.inputs import Data, Model, as_batch, relabelled, taken
from rlab.runs.understood import Announce, Understood, show
from rlab.storage.config import check, check_keywords, takes
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.files import write_atomically, write_json
from rlab.storage.resume import open_run
from rlab.victims.answers import read_answer
from rlab.victims.torch_module import TorchVictim, arrange

if TYPE_CHECKING:
    from rlab.keywords import HardenKeywords

WEIGHTS = "hardened.safetensors"


@takes(HardenOptions)
def harden(
    model: Model,
    data: Data,
    options: HardenOptions | Mapping[str, Any] | None = None,
    *,
    validation: Data | None = None,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | bool = True,
    announce: Announce = show,
    **fields: Unpack[HardenKeywords],
) -> Hardened:
    """Fine-tune a copy of the model on clean samples and on samples that fool it; `fields` override `options`.

    `validation` should contain samples that the model was not trained on. With a folder `out`, the same call resumes a
    stopped run. Your own model does not change. `progress` is called after each epoch; True shows a bar, False nothing.
    """
    chosen = options if isinstance(options, HardenOptions) else check(HardenOptions, options or {})
    check_keywords(harden, HardenOptions, fields)
    chosen = chosen.updated(fields)
    with showing(progress is not False), taken(model, data, limit) as (victim, batch):
        need_classes(victim, "harden")
        announce(Understood(batch, (victim,)))
        original = twin(trainable(victim, batch))
        unseen = None if validation is None else as_batch(validation, bounds=batch.bounds)
        unseen = unseen and relabelled(unseen, victim.own_classes)
    chosen = chosen.filled(batch)
    train, judged_on = _split(batch, unseen, chosen)
    trainer = HardeningTrainer(original, train, judged_on, chosen)
    question = {
        "command": "harden",
        **chosen.plain(),
        "the model": Contents.of(original),
        "the options": Contents.of(chosen),
        "the data": [data_fingerprint(part) for part in (batch, unseen) if part is not None],
        **named_in(chosen.plain()),
    }
    with ExitStack() as stack:
        stack.enter_context(fitting_threads(original, batch))
        resume = None if out is None else stack.enter_context(open_run(Path(out), question))
        advance = stack.enter_context(shown(progress, chosen.epochs, "hardening", "epochs"))
        state = trainer.run(resume, advance)
    hardened = twin(original)
    hardened.model.load_state_dict(state.best)
    hardened.model.eval()
    history = tuple(state.history)
    return Hardened(hardened, original, chosen, history, state.stopped, state.flipped, state.rows, batch.classes)


def _split(batch: Batch, validation: Batch | None, options: HardenOptions) -> tuple[Batch, Batch]:
    """Training and validation data; without validation data, the seed decides which share is held out."""
    if validation is not None:
        if validation.x.shape[1:] != batch.x.shape[1:] or validation.bounds != batch.bounds:
            expected, got = (f"{tuple(part.x.shape[1:])} in {list(part.bounds)}" for part in (batch, validation))
            raise DataError(f"expected validation data like the training data, {expected}, got {got}")
        refuse_shared(batch, validation, "validation")
        return batch, validation
    count = round(options.validation_split * len(batch))
    if count < 1 or len(batch) - count < 2:
        few = f"expected enough samples to hold out {options.validation_split:.0%} of them for validation, got {len(batch)}"
        raise DataError(f"{few}: provide more, or pass validation data")
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(options.seed)).tolist()
    return batch[order[count:]], batch[order[:count]]


def refuse_shared(train: Batch, other: Batch, name: str) -> None:
    """Refuse validation or test data that contain training samples: a memorised sample looks robust."""
    known = set(map(digest, train.x))
    shared = [label for label, x in zip(other.ids, other.x, strict=True) if digest(x) in known]
    if shared:
        count = f"{len(shared)} of the {len(other)} {name} samples"
        raise DataError(f"{count} are also training samples, first {shared[0]!r}: remove them from one of the two")


@dataclass(frozen=True)
class Hardened(Result):
    """The hardened model as `victim`, and the unchanged one as `original`."""

    victim: TorchVictim
    original: TorchVictim
    options: HardenOptions
    history: tuple[Epoch, ...]  # the first is the original
    stopped: str  # why training stopped early, if it did
    flipped: Tensor  # (k,) number of flipped samples by class
    rows: int  # inputs sent to the model by attacks, training and validation
    classes: tuple[str, ...] = ()
    measuring: Mapping[str, int] = field(default_factory=dict)  # inputs that measured it 'before' and 'after', if any

    def __repr__(self) -> str:
        return f"Hardened({str(self).splitlines()[0]})"

    @property
    def model(self) -> nn.Module:
        return self.victim.model

    @property
    def best(self) -> Epoch:
        """The epoch whose weights are kept."""
        return best_epoch(self.history)

    @property
    def imbalance(self) -> str:
        """A sentence if the classes of the flipped samples are uneven, otherwise an empty string."""
        sentence = imbalance(self.flipped, self.classes)
        then = "rare classes were drawn more often" if self.options.balance else "balance=True compensates for that"
        return sentence and f"{sentence}: {then}"

    def summary(self) -> dict[str, float]:
        first, best = self.history[0], self.best
        return {
            "clean_before": first.clean,
            "clean_after": best.clean,
            "robust_before": first.robust,
            "robust_after": best.robust,
            "epoch": best.number,
            "share": best.share,
            "rows": self.rows,
        }

    def __str__(self) -> str:
        first, best = self.history[0], self.best
        accuracies = f"clean accuracy {first.clean:.1%} -> {best.clean:.1%}, under attack {first.robust:.1%} -> {best.robust:.1%}"
        where = f"(validation samples, epoch {best.number}, {best.share:.0%} of the change in weights)"
        kept = "" if best.number else "no epoch improved on the original, so its weights are kept"
        return "\n".join(
            line for line in (f"{accuracies} {where}", self._queries(), self.imbalance, self.stopped, kept) if line
        )

    def _queries(self) -> str:
        """How many inputs reached the model and its copies, and what for."""
        trained = f"{self.rows:,} inputs were sent to the model to make samples, train and validate"
        measured = "".join(f", {rows:,} to measure it {when}" for when, rows in self.measuring.items())
        return f"{trained}{measured}: {self.rows + sum(self.measuring.values()):,} in all" if measured else trained

    def records(self) -> list[dict[str, Any]]:
        """One row per epoch; the first is the original."""
        return [asdict(epoch) for epoch in self.history]

    def plot(self) -> Figure:
        """Draw the accuracy on validation samples by epoch, clean and under attack."""
        return draw_epochs(self.history)

    def make_page(self) -> Page:
        return epochs_page(self._log(), "Hardening")

    def _log(self) -> dict[str, Any]:
        return {
            "config": self.options.plain(),
            "summary": self.summary(),
            "stopped": self.stopped,
            "imbalance": self.imbalance,
            "flipped": self.flipped.int().tolist(),
            "history": self.records(),
            "measuring": dict(self.measuring),
        }

    def save(self, folder: PathLike) -> Path:
        """Write hardened.safetensors (a state dict) and log.json, and return the folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        write_atomically(path / WEIGHTS, to_bytes(weights))
        write_json(path / LOG, self._log())
        return path

    def export_onnx(self, path: str | os.PathLike[str], shape: tuple[int, ...]) -> Path:
        """Export the hardened model with its normalisation, for inputs (b, *shape) in the data's range."""
        optional("onnx", MissingExtra("onnx", "harden"))  # torch's exporter needs it, and its own error is less clear
        whole = _WithNormalisation(self.victim).cpu().eval()
        example = torch.full((2, *shape), max(self.victim.bounds[0], 0.0))
        axes = {"x": {0: "b"}, "scores": {0: "b"}}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from the exporter itself
                torch.onnx.export(
                    whole, (example,), str(path), input_names=["x"], output_names=["scores"], dynamic_axes=axes,
                    dynamo=False,
                )  # fmt: skip
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"this model does not export to ONNX ({reason}): save its state dict instead") from error
        return Path(path)


class _WithNormalisation(nn.Module):
    """The model with its normalisation, for inputs in the data's range."""

    def __init__(self, victim: TorchVictim) -> None:
        super().__init__()
        self.model = copy.deepcopy(victim.model)
        self.normalise, self.layout, self.dtype = victim.normalise, victim.layout, victim.dtype
        self.output, self.score = victim.output, victim.score

    def forward(self, x: Tensor) -> Tensor:
        answer = self.model(arrange(x, self.normalise, self.layout).to(self.dtype))
        return read_answer(answer, self.output, self.score)
