"""Runs recorded conversations on the recorded provider, with a spec and tools made from the recording."""

from __future__ import annotations

from typing import Any

from conversations import RecordedConversation
from recorded_traffic import find_recording

from toolchart.engine import Engine
from toolchart.engine.runtime.result import TurnResult
from toolchart.providers.recording.player import MatchMode, RecordedProvider
from toolchart.providers.recording.recorded_calls import RecordedCall, read_cassette_calls
from toolchart.specs.history import parse_messages
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool


def make_recorded_tools(recording: RecordedConversation) -> list[Tool]:
    """The recorded tools: each call gets the next recorded result."""
    results = iter(recording.results)
    empty = {"type": "object", "properties": {}}
    return [
        Tool(
            definition=ToolDefinition(
                name=tool["name"],
                description=tool.get("description", ""),
                parameters=tool.get("parameters") or empty,
            ),
            run=lambda _: next(results),
            execution_mode="inline",  # in the order of the reply
        )
        for tool in recording.tools
    ]


def make_recorded_spec(recording: RecordedConversation, calls: list[RecordedCall]) -> dict[str, Any]:
    """A spec whose first request has the model, prompt and options of the first recorded request.

    Its chart is the plain loop: the recording clients asked no other way when a request was refused.
    """
    options = {k: v for k, v in calls[0].request["options"].items() if v is not None}
    if "response_format" in options:
        schema = options["response_format"]
        options["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    return {
        "chart": "tool_loop",
        "llms": {"host": {"provider": "recorded", "cassette": str(find_recording(recording.path))}},
        "tools": {"apply_globally": True, "max_iterations": 20},
        "responses": [{"llm": "host", "model": recording.model, "prompt": recording.system, **options}],
    }


def run_recorded_conversation(
    recording: RecordedConversation, match: MatchMode
) -> tuple[TurnResult, RecordedProvider, Engine]:
    """Run a conversation on its own cassette."""
    # Snowflake ends its answers with an empty word.
    calls = read_cassette_calls(find_recording(recording.path), {"": "stop"})
    provider = RecordedProvider(calls, match=match)
    engine = Engine(
        make_recorded_spec(recording, calls),
        log="memory",
        functions=make_recorded_tools(recording),
        providers={"host": provider},
    )
    history = parse_messages(recording.history)
    return engine.run(recording.message, conversation="c", history=history), provider, engine
