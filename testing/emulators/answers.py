"""What an emulated host answers: replies and errors in the forms of each wire format, whole and streamed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.shared.host_rows import HostRow, Wire
from toolchart.states.messages import Reply, ToolCall
from toolchart.testing.emulators.checks import OfferedTool, RequestView
from toolchart.testing.emulators.facts import ErrorForm, get_facts

Json = dict[str, Any]

THOUGHT = "The tool knows it."
"""The reasoning of a model that thinks."""


SIGNATURE_START = "emulated"

# -- replies by rule -----------------------------------------------------------------------------


def make_reply(view: RequestView) -> Reply:
    """The reply by rule: a call of each tool that the user names, one after the other; where none is named, a
    call of the first one, or of the one that is forced. After their results an answer."""
    named = find_named_tools(view)
    if named:
        tool = next(iter(named[view.call_count :]), None)
    elif view.has_results:
        tool = None
    else:
        tool = next(
            (tool for tool in view.tools if tool.name == view.forced_name), next(iter(view.tools), None)
        )
    if tool is not None and view.choice != "none":
        arguments = make_value(tool.schema if isinstance(tool.schema, Mapping) else {})
        call = ToolCall(id="", name=tool.name, arguments=arguments if isinstance(arguments, dict) else {})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")
    schema = find_answer_schema(view.body)
    return Reply(content="Done." if schema is None else json.dumps(make_value(schema)), finish_reason="stop")


def find_named_tools(view: RequestView) -> list[OfferedTool]:
    """The tools that the user has named last, in that order, each as often as it stands there."""
    tools = {tool.name: tool for tool in view.tools}
    return [tools[word] for word in re.findall(r"[\w-]+", view.newest_words) if word in tools]


def find_answer_schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of the answer that a request asks for; None where text will do."""
    text, config = body.get("text"), body.get("output_config")
    places = [body.get("response_format"), text.get("format") if isinstance(text, Mapping) else None]
    places.append(config.get("format") if isinstance(config, Mapping) else None)
    form = next((place for place in places if isinstance(place, Mapping)), {})
    inner = form.get("json_schema", form)
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if isinstance(schema, Mapping):
        return schema
    generation = body.get("generationConfig")
    generation = generation if isinstance(generation, Mapping) else {}
    schema = generation.get("responseJsonSchema", generation.get("responseSchema", body.get("format")))
    is_json = form.get("type") == "json_object" or generation.get("responseMimeType") == "application/json"
    return schema if isinstance(schema, Mapping) else {"type": "object"} if is_json else None


