"""The two networks of the default command, and the command itself."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.data import real, root
from benchmarks.nets import MEAN, STD
from rlab.comparison.comparison import Comparison

IMAGES = 100
NETS = {
    "vgg": ("VGG, in no training of ours", "benchmarks/weights/vgg.safetensors"),
    "resnet20": ("ResNet-20, which the prior was trained with", "$RLAB_REAL/cifar10/resnet20.safetensors"),
}


def command(name: str, images: int = IMAGES) -> list[str]:
    """What a user would type: model and data, everything else by default."""
    data, scale = "$RLAB_REAL/cifar10/test_0_4999.npz", {"mean": MEAN, "std": STD}
    values = [f"{key}=[{','.join(map(str, each))}]" for key, each in scale.items()]
    options = [word for each in (f"factory=benchmarks.nets:{name}", *values) for word in ("-M", each)]
    return ["rlab", "compare", NETS[name][1], data, *options, "--limit", str(images), "-D", "order=first"]


def compared(name: str, folder: Path, images: int = IMAGES, more: Sequence[str] = ()) -> Comparison:
    """Run the command, or read back a finished run."""
    real("cifar10/test_0_4999.npz")
    words = [word.replace("$RLAB_REAL", str(root())) for word in command(name, images)[1:]]
    subprocess.run([sys.executable, "-m", "rlab", *words, *more, "--out", str(folder)], check=True)
    return Comparison.load(folder)


def shell(words: Sequence[str]) -> str:
    """The command as it is typed, in lines of a readable length."""
    quoted = [word if word.startswith("$RLAB_REAL") else shlex.quote(word) for word in words]
    at = quoted.index("-M")
    return " ".join(quoted[:at]) + " \\\n    " + " ".join(quoted[at:])
