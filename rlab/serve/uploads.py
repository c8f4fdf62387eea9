"""Files that a browser sends: how large they may be, and what they may become, is known before anything is decoded."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from pathlib import PurePosixPath

from rlab.errors import InputError

MOST_UPLOAD = 2**26  # bytes as they come
MOST_UNPACKED = 2**28  # bytes as they would be
MOST_MEMBERS = 100  # of an .npz
MOST_PIXELS = 2**26
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
SIGNALS = (".csv", ".tsv", ".txt", ".npy", ".npz")
CLIPS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v")
ENDINGS = (*IMAGES, *SIGNALS, *CLIPS)


class TooLarge(InputError):
    """It would become more than the server takes."""


def check_upload(name: str, content: bytes) -> str:
    """Its ending; refuses what is of no use, and what would unpack to far more than it is."""
    ending = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"expected an image, a beat or a clip, a file ending in {', '.join(ENDINGS)}: save it as one")
    if not content:
        raise InputError("the file is empty: choose another")
    if ending == ".npz":
        _check_zip(content)
    elif ending in IMAGES:
        _check_image(content)
    return ending


def _check_zip(content: bytes) -> None:
    """By what its directory declares, which reading is held to."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise InputError(f"that .npz cannot be read: {error}") from error
    if len(members) > MOST_MEMBERS or sum(member.file_size for member in members) > MOST_UNPACKED:
        raise TooLarge(
            f"that .npz unpacks to more than {MOST_MEMBERS} arrays or {MOST_UNPACKED:,} bytes: save fewer samples"
        )


def _check_image(content: bytes) -> None:
    """By its header."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that are refused below
            with Image.open(io.BytesIO(content)) as image:
                size = image.size
    except Image.DecompressionBombError as error:
        raise TooLarge(str(error)) from error
    except Exception as error:  # what Pillow raises on a broken file depends on the format's plug-in
        raise InputError(f"that image cannot be read: {error}") from error
    if math.prod(size) > MOST_PIXELS:
        raise TooLarge(
            f"expected an image of at most {MOST_PIXELS:,} pixels, got {size[0]} × {size[1]}: make it smaller"
        )
