"""Check uploaded files before decoding them: their type, their size, and their size when unpacked."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from pathlib import PurePosixPath

from rlab.errors import DataError

MOST_UPLOAD = 2**26  # bytes of the file
MOST_UNPACKED = 2**28  # bytes after unpacking
MOST_MEMBERS = 100  # arrays in an .npz
MOST_PIXELS = 2**26
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
SIGNALS = (".csv", ".tsv", ".txt", ".npy", ".npz")
CLIPS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v")
ENDINGS = (*IMAGES, *SIGNALS, *CLIPS)


class TooLarge(DataError):
    """The file is larger than the server accepts."""


def check_upload(name: str, content: bytes) -> str:
    """The file's ending; refuse unknown types and files that unpack to too much."""
    ending = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"expected an image, a signal or a clip with one of the endings {', '.join(ENDINGS)}")
    if not content:
        raise DataError("the file is empty: choose another")
    if ending == ".npz":
        _check_zip(content)
    elif ending in IMAGES:
        _check_image(content)
    return ending


def _check_zip(content: bytes) -> None:
    """Check the sizes in the archive's directory, which readers enforce."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise DataError(f"cannot read the .npz file: {error}") from error
    if len(members) > MOST_MEMBERS or sum(member.file_size for member in members) > MOST_UNPACKED:
        raise TooLarge(
            f"the .npz file unpacks to more than {MOST_MEMBERS} arrays or {MOST_UNPACKED:,} bytes: save fewer samples"
        )


def _check_image(content: bytes) -> None:
    """Check the size in the image's header."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large images, which are refused below
            with Image.open(io.BytesIO(content)) as image:
                size = image.size
    except Image.DecompressionBombError as error:
        raise TooLarge(str(error)) from error
    except (
        Exception
    ) as error:  # the errors for broken files depend on Pillow's plug-in, and may show addresses of objects
        raise DataError("cannot read the image: it is damaged, or not of the kind that its name says") from error
    if math.prod(size) > MOST_PIXELS:
        raise TooLarge(f"expected an image of at most {MOST_PIXELS:,} pixels, got {size[0]} × {size[1]}: shrink it")
