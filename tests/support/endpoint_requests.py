"""A request to each endpoint of a server that would go on with the conversation `c`."""

from __future__ import annotations

import re
from typing import Any

import httpx

from toolchart.app.server.endpoints import Endpoint
from toolchart.app.server.openai_api.response_ids import ResponseName

RESPONSE = ResponseName(conversation="c", turn=1, seq=1).id

BODIES: dict[str, dict[str, Any]] = {
    "/api/conversations": {"message": "hi"},
    "/api/conversations/{conversation}/messages": {"message": "hi"},
    "/api/conversations/{conversation}/decisions": {"call_id": "c", "approved": True},
    "/api/conversations/{conversation}/answers": {"content": {}},
    "/v1/chat/completions": {"model": "agent", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "agent", "input": "hi", "previous_response_id": RESPONSE},
    "/ag-ui": {"threadId": "c", "runId": "r", "messages": [{"role": "user", "content": "hi"}]},
    "/ag-ui/{model}": {"threadId": "c", "runId": "r", "messages": [{"role": "user", "content": "hi"}]},
    "/chat/api": {"prompt": "hi"},
    "/api/tools/test": {"llm": "model", "model": "m", "query": "q"},
}
"""The bodies of endpoints that do something with the log; others get an empty one."""


async def ask(client: httpx.AsyncClient, endpoint: Endpoint) -> httpx.Response:
    """A request to an endpoint, for the conversation `c`."""
    names = {"conversation": "c", "model": "agent", "response": RESPONSE, "format": "openai"}
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: names.get(match[1], "any"), endpoint.path)
    body = None if endpoint.method == "GET" else BODIES.get(endpoint.path, {})
    return await client.request(endpoint.method, path, json=body)
