"""Lines and event-stream data out of bytes, however the network split them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from toolchart.providers.failures import unreadable


async def lines_of(chunks: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    r"""Lines without their ends, the last one also where no end follows; linear in the length.

    Only `\n` ends a line: a JSON text may hold U+0085 and U+2028, at which `str.splitlines` and the
    HTTP libraries' line readers would cut it.
    """
    held: list[bytes] = []
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        held.append(first)
        for more in rest:
            yield _text(held)
            held = [more]
    if any(held):
        yield _text(held)


def _text(pieces: list[bytes]) -> str:
    return b"".join(pieces).removesuffix(b"\r").decode("utf-8", "replace")


async def json_lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Any, None]:
    """The values of newline-delimited JSON.

    Raises:
        ProviderError: a line that is not JSON, as the last one of a cut stream is.
    """
    async for line in lines_of(chunks):
        if line.strip():
            yield _value(line)


async def sse_values(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Any, None]:
    """The JSON data of server-sent events; comments, names and ids are passed by.

    What stands outside of the events is taken for JSON of its own: Gemini tells an error mid-stream so.

    Source: HTML standard, 9.2.6; google-genai 3.4.0, `_api_client.py`, for what stands outside.

    Raises:
        ProviderError: data that is not JSON.
    """
    data: list[str] = []
    outside: list[str] = []
    async for line in lines_of(chunks):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield _value("\n".join(data))
            data = []
        elif line and not line.startswith((":", "event:", "id:", "retry:")):
            outside.append(line)
    for left in (data, outside):
        if left:
            yield _value("\n".join(left))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise unreadable("the stream has a piece that is not JSON, or was cut in one") from None
    except RecursionError:
        raise unreadable("the stream has a piece that is nested too deeply") from None
