"""Print a page as PDF with an installed Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rlab.errors import InputError
from rlab.storage.files import write_atomically

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
WAIT = 120  # seconds


def check_chromium() -> str:
    """The path of Chromium or Chrome; raise if there is none."""
    chromium = next(filter(None, map(shutil.which, (*NAMES, *PLACES))), None)
    if chromium is None:
        raise InputError("--pdf needs Chromium or Chrome, which was not found: install it, or print from a browser")
    return chromium


def print_pdf(page: Path, pdf: Path) -> Path:
    """Print a page atomically."""
    chromium = check_chromium()
    call = [chromium, "--headless", "--disable-gpu", "--no-pdf-header-footer", "--virtual-time-budget=5000"]
    if hasattr(os, "getuid") and not os.getuid():
        call.append("--no-sandbox")  # Chromium's sandbox does not run as root
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "page.pdf"
        call += [f"--user-data-dir={folder}/profile", f"--print-to-pdf={made}", page.resolve().as_uri()]
        try:
            done = subprocess.run(call, capture_output=True, timeout=WAIT, check=False)
        except subprocess.TimeoutExpired as error:
            raise InputError(f"{chromium} did not print {page} within {WAIT} s: print it from a browser") from error
        if not made.is_file():
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no error message"])[-1]
            raise InputError(f"{chromium} printed no PDF of {page}: {last}")
        write_atomically(pdf, made.read_bytes())
    return pdf
