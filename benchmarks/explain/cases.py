"""Methods, victims and data of the benchmark of explanations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.attacks import correct
from benchmarks.beats import beats
from benchmarks.data import pets, real
from benchmarks.explain.smdl import Smdl
from benchmarks.explain.smdl import along as most_regions
from benchmarks.victims import BEAT_NETS, beat_victim, photo_victim
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.errors import MissingExtra
from rlab.explanation.base import ExplanationTask, Method
from rlab.explanation.belief import Belief
from rlab.explanation.black_box import KernelShap, Lime, Line, Middle, Occlusion, Rise, captum
from rlab.explanation.maps import BY_RANK, extent
from rlab.explanation.options import read_masks
from rlab.explanation.white_box import AblationCam, GradCam, GradCamPlusPlus, IntegratedGradients, ScoreCam
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

OURS = "belief (ours)"
SEEN = 40  # pets that settings were chosen on
PATCHES, OCCLUDED = (32, 8, 4), (32, 14, 6)  # along an axis, by rank from 1: of methods that hide sets, of occlusion
SEED = 0


@dataclass(frozen=True)
class Spreading(Method):
    """Another method's map with our spreading, to show how much of our Dice is due to that step."""

    name = "spread"
    gradients = True
    inner: GradCam = field(default_factory=GradCam)

    def draw(self, task: ExplanationTask) -> Tensor:
        return extent(self.inner.draw(task), task.x0, task.bounds)


def methods(size: tuple[int, ...]) -> dict[str, Method]:
    """All methods by the name of their row; those 'at equal queries' get as many as ours."""
    rank = len(size)
    equal, along = BY_RANK[rank - 1].queries - 1, PATCHES[rank - 1]
    return {
        OURS: Belief(),
        "rise": Rise(),
        "rise, equal queries": Rise(masks=equal),
        "rise, equal queries, blurred": Rise(masks=equal, remove="blur"),
        "occlusion": Occlusion(along=OCCLUDED[rank - 1]),
        "gradcam": GradCam(),
        "gradcam++": GradCamPlusPlus(),
        "gradcam, spread as ours": Spreading(),
        "middle": Middle(),
        "ablationcam": AblationCam(),
        "scorecam": ScoreCam(),
        "smdl": Smdl(most_regions(size, equal + 1)),
        "kernel shap": KernelShap(equal, along),
        "lime": Lime(equal, along),
        "integrated gradients": IntegratedGradients(),
    }


def installed(size: tuple[int, ...]) -> dict[str, Method]:
    """The methods whose packages are installed."""
    found = methods(size)
    try:
        captum()
    except MissingExtra as error:
        print(f"skipped Kernel SHAP, LIME and integrated gradients: {error}")
        return {name: method for name, method in found.items() if not isinstance(method, Line | IntegratedGradients)}
    return found


@dataclass(frozen=True)
class Case:
    """A victim and the samples it classifies correctly, in parts that several processes can measure."""

    title: str
    load: Callable[[str], tuple[TorchVictim, Batch]]  # device
    parts: int = 1

    def files(self, key: str) -> list[str]:
        """The raw file of each part."""
        return [f"{key}-{number}of{self.parts}" for number in range(1, self.parts + 1)]


def pets_victim(device: str) -> TorchVictim:
    victim = photo_victim(device)
    victim.chunk = 32 if device == "cpu" else 512  # the fastest, as is this memory format
    victim.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return victim


def load_pets(device: str) -> tuple[TorchVictim, Batch]:
    victim, batch = pets_victim(device), pets()[SEEN:]
    return victim, correct(victim, replace(batch, masks=read_masks(real("pets/trimaps"), batch, (1, 3))))


def some_beats() -> Batch:
    """Up to 40 beats of every class, the classes in turn."""
    every = beats("test")
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(SEED)).tolist()
    groups = [[row for row in order if every.y[row] == label][:40] for label in every.y.unique()]
    return every[[group[turn] for turn in range(40) for group in groups if turn < len(group)]]


def load_beats(name: str, device: str) -> tuple[TorchVictim, Batch]:
    victim = beat_victim(name, device)
    return victim, correct(victim, some_beats())


def load_clips(device: str) -> tuple[TorchVictim, Batch]:
    victim = TorchVictim(demo_victim("clips").model, device=device)
    return victim, correct(victim, load("demo:clips", limit=62, order="first"))[:60]


CASES = {
    "pets": Case("Pets", load_pets, parts=6),
    **{f"beats_{name}": Case(f"Beats, {name}", partial(load_beats, name)) for name in BEAT_NETS},
    "clips": Case("Clips", load_clips, parts=4),
}
