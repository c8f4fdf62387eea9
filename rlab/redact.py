"""Secrets stay out of all that is printed, written or raised: addresses lose user-info and query values, known secrets their text.

A secret that is given as a reference, `${NAME}` of the environment, is stored and shown as that reference.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "(hidden)"
REFERENCE = re.compile(r"\$\{(\w+)\}")
SECRET_NAMES = re.compile(
    r"http|header|pass|token|secret|key|auth|credential|cookie", re.IGNORECASE
)  # of options and the like
PLAIN_HEADERS = ("accept", "accept-language", "content-type", "user-agent")  # the others may carry tokens
_STORED = re.compile(r"([A-Za-z]{1,10}[ =])?\$\{\w+\}")  # a reference, perhaps behind a word such as Bearer
_ADDRESS = re.compile(r"https?://[^\s'\"<>`]+", re.IGNORECASE)
_HOST = re.compile(r"(\[[^\]]*\]|[^:/?#@\s]+)(:\d*)?(?=[/?#]|$)")
_NUMBERS = {int, float, bool, type(None)}
_SHORTEST = 6  # letters; anything shorter would be found in ordinary words
_known: dict[str, str] = {}  # a secret, and what stands in its place


def redact(value: Any) -> Any:
    """Text without secrets; mappings and lists with their texts so, anything else as it is."""
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {  # without a call for what is most of what is written
            _text(key) if type(key) is str else redact(key): inner if type(inner) in _NUMBERS else redact(inner)
            for key, inner in value.items()
        }
    if type(value) not in (list, tuple) or set(map(type, value)) <= _NUMBERS:  # which are most of what is written
        return value
    return type(value)(map(redact, value))


def _text(text: str) -> str:
    if "://" in text:
        text = _ADDRESS.sub(lambda match: address(match[0]), text)
    for secret, instead in _known.items():
        text = text.replace(secret, instead)
    return text


def remember(secret: str, instead: str = HIDDEN) -> None:
    """From now on `redact` takes this out of every text, as it is and as addresses and basic authorization spell it."""
    spelled = {secret, quote(secret, safe=""), unquote(secret), *secret.split()[-1:]}  # the last word of "Bearer TOKEN"
    spelled.add(base64.b64encode(unquote(secret).encode("utf-8", "replace")).decode())
    for word in spelled:
        if len(word) >= _SHORTEST:
            _known.setdefault(word, instead)
    for word in sorted(_known, key=len, reverse=True):  # the longest first: one may be part of another
        _known[word] = _known.pop(word)


def stored(secret: str) -> str:
    """What is written down in place of a secret: the reference it was given as, or that it is hidden."""
    return secret if _STORED.fullmatch(secret) else HIDDEN


def address(url: str) -> str:
    """The same address; user, password, query values and fragment are references or hidden."""
    scheme, user, rest, query, _ = split_address(url)
    shown = ":".join(map(stored, user.split(":", 1))) if user else ""
    named = "&".join(_query_part(part) for part in query.split("&")) if query else ""
    return f"{scheme}://{shown}{'@' if user else ''}{rest}{'?' if named else ''}{named}"


def _query_part(part: str) -> str:
    name, equals, value = part.partition("=")
    return f"{name}={stored(value)}" if equals else stored(name)


def address_secrets(url: str) -> list[str]:
    """User, password, both as they stand, and the values of the query."""
    _, user, _, query, fragment = split_address(url)
    values = [part.partition("=")[2] or part for part in query.split("&")]
    return [word for word in (user, *user.split(":", 1), query, *values, fragment) if word]


def split_address(url: str) -> tuple[str, str, str, str, str]:
    """Scheme, user-info, host and path, query, fragment; user-info may hold any letters, also those it should not."""
    scheme, _, rest = url.partition("://")
    ats = [at.start() for at in re.finditer("@", rest)]
    at = -1 if _HOST.match(rest) else next((at for at in ats if _HOST.match(rest[at + 1 :])), ats[-1] if ats else -1)
    user, rest = rest[: max(at, 0)], rest[at + 1 :]
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    return scheme, user, rest, query, fragment
