"""The templates of pages, and what all that is rendered by them has in common: it is escaped, and holds no secrets."""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlab.redact import redact


def make_environment() -> Environment:
    """Whatever its templates show is escaped."""
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
    """Of the page's own script: the page lets no other run."""
    script = make_environment().get_template("page.js").render()
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _without_secrets(value: object) -> object:
    """Before it is escaped; pictures are not words."""
    return redact(value) if type(value) is str and not value.startswith("data:") else value
