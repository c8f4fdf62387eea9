"""Methods, victims and data of the benchmark of explanations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.attacks import correct
from benchmarks.beats import beats
from benchmarks.data import pets, real
from benchmarks.explain.smdl import most_regions, smdl
from benchmarks.victims import BEAT_NETS, beat_victim, photo_victim
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.errors import MissingExtra
from rlab.explanation.base import ExplanationTask, Method
from rlab.explanation.black_box import captum
from rlab.explanation.maps import BY_RANK, extent
from rlab.explanation.options import read_masks
from rlab.explanation.run import parse_method
from rlab.explanation.white_box import activation_map, gradcam
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

OURS = "belief (ours)"
SEEN = 40  # pets that settings were chosen on
PATCHES, OCCLUDED = (32, 8, 4), (32, 14, 6)  # along an axis, by rank from 1: of methods that hide sets, of occlusion
SEED = 0
CAPTUM = ("kernel_shap", "lime", "integrated_gradients")  # methods by that package


def spreading(task: ExplanationTask) -> Tensor:
    """Another method's map with our spreading, to show how much of our Dice is due to that step."""
    return extent(activation_map(gradcam, task), task.x0, task.batch.bounds)


def methods(size: tuple[int, ...]) -> dict[str, Method]:
    """All methods by the name of their row; those 'at equal queries' get as many as ours."""
    rank = len(size)
    equal, along = BY_RANK[rank - 1].queries - 1, PATCHES[rank - 1]
    specs = {
        OURS: "belief",
        "rise": "rise",
        "rise, equal queries": f"rise(masks={equal})",
        "rise, equal queries, blurred": f"rise(masks={equal}, remove='blur')",
        "occlusion": f"occlusion(along={OCCLUDED[rank - 1]})",
        "gradcam": "gradcam",
        "gradcam++": "gradcam++",
        "gradcam, spread as ours": Method("spread", spreading, gradients=True),
        "middle": "middle",
        "ablationcam": "ablationcam",
        "scorecam": "scorecam",
        "smdl": Method("smdl", smdl, options={"along": most_regions(size, equal + 1)}),
        "kernel shap": f"kernel_shap(samples={equal}, along={along})",
        "lime": f"lime(samples={equal}, along={along})",
        "integrated gradients": "integrated_gradients",
    }
    return {name: parse_method(spec) for name, spec in specs.items()}


def installed(size: tuple[int, ...]) -> dict[str, Method]:
    """The methods whose packages are installed."""
    found = methods(size)
    try:
        captum()
    except MissingExtra as error:
        print(f"skipped Kernel SHAP, LIME and integrated gradients: {error}")
        return {name: method for name, method in found.items() if method.name not in CAPTUM}
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
