"""Agents as tools: with `implementation: {type: agent, handler: NAME}` a call of the model runs another
handler of the spec as a child conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolchart.specs.child_agents import describe_called_agent
from toolchart.specs.models import ToolEntry
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.starts import Start, list_agent_starts
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.execution.context import CallContext
from toolchart.tools.sources.registry_entries import LoadingContext

AGENT_TIMEOUT_S = 600.0
"""Seconds for one call where the entry sets no `timeout_ms`: an agent takes longer than other tools."""

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "message": {
            "type": "string",
            "description": "What the agent is asked. It sees nothing else of the conversation.",
        }
    },
    "additionalProperties": False,
}


def load_agent_tool(entry: ToolEntry, context: LoadingContext) -> Tool:
    """Make the tool of an agent.

    It may run a second time: the agent that it has begun is found in the log, and goes on.

    Raises:
        SpecError: the entry has parameters of its own.
    """
    if entry.parameters is not None:
        raise SpecError(
            f"tool {entry.name!r}: an agent takes one `message`",
            hint="leave `parameters` out, and say in `description` what the message should be",
        )
    agent = describe_called_agent(entry)

    async def run(arguments: Mapping[str, Any], call: CallContext) -> Any:
        if call.run_agent is None:
            raise ToolFailure("an agent is run in a conversation only")
        return await call.run_agent(call, agent, arguments["message"])

    return Tool(
        definition=ToolDefinition(
            name=entry.name,
            description=entry.description or f"Asks the agent {agent['handler']}.",
            parameters=PARAMETERS,
        ),
        run=run,
        execution_mode="async",
        kind="agent",
        timeout_s=AGENT_TIMEOUT_S,
        idempotent=True,
        needs_context=True,
        agent=agent,
        action={"agent": agent},
    )


def list_called_agent_starts(entry: ToolEntry, base_folder: Path) -> Iterator[Start]:
    """The agent, whose own starts are those of the spec."""
    return list_agent_starts(describe_called_agent(entry))
