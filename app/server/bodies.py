"""Reads the JSON body of a request: bounded in depth, and decoded to the form that the endpoint declares."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
import orjson
from starlette.requests import Request

from toolchart.app.server.answers import Refusal
from toolchart.app.server.site import Limits, get_site
from toolchart.states.errors import suggest_name
from toolchart.states.json_bounds import has_more_values, is_deeper

Form = TypeVar("Form")

LARGE_BODY_BYTES = 256 * 1024
"""From this size on a body is read in a thread, so that other requests are not held up."""


async def read_form(request: Request, form: type[Form]) -> Form:
    """The body as a value of the form.

    Raises:
        Refusal: 400, 413 or 415; the message says what is wrong and where. A key that the form does not have
            is refused, with the name of the nearest one that it has.
    """
    value = await read_json(request)
    names: tuple[str, ...] = form.__struct_encode_fields__  # type: ignore[attr-defined]
    # Before what is missing: the key that is missing is often the one that is misspelt.
    for key in value if isinstance(value, dict) else ():
        if key not in names:
            hint = suggest_name(key, names)
            raise Refusal(
                400, f"the body has the unknown key {key[:64]!r}; {hint}", details={"field": key[:64]}
            )
    return _convert(value, form)


async def read_form_with_others(request: Request, form: type[Form]) -> tuple[Form, dict[str, Any]]:
    """As `read_form`, and the keys that the form does not have."""
    value = await read_json(request)
    filled = _convert(value, form)
    known = form.__struct_encode_fields__  # type: ignore[attr-defined]
    return filled, {key: entry for key, entry in value.items() if key not in known}


def _convert(value: Any, form: type[Form]) -> Form:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"the body is not as it should be: {error}") from None


async def read_json(request: Request) -> Any:
    """The body as JSON data.

    Raises:
        Refusal: 400, 413 or 415; the message says what is wrong.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "the body must be JSON: send Content-Type: application/json")
    body, limits = await request.body(), get_site(request).limits
    if len(body) >= LARGE_BODY_BYTES:
        return await asyncio.to_thread(_parse_body, body, limits)
    return _parse_body(body, limits)


def _parse_body(body: bytes, limits: Limits) -> Any:
    if is_deeper(body, limits.json_depth):
        raise Refusal(400, f"the body nests lists and objects deeper than {limits.json_depth}")
    if has_more_values(body, limits.json_values):
        raise Refusal(413, f"the body has more than {limits.json_values:,} JSON values")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
