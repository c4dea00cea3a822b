"""Patches of the code between a request and its body, for tests that prove that each of them is seen."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from toolchart.states.messages import Message

Wrap = Callable[[Any], Any]
"""Makes the changed function, or the changed value, from the original one."""


def edit_result(edit: Callable[[Any], Any]) -> Wrap:
    """The function with its result edited."""
    return lambda original: lambda *args, **keys: edit(original(*args, **keys))


def drop_key(*names: str) -> Wrap:
    """The function without these keys in its result, or in the mapping inside it that has them."""

    def drop(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: drop(item) for key, item in value.items() if key not in names}

    return edit_result(drop)


def set_key(name: str, new_value: Any) -> Wrap:
    """The function with another value for a key of its result."""
    return edit_result(lambda result: {**result, name: new_value} if name in result else result)


def swap_last(items: Any) -> Any:
    """The list with its last two items swapped."""
    return [*items[:-2], *reversed(items[-2:])]


def give(result: Any) -> Wrap:
    """A function that gives this result, whatever it is asked."""
    return lambda original: lambda *args, **keys: result


def without(name: str) -> Wrap:
    """A table or a tuple of names without one of them."""
    return lambda original: (
        {key: value for key, value in original.items() if key != name}
        if isinstance(original, dict)
        else tuple(item for item in original if item != name)
    )


def edit_messages(edit: Callable[[list[Message]], list[Message]]) -> Wrap:
    """An `encode_request` that gets edited messages."""
    return lambda original: (
        lambda request, *args, **keys: original(
            replace(request, messages=edit(list(request.messages))), *args, **keys
        )
    )


def drop_role(role: str) -> Wrap:
    """An `encode_request` that does not get the messages of a role."""
    return edit_messages(lambda messages: [message for message in messages if message.role != role])


def drop_first_tool(original: Any) -> Any:
    """A function of a request that does not get the first tool."""
    return lambda request, *args, **keys: original(replace(request, tools=request.tools[1:]), *args, **keys)


def edit_call(**changes: Any) -> Wrap:
    """A function of a request that gets calls with other values of these fields."""
    return edit_each_message(
        lambda m: replace(m, tool_calls=tuple(replace(call, **changes) for call in m.tool_calls))
    )


def edit_each_message(edit: Callable[[Message], Message]) -> Wrap:
    """A function of a request that gets each message edited."""
    return edit_messages(lambda messages: [edit(message) for message in messages])


def change_role(messages: list[Message]) -> list[Message]:
    """The messages with those of the user as the model's own."""
    return [replace(m, role="assistant") if m.role == "user" else m for m in messages]


def merge_texts(messages: list[Message]) -> list[Message]:
    """The messages with system prompt and question in one."""
    first, second, *rest = messages if len(messages) > 1 else (*messages, Message(role="user"))
    return [replace(second, content=f"{first.content}{second.content or ''}"), *rest]


COMMON: dict[str, Wrap] = {
    "another model": set_key("model", "m2"),
    "no system prompt": drop_role("system"),
    "no tool results": drop_role("tool"),
    "a changed role": edit_messages(change_role),
    "two messages swapped": edit_messages(swap_last),
    "texts merged": edit_messages(merge_texts),
    "no last message": edit_messages(lambda messages: messages[:-1]),
    "no temperature": drop_key("temperature"),
    "no top_p": drop_key("top_p", "topP"),
    "no tools": drop_key("tools"),
    "one tool less": lambda original: (
        lambda request, *args, **keys: original(replace(request, tools=request.tools[1:]), *args, **keys)
    ),
}
"""Patches of the function that each adapter's client calls."""

CLIENTS = {
    "openai": ("openai.client", "encode_request"),
    "openai responses": ("openai.client", "encode_response_request"),
    "ollama": ("ollama.client", "encode_request"),
    "gemini": ("gemini.client", "encode_request"),
    "anthropic": ("anthropic.client", "encode_request"),
}
"""The entry whose digests must change, and the module of its client with the function that it calls."""

RESPONSES = "openai.responses_wire"
TEXT_CALLS = "text_calls.provider"
PLAIN = "adapter"

