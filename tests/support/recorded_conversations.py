"""Runs recorded conversations on the recorded provider, with a spec and tools made from the recording."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from conversations import RecordedConversation
from recorded_traffic import find_recording

from toolchart.engine import Engine
from toolchart.engine.runtime.result import TurnResult
from toolchart.providers.recording.player import (
    MatchMode,
    RecordedCall,
    RecordedProvider,
    read_cassette_calls,
)
from toolchart.specs.chat_messages import read_history
from toolchart.states.errors import ProviderError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool
from toolchart.tools.execution.context import CallContext


def make_recorded_tools(recording: RecordedConversation, calls: list[RecordedCall]) -> list[Tool]:
    """The recorded tools: each call gets its recorded result.

    Calls of one reply run at the same time, so a result is found by the id of its call, where no id of the
    recording is used twice, and else is the next one.
    """
    ids = _list_call_ids(calls)
    results = iter(recording.results)
    results_by_id = dict(zip(ids, recording.results, strict=False)) if len({*ids}) == len(ids) else {}
    empty = {"type": "object", "properties": {}}

    def find_result(_: Any, context: CallContext) -> Any:
        """The result of a call, by its id."""
        following = next(results)
        return results_by_id.get(context.call_id, following)

    return [
        Tool(
            definition=ToolDefinition(
                name=tool["name"],
                description=tool.get("description", ""),
                parameters=tool.get("parameters") or empty,
            ),
            run=find_result,
            needs_context=True,
        )
        for tool in recording.tools
    ]


def _list_call_ids(calls: list[RecordedCall]) -> list[str]:
    """The ids of all recorded tool calls, in order; failures have none."""
    ids: list[str] = []
    for call in calls:
        with suppress(ProviderError):
            ids += [tool_call.id for tool_call in call.get_reply().tool_calls]
    return ids


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
        functions=make_recorded_tools(recording, calls),
        providers={"host": provider},
    )
    history = read_history(recording.history)
    return engine.run(recording.message, conversation="c", history=history), provider, engine
