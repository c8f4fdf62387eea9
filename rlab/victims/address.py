"""Options of HTTP models: which are valid, which protocol an address names, and which words are secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlab.errors import OptionError, give_notice
from rlab.redact import PLAIN_HEADERS, address_secrets, remember, split_address, stored
from rlab.victims.exchange import httpx_package
from rlab.victims.template import DEFAULT, MODEL, Template, load_template, shipped

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

    class Sending(VictimKeywords, total=False):
        """Keywords about requests, besides those of every victim."""

        retries: int
        backoff: float
        concurrency: int


MOST = 1024  # concurrent requests: each has a thread and a connection


def suited(common: VictimKeywords, template: Template) -> VictimKeywords:
    """Options as the template needs them: one row per request, or classes without scores."""
    if template.asks and not template.classes:
        raise OptionError(
            "the request lists the classes to choose from: pass them, e.g. -M names=[cat,dog] or openai(classes=['cat', 'dog'])"
        )
    changes: VictimKeywords = {}
    if not template.many:
        changes["chunk"] = 1
    if template.scores is None:
        changes["outputs"] = "labels"
    if template.classes and {**common, **changes}.get("outputs") == "labels":
        changes["classes"] = len(template.classes)
    return {**common, **changes}


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


def check_sending(retries: int, backoff: float, concurrency: int) -> None:
    if type(retries) is not int or type(backoff) not in (int, float) or retries < 0 or backoff < 0:
        raise OptionError(f"expected retries and backoff of at least 0, got retries={retries!r}, backoff={backoff!r}")
    if type(concurrency) is not int or not 1 <= concurrency <= MOST:
        raise OptionError(f"expected a concurrency of 1 to {MOST} requests, got {concurrency!r}")


def check_headers(headers: Mapping[str, str]) -> None:
    if not isinstance(headers, Mapping):
        raise OptionError(f"expected headers by name, got {type(headers).__name__}")
    for name, value in headers.items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", str(name), re.ASCII):
            raise OptionError("expected header names such as Authorization, got a name that is not valid")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise OptionError(f"expected the header {name!r} to be one line of ASCII text: put it in quotes")


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


def secret_words(url: str, headers: Mapping[str, str]) -> list[str]:
    """Words from the headers, the password and the query that no error may repeat, longest first."""
    parsed = httpx_package().URL(url)
    words = [word for value in headers.values() for word in (value, *value.split())]
    words += [parsed.password, *(value for _, value in parsed.params.multi_items())]
    return sorted({word for word in words if len(word) > 3}, key=len, reverse=True)


def warn_of_secrets(url: str, headers: Mapping[str, str]) -> None:
    """Literal secrets are not stored, so they must be given again to resume a run."""
    _, user, _, query, _ = split_address(url)
    open_ones = [
        f"the header {name}"
        for name, value in headers.items()
        if name.lower() not in PLAIN_HEADERS and value != stored(value)
    ]
    if user and any(part != stored(part) for part in user.split(":", 1)):
        open_ones.append("the address's user or password")
    if any((value := part.partition("=")[2]) != stored(value) for part in query.split("&") if "=" in part):
        open_ones.append("the address's query")
    if open_ones:
        give_notice(
            f"{' and '.join(open_ones)} may contain a secret and will not be stored, so you must give it again to resume a run: "
            "write ${NAME} and export NAME to store only the reference"
        )
