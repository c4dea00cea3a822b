"""Builds the values of declared effects: templates are filled and views of the history cut when it is asked.

Everything that performing an effect needs is in its value, so that it can be performed again after a crash:
filled again later, a prompt could be another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.calls import close_open_calls
from toolchart.states.content import ContentPart, Note, TextPart, add_text
from toolchart.states.core.reduce import append_inbox
from toolchart.states.core.requests import (
    build_approval,
    end_turn_with,
    find_answer_text,
    list_repair_messages,
    note_asked_model,
    release_choice,
)
from toolchart.states.effects import (
    Answer,
    AskApproval,
    AskPerson,
    AwaitUser,
    CallFunction,
    CallModel,
    RunAgent,
    Wait,
)
from toolchart.states.errors import IllegalEvent
from toolchart.states.flows.budgets import compute_elapsed_s, count_tokens
from toolchart.states.flows.parameters import (
    USER_PARTS,
    AnswerParameters,
    AskApprovalParameters,
    AskPersonParameters,
    AwaitUserParameters,
    FunctionParameters,
    ModelCallParameters,
    RunAgentParameters,
    WaitParameters,
)
from toolchart.states.flows.results import build_template_reader, set_result
from toolchart.states.flows.templates import fill_template, fill_value
from toolchart.states.flows.times import compute_wait
from toolchart.states.message_list import MessageList, OfferedTools, RequestMessages, ShownMessages
from toolchart.states.messages import Message, Request
from toolchart.states.snapshot import SnapshotBuilder, SnapshotFields

TEXT_FORM = {
    "type": "object",
    "properties": {"content": {"type": "string"}},
    "required": ["content"],
    "additionalProperties": False,
}
"""The form of a question without one."""

# -- approvals -----------------------------------------------------------------------------------


def build_named_approval(
    parameters: AskApprovalParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> AskApproval:
    """The question to the named approvers about every call that needs an approval."""
    approval = build_approval(builder, name, id_, state)
    return replace(approval, kind="ask_approval", to=tuple(parameters.to))


# -- model calls ---------------------------------------------------------------------------------


def build_model_call(
    parameters: ModelCallParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> CallModel:
    """One model call with its own host, model, prompt, options, tools, view of the history and schema."""
    is_main = not parameters.result
    if is_main:
        close_open_calls(builder, "the reply was not carried out")
        append_inbox(builder)
    settings = builder.settings
    assert settings is not None, "a turn has settings"
    tools = _select_tools(builder, parameters) if is_main else OfferedTools()
    if is_main:
        builder.tools_sent = bool(tools)
        note_asked_model(builder, parameters.llm, parameters.model)
    messages, own_count = _select_messages(builder, parameters)
    request = Request(
        model=parameters.model or settings.model,
        messages=RequestMessages(_build_system(builder, parameters), messages),
        tools=tools,
        options=_build_options(builder, parameters),
        writes_tools_as_text=builder.writes_tools_as_text and is_main,
        turn=builder.turn,
        iteration=builder.iteration,
    )
    return CallModel(
        id=id_,
        name=name,
        state=state,
        kind="call_model",
        result=parameters.result,
        request=request,
        host=parameters.llm,
        schema=parameters.schema,
        own_messages=own_count,
    )


def _build_options(builder: SnapshotBuilder, parameters: ModelCallParameters) -> Mapping[str, Any]:
    """The sampling options; with a schema, the host is asked for it in its own way."""
    options: Mapping[str, Any] = parameters.options or {}
    if not parameters.result and builder.settings is not None:
        chosen_options = builder.settings.options if parameters.options is None else options
        options = release_choice(builder, chosen_options)
    if parameters.schema is None:
        return options
    form = {"name": parameters.result, "schema": parameters.schema}
    return {**options, "response_format": {"type": "json_schema", "json_schema": form}}


def _select_tools(builder: SnapshotBuilder, parameters: ModelCallParameters) -> OfferedTools:
    patterns = parameters.tools
    if patterns is None:
        return builder.offered_tools
    return OfferedTools(
        [tool for tool in builder.offered_tools if any(fnmatchcase(tool.name, glob) for glob in patterns)]
    )


def _build_system(builder: SnapshotBuilder, parameters: ModelCallParameters) -> str | None:
    if parameters.system is not None:
        return fill_template(parameters.system, build_template_reader(builder)) or None
    return (builder.system or None) if not parameters.result else None


def _select_messages(builder: SnapshotBuilder, parameters: ModelCallParameters) -> tuple[MessageList, int]:
    """The messages of a request, and how many of them at the end are not those of the conversation."""
    view = parameters.history
    if view is None:
        view = "none" if parameters.result and parameters.prompt else "all"
    messages, own_count = _cut_history(builder, view)
    for message in _build_own_messages(builder, parameters):
        messages, own_count = messages.append(message), own_count + 1
    return messages, own_count


def _cut_history(builder: SnapshotBuilder, view: str | int) -> tuple[MessageList, int]:
    """The part of the conversation that a request contains. It begins with a message of the user, and all of
    its tool calls are answered.

    Returns:
        The messages, and how many of them count as the request's own: all, where they are not the first ones
        of the conversation.
    """
    if view == "none":
        return MessageList(), 0
    messages = builder.request_messages
    end = len(messages)
    if builder.calls.pending:
        # A request in which a call has no result is refused, so it ends before the reply with the calls. That
        # is the last message: results are appended when no call is open, and what is said waits for them.
        end -= 1
    start = 0 if view == "all" else max(0, end - int(view))
    while start > 0 and messages[start].role != "user":
        start -= 1
    if (start, end) == (0, len(messages)):
        return messages, 0
    if start or builder.shown is None:
        return MessageList(messages[start:end]), end - start if start else 0
    return ShownMessages.from_messages(builder.shown.view, messages[:end]), 0


def _build_own_messages(builder: SnapshotBuilder, parameters: ModelCallParameters) -> list[Message]:
    """The prompt; after a reply that broke its schema also that reply, and what was wrong with it."""
    messages = []
    if parameters.prompt or parameters.attach:
        text = fill_template(parameters.prompt, build_template_reader(builder))
        parts = add_text(text, _list_attachments(builder, parameters))
        messages.append(Message(role="user", content=text, parts=parts))
    if not parameters.result:
        return [*messages, *list_repair_messages(builder)]
    result = builder.results.get(parameters.result)
    if result is not None and result.rejected:
        messages.append(Message(role="assistant", content=result.rejected))
        messages.append(Message(role="user", content=builder.texts.repair.format(reason=result.error)))
    return messages


def _list_attachments(builder: SnapshotBuilder, parameters: ModelCallParameters) -> list[ContentPart]:
    """The parts beside the prompt. A file that nobody has loaded is left out, with a warning: the core reads
    none."""
    parts: list[ContentPart] = []
    for attachment in parameters.attach:
        if isinstance(attachment, dict):
            parts.append(msgspec.convert(attachment, ContentPart))
        elif attachment == USER_PARTS:
            parts += _find_user_parts(builder)
        else:
            builder.warnings += (f"the attachment {attachment!r} was not loaded, so it is not sent",)
    return parts


def _find_user_parts(builder: SnapshotBuilder) -> list[ContentPart]:
    """What stands beside the text of the user's newest message."""
    for index in range(len(builder.messages) - 1, -1, -1):
        message = builder.messages[index]
        if message.role == "user":
            return [part for part in message.parts if not isinstance(part, TextPart | Note)]
    return []


