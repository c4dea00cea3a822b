"""HTTP tools: one guarded request, its retries, and the part of its answer that is wanted."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.sources.http.address_guard import Guard
from toolchart.tools.sources.http.settings import HttpSettings, Outgoing, outgoing

Secret = Callable[[str, str], str]
"""Fills `${VARIABLE}` into a text; the second argument says where, for the error."""

HARMLESS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
"""Methods that may be sent twice. Source: RFC 9110, section 9.2.2."""

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

LONGEST_WAIT_S = 30.0

_SHOWN_BODY = 300
"""Characters of an error answer that the model is shown."""


class Passing(Exception):
    """A failure that may pass; holds what to say when it does not."""

    def __init__(self, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer, read as far as it is allowed to be."""

    status: int
    reason: str
    content_type: str
    charset: str
    location: str | None
    retry_after: str | None
    body: bytes


class HttpRunner:
    """Sends the request of one tool.

    Args:
        resolve: fills in secrets when a request is sent; their values are struck out of whatever
            comes back, so that no log or error text holds them.
        guard: where it may connect to.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        tool: str,
        resolve: Secret,
        guard: Guard | None = None,
        idempotent: bool = False,
    ) -> None:
        self._settings = settings
        self._where = f"tool {tool!r}"
        self._resolve = resolve
        self._guard = guard or Guard(allow_hosts=tuple(settings.allow_hosts))
        self._again = idempotent or settings.method in HARMLESS
        self._path = _compiled_path(settings.response_path, self._where)

    async def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """The answer's value.

        Raises:
            ToolFailure: refused, not reachable, an error status, or an answer that is not wanted.
        """
        request = outgoing(self._settings, arguments)
        secrets: set[str] = set()
        try:
            answer = await self._with_retries(request, secrets)
            return _struck(self._value(answer), secrets)
        except ToolFailure as failure:
            raise ToolFailure(_struck(str(failure), secrets)) from None

    # -- tries -----------------------------------------------------------------------------------

    async def _with_retries(self, request: Outgoing, secrets: set[str]) -> Answered:
        retry = self._settings.retry
        attempts = retry.attempts if self._again else 1
        for attempt in range(1, attempts + 1):
            try:
                return await self._followed(request, secrets)
            except Passing as failure:
                if attempt == attempts:
                    raise ToolFailure(str(failure)) from None
                pause = retry.backoff_s * 2 ** (attempt - 1)
                wait_s = failure.wait_s if failure.wait_s is not None else pause
                await asyncio.sleep(min(wait_s, LONGEST_WAIT_S))
        raise AssertionError("the last try gives an answer or raises")

    async def _followed(self, request: Outgoing, secrets: set[str]) -> Answered:
        """The answer behind at most `max_redirects` redirects, each looked at anew."""
        import httpx

        url = httpx.URL(self._filled(request.url, secrets))
        if request.query:
            url = url.copy_merge_params(httpx.QueryParams(list(request.query)))
        method, content = request.method, request.content
        headers = {**self._headers(secrets), **request.headers}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        for _ in range(self._settings.max_redirects + 1):
            answer = await self._once(method, url, headers, content)
            if answer.location is None:
                return answer
            target = url.join(answer.location)
            if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                if url.scheme == "https" and target.scheme != "https":
                    raise ToolFailure("redirected from https to an unprotected address: refused")
                # What the spec gives to one host is not for another.
                headers = {name: headers[name] for name in headers if name == "Content-Type"}
            if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
                method, content = "GET", None
            url = target
        raise ToolFailure(f"more than {self._settings.max_redirects} redirects")

    async def _once(
        self, method: str, url: Any, headers: Mapping[str, str], content: bytes | None
    ) -> Answered:
        """One request to the one address that the guard found; nothing of it is followed here."""
        import httpx

        port = url.port or (443 if url.scheme == "https" else 80)
        address = await self._guard.address(url.scheme, url.host, port)
        own = {"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity", **headers}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=None) as client:
                request = client.build_request(
                    method,
                    url.copy_with(host=address),
                    headers=own,
                    content=content,
                    extensions={"sni_hostname": url.host},
                )
                response = await client.send(request, stream=True)
                try:
                    return await self._read(response)
                finally:
                    await response.aclose()
        except httpx.HTTPError as error:
            raise Passing(f"{url.host} could not be reached ({type(error).__name__})") from None

    async def _read(self, response: Any) -> Answered:
        status, location = response.status_code, response.headers.get("location")
        redirect = status in (301, 302, 303, 307, 308) and location is not None
        kind, _, rest = response.headers.get("content-type", "").partition(";")
        answer = Answered(
            status=status,
            reason=response.reason_phrase,
            content_type=kind.strip().lower(),
            charset=_charset(rest),
            location=location if redirect else None,
            retry_after=response.headers.get("retry-after"),
            body=b"" if redirect else await self._body(response, bounded_only=status >= 400),
        )
        if status in PASSING:
            raise Passing(_status_text(answer), _seconds(answer.retry_after))
        return answer

    async def _body(self, response: Any, *, bounded_only: bool) -> bytes:
        """The body within its size; an error's body is cut there rather than refused."""
        most = self._settings.max_bytes
        unpack = _unpacker(response.headers.get("content-encoding", "identity"), most)
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += unpack(chunk, most + 1 - len(body))
            if len(body) > most:
                if bounded_only:
                    return bytes(body[:most])
                raise ToolFailure(f"the answer is larger than {most} bytes")
        return bytes(body)

    # -- parts -----------------------------------------------------------------------------------

    def _filled(self, text: str, secrets: set[str]) -> str:
        def value(match: re.Match[str]) -> str:
            try:
                found = self._resolve(match.group(0), self._where)
            except SpecError as error:
                raise ToolFailure(error.message) from None
            if len(found) >= _SHORTEST_SECRET:
                secrets.update((found, quote(found, safe="")))
            return found

        return _REFERENCE.sub(value, text)

    def _headers(self, secrets: set[str]) -> dict[str, str]:
        return {
            name: self._filled(value, secrets) for name, value in self._settings.headers.items()
        }

    def _value(self, answer: Answered) -> Any:
        if answer.status >= 400:
            raise ToolFailure(_status_text(answer))
        if not answer.body:
            return None
        if answer.content_type and not self._wanted(answer.content_type):
            raise ToolFailure(f"the answer is {answer.content_type}, which this tool does not read")
        text = answer.body.decode(answer.charset, "replace")
        if "json" not in answer.content_type and self._path is None:
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            if self._path is None:
                return text
            raise ToolFailure(
                "the answer is not JSON, so response_path cannot be applied"
            ) from None
        return value if self._path is None else self._picked(value)

    def _picked(self, value: Any) -> Any:
        found = [match.value for match in self._path.find(value)]
        if not found:
            top = ", ".join(map(str, list(value)[:10])) if isinstance(value, dict) else "no object"
            raise ToolFailure(
                f"response_path {self._settings.response_path!r} finds nothing (top level: {top})"
            )
        return found[0] if len(found) == 1 else found

    def _wanted(self, content_type: str) -> bool:
        return any(fnmatchcase(content_type, glob) for glob in self._settings.content_types)


