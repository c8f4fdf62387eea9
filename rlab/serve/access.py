"""Access to the server: names of this machine or a token, strict headers, limited time."""

from __future__ import annotations

import asyncio
import hmac
import sys
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlab.present.environment import script_digest
from rlab.redact import redact

COOKIE = "rlab-token"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LONGEST = 300  # maximum seconds of an answer


def refusal(scope: Scope, token: str | None) -> Response | None:
    """The answer to a refused request. Without a token, the server answers only to the names of this machine."""
    headers = Headers(scope=scope)
    try:
        name = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return _refused(400, "The Host of the request is not an address.")
    if token is not None:
        return _without_token(scope, headers, token)
    return None if name in LOOPBACK else _refused(421, "This server answers only to the names of its own machine.")


def _without_token(scope: Scope, headers: Headers, token: str) -> Response | None:
    """The answer to a request without the token; a token in a page's address becomes a cookie."""
    request = Request(scope)
    named = request.query_params.get("token")
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    given = named or bearer or request.cookies.get(COOKIE, "")
    if not given:
        return _refused(401, "This server needs its token: open the address that it printed at the start.")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):  # in constant time
        return _refused(403, "The token is wrong.")
    if named is None:
        return None
    rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
    answer = RedirectResponse("/" + quote(scope["path"].lstrip("/")) + (f"?{rest}" if rest else ""), 303)
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=scope["scheme"] == "https")
    return answer


def _refused(code: int, sentence: str) -> Response:
    return PlainTextResponse(sentence + "\n", code)


class Gate:
    """Wraps the application: checks the access of every request and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token
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

        try:
            async with asyncio.timeout(LONGEST):  # frees the place of a request whose thread is slow
                await (refusal(scope, self.token) or self.app)(scope, receive, sending)
        except ClientDisconnect:
            return  # nobody waits for an answer
        except TimeoutError:
            with suppress(RuntimeError):  # the answer had begun
                await _refused(503, f"The answer took longer than {LONGEST} s: try again later.")(
                    scope, receive, sending
                )
        except Exception as error:  # the answer is 500; log one line without secrets
            sys.stderr.write(redact(f"error: a bug in rlab at {scope['path']!r}: {type(error).__name__}: {error}\n"))
