"""Requests of the Responses API, as turns.

Source: `openai/types/responses/response_create_params.py` of the SDK 3.54.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from toolchart.app.server.answers import Refusal
from toolchart.app.server.openai_api.chat_requests import (
    ChatTurn,
    CompletionForm,
    FormatForm,
    ToolForm,
    read_chat,
    read_output,
)
from toolchart.app.server.protocols.contents import FunctionForm, join_texts, make_output_type


class TextForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer's text."""

    format: dict[str, Any] | None = None


class ResponseForm(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/responses`. Other keys, such as options of the model, are ignored."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    tools: list[dict[str, Any]] = []
    text: TextForm | None = None
    background: bool | None = None


_ECHOES = ("reasoning", "mcp_call", "mcp_approval_request", "mcp_list_tools", "item_reference")
"""Items of earlier answers that a client sends back, and that the log has anyway."""


def read_response(form: ResponseForm) -> ChatTurn:
    """What a request asks for.

    Raises:
        Refusal: 400; names the place in the request.
    """
    if form.background:
        raise Refusal(400, "background: not supported; stream the response instead")
    tools = [_read_tool(tool) for tool in form.tools]
    entries = [{"role": "user", "content": form.input}] if isinstance(form.input, str) else form.input
    answers = _read_answers(entries)
    if answers:
        output_type = make_output_type(form.text.format if form.text is not None else None)
        return ChatTurn(answers=answers, output_type=output_type)
    messages = _convert_items(entries)
    if form.instructions:
        messages.insert(0, {"role": "system", "content": form.instructions})
    format_ = _read_format(form.text)
    return read_chat(
        CompletionForm(model=form.model, messages=messages, tools=tools, response_format=format_)
    )


def _read_tool(tool: dict[str, Any]) -> ToolForm:
    if tool.get("type") != "function":
        raise Refusal(400, f"tools: only functions are offered to the model, not {tool.get('type')!r}")
    try:
        return ToolForm(type="function", function=msgspec.convert(tool, FunctionForm))
    except msgspec.ValidationError as error:
        raise Refusal(400, f"tools: {error}") from None


def _read_format(text: TextForm | None) -> FormatForm | None:
    if text is None or text.format is None:
        return None
    return FormatForm(type=str(text.format.get("type")), json_schema=text.format)


def _read_answers(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The outputs and decisions at the end of the input, by the wire ids of what they answer."""
    answers: dict[str, Any] = {}
    for entry in reversed(entries):
        match entry.get("type"):
            case "function_call_output":
                answers[str(entry.get("call_id"))] = read_output(_join_output(entry.get("output")))
            case "mcp_approval_response":
                reason = {"reason": entry["reason"]} if entry.get("reason") else {}
                decision = {"approved": bool(entry.get("approve")), **reason}
                answers[str(entry.get("approval_request_id"))] = decision
            case _:
                break
    return dict(reversed(answers.items()))


def _join_output(output: Any) -> str:
    if isinstance(output, str):
        return output
    if not isinstance(output, list):
        raise Refusal(400, "input: the output of a call is a text, or a list of texts")
    return join_texts([_read_text_part(part) for part in output])


def _read_text_part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    raise Refusal(400, "input: the output of a call holds texts only")


# -- items as messages -----------------------------------------------------------------------------


def _convert_items(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as messages of chat completions."""
    messages: list[dict[str, Any]] = []
    for index, entry in enumerate(entries):
        kind = entry.get("type", "message")
        if kind == "message":
            content = _convert_content(entry.get("content"), f"input[{index}]")
            messages.append({"role": entry.get("role"), "content": content})
        elif kind == "function_call":
            function = {"name": entry.get("name"), "arguments": entry.get("arguments")}
            call = {"id": entry.get("call_id"), "type": "function", "function": function}
            _add_call(messages, call)
        elif kind == "function_call_output":
            text = _join_output(entry.get("output"))
            messages.append({"role": "tool", "tool_call_id": entry.get("call_id"), "content": text})
        elif kind not in _ECHOES:
            raise Refusal(400, f"input[{index}]: items of the type {kind!r} are not known")
    return messages


def _add_call(messages: list[dict[str, Any]], call: dict[str, Any]) -> None:
    """Calls in a row belong to one message of the assistant."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _convert_content(content: Any, place: str) -> Any:
    if not isinstance(content, list):
        return content
    return [_convert_part(part, place) for part in content]


def _convert_part(part: Any, place: str) -> dict[str, Any]:
    match part:
        case {"type": "input_text" | "output_text" | "refusal", **others}:
            return {"type": "text", "text": others.get("text") or others.get("refusal") or ""}
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "input_file", "file_data": str(data), **others}:
            return {"type": "file", "file": {"file_data": data, "filename": others.get("filename")}}
        case {"type": "input_audio", "input_audio": {**audio}}:
            return {"type": "input_audio", "input_audio": audio}
    raise Refusal(
        400, f"{place}: a part is an input_text, input_image, input_file or input_audio with its data"
    )
