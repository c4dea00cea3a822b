"""Runs HTTP tools: sends the request with retries and redirects, and reads the response within limits."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from toolchart.states.canonical_json import is_whole_number
from toolchart.states.errors import SpecError, format_install
from toolchart.states.json_bounds import ExcessError, parse_foreign_json
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.execution.context import NO_CONVERSATION, CallContext
from toolchart.tools.sources.http.address_guard import AddressGuard
from toolchart.tools.sources.http.settings import (
    HttpSettings,
    OutgoingRequest,
    build_request,
    describe_http_action,
)

SecretResolver = Callable[[str, str], str]
"""Replaces `${VARIABLE}` in a text; the second argument is the path in the spec, for errors."""

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
"""Methods that may be repeated without harm. Source: RFC 9110, section 9.2.2."""

RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses of transient failures: the same request may succeed later."""

MAX_WAIT_S = 30.0

_MAX_ERROR_BODY = 300
"""Characters of an error response that the model sees."""


class TransientFailure(Exception):
    """A failure after which the request may be repeated; its text is for the model.

    Attributes:
        wait_s: seconds that the server asked to wait; None if it named none.
    """

    def __init__(self, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response whose body was read up to the size limit."""

    status: int
    reason: str
    content_type: str
    charset: str
    location: str | None
    retry_after: str | None
    body: bytes


class HttpRunner:
    """Sends the requests of one HTTP tool.

    Args:
        tool: name of the tool, for errors.
        resolve: fills in secrets when a request is sent. Their values are replaced in the response, so
            that no log and no error text holds them.
        guard: decides which addresses it may connect to.
        idempotent: whether a request may be repeated although its method does not promise that.
    """

    def __init__(
        self,
        settings: HttpSettings,
        *,
        tool: str,
        resolve: SecretResolver,
        guard: AddressGuard | None = None,
        idempotent: bool = False,
    ) -> None:
        self._settings = settings
        self._spec_path = f"tool {tool!r}"
        self._resolve = resolve
        self._guard = guard or AddressGuard(allow_hosts=tuple(settings.allow_hosts))
        self._may_retry = idempotent or settings.method in IDEMPOTENT_METHODS
        self._response_path = _compile_response_path(settings.response_path, self._spec_path)

    async def __call__(self, arguments: Mapping[str, Any], context: CallContext = NO_CONVERSATION) -> Any:
        """Send the request and return the value of its response.

        Args:
            context: the call; its idempotency key is sent where the settings name a header for it.

        Raises:
            ToolFailure: the address is refused or not reachable, the status is an error, or the
                response has a content type, a size or a form that the settings do not accept.
        """
        request = build_request(self._settings, arguments)
        if self._settings.idempotency_header is not None and context.call_id:
            header = {self._settings.idempotency_header: context.idempotency_key}
            request = replace(request, headers={**request.headers, **header})
        secrets: set[str] = set()
        try:
            response = await self._send_with_retries(request, secrets)
            return _redact_secrets(self._extract_value(response), secrets)
        except ToolFailure as failure:
            raise ToolFailure(_redact_secrets(str(failure), secrets)) from None

    async def fetch(self, url: str) -> HttpResponse:
        """Get what stands at an address, whatever its content type.

        Raises:
            ToolFailure: the address is refused or not reachable, the status is an error, or the answer is
                larger than `max_bytes`.
        """
        response = await self._send_with_retries(OutgoingRequest(method="GET", url=url), set())
        if response.status >= 400:
            raise ToolFailure(_describe_status(response))
        return response

    # -- sending ---------------------------------------------------------------------------------

    async def _send_with_retries(self, request: OutgoingRequest, secrets: set[str]) -> HttpResponse:
        retry = self._settings.retry
        attempts = retry.attempts if self._may_retry else 1
        for attempt in range(1, attempts + 1):
            try:
                return await self._follow_redirects(request, secrets)
            except TransientFailure as failure:
                if attempt == attempts:
                    raise ToolFailure(str(failure)) from None
                pause = retry.backoff_s * 2 ** (attempt - 1)
                wait_s = failure.wait_s if failure.wait_s is not None else pause
                await asyncio.sleep(min(wait_s, MAX_WAIT_S))
        raise AssertionError("the last attempt returns or raises")

    async def _follow_redirects(self, request: OutgoingRequest, secrets: set[str]) -> HttpResponse:
        """Send a request and follow at most `max_redirects` redirects; the guard checks each address."""
        import httpx

        url = httpx.URL(self._fill_secrets(request.url, secrets))
        if request.query:
            url = url.copy_merge_params(httpx.QueryParams(list(request.query)))
        method, content = request.method, request.content
        headers = {**self._build_headers(secrets), **request.headers}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        for _ in range(self._settings.max_redirects + 1):
            response = await self._send_once(method, url, headers, content)
            if response.location is None:
                return response
            target = url.join(response.location)
            if (target.scheme, target.host, target.port) != (url.scheme, url.host, url.port):
                if url.scheme == "https" and target.scheme != "https":
                    raise ToolFailure("redirected from https to an unprotected address: refused")
                # The headers of the spec may hold secrets for the first host; another host gets none.
                headers = {name: headers[name] for name in headers if name == "Content-Type"}
            if response.status == 303 or (response.status in (301, 302) and method == "POST"):
                method, content = "GET", None
            url = target
        raise ToolFailure(f"more than {self._settings.max_redirects} redirects")

    async def _send_once(
        self, method: str, url: Any, headers: Mapping[str, str], content: bytes | None
    ) -> HttpResponse:
        """Send one request to the address that the guard chose, without following redirects."""
        import httpx

        port = url.port or (443 if url.scheme == "https" else 80)
        address = await self._guard.choose_address(url.scheme, url.host, port)
        all_headers = {"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity", **headers}
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=None) as client:
                request = client.build_request(
                    method,
                    url.copy_with(host=address),
                    headers=all_headers,
                    content=content,
                    extensions={"sni_hostname": url.host},
                )
                raw_response = await client.send(request, stream=True)
                try:
                    return await self._read_response(raw_response)
                finally:
                    await raw_response.aclose()
        except httpx.HTTPError as error:
            raise TransientFailure(f"{url.host} could not be reached ({type(error).__name__})") from None

    async def _read_response(self, raw_response: Any) -> HttpResponse:
        status, location = raw_response.status_code, raw_response.headers.get("location")
        redirect = status in (301, 302, 303, 307, 308) and location is not None
        content_type, _, content_parameters = raw_response.headers.get("content-type", "").partition(";")
        response = HttpResponse(
            status=status,
            reason=raw_response.reason_phrase,
            content_type=content_type.strip().lower(),
            charset=_parse_charset(content_parameters),
            location=location if redirect else None,
            retry_after=raw_response.headers.get("retry-after"),
            body=b"" if redirect else await self._read_body(raw_response, cut_at_limit=status >= 400),
        )
        if status in RETRYABLE_STATUSES:
            raise TransientFailure(_describe_status(response), _parse_retry_after(response.retry_after))
        return response

    async def _read_body(self, raw_response: Any, *, cut_at_limit: bool) -> bytes:
        """Read the body up to `max_bytes`.

        Args:
            cut_at_limit: whether a longer body is cut (for error responses) instead of refused.
        """
        max_bytes = self._settings.max_bytes
        decompress = _make_decompressor(raw_response.headers.get("content-encoding", "identity"), max_bytes)
        body = bytearray()
        async for chunk in raw_response.aiter_raw():
            body += decompress(chunk, max_bytes + 1 - len(body))
            if len(body) > max_bytes:
                if cut_at_limit:
                    return bytes(body[:max_bytes])
                raise ToolFailure(f"the answer is larger than {max_bytes} bytes")
        return bytes(body)

    # -- headers and values ----------------------------------------------------------------------

    def _fill_secrets(self, text: str, secrets: set[str]) -> str:
        def resolve_reference(match: re.Match[str]) -> str:
            """The value of one `${VARIABLE}`, remembered as a secret."""
            try:
                secret = self._resolve(match.group(0), self._spec_path)
            except SpecError as error:
                raise ToolFailure(error.message) from None
            if len(secret) >= _SHORTEST_SECRET:
                secrets.update((secret, quote(secret, safe="")))
            return secret

        return _REFERENCE.sub(resolve_reference, text)

    def _build_headers(self, secrets: set[str]) -> dict[str, str]:
        return {name: self._fill_secrets(value, secrets) for name, value in self._settings.headers.items()}

    def _extract_value(self, response: HttpResponse) -> Any:
        if response.status >= 400:
            raise ToolFailure(_describe_status(response))
        if not response.body:
            return None
        if response.content_type and not self._accepts_content_type(response.content_type):
            raise ToolFailure(f"the answer is {response.content_type}, which this tool does not read")
        text = response.body.decode(response.charset, "replace")
        if "json" not in response.content_type and self._response_path is None:
            return text
        try:
            value = parse_foreign_json(text, "tool_values")
        except ExcessError as error:
            raise ToolFailure(f"the answer cannot be read: {error}") from None
        except ValueError:
            if self._response_path is None:
                return text
            raise ToolFailure("the answer is not JSON, so response_path cannot be applied") from None
        return value if self._response_path is None else self._apply_response_path(value)

    def _apply_response_path(self, value: Any) -> Any:
        matches = [match.value for match in self._response_path.find(value)]
        if not matches:
            top = ", ".join(map(str, list(value)[:10])) if isinstance(value, dict) else "no object"
            raise ToolFailure(
                f"response_path {self._settings.response_path!r} finds nothing (top level: {top})"
            )
        return matches[0] if len(matches) == 1 else matches

    def _accepts_content_type(self, content_type: str) -> bool:
        return any(fnmatchcase(content_type, glob) for glob in self._settings.content_types)


def make_http_tool(
    definition: ToolDefinition,
    settings: HttpSettings,
    *,
    resolve: SecretResolver,
    guard: AddressGuard | None = None,
    idempotent: bool = False,
) -> Tool:
    """Make a tool that sends one HTTP request per call.

    Raises:
        SpecError: `response_path` is not a JSONPath, or the library for it is missing.
    """
    runner = HttpRunner(settings, tool=definition.name, resolve=resolve, guard=guard, idempotent=idempotent)
    return Tool(
        definition=definition,
        run=runner,
        execution_mode="async",
        kind="http",
        idempotent=idempotent,
        action=describe_http_action(settings, definition.parameters),
        needs_context=settings.idempotency_header is not None,
    )


def _compile_response_path(path: str | None, spec_path: str) -> Any:
    if path is None:
        return None
    try:
        from jsonpath_ng.ext.parser import parse
    except ImportError:
        raise SpecError(
            "response_path needs the JSONPath library", path=spec_path, hint=format_install("http")
        ) from None
    try:
        return parse(path)
    except Exception as error:  # the library raises its own errors and those of its parser
        raise SpecError(f"response_path {path!r} is not a JSONPath: {error}", path=spec_path) from None


def _describe_status(response: HttpResponse) -> str:
    excerpt = response.body.decode(response.charset, "replace").strip()
    excerpt = excerpt if len(excerpt) <= _MAX_ERROR_BODY else excerpt[:_MAX_ERROR_BODY] + "..."
    head = f"HTTP {response.status} {response.reason}".rstrip()
    return f"{head}: {excerpt}" if excerpt else head


def _parse_charset(parameters: str) -> str:
    for part in parameters.split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            try:
                "".encode(value.strip(" \"'"))
            except (LookupError, ValueError):
                break
            return value.strip(" \"'")
    return "utf-8"


def _parse_retry_after(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and is_whole_number(retry_after) else None


def _make_decompressor(encoding: str, max_bytes: int) -> Callable[[bytes, int], bytes]:
    """A function that decompresses a chunk to at most the bytes that are still allowed.

    The bound guards against a small compressed response that expands without end.
    """
    if encoding.strip().lower() in ("", "identity"):
        return lambda chunk, room: chunk
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise ToolFailure(f"the answer is packed as {encoding!r}, which was not asked for")
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)

    def decompress_chunk(chunk: bytes, room: int) -> bytes:
        """Decompress one chunk to at most `room` bytes."""
        try:
            return decompressor.decompress(chunk, max(1, room))
        except zlib.error:
            raise ToolFailure("the packed answer is damaged") from None

    return decompress_chunk


_REDACTED = "(secret)"
_SHORTEST_SECRET = 4
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def _redact_secrets(value: Any, secrets: set[str]) -> Any:
    """Replace every secret in a value, because some services echo what was sent to them."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _REDACTED)
        return value
    if isinstance(value, list):
        return [_redact_secrets(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_redact_secrets(key, secrets): _redact_secrets(item, secrets) for key, item in value.items()}
    return value