OWN: list[tuple[str, str, str, Wrap]] = [
    ("openai", "openai.wire", "_encode_tool_call", drop_key("id")),
    ("openai", "openai.wire", "_encode_tool_call", drop_key("arguments")),
    ("openai", "openai.wire", "_encode_message", drop_key("tool_call_id")),
    ("openai", "openai.wire", "_encode_message", drop_key("content")),
    ("openai", "openai.wire", "_restore_own_keys", give({})),
    ("openai", "openai.wire", "_encode_tool", drop_key("description")),
    ("openai", "openai.wire", "_encode_tool", drop_key("parameters")),
    ("openai", "openai.wire", "_encode_tool_choice", give("auto")),
    ("openai", "openai.wire", "encode_sent_arguments", give("{}")),
    ("openai", "openai.wire", "lower_parameters", give({"type": "object"})),
    *(
        ("openai", "openai.wire", "_OPTIONS", without(name))
        for name in ("temperature", "top_p", "seed", "stop", "parallel_tool_calls", "response_format")
    ),
    ("openai compatible", "openai.client", "encode_request", drop_key("max_completion_tokens")),
    ("openai", "openai.client:OpenAIProvider", "_choose_max_tokens_name", give("token_limit")),
    ("openai", "openai.client:OpenAIProvider", "build_body", drop_key("stream_options")),
    ("openai compatible", "openai.client:OpenAIProvider", "build_body", drop_key("min_p")),
    ("openai", "openai.client:OpenAIProvider", "build_body", drop_key("stream")),
    ("openai responses", "openai.client:ResponsesProvider", "build_body", drop_key("include")),
    ("openai responses", "openai.client:ResponsesProvider", "build_body", drop_key("store")),
    ("openai responses", RESPONSES, "_restore_own_items", give([])),
    ("openai responses", RESPONSES, "_encode_tool_call", drop_key("call_id")),
    ("openai responses", RESPONSES, "_encode_tool", drop_key("strict")),
    ("openai responses", RESPONSES, "_encode_tool", drop_key("description")),
    ("openai responses", RESPONSES, "_encode_tool_choice", give("auto")),
    ("openai responses", RESPONSES, "_encode_response_format", give({"type": "text"})),
    ("openai responses", "openai.client", "encode_response_request", drop_key("max_output_tokens")),
    ("openai responses", "openai.client", "encode_response_request", drop_key("instructions")),
    ("ollama", "ollama.wire", "_encode_tool_call", drop_key("id")),
    ("ollama", "ollama.wire", "_encode_message", drop_key("thinking")),
    ("ollama", "ollama.wire", "_encode_message", drop_key("tool_name")),
    ("ollama", "ollama.wire", "_encode_message", drop_key("tool_call_id")),
    ("ollama", "ollama.wire", "_encode_tool", drop_key("description")),
    ("ollama", "ollama.wire", "_encode_response_format", give(None)),
    ("ollama", "ollama.wire", "select_offered_tools", lambda original: lambda choice, tools, dialect: tools),
    ("ollama", "ollama.wire", "_OPTIONS", without("stop")),
    ("ollama", "ollama.wire", "_OPTIONS", without("max_tokens")),
    ("ollama", "ollama.client", "encode_request", drop_key("num_ctx")),
    ("ollama", "ollama.client:OllamaProvider", "build_body", drop_key("think")),
    ("ollama", "ollama.client:OllamaProvider", "build_body", drop_key("keep_alive")),
    ("gemini", "gemini.wire", "_encode_tool_call", drop_key("id")),
    ("gemini", "gemini.wire", "_encode_tool_call", drop_key("args")),
    ("gemini", "gemini.wire", "_encode_tool_result", drop_key("id")),
    ("gemini", "gemini.wire", "_encode_outcome", give({"output": ""})),
    ("gemini", "gemini.wire", "_encode_tool", drop_key("parametersJsonSchema")),
    ("gemini", "gemini.wire", "_encode_tool_choice", drop_key("allowedFunctionNames")),
    ("gemini", "gemini.wire", "_encode_response_format", drop_key("responseJsonSchema")),
    ("gemini", "gemini.wire", "encode_options", drop_key("stopSequences")),
    ("gemini", "gemini.wire", "_OPTIONS", without("seed")),
    ("gemini", "shared.requests:Origin", "get_data", give({})),
    ("gemini", "gemini.client:GeminiSettings", "build_thinking_config", give(None)),
    ("anthropic", "anthropic.wire", "_encode_tool_call", drop_key("id")),
    ("anthropic", "anthropic.wire", "_encode_own_block", drop_key("signature")),
    ("anthropic", "anthropic.wire", "_encode_user_message", give([])),
    ("anthropic", "anthropic.wire", "is_failed_result", give(False)),
    ("anthropic", "anthropic.wire", "_encode_tool_choice", give({"type": "auto"})),
    ("anthropic", "anthropic.wire", "_encode_response_format", give({})),
    ("anthropic", "anthropic.wire", "DEFAULT_MAX_TOKENS", lambda original: original + 1),
    ("anthropic", "anthropic.client", "encode_request", drop_key("stop_sequences")),
    ("anthropic", "anthropic.client", "encode_request", drop_key("disable_parallel_tool_use")),
    ("anthropic", "anthropic.client:AnthropicProvider", "build_body", drop_key("thinking")),
    ("ollama bracket", TEXT_CALLS, "choose_boundary", give("0000")),
    ("ollama hermes", TEXT_CALLS, "_write_instructions", give("")),
    ("ollama hermes", TEXT_CALLS, "_rewrite_message", lambda original: lambda message, _: message),
    ("ollama hermes", TEXT_CALLS, "_extend_system_prompt", lambda original: lambda messages, _: messages),
    ("ollama hermes", TEXT_CALLS, "encode_arguments", give("{}")),
    *(
        ("scripted", PLAIN, "compute_request_digest", wrap)
        for wrap in (
            give("one digest for all"),
            edit_each_message(lambda message: replace(message, content=None)),
            edit_each_message(lambda message: replace(message, provider_data=None)),
            edit_each_message(lambda message: replace(message, tool_call_id=None)),
            edit_call(arguments=None),
            edit_call(native_id=None),
            edit_messages(swap_last),
            drop_role("system"),
            drop_first_tool,
        )
    ),
]
"""Entry, module or class, name, and patch of one adapter."""


def find_owner(place: str) -> Any:
    """The module, or the class in it."""
    module, _, class_name = place.partition(":")
    owner = import_module(f"toolchart.providers.{module}")
    return getattr(owner, class_name) if class_name else owner
