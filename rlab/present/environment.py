"""The Jinja environment of all pages: values are escaped, and secrets removed."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlab.redact import redact


def make_environment() -> Environment:
    return Environment(
        loader=PackageLoader("rlab.present"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_secrets,
    )


@cache
def script_digest() -> str:
    """SHA-256 of the page's script, the only one that its content policy allows."""
    script = make_environment().get_template("page.js").render()
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _without_secrets(value: object) -> object:
    """Redact text, but not embedded pictures."""
    return redact(value) if type(value) is str and not value.startswith("data:") else value
