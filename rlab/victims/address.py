"""Addresses of HTTP models: their options, the protocol that an address names, and the secrets in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictInt, field_serializer, field_validator

from rlab.errors import OptionError, give_notice
from rlab.redact import HIDDEN, PLAIN_HEADERS, address, address_secrets, remember, stored
from rlab.storage.config import Accepts
from rlab.victims.bill import per_query, per_second
from rlab.victims.exchange import httpx_package
from rlab.victims.reading import Reading
from rlab.victims.template import DEFAULT, MODEL, Template, load_template, shipped


class HttpOptions(Reading):
    """How a model behind an address is queried; fields with exclude=True are not stored and may change when a run resumes."""

    template: str | Template | None = Field(
        None,
        description="protocol of an HTTP model, such as kserve(input='x'), or a .yaml file (default: by the address)",
    )
    headers: dict[str, str] | None = Field(None, description="headers of HTTP requests; write secrets as ${NAME}")
    concurrency: StrictInt = Field(
        32, ge=1, le=1024, exclude=True, description="maximum concurrent requests to an HTTP model (default: 32)"
    )
    retries: StrictInt = Field(
        3, ge=0, exclude=True, description="how often an HTTP request without an answer is sent again (default: 3)"
    )
    backoff: float = Field(
        0.5,
        ge=0,
        exclude=True,
        description="seconds before the first of them, then twice as long each time (default: 0.5)",
    )
    rate: Annotated[float | None, BeforeValidator(per_second), Accepts(float | str | None)] = Field(
        None, exclude=True, description="maximum HTTP requests, such as 10/s or 600/min"
    )
    price: Annotated[float, BeforeValidator(per_query), Accepts(float | str | None)] = Field(
        0.0, exclude=True, description="price of an HTTP query, such as 0.0015/query"
    )
    max_cost: float | None = Field(None, gt=0, exclude=True, description="stop before this command's queries cost more")
    cache: str | Path | None = Field(
        None, exclude=True, description="file of answers: no input goes to an HTTP model twice"
    )

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        for name, value in (headers or {}).items():
            if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII):
                raise ValueError("expected header names such as Authorization, got a name that is not valid")
            if not value.isascii() or not value.isprintable():
                raise ValueError(f"expected the header {name!r} to be one line of ASCII text, got another")
        return headers

    @field_serializer("headers", when_used="json")
    def _without_secrets(self, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Headers carry tokens: only their names and references such as ${TOKEN} are stored."""
        return headers and {name: value if is_plain(name) else stored(value) for name, value in headers.items()}

    def suited(self, template: Template) -> dict[str, Any]:
        """What the model takes and returns, as the template needs it: one row per request, or classes without scores."""
        if template.asks and not template.classes:
            raise OptionError(
                "the request lists the classes to choose from: pass them, e.g. -M names=[cat,dog] or "
                "openai(classes=['cat', 'dog'])"
            )
        own = {name: value for name, value in self.given().items() if name in Reading.model_fields}
        own |= {} if template.many else {"chunk": 1}
        own |= {} if template.scores is not None else {"outputs": "labels"}
        return own | ({"classes": len(template.classes)} if template.classes and own.get("outputs") == "labels" else {})


def spoken_at(url: str, template: str | Template | None) -> tuple[str, Template]:
    """The http(s) address and the template; kserve://host:8080/MODEL or kserve+https://... name a protocol and a model."""
    scheme, at, rest = url.partition("://")
    protocol, _, transport = scheme.lower().partition("+")
    chosen = load_template(template) if isinstance(template, str) else template
    if not at or protocol in ("http", "https"):
        return f"{protocol}{at}{rest}" if at else url, chosen or load_template(DEFAULT)
    if protocol not in shipped() or transport not in ("", "http", "https"):
        schemes = ", ".join(f"{name}://" for name in shipped())
        raise OptionError(f"expected an address like http://host:8000/predict or one of {schemes}, got {protocol!r}")
    chosen = chosen or load_template(protocol)
    place, _, query = rest.partition("?")
    host, _, model = place.partition("/")
    if MODEL in chosen.names and not model:
        raise OptionError(f"expected an address with the model's name, such as {protocol}://host:8000/MODEL")
    if MODEL in chosen.names:
        chosen, place = chosen.changed(model=model), host
    path = chosen.filled(chosen.path)
    return f"{transport or 'http'}://{place.rstrip('/') if path else place}{path}{'?' if query else ''}{query}", chosen


def shown_address(url: str) -> str:
    """A valid address without user, password and query, for errors; an invalid address is not repeated."""
    httpx, form = httpx_package(), "expected an address like http://host:8000/predict"
    for secret in address_secrets(url):
        remember(secret)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise OptionError(f"cannot read the model's address: {form}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise OptionError(f"{form}, got an address without http(s)://, a host or a valid port")
    port = "" if parsed.port is None else f":{parsed.port}"
    return f"{parsed.scheme}://{parsed.host}{port}{parsed.path}"


def is_plain(header: str) -> bool:
    """Whether a header holds no secret."""
    return header.lower() in PLAIN_HEADERS


def warn_of_secrets(url: str, headers: Mapping[str, str]) -> None:
    """Literal secrets are not stored, so they must be given again to resume a run."""
    open_ones = [
        f"the header {name}" for name, value in headers.items() if not is_plain(name) and value != stored(value)
    ]
    if HIDDEN in address(url):
        open_ones.append("the address's user, password or query")
    if open_ones:
        give_notice(
            f"{' and '.join(open_ones)} may contain a secret and will not be stored, so you must give it again to resume a run: "
            "write ${NAME} and export NAME to store only the reference"
        )
