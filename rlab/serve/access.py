"""Access to the server: a token, posts only from its own pages, limited request bodies, strict headers."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlab.present.environment import script_digest
from rlab.redact import redact

COOKIE, CSRF = "rlab-token", "csrf"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_FORM = 2**16  # bytes
SAFE = ("GET", "HEAD")
EVENTS = "/events/"  # addresses of answers that last as long as a run
LONGEST = 330  # maximum seconds of any other answer; a preview takes up to 300


@dataclass(frozen=True)
class Access:
    """Without a token, the server answers only to the names of this machine."""

    token: str | None = None
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # part of every form of this server

    def refusal(self, scope: Scope) -> Response | None:
        """The answer to a refused request; a token in a page's address becomes a cookie."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not (_is_address(f"//{host}") and _is_address(headers.get("origin", ""))):
            return _refused(400, "The Host or Origin of the request is not an address.")
        if self.token is None and urlsplit(f"//{host}").hostname not in LOOPBACK:
            return _refused(421, "This server answers only to the names of its own machine.")
        if self.token is not None and (refused := self._without_token(scope, headers, self.token)):
            return refused
        if scope["method"] not in SAFE and not _same_origin(headers, host):
            return _refused(403, "Only pages of this server may post to it.")
        return None

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        request = Request(scope)
        named = request.query_params.get("token")
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        given = named or bearer or request.cookies.get(COOKIE, "")
        if not given:
            return _refused(401, "This server needs its token: open the address that it printed at the start.")
        if not same_text(given, token):
            return _refused(403, "The token is wrong.")
        if named is None:
            return None
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        answer = RedirectResponse("/" + quote(scope["path"].lstrip("/")) + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=scope["scheme"] == "https")
        return answer

    async def read_form(self, request: Request) -> dict[str, str]:
        """The fields of a form; of repeated fields, the last counts."""
        body = await read_body(request, MOST_FORM)
        try:
            fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
        except ValueError:
            raise HTTPException(400, "The form cannot be read.") from None
        self.check_csrf(fields.pop(CSRF, ""))
        return fields

    def check_csrf(self, given: str) -> None:
        if not same_text(given, self.csrf):
            raise HTTPException(403, "The form is from another server or its earlier start: reload the page.")


def same_text(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _is_address(text: str) -> bool:
    try:
        urlsplit(text)
        return True
    except ValueError:
        return False


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether the browser's headers say that a post comes from this server; without such a header it does not."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin", "null")
    if site is not None and site != "same-origin":
        return False
    return site is not None if origin == "null" else bool(host) and urlsplit(origin).netloc == host


def _refused(code: int, sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", code)


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; a larger body is refused as early as possible."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if not length.isdecimal() or int(length) > most:
        raise HTTPException(413, f"Expected at most {most:,} bytes.")
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"Expected at most {most:,} bytes.")
    return bytes(body)


class Gate:
    """Wraps the application: checks every request with `access` and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access
        policy = (
            "default-src 'none'; img-src 'self' data:; media-src data:; style-src 'unsafe-inline'; connect-src 'self'; "
            f"script-src 'self' 'sha256-{script_digest()}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        # Pages run only the scripts of the server and the report, fetch nothing from elsewhere, and cannot be framed.
        self.headers = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        limit = None if scope["path"].startswith(EVENTS) else LONGEST
        try:
            async with asyncio.timeout(limit):  # frees the place of a request whose thread is slow
                await (self.access.refusal(scope) or self.app)(scope, receive, sending)
        except ClientDisconnect:
            return  # nobody waits for an answer
        except TimeoutError:
            with suppress(RuntimeError):  # the answer had begun
                await _refused(503, f"The answer took longer than {LONGEST} s: try again later.")(
                    scope, receive, sending
                )
        except Exception as error:  # the answer is 500; log one line without secrets
            sys.stderr.write(redact(f"error: a bug in rlab at {scope['path']!r}: {type(error).__name__}: {error}\n"))
