"""Keep secrets out of everything that is printed, written or raised: URLs lose user info and query values, known secrets vanish.

A secret given as a reference to the environment, `${NAME}`, is stored and shown as that reference. Only whole words are replaced,
and never a word of the names of samples and classes (see `spare`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "(hidden)"
REFERENCE = re.compile(r"\$\{(\w+)\}")
SECRET_NAMES = re.compile(r"http|header|pass|token|secret|key|auth|credential|cookie", re.IGNORECASE)  # of options
PLAIN_HEADERS = ("accept", "accept-language", "content-type", "user-agent")  # other headers may carry tokens
_STORED = re.compile(r"([A-Za-z]{1,10}[ =])?\$\{\w+\}")  # a reference, possibly after a word such as Bearer
_ADDRESS = re.compile(r"[a-z][a-z0-9+-]*://[^\s'\"<>`]+", re.IGNORECASE)
_HOST = re.compile(r"(\[[^\]]*\]|[^:/?#@\s]+)(:\d*)?(?=[/?#]|$)")
_NUMBERS = {int, float, bool, type(None)}
_SHORTEST = 6  # characters; shorter secrets would match ordinary words
known_secrets: dict[str, str] = {}  # secret -> replacement; the secret itself if it may be shown


def redact(value: Any) -> Any:
    """Remove secrets from text, and from text in mappings and lists; anything else is unchanged."""
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {  # numbers, the most common values, need no call
            _text(key) if type(key) is str else redact(key): inner if type(inner) in _NUMBERS else redact(inner)
            for key, inner in value.items()
        }
    if type(value) not in (list, tuple) or set(map(type, value)) <= _NUMBERS:
        return value
    return type(value)(map(redact, value))


def _text(text: str) -> str:
    if "://" in text:
        text = _ADDRESS.sub(lambda match: address(match[0]), text)
    for secret, instead in known_secrets.items():
        if instead != secret and secret in text:
            text = _whole(secret).sub(instead, text)
    return text


@cache
def _whole(secret: str) -> re.Pattern[str]:
    """Matches the secret unless letters or digits continue it; those of an escape such as %3D or \\n are no part of a word."""
    before = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt])|(?<=\\x..)|(?<=\\u....))" if secret[0].isalnum() else ""
    return re.compile(before + re.escape(secret) + (r"(?![^\W_])" if secret[-1].isalnum() else ""))


def spare(names: Iterable[str]) -> None:
    """Leave these names of data as they are: a known secret that is a word of one of them is shown from now on."""
    every = "\n".join(names)
    for secret in known_secrets:
        if secret in every and _whole(secret).search(every):
            known_secrets[secret] = secret


def remember(secret: str, instead: str = HIDDEN) -> None:
    """Make `redact` remove this secret, also as URLs and basic authorization encode it."""
    spelled = {secret, quote(secret, safe=""), unquote(secret), *secret.split()[-1:]}  # the last word of "Bearer TOKEN"
    spelled.add(base64.b64encode(unquote(secret).encode("utf-8", "replace")).decode())
    for word in spelled:
        if len(word) >= _SHORTEST:
            known_secrets.setdefault(word, instead)
    for word in sorted(known_secrets, key=len, reverse=True):  # longest first: one may contain another
        known_secrets[word] = known_secrets.pop(word)


def stored(secret: str) -> str:
    """What to store instead of a secret: its reference, or `HIDDEN`."""
    return secret if _STORED.fullmatch(secret) else HIDDEN


def address(url: str) -> str:
    """The URL with user, password, query values and fragment hidden, unless they are references."""
    scheme, user, rest, query, _ = split_address(url)
    shown = ":".join(map(stored, user.split(":", 1))) if user else ""
    named = "&".join(_query_part(part) for part in query.split("&")) if query else ""
    return f"{scheme}://{shown}{'@' if user else ''}{rest}{'?' if named else ''}{named}"


def _query_part(part: str) -> str:
    name, equals, value = part.partition("=")
    return f"{name}={stored(value)}" if equals else stored(name)


def address_secrets(url: str) -> list[str]:
    """The secrets of a URL: user info and its parts, query and its values, fragment."""
    _, user, _, query, fragment = split_address(url)
    values = [part.partition("=")[2] or part for part in query.split("&")]
    return [word for word in (user, *user.split(":", 1), query, *values, fragment) if word]


def split_address(url: str) -> tuple[str, str, str, str, str]:
    """Scheme, user info, host and path, query, fragment; the user info may contain invalid characters."""
    scheme, _, rest = url.partition("://")
    ats = [at.start() for at in re.finditer("@", rest)]
    at = -1 if _HOST.match(rest) else next((at for at in ats if _HOST.match(rest[at + 1 :])), ats[-1] if ats else -1)
    user, rest = rest[: max(at, 0)], rest[at + 1 :]
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    return scheme, user, rest, query, fragment