def make_value(schema: Mapping[str, Any]) -> Any:
    """A small value that fits a schema, as far as its types and required keys say it."""
    if schema.get("enum"):
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return make_value(schema[key][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) else str(kind).lower():
        case "object":
            properties = schema.get("properties") or {}
            return {key: make_value(properties.get(key, {})) for key in schema.get("required", ())}
        case "array":
            return [make_value(schema.get("items") or {})] * int(schema.get("minItems", 0))
        case "integer":
            return int(schema.get("minimum", 1))
        case "number":
            return float(schema.get("minimum", 1))
        case "boolean":
            return True
        case "null":
            return None
    return "x" * max(1, int(schema.get("minLength", 1)))


# -- replies in each wire format -----------------------------------------------------------------


def sign_text(text: str) -> str:
    """The signature of a thought, which the emulator knows again: it keeps no state.

    Base64, as hosts write it and clients read it.
    """
    return f"{SIGNATURE_START}{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class Answer:
    """One reply of an emulated host.

    Args:
        row: of the host.
        view: of the request.
        reply: what is said.
        number: of the reply since the emulator began, for ids.
        thinks: whether the model thinks.
    """

    def __init__(self, row: HostRow, view: RequestView, reply: Reply, number: int, *, thinks: bool) -> None:
        self._row, self.view, self._reply, self._number = row, view, reply, number
        self._reasoning = reply.reasoning or (THOUGHT if thinks else "")
        self._output = 7
        self._input = 20 + 5 * len(view.entries)

    def build_body(self) -> Json:
        """The whole answer."""
        return _BUILDERS[self.view.wire](self)

    def iterate_frames(self) -> Iterator[bytes]:
        """The pieces of the streamed answer."""
        frames = _STREAMS[self.view.wire](self)
        if self.view.wire == "ollama":
            return (json.dumps(frame).encode() + b"\n" for frame in frames)
        return (
            (f"event: {frame['type']}\n" if "type" in frame else "").encode()
            + b"data: "
            + (b"[DONE]" if frame == {} else json.dumps(frame).encode())
            + b"\n\n"
            for frame in frames
        )

    def list_calls(self) -> list[tuple[str, str, Json]]:
        """Id, name and arguments of each call."""
        return [
            (call.id or self._make_id(index), call.name, call.arguments or {})
            for index, call in enumerate(self._reply.tool_calls)
        ]

    def _make_id(self, index: int) -> str:
        """An id in the host's own form."""
        digest = hashlib.sha256(f"{self._number} {index}".encode()).hexdigest()
        if self._row.name == "mistral":
            return digest[:9]
        prefix = {"messages": "toolu_", "converse": "tooluse_"}.get(self.view.wire, "call_")
        return f"{prefix}{digest[:20]}"

    # chat completions

    def _build_message(self) -> Json:
        message: Json = {"role": "assistant", "content": self._reply.content}
        field = get_facts(self._row.name).reasoning_field
        if self._reasoning and field == "reasoning_details":
            message[field] = [{"type": "reasoning.text", "text": self._reasoning, "index": 0}]
        elif self._reasoning and field:
            message[field] = self._reasoning
        if self._reasoning and self._row.name == "openrouter":
            message["reasoning_details"] = [
                {
                    "type": "reasoning.text",
                    "text": self._reasoning,
                    "signature": sign_text(self._reasoning),
                    "index": 0,
                }
            ]
        calls: list[Json] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id_, name, arguments in self.list_calls()
        ]
        if calls and self._row.name == "gemini":
            calls[0]["extra_content"] = {"google": {"thought_signature": sign_text(calls[0]["id"])}}
        return {**message, "tool_calls": calls} if calls else message

    def _choose_word(self) -> str:
        return "tool_calls" if self._reply.tool_calls else self._reply.native_reason or "stop"

    def _build_usage(self) -> Json:
        reasoning = 5 if self._reasoning else 0
        output = self._output + (0 if get_facts(self._row.name).has_separate_reasoning else reasoning)
        return {
            "prompt_tokens": self._input,
            "completion_tokens": output,
            "total_tokens": self._input + self._output + reasoning,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def _build_chat(self) -> Json:
        choice = {"index": 0, "message": self._build_message(), "finish_reason": self._choose_word()}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._build_usage()}

    def _head(self, kind: str) -> Json:
        return {"id": f"r{self._number}", "object": kind, "created": 1, "model": self.view.model}

    def _stream_chat(self) -> Iterator[Json]:
        message = self._build_message()
        calls = message.pop("tool_calls", [])

        def frame(delta: Json, word: str | None = None) -> Json:
            choice = {"index": 0, "delta": delta, "finish_reason": word}
            return {**self._head("chat.completion.chunk"), "choices": [choice]}

        yield frame({"role": "assistant", "content": ""})
        for key in ("reasoning_content", "reasoning", "content"):
            for piece in _split_text(message.get(key)):
                yield frame({key: piece})
        for detail in message.get("reasoning_details", ()):
            # OpenRouter: pieces of one block have one index, and the signature comes alone.
            for piece in _split_text(detail["text"]):
                yield frame({"reasoning_details": [{**detail, "text": piece, "signature": None}]})
            if detail.get("signature"):
                alone = {"type": detail["type"], "signature": detail["signature"], "index": detail["index"]}
                yield frame({"reasoning_details": [alone]})
        for index, call in enumerate(calls):
            arguments = call["function"]["arguments"]
            first = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
            yield frame({"tool_calls": [first]})
            for piece in _split_text(arguments):
                yield frame({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield frame({}, self._choose_word())
        options = self.view.body.get("stream_options")
        if isinstance(options, Mapping) and options.get("include_usage"):
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._build_usage()}
        yield {}

    # Responses

    def _list_items(self) -> list[Json]:
        items: list[Json] = []
        if self._reasoning:
            reasoning = {"type": "reasoning", "id": f"rs{self._number}", "summary": []}
            items.append({**reasoning, "encrypted_content": sign_text(self._reasoning)})
        if self._reply.content:
            text = {"type": "output_text", "text": self._reply.content, "annotations": []}
            items.append(
                {
                    "type": "message",
                    "id": f"msg{self._number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [text],
                }
            )
        items += [
            {
                "type": "function_call",
                "id": f"fc{self._number}_{index}",
                "call_id": id_,
                "name": name,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
            for index, (id_, name, arguments) in enumerate(self.list_calls())
        ]
        return items

    def _build_response(self) -> Json:
        reasoning = 5 if self._reasoning else 0
        usage = {
            "input_tokens": self._input,
            "output_tokens": self._output + reasoning,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": self._input + self._output + reasoning,
        }
        head = {"id": f"resp{self._number}", "object": "response", "created_at": 1, "model": self.view.model}
        return {**head, "status": "completed", "output": self._list_items(), "usage": usage}

    def _stream_response(self) -> Iterator[Json]:
        response = self._build_response()
        yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
        for index, item in enumerate(response["output"]):
            # An item begins empty. Source: recorded streams of OpenAI.
            begun = {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})
            yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **begun}}
            place = {"output_index": index, "item_id": item["id"]}
            kind, text = "", ""
            if item["type"] == "message":
                kind, text = "response.output_text", item["content"][0]["text"]
                place["content_index"] = 0
            elif item["type"] == "function_call":
                kind, text = "response.function_call_arguments", item["arguments"]
            for piece in _split_text(text):
                yield {"type": f"{kind}.delta", **place, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": response}

    # Messages

    def _list_blocks(self) -> list[Json]:
        blocks: list[Json] = []
        if self._reasoning:
            signature = sign_text(self._reasoning)
            blocks.append({"type": "thinking", "thinking": self._reasoning, "signature": signature})
        if self._reply.content:
            blocks.append({"type": "text", "text": self._reply.content})
        return blocks + [
            {"type": "tool_use", "id": id_, "name": name, "input": arguments}
            for id_, name, arguments in self.list_calls()
        ]

    def _build_message_body(self) -> Json:
        return {
            "id": f"msg{self._number}",
            "type": "message",
            "role": "assistant",
            "model": self.view.model,
            "content": self._list_blocks(),
            "stop_reason": "tool_use" if self._reply.tool_calls else "end_turn",
            "usage": {"input_tokens": self._input, "output_tokens": self._output},
        }

    def _stream_message(self) -> Iterator[Json]:
        body = self._build_message_body()
        yield {"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}
        for index, block in enumerate(body["content"]):
            start = {**block, **_EMPTY_BLOCKS[block["type"]]}
            yield {"type": "content_block_start", "index": index, "content_block": start}
            for delta in _list_block_deltas(block):
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": body["stop_reason"]}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": self._output}}
        yield {"type": "message_stop"}

    # Gemini

    def _list_parts(self) -> list[Json]:
        parts: list[Json] = [{"text": self._reasoning, "thought": True}] if self._reasoning else []
        if self._reply.content:
            parts.append({"text": self._reply.content})
        for index, (id_, name, arguments) in enumerate(self.list_calls()):
            part: Json = {"functionCall": {"name": name, "args": arguments}}
            parts.append({**part, "thoughtSignature": sign_text(id_)} if index == 0 else part)
        return parts

    def _wrap_parts(self, parts: list[Json], word: str | None) -> Json:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": parts}}
        usage = {
            "promptTokenCount": self._input,
            "candidatesTokenCount": self._output,
            "totalTokenCount": self._input + self._output,
        }
        head = {"responseId": f"r{self._number}", "modelVersion": self.view.model, "usageMetadata": usage}
        return {**head, "candidates": [{**candidate, "finishReason": word} if word else candidate]}

    def _build_gemini(self) -> Json:
        return self._wrap_parts(self._list_parts(), "STOP")

    def _stream_gemini(self) -> Iterator[Json]:
        parts = self._list_parts()
        for index, part in enumerate(parts):
            yield self._wrap_parts([part], "STOP" if index == len(parts) - 1 else None)

    # Ollama

    def _build_ollama(self) -> Json:
        message: Json = {"role": "assistant", "content": self._reply.content or ""}
        if self._reasoning:
            message["thinking"] = self._reasoning
        calls = [
            {"id": id_, "function": {"index": index, "name": name, "arguments": arguments}}
            for index, (id_, name, arguments) in enumerate(self.list_calls())
        ]
        if calls:
            message["tool_calls"] = calls
        counts = {"prompt_eval_count": self._input, "eval_count": self._output}
        counts["total_duration"] = 1_000_000 + self._number
        end = {"done": True, "done_reason": "stop", **counts}
        return {"model": self.view.model, "created_at": "2026-11-23T00:00:00Z", "message": message, **end}

    def _stream_ollama(self) -> Iterator[Json]:
        body = self._build_ollama()
        message = body["message"]
        head = {"model": body["model"], "created_at": body["created_at"], "done": False}
        for key in ("thinking", "content"):
            for piece in _split_text(message.get(key)):
                yield {**head, "message": {"role": "assistant", "content": "", key: piece}}
        for call in message.get("tool_calls", ()):
            yield {**head, "message": {"role": "assistant", "content": "", "tool_calls": [call]}}
        yield {**body, "message": {"role": "assistant", "content": ""}}


