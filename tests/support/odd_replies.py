"""Replies whose calls are odd in any part, in each wire format: whole, and as a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from host_answers import JSON_TYPE, chat_choice, encode_frames, gemini_parts
from web import WebAnswer

MISSING = ...
"""Stands for a part that does not come."""


@dataclass(frozen=True)
class OddCall:
    """A call; each part may be any value of JSON, or missing."""

    name: Any = "look_up"
    arguments: Any = "{}"
    id: Any = MISSING
    key: str = ""
    """The key under which the arguments stand; empty: the host's own."""


def select(**parts: Any) -> dict[str, Any]:
    """The parts that come."""
    return {name: value for name, value in parts.items() if value is not MISSING}


def read_text_object(arguments: Any) -> Any:
    """Arguments as hosts send them that send objects: text that is one, as one."""
    try:
        value = json.loads(arguments)
    except (TypeError, ValueError):
        return arguments
    return value if isinstance(value, dict) else arguments


def build_reply(wire: str, text: str | None, calls: Sequence[OddCall]) -> dict[str, Any]:
    """The whole body of a reply."""
    function = [select(name=call.name, **{call.key or "arguments": call.arguments}) for call in calls]
    objects = [
        read_text_object(call.arguments) if call.arguments is not MISSING else MISSING for call in calls
    ]
    word = "tool_calls" if calls else "stop"
    match wire:
        case "chat":
            wire_calls = [
                select(id=call.id, type="function", function=one)
                for call, one in zip(calls, function, strict=True)
            ]
            message = {"role": "assistant", "content": text, **({"tool_calls": wire_calls} if calls else {})}
            return chat_choice(index=0, message=message, finish_reason=word)
        case "responses":
            part = {"type": "output_text", "text": text, "annotations": []}
            message = {"type": "message", "role": "assistant", "id": "m1", "content": [part]}
            items = [
                {"type": "function_call", "id": f"fc{index}", **select(call_id=call.id), **one}
                for index, (call, one) in enumerate(zip(calls, function, strict=True))
            ]
            output = [*([] if text is None else [message]), *items]
            return {"id": "r1", "object": "response", "model": "m", "status": "completed", "output": output}
        case "messages":
            blocks = [
                {"type": "tool_use", **select(id=call.id, name=call.name, **{call.key or "input": value})}
                for call, value in zip(calls, objects, strict=True)
            ]
            content = [*([] if text is None else [{"type": "text", "text": text}]), *blocks]
            stop = "tool_use" if calls else "end_turn"
            return {"id": "r1", "type": "message", "model": "m", "content": content, "stop_reason": stop}
        case "gemini":
            parts = [
                {
                    "functionCall": select(id=call.id, name=call.name, **{call.key or "args": value}),
                    "thoughtSignature": "c2ln",
                }
                for call, value in zip(calls, objects, strict=True)
            ]
            return gemini_parts(*([] if text is None else [{"text": text}]), *parts, finishReason="STOP")
        case "ollama":
            wire_calls = [
                select(id=call.id, function=select(name=call.name, **{call.key or "arguments": value}))
                for call, value in zip(calls, objects, strict=True)
            ]
            message = {"role": "assistant", "content": text or "", "tool_calls": wire_calls}
            return {"model": "m", "message": message, "done": True, "done_reason": "stop"}
        case _:
            uses = [
                {"toolUse": select(toolUseId=call.id, name=call.name, **{call.key or "input": value})}
                for call, value in zip(calls, objects, strict=True)
            ]
            message = {"role": "assistant", "content": [*([] if text is None else [{"text": text}]), *uses]}
            stop = "tool_use" if calls else "end_turn"
            return {"output": {"message": message}, "stopReason": stop, "usage": {}}


def list_frames(wire: str, body: dict[str, Any]) -> list[Any]:
    """The frames of a reply as a stream."""
    match wire:
        case "chat":
            [choice] = body["choices"]
            message = dict(choice["message"])
            calls = message.pop("tool_calls", ())
            deltas = [message, *({"tool_calls": [{"index": i, **call}]} for i, call in enumerate(calls))]
            chunks = [chat_choice(index=0, delta=delta, finish_reason=None) for delta in deltas]
            return [*chunks, chat_choice(index=0, delta={}, finish_reason=choice["finish_reason"])]
        case "responses":
            items = enumerate(body["output"])
            done = [{"type": "response.output_item.done", "output_index": i, "item": one} for i, one in items]
            return [*done, {"type": "response.completed", "response": body}]
        case "messages":
            frames: list[Any] = [{"type": "message_start", "message": {**body, "content": []}}]
            for index, block in enumerate(body["content"]):
                value, start = block.get("input", ""), {**block}
                if block["type"] == "tool_use":
                    start["input"] = {}
                    text = value if isinstance(value, str) else json.dumps(value)
                    delta = {"type": "input_json_delta", "partial_json": text}
                else:
                    start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
                frames += [
                    {"type": "content_block_start", "index": index, "content_block": start},
                    {"type": "content_block_delta", "index": index, "delta": delta},
                    {"type": "content_block_stop", "index": index},
                ]
            stop = {"type": "message_delta", "delta": {"stop_reason": body["stop_reason"]}, "usage": {}}
            return [*frames, stop, {"type": "message_stop"}]
        case "converse":
            frames = [{"messageStart": {"role": "assistant"}}]
            for index, block in enumerate(body["output"]["message"]["content"]):
                use = block.get("toolUse")
                if use is None:
                    deltas = [{"text": block["text"]}]
                else:
                    value = use.get("input", "")
                    start = {"toolUse": {key: item for key, item in use.items() if key != "input"}}
                    frames.append({"contentBlockStart": {"contentBlockIndex": index, "start": start}})
                    text = value if isinstance(value, str) else json.dumps(value)
                    deltas = [{"toolUse": {"input": text}}]
                frames += [
                    {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas
                ]
                frames.append({"contentBlockStop": {"contentBlockIndex": index}})
            return [*frames, {"messageStop": {"stopReason": body["stopReason"]}}]
    return [body]


def encode_reply(wire: str, body: dict[str, Any], *, is_streamed: bool) -> WebAnswer:
    """The answer of a host."""
    if not is_streamed:
        return 200, JSON_TYPE, json.dumps(body).encode()
    content_type, data = encode_frames(wire, list_frames(wire, body))
    return 200, {"content-type": content_type}, data
