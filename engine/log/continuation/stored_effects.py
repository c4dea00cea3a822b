"""Open effects as stored values: JSON data that a checkpoint holds, and the effects made of it again.

An effect is written with everything that performing it needs, as it was when it was asked for. Only the
request of a model call is shortened: its messages are those of the conversation, and its tools those of the
configuration, by name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolchart.states.effects import CallModel, Effect
from toolchart.states.message_list import (
    ContextView,
    MessageList,
    OfferedTools,
    RequestMessages,
    ShownMessages,
    StoredMessages,
)
from toolchart.states.messages import Message, Request, ToolDefinition


class StoredModelCall(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="call_model"
):
    """A `call_model` whose messages and tools stand elsewhere."""

    id: int
    name: str
    state: str
    model: str
    system: str | None
    message_count: int
    """Messages of the request, without the system message."""
    message_digest: str
    """Hash chain over them."""
    own: list[Message]
    """The last of them, where they are not those of the conversation."""
    kind: str
    result: str
    host: str
    schema: dict[str, Any] | None
    tools: tuple[str, ...]
    """Names of the offered tools."""
    options: dict[str, Any]
    writes_tools_as_text: bool
    turn: int
    iteration: int
    view: ContextView | None = None
    """What the request shows of the conversation, where that is not its first messages."""
    summarises: str = ""


def store_effect(effect: Effect) -> dict[str, Any]:
    """The JSON data of an open effect, with its `type`."""
    if not isinstance(effect, CallModel):
        data: dict[str, Any] = msgspec.to_builtins(effect)
        return data
    request = effect.request
    messages = request.messages
    assert isinstance(messages, RequestMessages), "the core builds requests"
    call = StoredModelCall(
        id=effect.id,
        name=effect.name,
        state=effect.state,
        model=request.model,
        system=messages.system,
        message_count=len(messages.messages),
        message_digest=messages.messages.digest,
        own=list(messages.messages[-effect.own_messages :]) if effect.own_messages else [],
        kind=effect.kind,
        result=effect.result,
        host=effect.host,
        schema=effect.schema,
        tools=tuple(tool.name for tool in request.tools),
        options=dict(request.options),
        writes_tools_as_text=request.writes_tools_as_text,
        turn=request.turn,
        iteration=request.iteration,
        view=messages.messages.view if isinstance(messages.messages, ShownMessages) else None,
        summarises=effect.summarises,
    )
    stored: dict[str, Any] = msgspec.to_builtins(call)
    return stored


def restore_effect(data: dict[str, Any], messages: MessageList, tools: tuple[ToolDefinition, ...]) -> Effect:
    """The effect that was stored.

    Args:
        messages: those of the conversation when the checkpoint was written.
        tools: those of the configuration.

    Raises:
        ValueError: it is not an effect of this release.
    """
    kind = str(data.get("type"))
    if kind != CallModel.__struct_config__.tag:
        return msgspec.convert(data, _find_effect_class(kind))
    call = msgspec.convert(data, StoredModelCall)
    by_name = {tool.name: tool for tool in tools}
    if not set(call.tools) <= set(by_name):
        raise ValueError("an open model call offers a tool that the configuration does not have")
    request = Request(
        model=call.model,
        messages=RequestMessages(call.system, _cut_messages(messages, call)),
        tools=OfferedTools([by_name[name] for name in call.tools]),
        options=call.options,
        writes_tools_as_text=call.writes_tools_as_text,
        turn=call.turn,
        iteration=call.iteration,
    )
    return CallModel(
        id=call.id,
        name=call.name,
        state=call.state,
        kind=call.kind,
        result=call.result,
        request=request,
        host=call.host,
        schema=call.schema,
        own_messages=len(call.own),
        summarises=call.summarises,
    )


def _cut_messages(messages: MessageList, call: StoredModelCall) -> MessageList:
    """The messages of the call: the first ones that it shows of the conversation, and its own.

    Raises:
        ValueError: they are not those that the call had.
    """
    if call.view is not None:
        return _cut_shown_messages(messages, call, call.view)
    if call.own:
        first_messages = messages[: call.message_count - len(call.own)]
        found = MessageList([*first_messages, *call.own])
        if found.digest != call.message_digest:
            raise ValueError("an open model call has other messages than the conversation")
        return found
    if len(messages) == call.message_count:
        return messages
    count = call.message_count
    return MessageList.from_store(
        StoredMessages(count, lambda: [messages[index] for index in range(count)]), call.message_digest
    )


def _cut_shown_messages(messages: MessageList, call: StoredModelCall, view: ContextView) -> MessageList:
    if not call.own:
        return ShownMessages.from_conversation(view, call.message_count, call.message_digest, messages)
    first_messages = list(view.iterate_shown(messages))[: call.message_count - len(call.own)]
    found = ShownMessages.from_messages(view, [*first_messages, *call.own])
    if found.digest != call.message_digest:
        raise ValueError("an open model call has other messages than the conversation")
    return found


def _find_effect_class(tag: str) -> type[Effect]:
    """The class of effects with this tag, subclasses of other packages included."""
    classes = [Effect]
    for kind in classes:
        if kind.__struct_config__.tag == tag:
            return kind
        classes += kind.__subclasses__()
    raise ValueError(f"no effect of this release has the type {tag!r}")