def http_tool(
    definition: ToolDefinition,
    settings: HttpSettings,
    *,
    resolve: Secret,
    guard: Guard | None = None,
    idempotent: bool = False,
) -> Tool:
    """A tool that sends one request.

    Raises:
        SpecError: the response path is no JSONPath, or the library for it is missing.
    """
    runner = HttpRunner(
        settings, tool=definition.name, resolve=resolve, guard=guard, idempotent=idempotent
    )
    return Tool(definition=definition, run=runner, way="async", kind="http", idempotent=idempotent)


def _compiled_path(path: str | None, where: str) -> Any:
    if path is None:
        return None
    try:
        from jsonpath_ng.ext import parse
    except ImportError:
        raise SpecError(
            "response_path needs the JSONPath library",
            path=where,
            hint="pip install 'toolchart[http]'",
        ) from None
    try:
        return parse(path)
    except Exception as error:  # the library raises classes of its own and of its parser
        raise SpecError(f"response_path {path!r} is no JSONPath: {error}", path=where) from None


def _status_text(answer: Answered) -> str:
    shown = answer.body.decode(answer.charset, "replace").strip()
    shown = shown if len(shown) <= _SHOWN_BODY else shown[:_SHOWN_BODY] + "..."
    head = f"HTTP {answer.status} {answer.reason}".rstrip()
    return f"{head}: {shown}" if shown else head


def _charset(parameters: str) -> str:
    for part in parameters.split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            try:
                "".encode(value.strip(" \"'"))
            except (LookupError, ValueError):
                break
            return value.strip(" \"'")
    return "utf-8"


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.isdigit() else None


def _unpacker(encoding: str, most: int) -> Callable[[bytes, int], bytes]:
    """Unpacks a chunk, never to more than what is still allowed: a small packed answer may be
    endless once it is unpacked."""
    if encoding.strip().lower() in ("", "identity"):
        return lambda chunk, room: chunk
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise ToolFailure(f"the answer is packed as {encoding!r}, which was not asked for")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def step(chunk: bytes, room: int) -> bytes:
        try:
            return unpack.decompress(chunk, max(1, room))
        except zlib.error:
            raise ToolFailure("the packed answer is damaged") from None

    return step


_STRUCK = "(secret)"
_SHORTEST_SECRET = 4
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def _struck(value: Any, secrets: set[str]) -> Any:
    """The value with every secret in it struck out: some services echo what they were sent."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _STRUCK)
        return value
    if isinstance(value, list):
        return [_struck(one, secrets) for one in value]
    if isinstance(value, dict):
        return {_struck(key, secrets): _struck(one, secrets) for key, one in value.items()}
    return value
