"""Half of a character (a lone UTF-16 surrogate, which JSON may have and UTF-8 has not) in a host's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from host_answers import ENTRIES
from odd_answers import WIRES, build_whole
from web import WebAnswer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.turn_totals import decode_totals
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.tools import tool

HALF = "\ud83d"


@tool(idempotent=True)
def look(place: str = "here") -> str:
    """Look."""
    return place


def iterate_bodies(body: Any) -> Iterator[Any]:
    """The body with half of a character at the end of one of its texts or keys, once for each."""
    if isinstance(body, str):
        yield body + HALF
    elif isinstance(body, list):
        for index, item in enumerate(body):
            for changed in iterate_bodies(item):
                yield [*body[:index], changed, *body[index + 1 :]]
    elif isinstance(body, dict):
        for key, item in body.items():
            yield {(key + HALF if other == key else other): value for other, value in body.items()}
            for changed in iterate_bodies(item):
                yield {**body, key: changed}


def list_bodies(wire: str) -> list[Any]:
    """The answers of a wire format with half of a character anywhere."""
    whole = build_whole(wire, "I look.", [("c1", "look", {"place": "a"})])
    bodies = [*iterate_bodies(whole), *iterate_bodies({"error": {"message": "no", "code": 400}})]
    half_key, refusal = {"place" + HALF: "a"}, {"role": "assistant", "content": None, "refusal": f"no {HALF}"}
    bodies += [build_whole(wire, "I look.", [("c1", "look", value)]) for value in (half_key, "{" + HALF)]
    if wire in ("chat", "responses", "gemini"):
        bodies.append(build_whole(wire, "I look.", [("c1", "look", json.dumps(half_key))]))
    if wire == "chat":
        bodies.append({"choices": [{"message": refusal, "finish_reason": "stop"}]})
    return bodies


@pytest.mark.parametrize("wire", WIRES)
async def test_half_a_character_loses_no_turn(wire: str) -> None:
    """S3.4, S4.5: wherever it stands in an answer, the turn ends with a result and not with an exception, its
    record is whole and read back, and the next turn of the conversation runs."""
    bodies = list_bodies(wire)

    def answer(_: dict[str, Any]) -> WebAnswer:
        body = build_whole(wire, "Done it.") if len(server.requests) > 1 else bodies[0]
        return 200, {"content-type": "application/json"}, json.dumps(body).encode()

    path, entry = ENTRIES[wire]
    with serve_web(answer) as server:
        spec = {
            "name": "halves",
            "chart": "tool_loop",
            "llms": {"main": {**entry, "model": "m", "base_url": server.url + path, "api_key": "k"}},
            "responses": [{"llm": "main", "prompt": "p", "tools": {"enabled": True}}],
        }
        async with Engine(spec, log="memory", functions=[look]) as engine:
            while bodies:
                name = f"c{len(bodies)}"
                server.requests.clear()
                first = await engine.arun("x", conversation=name)
                assert first.state in ("finished", "error"), bodies[0]
                second = await engine.arun("y", conversation=name)
                assert (second.state, second.content) == ("finished", "Done it."), bodies[0]
                totals = [decode_totals(data) for _, data in engine.store.read_totals(name)]
                assert [total is None for total in totals] == [False, False], bodies[0]
                bodies.pop(0)
            assert all(isinstance(found, VerifiedConversation) for found in verify_store(engine.store))
