"""`rlab.harden`: from a model and its data to a model that errs less when things go wrong in places."""

from __future__ import annotations

import copy
import hashlib
import os
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra
from rlab.hardening.batches import imbalance
from rlab.hardening.options import HardenKeywords, HardenOptions
from rlab.hardening.trainable import Epoch, best_epoch, trainable, twin
from rlab.hardening.trainer import HardeningTrainer
from rlab.progress import Progress, bar
from rlab.runs.fingerprint import data_fingerprint, files_of, weights_fingerprint
from rlab.runs.inputs import Data, Model, as_batch, taken
from rlab.storage.config import check, takes
from rlab.storage.files import write_atomically, write_json
from rlab.storage.resume import open_run
from rlab.victims.answers import read_answer
from rlab.victims.torch_module import TorchVictim, arrange

WEIGHTS, LOG = "hardened.safetensors", "log.json"


@takes(HardenOptions, HardenKeywords)
def harden(
    model: Model,
    data: Data,
    options: HardenOptions | Mapping[str, Any] | None = None,
    *,
    validation: Data | None = None,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **fields: Unpack[HardenKeywords],
) -> Hardened:
    """Fine-tunes a copy of the model on samples that fool it, and on clean ones; `fields` go before `options`.

    `validation` should hold samples the model was not trained on. `out` is a folder that the same call goes on from. The model
    itself stays as it is.
    """
    chosen = options if isinstance(options, HardenOptions) else check(HardenOptions, options or {})
    chosen = chosen.updated(fields)
    with taken(model, data, limit) as (victim, batch):
        original = twin(trainable(victim, batch))
        unseen = None if validation is None else as_batch(validation, bounds=batch.bounds)
    return _harden(original, batch, unseen, chosen.filled(batch), out, progress)


def _harden(
    original: TorchVictim,
    batch: Batch,
    validation: Batch | None,
    chosen: HardenOptions,
    out: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> Hardened:
    train, judged_on = _split(batch, validation, chosen)
    original.chunk = max(original.chunk, min(chosen.batch_size, len(train)))
    trainer = HardeningTrainer(original, train, judged_on, chosen)
    asked = {
        "command": "harden",
        **chosen.plain(),
        "the model": weights_fingerprint(trainer.start),
        "the data": [data_fingerprint(part) for part in (batch, validation) if part is not None],
        **files_of(chosen.plain()),
    }
    with ExitStack() as stack:
        resume = None if out is None else stack.enter_context(open_run(Path(out), asked))
        shown = progress or stack.enter_context(bar(chosen.total_epochs, "hardening"))
        state = trainer.run(resume, shown)
    hardened = twin(original)
    hardened.model.load_state_dict(state.best)
    hardened.model.eval()
    history = tuple(state.history)
    return Hardened(hardened, original, chosen, history, state.stopped, state.flipped, state.rows, batch.classes)


def _split(batch: Batch, validation: Batch | None, options: HardenOptions) -> tuple[Batch, Batch]:
    """Training and validation data; where none are given a share is held out, the same under the same seed."""
    if validation is not None:
        if validation.x.shape[1:] != batch.x.shape[1:] or validation.bounds != batch.bounds:
            want, got = (f"{tuple(part.x.shape[1:])} in {list(part.bounds)}" for part in (batch, validation))
            raise InputError(f"expected validation data like the training data, {want}, got {got}")
        refuse_shared(batch, validation, "validation")
        return batch, validation
    count = round(options.validation_split * len(batch))
    if count < 1 or len(batch) - count < 2:
        want = f"expected enough samples to hold out {options.validation_split:.0%} of them for validation"
        raise InputError(f"{want}, got {len(batch)}: give more, or validation data of their own")
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(options.seed)).tolist()
    return batch[order[count:]], batch[order[:count]]


def refuse_shared(train: Batch, other: Batch, name: str) -> None:
    """Refuses data to judge by that hold samples of the training data: what is known by heart looks robust."""
    known = {_sample_digest(x) for x in train.x}
    shared = [label for label, x in zip(other.ids, other.x, strict=True) if _sample_digest(x) in known]
    if shared:
        count = f"{len(shared)} of the {len(other)} {name} samples"
        raise InputError(f"{count} are training samples too, first {shared[0]!r}: leave them out of one of the two")


def _sample_digest(x: Tensor) -> bytes:
    return hashlib.blake2b(x.cpu().contiguous().numpy().tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Hardened:
    """`victim` is the hardened model behind the same wrapper; `original` is untouched."""

    victim: TorchVictim
    original: TorchVictim
    options: HardenOptions
    history: tuple[Epoch, ...]  # the first is the original
    stopped: str  # why it ended before its time; empty where it did not
    flipped: Tensor  # (k,) adversarial samples in all, by class
    rows: int  # that reached the model: attacks, training, validation
    classes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Hardened({str(self).splitlines()[0]})"

    @property
    def model(self) -> nn.Module:
        return self.victim.model

    @property
    def best(self) -> Epoch:
        """The epoch whose weights were kept."""
        return best_epoch(self.history)

    @property
    def imbalance(self) -> str:
        """How uneven the classes among flipped samples are, as a sentence; empty where they are not."""
        sentence = imbalance(self.flipped, self.classes)
        evened = ": rare ones were drawn more often" if self.options.balance else ": balance=True evens them out"
        return sentence and sentence + evened

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
        where = f"(validation samples, epoch {best.number}, {best.share:.0%} of the way)"
        kept = "" if best.number else "no epoch was better than the original, whose weights are kept"
        lines = [f"{accuracies} {where}", f"{self.rows:,} rows reached the model", self.imbalance, self.stopped, kept]
        return "\n".join(line for line in lines if line)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """hardened.safetensors, a state dict of the module, and log.json; -> the folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().clone().contiguous() for name, value in self.model.state_dict().items()}
        write_atomically(path / WEIGHTS, to_bytes(weights))
        log = {
            "config": self.options.plain(),
            "summary": self.summary(),
            "stopped": self.stopped,
            "imbalance": self.imbalance,
            "flipped": self.flipped.int().tolist(),
            "history": [asdict(epoch) for epoch in self.history],
        }
        write_json(path / LOG, log)
        return path

    def export_onnx(self, path: str | os.PathLike[str], shape: tuple[int, ...]) -> Path:
        """The hardened model for inputs (b, *shape) in the data's own range, normalisation inside; extra 'onnx'."""
        try:
            import onnx  # noqa: F401  (torch's exporter needs it and says so less clearly)
        except ImportError as error:
            raise MissingExtra("onnx", "harden") from error
        whole = _WithNormalisation(self.victim).cpu().eval()
        example = torch.full((2, *shape), max(self.victim.bounds[0], 0.0))
        axes = {"x": {0: "b"}, "scores": {0: "b"}}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the exporter's own
                torch.onnx.export(
                    whole, (example,), str(path), input_names=["x"], output_names=["scores"], dynamic_axes=axes,
                    dynamo=False,
                )  # fmt: skip
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"this model cannot be written as ONNX: {reason}; its state dict can be saved") from error
        return Path(path)


class _WithNormalisation(nn.Module):
    """The model as the data see it."""

    def __init__(self, victim: TorchVictim) -> None:
        super().__init__()
        self.model = copy.deepcopy(victim.model)
        self.normalise, self.layout, self.dtype = victim.normalise, victim.layout, victim.dtype
        self.output, self.score = victim.output, victim.score

    def forward(self, x: Tensor) -> Tensor:
        answer = self.model(arrange(x, self.normalise, self.layout).to(self.dtype))
        return read_answer(answer, self.output, self.score)
