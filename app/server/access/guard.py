"""The guard of every request: address, origin, rate, size and time, before anything reads it.

    browser or program -> guard -> route -> role -> endpoint

What is checked here needs no session: the Host header against DNS rebinding, the Origin header against
requests that other sites make in a browser's name, the number of requests, and size and time of the body.
The answer gets its security headers here too, and an error becomes JSON, or a page, with a request id.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import Refusal
from toolchart.app.server.endpoints import SAFE_METHODS
from toolchart.app.server.site import Site
from toolchart.app.studio.errors import answer_error
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ToolchartError

log = logging.getLogger("toolchart.server")

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: browsers then send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Middleware around the whole application of a site."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; other kinds of connections pass, and WebSockets do not exist here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id, is_tls=self._site.settings.is_tls)
        try:
            self._check_request(Headers(scope=scope), scope)
            await self._app(scope, self._limit_body(scope, receive), answer.send)
        except Exception as error:
            _log_error(error, scope, request_id)
            if answer.status is not None:  # too late for a status: the connection ends without its end
                raise
            if not isinstance(error, ClientDisconnect):  # nobody would read an answer
                await answer_error(Request(scope), error)(scope, receive, answer.send)
        finally:
            self._site.figures.note_request(scope["method"], scope["state"].get("route"), answer.status)

    # -- checks ----------------------------------------------------------------------------------

    def _check_request(self, headers: Headers, scope: Scope) -> None:
        self._check_host(headers)
        self._check_origin(headers, scope["method"])
        self._site.rates.count_request(self._name_client(scope))
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise Refusal(400, "Content-Length is not a number")
        if int(length) > self._site.limits.body_bytes:
            raise self._refuse_size()

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _drop_port(hosts[0]) not in self._site.settings.host_names:
            raise Refusal(
                421, "this server is not known by the name in the Host header; `--name` adds one to serve"
            )

    def _check_origin(self, headers: Headers, method: str) -> None:
        """Refuse what the page of another site asks in the name of a browser that is signed in here.

        Programs send no Origin. A request with a cookie comes from a browser, so it must prove its origin.
        """
        if method in SAFE_METHODS:
            return
        origin = headers.get("origin")
        if origin is None:
            is_own = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
            if is_own and ("cookie" not in headers or "sec-fetch-site" in headers):
                return
            raise Refusal(403, "a request with a cookie must say where it comes from (Origin)")
        # A proxy in front may end TLS, so that the scheme here is not the browser's.
        own = headers["host"].lower()
        is_same = origin.lower() in (f"http://{own}", f"https://{own}")
        if not is_same and origin not in self._site.settings.origins:
            raise Refusal(403, "requests from this origin are not allowed; `--origin` adds one to serve")

    def _name_client(self, scope: Scope) -> str:
        """By whom requests are counted: the access, so that nobody uses up the rate of another one."""
        request = Request(scope)
        access: Access | None = self._site.sessions.find(request)
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            access = self._site.tokens.find(value.strip())
        return (
            f"token {access.name}" if access else f"address {request.client.host if request.client else ''}"
        )

    # -- the body ----------------------------------------------------------------------------------

    def _limit_body(self, scope: Scope, receive: Receive) -> Receive:
        """`receive` with the limits of size and time for the body; waiting for a disconnect has no limit."""
        limits = self._site.limits
        size, is_complete = 0, False
        ends: float | None = None

        async def receive_limited() -> Message:
            nonlocal size, is_complete, ends
            if is_complete:
                return await receive()
            ends = ends or asyncio.get_running_loop().time() + limits.body_s
            try:
                async with asyncio.timeout_at(ends):
                    message = await receive()
            except TimeoutError:
                raise Refusal(
                    408,
                    f"the body did not arrive within {limits.body_s:g} s",
                    headers={"Connection": "close"},
                ) from None
            size += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if size > limits.body_bytes:
                raise self._refuse_size()
            return message

        return receive_limited

    def _refuse_size(self) -> Refusal:
        limit = self._site.limits.body_bytes
        return Refusal(413, f"the body is larger than {limit} bytes", headers={"Connection": "close"})


class _Answer:
    """The answer on its way out: security headers are added to whatever the application says."""

    def __init__(self, send: Send, request_id: str, *, is_tls: bool) -> None:
        self._send = send
        self._request_id = request_id
        self._is_tls = is_tls
        self.status: int | None = None
        """None until the answer has begun."""

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            headers["X-Request-Id"] = self._request_id
            if self._is_tls:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        await self._send(message)


def _drop_port(host: str) -> str:
    """The name in a Host header, in small letters; `[::1]:80` gives `[::1]`."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdecimal() else host.lower()


def _log_error(error: Exception, scope: Scope, request_id: str) -> None:
    """Write the failure of a request to the log of the process; a traceback only for what is unexpected."""
    place = f"{scope['method']} {scope['path']!r} [{request_id}]"
    if isinstance(error, ClientDisconnect):
        log.info("%s: the client went away before its request was complete", place)
    elif isinstance(error, Refusal) and error.status < 500:
        log.info("%s: %d %s", place, error.status, error.message)
    elif isinstance(error, (Refusal, ToolchartError)):
        log.warning("%s: %s", place, strike_secrets(str(error)))
    else:
        log.error("%s: %s", place, type(error).__name__, exc_info=error)
