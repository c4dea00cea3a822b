"""A host without a network: a clerk who looks up the last word of a question."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from toolchart import Reply, Request, ToolCall
from toolchart.providers.adapter import HostAdapter
from toolchart.providers.descriptor import HostDescriptor
from toolchart.specs.models import LLMConfig

HOST = HostDescriptor(
    name="clerk",
    summary="a clerk who looks up the last word of a question",
    adapter="toolchart_shop.host:ClerkProvider",
    needs_network=False,
    list_starts="toolchart.states.starts:list_no_starts",
)


class ClerkProvider(HostAdapter):
    """Calls the first tool with the last word of the question, then answers with the result."""

    name = "clerk"

    @classmethod
    def from_config(cls, config: LLMConfig, resolve: Callable[[str], str]) -> ClerkProvider:
        """The provider of an `llms` entry; `resolve` replaces `${VARIABLE}` in its settings."""
        return cls()

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """What the clerk gets to read: the last message, and the first tool with its parameter."""
        last = request.messages[-1]
        body: dict[str, Any] = {"role": last.role, "text": last.content or ""}
        for tool in request.tools[:1]:
            body |= {"tool": tool.name, "parameter": tool.parameters["required"][0]}
        return body

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """One reply: a tool call, or a text."""
        if body["role"] == "tool":
            result = json.dumps(json.loads(body["text"]).get("result"))
            return Reply(content=f"I found {result}", finish_reason="stop")
        if "tool" not in body:
            return Reply(content="I have no tools.", finish_reason="stop")
        arguments = {body["parameter"]: body["text"].split()[-1].strip("?")}
        call = ToolCall(name=body["tool"], arguments=arguments)
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    async def aclose(self) -> None:
        """There is no connection to close."""