# -- agents --------------------------------------------------------------------------------------

_BUDGETS = ("max_tokens", "max_cost", "max_seconds", "max_tool_calls")


def build_agent_run(
    parameters: RunAgentParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> RunAgent:
    """A turn of another agent, or one for each item of a list."""
    items = _list_items(builder, parameters, name)
    messages = tuple(
        fill_template(parameters.message, build_template_reader(builder, item)) for item in items
    )
    history: list[Message] = []
    if parameters.history is not None:
        history = list(_cut_history(builder, parameters.history)[0])
        if history and history[-1].role == "user" and not parameters.result:
            history = history[:-1]  # the user's newest message is the child's own
    if parameters.result:
        set_result(builder, parameters.result, items={})
    agent = {
        key: getattr(parameters, key) for key in ("handler", "spec", "chart") if getattr(parameters, key)
    }
    return RunAgent(
        id=id_,
        name=name,
        state=state,
        kind="run_agent",
        result=parameters.result,
        agent=agent,
        messages=messages,
        history=tuple(history),
        parallel=parameters.parallel,
        schema=parameters.schema,
        limits=share_budgets(builder, max(1, len(items))),
        is_list=bool(parameters.for_each),
    )


def _list_items(builder: SnapshotBuilder, parameters: RunAgentParameters, name: str) -> list[Any]:
    if not parameters.for_each:
        return [None]
    items = build_template_reader(builder)(parameters.for_each)
    if not isinstance(items, list):
        items = [] if items is None else [items]
    if parameters.at_most is not None and len(items) > parameters.at_most:
        builder.warnings += (
            f"{name}: {parameters.for_each} has {len(items)} items, the first {parameters.at_most} are taken",
        )
        items = items[: parameters.at_most]
    return items


def share_budgets(builder: SnapshotFields, count: int) -> dict[str, Any]:
    """An equal share of what is left of each budget of the turn; the time is not shared."""
    limits = builder.limits
    spent = {
        "max_tokens": count_tokens(builder),
        "max_cost": builder.usage.cost or 0.0,
        "max_tool_calls": len(builder.tracked_calls),
        "max_seconds": compute_elapsed_s(builder),
    }
    shares: dict[str, Any] = {}
    for budget in _BUDGETS:
        limit = getattr(limits, budget)
        if limit is not None:
            rest = max(limit - spent[budget], 0)
            is_count = budget in ("max_tokens", "max_tool_calls")
            shares[budget] = rest if budget == "max_seconds" else rest // count if is_count else rest / count
    return shares


# -- functions and people ------------------------------------------------------------------------


def build_function_call(
    parameters: FunctionParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> CallFunction:
    """A call of a Python function over named values."""
    return CallFunction(
        id=id_,
        name=name,
        state=state,
        kind="call_function",
        result=parameters.result,
        function=parameters.function,
        # A result that is not there yet is an empty text, in an argument as in a prompt.
        arguments=fill_value(parameters.arguments, build_template_reader(builder, missing="")),
        schema=parameters.schema,
        idempotent=parameters.idempotent,
    )


def mark_started_function(
    builder: SnapshotBuilder, effect: CallFunction, call_ids: tuple[str, ...]
) -> CallFunction:
    """The effect after its function has begun.

    Raises:
        IllegalEvent: the mark names calls, which a function has none of.
    """
    if call_ids or type(effect) is not CallFunction:
        condition = f"the effect {effect.id} asked for these calls"
        raise IllegalEvent("calls_started", builder.state, false_conditions=(condition,))
    return replace(effect, has_begun=True)


def build_question(
    parameters: AskPersonParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> AskPerson:
    """A question with its form."""
    return AskPerson(
        id=id_,
        name=name,
        state=state,
        kind="ask_person",
        result=parameters.result,
        question=fill_template(parameters.question, build_template_reader(builder)),
        form=parameters.form if parameters.form is not None else TEXT_FORM,
    )


def build_user_wait(
    parameters: AwaitUserParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> AwaitUser:
    """The end of a turn whose chart goes on with the user's next message."""
    words = find_answer_text(builder) or ""
    content = words
    if parameters.content:
        content = fill_template(parameters.content, build_template_reader(builder))
    end_turn_with(builder, name, content, message=content if parameters.content else None)
    return AwaitUser(id=id_, name=name, state=state, kind="await_user", content=content)


# -- timers and answers --------------------------------------------------------------------------


def build_timer(
    parameters: WaitParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> Wait:
    """A timer that runs out after a duration or at a time."""
    seconds, due = compute_wait(parameters.time, builder.now)
    return Wait(id=id_, name=name, state=state, kind="wait", seconds=round(seconds, 3), due=due)


def build_text_answer(
    parameters: AnswerParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> Answer:
    """The end of the turn with a text from a template."""
    content = fill_template(parameters.content, build_template_reader(builder))
    end_turn_with(builder, name, content, message=content)
    return Answer(id=id_, name=name, state=state, kind="answer", content=content)
