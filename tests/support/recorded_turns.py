"""Recorded conversations answered by the recorded provider: specs and tools made from a recording."""

from __future__ import annotations

from typing import Any

from conversations import Recording
from recorded import RECORDED

from toolchart.engine import Engine
from toolchart.engine.runtime.result import TurnResult
from toolchart.providers.recording.player import Match, RecordedProvider
from toolchart.providers.recording.recorded_calls import Take, cassette_takes
from toolchart.specs.history import messages_of
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool


def tools_of(recording: Recording) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    results = iter(recording.results)
    empty = {"type": "object", "properties": {}}
    return [
        Tool(
            definition=ToolDefinition(
                name=one["name"],
                description=one.get("description", ""),
                parameters=one.get("parameters") or empty,
            ),
            run=lambda _: next(results),
        )
        for one in recording.tools
    ]


def spec_of(recording: Recording, takes: list[Take]) -> dict[str, Any]:
    """A spec that asks as the first recorded request did."""
    options = {k: v for k, v in takes[0].asked["options"].items() if v is not None}
    if "response_format" in options:
        schema = options["response_format"]
        options["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return {
        "llms": {"host": {"provider": "recorded", "cassette": str(RECORDED / recording.path)}},
        "tools": {"apply_globally": True, "max_iterations": 20},
        "responses": [
            {"llm": "host", "model": recording.model, "prompt": recording.system, **options}
        ],
    }


def answered(recording: Recording, match: Match) -> tuple[TurnResult, RecordedProvider, Engine]:
    """The conversation, answered from its own cassette."""
    # Snowflake ends its answers with an empty word.
    takes = cassette_takes(RECORDED / recording.path, {"": "stop"})
    provider = RecordedProvider(takes, match=match)
    engine = Engine(
        spec_of(recording, takes),
        log="memory",
        functions=tools_of(recording),
        providers={"host": provider},
    )
    history = messages_of(recording.history)
    return engine.run(recording.message, conversation="c", history=history), provider, engine
