"""A model host on loopback that answers any wire format from a list of neutral answers."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from web import WebAnswer

Answer = dict[str, Any] | int
"""`{text, calls: [(name, arguments)]}`, or the status of a failure."""


class ScriptedHost:
    """Gives the next answer of a list, in the wire format of the path."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self._call_count = 0

    def make_answer(self, request: dict[str, Any]) -> WebAnswer:
        """Status, headers and body of the next answer."""
        answer = self.answers.popleft() if self.answers else 418
        headers = {"content-type": "application/json"}
        if isinstance(answer, int):
            return answer, headers, b'{"error": {"message": "scripted failure"}}'
        calls = []
        for name, arguments in answer.get("calls", ()):
            self._call_count += 1
            calls.append((f"n{self._call_count}", name, arguments))
        end = request["path"].partition("?")[0].rpartition("/")[2].rpartition(":")[2]
        body = _ENCODERS[end](answer.get("text", ""), calls)
        return 200, headers, json.dumps(body).encode()


Calls = list[tuple[str, str, dict[str, Any]]]
"""Id, name and arguments."""


def _encode_chat(text: str, calls: Calls) -> dict[str, Any]:
    wire_calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in calls
    ]
    message = {"content": text, "reasoning_content": "I think.", "tool_calls": wire_calls}
    reason = "tool_calls" if calls else "stop"
    return {"id": "r", "model": "m", "choices": [{"message": message, "finish_reason": reason}]}


def _encode_responses(text: str, calls: Calls) -> dict[str, Any]:
    output: list[dict[str, Any]] = [{"type": "reasoning", "encrypted_content": "c2ln", "summary": []}]
    if text:
        output.append({"type": "message", "content": [{"type": "output_text", "text": text}]})
    output += [
        {"type": "function_call", "call_id": id_, "name": name, "arguments": json.dumps(arguments)}
        for id_, name, arguments in calls
    ]
    return {"id": "r", "model": "m", "status": "completed", "output": output}


def _encode_ollama(text: str, calls: Calls) -> dict[str, Any]:
    wire_calls = [
        {"id": id_, "function": {"name": name, "arguments": arguments}} for id_, name, arguments in calls
    ]
    message = {"role": "assistant", "content": text, "thinking": "I think.", "tool_calls": wire_calls}
    return {"model": "m", "message": message, "done": True, "done_reason": "stop"}


def _encode_gemini(text: str, calls: Calls) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    parts += [
        {"functionCall": {"id": id_, "name": name, "args": arguments}, "thoughtSignature": "c2ln"}
        for id_, name, arguments in calls
    ]
    content = {"role": "model", "parts": parts}
    return {"responseId": "r", "candidates": [{"content": content, "finishReason": "STOP"}]}


def _encode_messages(text: str, calls: Calls) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "thinking", "thinking": "I think.", "signature": "c2ln"}]
    if text:
        content.append({"type": "text", "text": text})
    content += [
        {"type": "tool_use", "id": id_, "name": name, "input": arguments} for id_, name, arguments in calls
    ]
    reason = "tool_use" if calls else "end_turn"
    usage = {"input_tokens": 5, "output_tokens": 7}
    return {"id": "r", "model": "m", "content": content, "stop_reason": reason, "usage": usage}


def _encode_converse(text: str, calls: Calls) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"text": text}] if text else []
    content += [
        {"toolUse": {"toolUseId": id_, "name": name, "input": arguments}} for id_, name, arguments in calls
    ]
    message = {"role": "assistant", "content": content}
    return {"output": {"message": message}, "stopReason": "tool_use" if calls else "end_turn"}


_ENCODERS = {
    "converse": _encode_converse,
    "completions": _encode_chat,
    "responses": _encode_responses,
    "chat": _encode_ollama,
    "generateContent": _encode_gemini,
    "messages": _encode_messages,
}
"""By the last word of the path."""
