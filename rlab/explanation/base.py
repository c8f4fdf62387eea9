"""A method queries a victim about a batch and returns a map of each input: one function of a task, with its options."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any

import torch
from pydantic import Field, create_model
from torch import Tensor

from rlab.core.channels import parse_channels
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch
from rlab.errors import DataError, ModelError, OptionError
from rlab.explanation.effects import Effects
from rlab.explanation.explanation import Explanation
from rlab.explanation.maps import hiding_bank, mean_fill, threshold
from rlab.explanation.subject import AnySubject, check_found, find_subject
from rlab.explanation.words import shares_in_waves
from rlab.predictions.kinds import WORDS
from rlab.progress import bar
from rlab.storage.config import Options
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter
from rlab.victims.torch_module import TorchVictim

RULE, QUERIED = "otsu", "by queries"  # the default rule for masks, and the rule of a mask that queries decided
SCORE = "score"  # the victim's phase for queries that score maps; they are not part of a map's cost
ROWS, TOGETHER = 512, 16  # rows made at once; samples explained at once
SHARES, NOISE = (0.2, 0.8), 0.5  # of patches in a random set; standard deviation when noise replaces hidden parts
Count = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Drawn:
    """What a method draws, if it knows more than the maps."""

    maps: Tensor  # (n, *size)
    extent: Tensor | None = None  # (n, *size) thresholded to the masks (default: the maps)
    mask: Tensor | None = None  # (n, *size) bool if queries decided the mask; used with the default rule
    deviation: Tensor | None = None  # (n, *size)
    effects: Effects | None = None
    by_lead: Tensor | None = None  # (n, c, *size)
    drops: Tensor | None = None  # (n, c, *size)


@dataclass(frozen=True)
class ExplanationTask:
    """What a method works on: n inputs, what to explain in each, and the meter that counts queries."""

    meter: QueryMeter
    x0: Tensor  # (n, c, *size) on the victim's device
    subject: AnySubject  # what is explained in each input
    clean: Tensor  # (n, k) answers to x0
    seeds: Tensor  # (n,) random seed of each sample
    batch: Batch  # the inputs as they came
    instead: Tensor | None = None  # (n, c, *size) replaces removed parts; None leaves the choice to the method

    def __len__(self) -> int:
        return len(self.x0)

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(self.x0.shape[2:])

    @property
    def labels(self) -> Tensor:
        """(n,) the explained classes."""
        return self.subject.labels

    @property
    def victim(self) -> Victim:
        return self.meter.victim

    @property
    def before(self) -> Tensor:
        """(n,) on the CPU: the class's probability, or the share of the object shown, without a change."""
        return self.subject.share(self.clean, torch.arange(len(self), device=self.clean.device)).float().cpu()

    @property
    def clean_score(self) -> Tensor:
        """(n,) the same as a logarithm."""
        return self.subject.score(self.clean, torch.arange(len(self), device=self.clean.device))

    def probability(self, x: Tensor, samples: Tensor) -> Tensor:
        """Rows x (m, c, *size) of these samples (m,) -> the class's probability, or the share of the object shown (m,)."""
        return self.subject.share(self.meter(x, samples, "search"), samples)

    def query(self, x: Tensor, samples: Tensor) -> Tensor:
        """The same as a logarithm (m,)."""
        return self.subject.score(self.meter(x, samples, "search"), samples)

    def pairs(self, items: int, rows: int = ROWS) -> Iterator[tuple[Tensor, Tensor]]:
        """Every item of every sample, in batches of about `rows`: samples (m,) and items (m,)."""
        every = torch.arange(len(self), device=self.x0.device)
        for some in torch.arange(items, device=self.x0.device).split(max(1, rows // len(self))):
            yield every.repeat_interleave(len(some)), some.repeat(len(self))

    def answers(self, items: int, answer: Callable[[Tensor, Tensor], Tensor], rows: int = ROWS) -> Tensor:
        """(n, items): `answer` (samples, items -> (m,)) for every item of every sample, about `rows` at once."""
        out = torch.empty(len(self), items, device=self.x0.device)
        for samples, which in self.pairs(items, rows):
            out[samples, which] = answer(samples, which).float()
        return out

    def forward(self, x: Tensor, samples: Tensor) -> Tensor:
        """Rows x (m, c, *size) of these samples (m,) -> the module's outputs (m, k) with their graph; counted like queries."""
        assert isinstance(self.victim, TorchVictim)  # checked before a white-box method draws
        self.meter.add(samples.cpu(), "search")
        return self.victim.outputs_in_graph(x, "search")


@dataclass(frozen=True)
class Method:
    """A way to make maps. A call checks, counts and thresholds; `draw` (task, **options) is the method itself.

    `draw` returns the maps (n, *size), from which masks are thresholded, or the maps with what else the method knows.
    """

    name: str
    draw: Callable[..., Tensor | Drawn]
    gradients: bool = False  # needs a torch module, not only its scores
    flips: bool = (
        False  # searches for a flip: it explains only the predicted class, and its patches are no ranking to score
    )
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        victim: Victim,
        batch: Batch,
        labels: Tensor | None = None,
        seed: int = 0,
        rule: str = RULE,
        instead: Tensor | None = None,
    ) -> Explanation:
        """Explain every sample. `labels` (n,) are the classes to explain (default: the predicted ones); `instead`
        (n, c, *size) replaces removed parts in methods that support it."""
        self._check(victim)
        parts, began = [], time.perf_counter()
        with bar(len(batch), f"explaining by {self.name}") as progress:
            for at in range(0, len(batch), TOGETHER):
                rows = slice(at, min(at + TOGETHER, len(batch)))
                some, fill = (None if each is None else each[rows] for each in (labels, instead))
                task = self._task(victim, batch[rows], some, sample_seeds(seed, at, rows.stop - at), fill)
                parts.append(self._explain(task, rule))
                progress(task)
        whole, seconds = Explanation.cat(parts), time.perf_counter() - began
        whole = replace(whole, inputs=batch, ids=batch.ids, classes=batch.classes, seconds=seconds)
        return replace(whole, in_waves=shares_in_waves(whole.maps, batch))

    def _check(self, victim: Victim) -> None:
        if self.gradients and not isinstance(victim, TorchVictim):
            needs = f"the method {self.name!r} needs the model's gradients or layers, not a {type(victim).__name__}"
            raise ModelError(f"{needs}: omit it, or pass the torch module as a TorchVictim")
        if victim.prediction != "classes" and (self.gradients or self.flips):
            why = f"the method {self.name!r} explains classes, but the model predicts {WORDS[victim.prediction]}"
            raise ModelError(f"{why}: use 'belief', 'drise' or 'occlusion'")

    def _task(
        self, victim: Victim, batch: Batch, labels: Tensor | None, seeds: Tensor, instead: Tensor | None
    ) -> ExplanationTask:
        """Query the clean inputs and check the classes to explain."""
        meter, x0 = QueryMeter(victim, len(batch)), batch.x.to(victim.device)
        clean = meter(x0, torch.arange(len(batch)), "search")
        if torch.isnan(clean).any():
            raise ModelError("the model returned NaN for a clean sample: repair the model or its input range")
        subject, found = find_subject(victim, clean, batch, labels)
        if victim.prediction == "classes":
            self._check_labels(victim, clean, subject.labels, batch)
        check_found(found, batch.ids, victim.prediction)
        fill = None if instead is None else instead.to(x0.device)
        return ExplanationTask(meter, x0, subject, clean, seeds.to(x0.device), batch, fill)

    def _check_labels(self, victim: Victim, clean: Tensor, labels: Tensor, batch: Batch) -> None:
        """Refuse classes that the model does not have and, if the method searches for a flip, those it did not predict."""
        classes = clean.shape[1]
        if labels.shape != (len(clean),):
            expected = f"expected one class to explain for each of {len(clean)} samples"
            raise DataError(f"{expected}, got {tuple(labels.shape)}")
        if len(outside := labels[(labels < 0) | (labels >= classes)]):
            raise OptionError(f"class {int(outside[0])} is not one of the model's 0..{classes - 1}")
        predicted = clean.gather(1, labels[:, None]).squeeze(1) > 0 if victim.multilabel else clean.argmax(1) == labels
        if self.flips and not predicted.all():
            row = int((~predicted).nonzero()[0])
            missed = (
                f"class {int(labels[row])} was not predicted for {int((~predicted).sum())} of {len(labels)} samples"
            )
            first = f"first {batch.ids[row]!r} (predicted {int(clean[row].argmax())})"
            raise OptionError(f"{missed}, {first}: explain the predicted class, or omit these samples")

    def _explain(self, task: ExplanationTask, rule: str) -> Explanation:
        drawn = self.draw(task, **self.options)
        if isinstance(drawn, Tensor):
            drawn = Drawn(drawn.float())
        assert drawn.maps.shape == (len(task), *task.size), drawn.maps.shape
        if drawn.mask is not None and (rule == RULE or self.flips):
            mask, rule = drawn.mask, QUERIED
        else:
            mask = threshold(drawn.maps if drawn.extent is None else drawn.extent, rule)
        deviation, by_lead, drops = (
            None if each is None else each.cpu() for each in (drawn.deviation, drawn.by_lead, drawn.drops)
        )
        classes = task.victim.prediction == "classes"
        return Explanation(
            method=self.name,
            maps=drawn.maps.cpu(),
            mask=mask.cpu(),
            labels=task.labels.cpu(),
            queries=task.meter.counts.sum(1),
            rule=rule,
            gradients=self.gradients,
            effects=drawn.effects,
            probabilities=task.victim.probabilities(task.clean).cpu() if classes else None,
            subject=task.subject,
            deviation=deviation,
            by_lead=by_lead,
            drops=drops,
        )


@cache
def options_of(draw: Callable[..., Tensor | Drawn]) -> type[Options]:
    """The options of a method, which are the keywords of its function."""
    parameters = inspect.signature(draw, eval_str=True).parameters.values()
    options: dict[str, Any] = {
        each.name: (each.annotation, each.default) for each in parameters if each.kind is each.KEYWORD_ONLY
    }
    return create_model("MethodOptions", __base__=Options, **options)


def lead_groups(task: ExplanationTask, spec: str) -> Tensor:
    """(g, c) bool: the channels of each group."""
    count = task.x0.shape[1]
    own = torch.tensor(parse_channels(spec, count, task.batch.leads) or (0,) * count, device=task.x0.device)
    return own == torch.arange(int(own.max()) + 1, device=own.device)[:, None]


def grouped_maps(maps: Tensor, groups: Tensor) -> Drawn:
    """Maps (n, g, *size) of groups (g, c) of channels -> their mean over the channels, and the map of each if there are groups."""
    if bool(groups[0].all()):
        return Drawn(maps[:, 0])
    by_lead = torch.einsum("ng...,gc->nc...", maps, groups.to(maps))
    return Drawn(by_lead.mean(1), by_lead=by_lead)


def random_sets(seeds: Tensor, steps: Tensor, patches: int) -> Tensor:
    """seeds (m,), steps (m,) -> (m, p) bool: random sets, each with a share of the patches in `SHARES`."""
    low, high = SHARES
    draw = uniform(seeds, steps, patches + 1)
    return draw[:, 1:] < low + (high - low) * draw[:, :1]


def removed(task: ExplanationTask, how: str) -> Tensor:
    """The inputs (n, c, *size) with everything removed, by 'blur', 'mean', 'noise' or a filter with its severity."""
    if task.instead is not None:
        return task.instead
    if how == "mean":
        return mean_fill(task.x0).expand_as(task.x0)
    spec = {"blur": None, "noise": f"gaussian_noise@{NOISE:g}"}.get(how, how)
    return hiding_bank(task.x0, task.batch.bounds, task.seeds.tolist(), spec)[:, 1]
