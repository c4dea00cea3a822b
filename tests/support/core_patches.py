"""Patches of the core that change what a model is sent; tests prove that replay finds each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace
from wire_patches import Wrap, edit_result, give, swap_last

from toolchart.states.message_list import MessageList
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition
from toolchart.states.snapshot import OpenCalls

CorePatch = tuple[str, str, Wrap]
"""Module or class of `toolchart.states`, name, and the wrapper of what it names."""

# -- patches of the finished request -------------------------------------------------------------


def edit_request(edit: Callable[[Request], Request]) -> CorePatch:
    """The core asks for an edited request."""

    def wrap(original: Any) -> Any:
        def build(*args: Any) -> Any:
            effect = original(*args)
            return replace(effect, request=edit(effect.request))

        return build

    return "requests", "_build_call", wrap


def set_field(**fields: Any) -> CorePatch:
    """The request with other values."""
    return edit_request(lambda request: replace(request, **fields))


def edit_list(edit: Callable[[list[Message]], Any]) -> CorePatch:
    """The request with an edited list of messages."""
    return edit_request(lambda request: replace(request, messages=list(edit(list(request.messages)))))


def edit_role(role: str, edit: Callable[[Message], Message]) -> CorePatch:
    """The request with each message of a role edited."""
    return edit_list(lambda messages: [edit(m) if m.role == role else m for m in messages])


def edit_calls(edit: Callable[[ToolCall], ToolCall]) -> CorePatch:
    """The request with each call of earlier replies edited."""
    return edit_role(
        "assistant", lambda message: replace(message, tool_calls=tuple(map(edit, message.tool_calls)))
    )


def edit_tools(edit: Callable[[list[ToolDefinition]], Any]) -> CorePatch:
    """The request with other tools."""
    return edit_request(lambda request: replace(request, tools=tuple(edit(list(request.tools)))))


def edit_each_tool(**fields: Any) -> CorePatch:
    """The request with each tool described otherwise."""
    return edit_tools(lambda tools: [replace(tool, **fields) for tool in tools])


def edit_options(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> CorePatch:
    """The request with other options."""
    return edit_request(lambda request: replace(request, options=edit(dict(request.options))))


def without_option(name: str) -> CorePatch:
    """The request without one option."""
    return edit_options(lambda options: {key: value for key, value in options.items() if key != name})


def change_message(**fields: Any) -> Callable[[Message], Message]:
    """Gives a message with other values."""
    return lambda message: replace(message, **fields)


def cut_content(message: Message) -> Message:
    """A message without its last character."""
    return replace(message, content=(message.content or "")[:-1])


def drop_first(role: str) -> Callable[[list[Message]], list[Message]]:
    """Drops the first message of a role."""

    def drop(messages: list[Message]) -> list[Message]:
        found = next((index for index, message in enumerate(messages) if message.role == role), len(messages))
        return messages[:found] + messages[found + 1 :]

    return drop


MORE = ToolDefinition(name="more", description="More.")
SAID = Message(role="user", content="More.")

REQUEST_PATCHES: dict[str, CorePatch] = {
    "another model": set_field(model="another"),
    "tools as text": edit_request(lambda request: replace(request, writes_tools_as_text=True)),
    "no system prompt": edit_list(drop_first("system")),
    "a changed system prompt": edit_role("system", cut_content),
    "the system prompt as the user's words": edit_role("system", change_message(role="user")),
    "the system prompt at the end": edit_list(lambda messages: [*messages[1:], messages[0]]),
    "the system prompt twice": edit_list(lambda messages: [messages[0], *messages]),
    "no first question": edit_list(drop_first("user")),
    "no first result": edit_list(drop_first("tool")),
    "no first reply": edit_list(drop_first("assistant")),
    "no last message": edit_list(lambda messages: messages[:-1]),
    "no messages": edit_list(lambda messages: []),
    "a trimmed history": edit_list(lambda messages: messages[:1] + messages[1:][-3:]),
    "two messages swapped": edit_list(swap_last),
    "messages reversed": edit_list(reversed),
    "the last message twice": edit_list(lambda messages: [*messages, messages[-1]]),
    "a message more": edit_list(lambda messages: [*messages, SAID]),
    "texts merged": edit_list(
        lambda messages: [replace(messages[1], content=str([m.content for m in messages[:2]])), *messages[2:]]
    ),
    "questions cut": edit_role("user", cut_content),
    "the model's texts cut": edit_role("assistant", cut_content),
    "the model's texts as None": edit_role("assistant", change_message(content=None)),
    "an empty text for none": edit_role("assistant", lambda m: replace(m, content=m.content or "")),
    "results cut": edit_role("tool", cut_content),
    "results under another call": edit_role("tool", change_message(tool_call_id="x")),
    "results under another tool": edit_role("tool", change_message(name="x")),
    "no names of tools": edit_role("tool", change_message(name=None)),
    "results as questions": edit_role("tool", change_message(role="user")),
    "no provider data": edit_role("assistant", change_message(provider_data=None)),
    "other provider data": edit_role("assistant", change_message(provider_data={"provider": "x"})),
    "no calls": edit_role("assistant", change_message(tool_calls=())),
    "only the first call": edit_role("assistant", lambda m: replace(m, tool_calls=m.tool_calls[:1])),
    "calls reversed": edit_role("assistant", lambda m: replace(m, tool_calls=m.tool_calls[::-1])),
    "no arguments": edit_calls(lambda call: replace(call, arguments={})),
    "no raw arguments": edit_calls(lambda call: replace(call, raw=None)),
    "other ids of calls": edit_calls(lambda call: replace(call, id=f"{call.id}x")),
    "no native ids": edit_calls(lambda call: replace(call, native_id=None)),
    "other native ids": edit_calls(lambda call: replace(call, native_id=call.id)),
    "other names of calls": edit_calls(lambda call: replace(call, name="x")),
    "no problems of calls": edit_calls(lambda call: replace(call, problem=None)),
    "no tools": edit_tools(lambda tools: ()),
    "a tool less": edit_tools(lambda tools: tools[1:]),
    "a tool more": edit_tools(lambda tools: [*tools, MORE]),
    "tools reversed": edit_tools(reversed),
    "a tool twice": edit_tools(lambda tools: [*tools, *tools[:1]]),
    "another description": edit_each_tool(description="x"),
    "another schema": edit_each_tool(parameters={"type": "object"}),
    "other names of tools": edit_tools(lambda tools: [replace(tool, name=f"{tool.name}_") for tool in tools]),
    "no options": set_field(options={}),
    "an option more": edit_options(lambda options: {**options, "user": "x"}),
    "more tokens": edit_options(lambda options: {**options, "max_tokens": 51}),
    "a whole number as a fraction": edit_options(lambda options: {**options, "max_tokens": 50.0}),
    **{
        f"no {name}": without_option(name)
        for name in (
            *("max_tokens", "temperature", "top_p", "seed", "stop"),
            *("tool_choice", "parallel_tool_calls", "response_format"),
        )
    },
}
"""What is done to the request that the core has built."""

# -- patches inside the core ---------------------------------------------------------------------


def send_tools_always(original: Any) -> Any:
    """A `_build_call` that offers the tools in calls without tools too."""
    return lambda builder, *args: original(builder, *args[:-1], builder.offered_tools)


def use_older_messages(original: Any) -> Any:
    """A `RequestMessages` over the list without the newest message."""
    return lambda system, messages: original(system, MessageList(list(messages)[:-1]))


def drop_inbox(original: Any) -> Any:
    """An `append_inbox` that empties the inbox only."""
    return lambda builder: setattr(builder, "inbox", ())


def repeat_inbox(original: Any) -> Any:
    """An `append_inbox` that appends each message twice."""

    def append(builder: Any) -> None:
        builder.inbox = builder.inbox * 2
        original(builder)

    return append


def edit_event(**edits: Callable[[Any], Any]) -> Wrap:
    """A function `(state, event)` that gets an edited event."""
    return lambda original: (
        lambda state, event: original(
            state, replace(event, **{name: edit(getattr(event, name)) for name, edit in edits.items()})
        )
    )


def edit_argument(edit: Callable[[Any], Any]) -> Wrap:
    """A function that gets its last argument edited."""
    return lambda original: lambda *args: original(*args[:-1], edit(args[-1]))


def drop_message(role: str) -> Wrap:
    """A `Message` as the core makes it, whose content is lost where it has this role."""

    def make(original: Any) -> Any:
        return lambda **fields: original(**{**fields, **({"content": ""} if fields["role"] == role else {})})

    return make


def without_data(original: Any) -> Any:
    """A `Message` that drops the data of the provider."""
    return lambda **fields: original(**{**fields, "provider_data": None})


def keep_error_text(original: Any) -> Any:
    """An `_end_turn` that keeps its answer as a message in any case."""
    return lambda *args, message: original(*args, message=args[-1])


def lose_last_words(original: Any) -> Any:
    """An `_end_turn` that keeps no message."""
    return lambda *args, message: original(*args, message=None)


def keep_no_digest(original: Any) -> Any:
    """An `append` of `MessageList` whose digest does not depend on the message."""

    def append(messages: MessageList, message: Message) -> MessageList:
        longer = original(messages, message)
        longer.digest = "x"
        return longer

    return append


INNER_PATCHES: dict[str, CorePatch] = {
    "tools in the final call": ("requests", "_build_call", send_tools_always),
    "an older list": ("requests", "RequestMessages", use_older_messages),
    "the system prompt lost": (
        "requests",
        "RequestMessages",
        lambda original: lambda system, messages: original(None, messages),
    ),
    "the inbox lost": ("requests", "append_inbox", drop_inbox),
    "the inbox twice": ("requests", "append_inbox", repeat_inbox),
    "calls left open": ("requests", "close_open_calls", give(None)),
    "the text fallback forgotten": ("reduce", "_asks_same_model", give(False)),
    "an error's text kept": ("requests", "_end_turn", keep_error_text),
    "the last words lost": ("requests", "_end_turn", lose_last_words),
    "other closing texts": (
        "step",
        "configure_conversation",
        edit_event(texts=lambda texts: {**texts, "skipped": "No.", "interrupted": "No."}),
    ),
    "a shown result ignored": (
        "calls",
        "build_result_message",
        edit_argument(lambda c: replace(c, shown=None)),
    ),
    "results trimmed": ("calls", "build_result_message", edit_result(cut_content)),
    "outcomes mixed up": (
        "calls",
        "_close_call",
        lambda original: (
            lambda builder, call, reason: original(
                builder, replace(call, began_under=0 if call.began_under else 1), reason
            )
        ),
    ),
    "results in reverse": (
        "calls",
        "_append_results",
        lambda original: (
            lambda builder: (setattr(builder, "calls", OpenCalls(builder.calls[::-1])), original(builder))[1]
        ),
    ),
    "ids not unique": ("reduce", "assign_call_ids", lambda original: lambda builder, calls: calls),
    "ids always new": (
        "reduce",
        "assign_call_ids",
        edit_argument(lambda calls: tuple(replace(call, id="") for call in calls)),
    ),
    "provider data lost": ("reduce", "Message", without_data),
    "replies lost": ("reduce", "Message", drop_message("assistant")),
    "questions lost": ("reduce", "Message", drop_message("user")),
    "tools in another order": (
        "reduce",
        "select_tools",
        lambda original: (
            lambda state, settings: type(original(state, settings))(original(state, settings)[::-1])
        ),
    ),
    "history lost": ("step", "open_turn", edit_event(history=lambda history: ())),
    "questions stripped": ("step", "open_turn", edit_event(message=str.strip)),
    "an old system prompt": ("step", "open_turn", edit_event(system=lambda system: None)),
    "a fork's system prompt ignored": ("step", "apply_fork", edit_event(system=lambda system: None)),
    "a fork's settings ignored": ("step", "apply_fork", edit_event(settings=lambda settings: None)),
    "a digest without content": ("message_list:MessageList", "append", keep_no_digest),
    "a digest without tools": ("message_list", "_digest_tools", give("")),
}
"""Patches of functions of the core."""

# -- patches of what an adapter sees of a request -------------------------------------------------


def skip_last(original: Any) -> Any:
    """An `__iter__` that stops before the newest item."""
    return lambda messages: iter(list(original(messages))[:-1])


def skip_first(original: Any) -> Any:
    """An `__iter__` that leaves out the oldest item."""
    return lambda messages: islice(original(messages), 1, None)


def edit_items(original: Any) -> Any:
    """An `__iter__` whose texts are in capitals."""

    def iterate(messages: Any) -> Iterator[Message]:
        for message in original(messages):
            yield replace(message, content=(message.content or "").upper())

    return iterate


def keep_digest_only(original: Any) -> Any:
    """An `append` of `MessageList` whose digest is that of the message and whose item is another."""

    def append(messages: MessageList, message: Message) -> MessageList:
        longer = original(messages, message)
        longer._tail = messages._tail.append(replace(message, content="x"), message.tool_call_id)
        return longer

    return append


VIEW_PATCHES: dict[str, CorePatch] = {
    "the newest message not seen": ("message_list:RequestMessages", "__iter__", skip_last),
    "the system prompt not seen": ("message_list:RequestMessages", "__iter__", skip_first),
    "messages seen in capitals": ("message_list:RequestMessages", "__iter__", edit_items),
    "the conversation's newest message not seen": ("message_list:MessageList", "__iter__", skip_last),
    "the conversation's first message not seen": ("message_list:MessageList", "__iter__", skip_first),
    "another item than the digest's": ("message_list:MessageList", "append", keep_digest_only),
}
"""Patches after which the request is another one and its digest is not: only the body shows them."""
