"""What a host sends in an odd form is what runs and what is answered, or is refused; never something else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from host_answers import ENTRIES, encode_frames
from odd_answers import WIRES, Row, build_frames, build_whole, list_rows
from web import WebAnswer, serve_web

from toolchart.engine import Engine, Turn
from toolchart.states.messages import TextDelta
from toolchart.tools import tool

ROWS = list_rows()
ANSWER = "That is all."
DEFAULTS = {"table": "all", "limit": 1000}


def encode_answer(wire: str, is_streamed: bool) -> WebAnswer:
    """The answer after the results of calls."""
    if not is_streamed:
        data = json.dumps(build_whole(wire, ANSWER)).encode()
        return 200, {"content-type": "application/json"}, data
    content_type, data = encode_frames(wire, build_frames(wire, [ANSWER]))
    return 200, {"content-type": content_type}, data


def find_differences(
    row: Row, result: Turn, shown: str, ran: list[dict[str, Any]], sent: list[bytes]
) -> list[str]:
    """What is not as a row says, and what holds for every row."""
    if row.fails:
        return [] if not result.ok and not ran else [f"ok {result.ok}, ran {ran}, content {result.content!r}"]
    expected = [{**DEFAULTS, **arguments} for arguments in row.runs]
    outcomes = [(call.ok, call.params, call.error) for call in result.tool_calls]
    has_calls = bool(row.runs or row.refused)
    checks = {
        f"ran {ran}": sorted(map(str, ran)) == sorted(map(str, expected)),
        f"outcomes {outcomes}": [ok for ok, *_ in outcomes].count(False) == row.refused
        and len(outcomes) == row.refused + len(row.runs),
        f"state {result.state}, {result.error}": result.ok,
        f"content {result.content!r}": result.content == (ANSWER if has_calls else row.text),
        f"shown {shown!r}": not row.is_streamed or shown == row.text + (ANSWER if has_calls else ""),
        f"the text is not in {sent[1:]}": not has_calls or row.text.encode() in b"".join(sent[1:]),
        f"usage {result.usage}": row.tokens in (None, result.usage.input),
        f"warnings {result.warnings}": row.warns in " ".join(result.warnings),
    }
    return [problem for problem, holds in checks.items() if not holds]


async def run_rows(wire: str, rows: list[Row]) -> list[str]:
    """The differences of all rows of a wire, each a turn of an engine over loopback."""
    ran: list[dict[str, Any]] = []
    row = rows[0]

    @tool(idempotent=True)
    def delete_rows(table: str = "all", limit: int = 1000) -> str:
        """Delete rows."""
        ran.append({"table": table, "limit": limit})
        return "deleted"

    def answer(_: dict[str, Any]) -> WebAnswer:
        if len(server.requests) > 1 and not row.fails:
            return encode_answer(wire, row.is_streamed)
        return 200, {"content-type": row.content_type}, row.data

    path, entry = ENTRIES[wire]
    differences = []
    with serve_web(answer) as server:
        llm = {**entry, "model": "m", "base_url": server.url + path, "api_key": "k"}
        spec = {
            "name": "odd",
            "chart": "tool_loop",
            "llms": {"main": llm},
            "responses": [{"llm": "main", "prompt": "p", "tools": {"enabled": True}}],
        }
        async with Engine(spec, log="memory", functions=[delete_rows]) as engine:
            for row in rows:
                ran.clear()
                server.requests.clear()
                if row.is_streamed:
                    pieces = [piece async for piece in engine.stream("x")]
                else:
                    pieces = [await engine.arun("x")]
                shown = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
                sent = [request["body"] for request in server.requests]
                found = find_differences(row, pieces[-1], shown, ran, sent)  # type: ignore[arg-type]
                differences += [f"{row.name}: {problem}" for problem in found]
    return differences


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES)
def test_odd_answers_mean_what_was_sent(wire: str, is_streamed: bool) -> None:
    """S3.4: whatever the form of index, id, name, arguments, finish word, counts, order, encoding and
    content, a tool runs with the arguments that were sent or not at all, no call and no text is lost, and a
    turn is ok only with an answer."""
    rows = [row for row in ROWS if row.wire == wire and row.is_streamed is is_streamed]
    assert len(rows) > 60
    differences = asyncio.run(run_rows(wire, rows))
    assert not differences, "\n".join(differences)