def _split_text(text: Any) -> list[str]:
    """A text in two pieces, so that streams have something to join."""
    if not isinstance(text, str) or not text:
        return []
    middle = (len(text) + 1) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


_EMPTY_BLOCKS: dict[str, Json] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}
"""What a block has at its start, before its deltas."""


def _list_block_deltas(block: Json) -> list[Json]:
    if block["type"] == "tool_use":
        text = json.dumps(block["input"])
        return [{"type": "input_json_delta", "partial_json": piece} for piece in _split_text(text)]
    key = block["type"]
    deltas: list[Json] = [{"type": f"{key}_delta", key: piece} for piece in _split_text(block[key])]
    if block.get("signature"):
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return deltas


_BUILDERS = {
    "chat": Answer._build_chat,
    "responses": Answer._build_response,
    "messages": Answer._build_message_body,
    "gemini": Answer._build_gemini,
    "ollama": Answer._build_ollama,
}

_STREAMS = {
    "chat": Answer._stream_chat,
    "responses": Answer._stream_response,
    "messages": Answer._stream_message,
    "gemini": Answer._stream_gemini,
    "ollama": Answer._stream_ollama,
}


# -- errors --------------------------------------------------------------------------------------


_GOOGLE_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def choose_error_form(row: HostRow, wire: Wire) -> ErrorForm:
    """The form of a host's errors in a wire format."""
    facts = get_facts(row.name)
    return (wire == "chat" and facts.chat_error_form) or facts.error_form


def build_error(form: ErrorForm, status: int, message: str, code: str = "", param: str = "") -> Any:
    """The body of an error."""
    google = {"code": status, "message": message, "status": _GOOGLE_STATUSES.get(status, "UNKNOWN")}
    match form:
        case "text":
            return {"error": message}
        case "flat":
            return {"object": "error", "message": message, "type": code, "param": param or None, "code": code}
        case "code_text":
            return {"code": code, "error": message}
        case "anthropic":
            return {"type": "error", "error": {"type": code, "message": message}}
        case "google":
            return {"error": google}
        case "list":
            return [{"error": google}]
        case "base_resp":
            return {"base_resp": {"status_code": 2013, "status_msg": message}}
        case "choice":
            return {"error": {"code": status, "message": message}}
    return {"error": {"message": message, "type": code, "param": param or None, "code": None}}
