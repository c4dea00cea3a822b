"""Sessions of browsers: a one-time code or a token is exchanged for a cookie that scripts cannot read."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    access: Access
    ends: float


class Sessions:
    """The browsers that are signed in. They end with the process.

    Args:
        cookie: name of the cookie; it holds the port, because a browser sends cookies to all ports of a host.
        most: browsers at the same time; beyond it the oldest session ends.
        session_s: seconds until a browser has to sign in again.
        code_s: seconds for which a code signs in.
        is_secure: whether the cookie is for TLS only.
        now: monotonic seconds.
    """

    def __init__(
        self,
        cookie: str,
        *,
        most: int,
        session_s: float,
        code_s: float,
        is_secure: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cookie = f"__Host-{cookie}" if is_secure else cookie
        self._most = most
        self._session_s = session_s
        self._code_s = code_s
        self._is_secure = is_secure
        self._now = now
        self._codes: dict[str, _Session] = {}
        self._sessions: dict[str, _Session] = {}

    def make_code(self, access: Access) -> str:
        """A code that signs in once, while it is not too old."""
        code = secrets.token_urlsafe(24)
        self._codes[code] = _Session(access=access, ends=self._now() + self._code_s)
        return code

    def take_code(self, code: str) -> Access | None:
        """Whose code this is; it does not work again."""
        entry = self._codes.pop(code, None)
        return entry.access if entry is not None and entry.ends > self._now() else None

    def begin(self, response: Response, access: Access) -> None:
        """Sign the browser in that gets this response."""
        while len(self._sessions) >= self._most:
            del self._sessions[next(iter(self._sessions))]
        value = secrets.token_urlsafe(32)
        self._sessions[value] = _Session(access=access, ends=self._now() + self._session_s)
        response.set_cookie(
            self.cookie,
            value,
            max_age=math.ceil(self._session_s),
            httponly=True,
            samesite="strict",
            secure=self._is_secure,
            path="/",
        )

    def end(self, request: Request, response: Response) -> None:
        """Sign the browser out."""
        self._sessions.pop(request.cookies.get(self.cookie, ""), None)
        response.delete_cookie(
            self.cookie, path="/", httponly=True, samesite="strict", secure=self._is_secure
        )

    def find(self, request: Request) -> Access | None:
        """Whose browser has sent a request; None without a session."""
        value = request.cookies.get(self.cookie, "")
        session = self._sessions.get(value)
        if session is None:
            return None
        if session.ends <= self._now():
            del self._sessions[value]
            return None
        return session.access
