"""A host without a network: a clerk who looks up the last word of a question."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from toolchart import Reply, Request, ToolCall
from toolchart.providers.descriptor import HostDescriptor
from toolchart.specs.models import LLMConfig

HOST = HostDescriptor(
    name="clerk",
    summary="a clerk who looks up the last word of a question",
    adapter="toolchart_shop.host:ClerkProvider",
    needs_network=False,
)


class ClerkProvider:
    """Calls the first tool with the last word of the question, then answers with the result."""

    name = "clerk"

    @classmethod
    def from_config(cls, config: LLMConfig, resolve: Callable[[str], str]) -> ClerkProvider:
        """The provider of an `llms` entry; `resolve` replaces `${VARIABLE}` in its settings."""
        return cls()

    async def complete(self, request: Request) -> Reply:
        """One reply: a tool call, or a text."""
        last = request.messages[-1]
        text = last.content or ""
        if last.role == "tool":
            result = json.dumps(json.loads(text).get("result"))
            return Reply(content=f"I found {result}", finish_reason="stop")
        if not request.tools:
            return Reply(content="I have no tools.", finish_reason="stop")
        tool = request.tools[0]
        (parameter,) = tool.parameters["required"]
        arguments: dict[str, Any] = {parameter: text.split()[-1].strip("?")}
        call = ToolCall(name=tool.name, arguments=arguments)
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    async def aclose(self) -> None:
        """There is no connection to close."""
