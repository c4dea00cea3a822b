"""What requests show of a conversation: old messages left out, long results summed up, the room they take.

`compact` changes what the next requests show of the conversation and nothing else: all messages stay in the
log and in the snapshot. It works by *exchanges*. An exchange is a message of the user, or a reply with the
results of its calls, so that a call is never shown without its result. Where the exchanges that stay begin
with a reply, the message of the user before it stays too: a conversation begins with the user.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import CallModel, Compact, CountTokens, Effect
from toolchart.states.events import Counted, Replied
from toolchart.states.flows.parameters import CompactParameters, SummaryParameters
from toolchart.states.flows.results import build_template_reader
from toolchart.states.flows.templates import fill_template
from toolchart.states.message_list import (
    ContextView,
    MessageList,
    OfferedTools,
    RequestMessages,
    ShownMessages,
    estimate_message,
    estimate_messages,
    estimate_prefix,
)
from toolchart.states.messages import Message, Request, Usage
from toolchart.states.snapshot import OpenCall, SnapshotBuilder, SnapshotFields

_DEFAULT_KEEP = 8
"""Exchanges that stay where neither the effect nor a known limit of the model says how many."""


_MAX_TOKENS = 2**53
"""More is a fault of the host, and would not fit into a checkpoint."""


# -- counting ------------------------------------------------------------------------------------


def count_context_tokens(snapshot: SnapshotFields) -> int:
    """About how many tokens the next request takes: what was measured last, and what was added since."""
    inbox = sum(
        estimate_message(Message(role="user", content=item) if isinstance(item, str) else item)
        for item in snapshot.inbox
    )
    return _count_without_inbox(snapshot) + inbox


def _count_without_inbox(snapshot: SnapshotFields) -> int:
    if not snapshot.measured_messages:
        prefix = estimate_prefix(snapshot.system, snapshot.offered_tools)
        return prefix + estimate_messages(snapshot.request_messages)
    tokens = snapshot.measured_tokens
    for message in snapshot.messages[snapshot.measured_messages :]:
        tokens += estimate_message(message)
    return tokens


def get_context_limit(snapshot: SnapshotFields) -> int:
    """The tokens that the model of the turn takes; 0 where nobody knows."""
    return snapshot.settings.context_limit if snapshot.settings is not None else 0


def measure_context(builder: SnapshotBuilder, effect: Effect, usage: Usage | None) -> None:
    """Remember how long the conversation is, its newest reply included.

    Args:
        effect: the model call that was answered. Where it showed only the end of the conversation, its usage
            does not say how long the whole is.
    """
    if usage is not None and usage.input and _shows_conversation(effect):
        builder.measured_tokens = min(usage.input + (usage.output or 0), _MAX_TOKENS)
    else:
        builder.measured_tokens = _count_without_inbox(builder)
    builder.measured_messages = builder.messages.length


def measure_refused_context(builder: SnapshotBuilder, effect: Effect) -> None:
    """The host refused the conversation as too long: so it takes at least as much as the model takes."""
    limit = get_context_limit(builder)
    if _shows_conversation(effect) and _count_without_inbox(builder) < limit:
        builder.measured_tokens, builder.measured_messages = limit, len(builder.messages)


def _shows_conversation(effect: Effect) -> bool:
    """Whether a request has messages of the conversation, besides those of its own effect."""
    if not isinstance(effect, CallModel):
        return False
    messages = effect.request.messages
    surplus = len(messages) - effect.own_messages
    return surplus > 1 or (surplus == 1 and messages[0].role != "system")


def reduce_count(builder: SnapshotBuilder, event: Counted) -> None:
    """The count is the newest measure."""
    builder.measured_tokens, builder.measured_messages = min(event.tokens, _MAX_TOKENS), event.messages


def build_count(builder: SnapshotBuilder, name: str, id_: int, state: str) -> CountTokens:
    """A count of the conversation as the next request shows it."""
    return CountTokens(id=id_, name=name, state=state)


def build_counted_request(snapshot: SnapshotFields) -> tuple[Request, int]:
    """The request whose tokens are counted, and how many messages of the conversation it covers.

    A reply whose calls are not answered yet is left out, because hosts refuse such a request.
    """
    settings = snapshot.settings
    assert settings is not None, "a turn has settings"
    messages, count = snapshot.request_messages, len(snapshot.messages)
    if snapshot.calls.pending:
        end = len(messages)
        while messages[end - 1].role != "assistant":
            end -= 1
        count -= len(messages) - end + 1
        messages = MessageList(messages[: end - 1])
    request = Request(
        model=settings.model,
        messages=RequestMessages(snapshot.system or None, messages),
        tools=snapshot.offered_tools,
        options=settings.options,
        writes_tools_as_text=snapshot.writes_tools_as_text,
        turn=snapshot.turn,
        iteration=snapshot.iteration,
    )
    return request, count


# -- compaction ----------------------------------------------------------------------------------


def build_compaction(
    parameters: CompactParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> Compact:
    """From now on requests show less of the conversation, as the parameters say."""
    tokens = _count_without_inbox(builder)
    prefix = estimate_prefix(builder.system, builder.offered_tools)
    size = prefix + estimate_messages(builder.request_messages)
    view = builder.shown.view if builder.shown is not None else ContextView()
    new_view = _choose_view(parameters, builder, view, tokens, size)
    if new_view != view:
        show_view(builder, new_view)
    return Compact(
        id=id_,
        name=name,
        state=state,
        kind="compact",
        view=new_view,
        tokens_before=tokens,
        tokens_after=_count_without_inbox(builder),
    )


def show_view(builder: SnapshotBuilder, view: ContextView) -> None:
    """From now on requests show this view of the conversation; its measured size changes with it."""
    tokens = _count_without_inbox(builder)
    prefix = estimate_prefix(builder.system, builder.offered_tools)
    size = prefix + estimate_messages(builder.request_messages)
    builder.shown = ShownMessages.from_view(view, builder.messages)
    new_size = prefix + estimate_messages(builder.shown)
    # The estimate says by which share the conversation became shorter; the host said how long it was.
    builder.measured_tokens = tokens * new_size // max(1, size)
    builder.measured_messages = len(builder.messages)


def _choose_view(
    parameters: CompactParameters, builder: SnapshotBuilder, view: ContextView, tokens: int, size: int
) -> ContextView:
    """What is shown from now on; the same view where nothing can be left out."""
    keep, keep_tokens = parameters.keep, parameters.keep_tokens
    if keep is None and keep_tokens is None:
        keep_tokens = get_context_limit(builder) // 2 or None
        keep = None if keep_tokens else _DEFAULT_KEEP
    if keep_tokens is not None:
        keep_tokens = keep_tokens * size // max(1, tokens)
    start = _find_kept_start(builder.request_messages, view, keep, keep_tokens)
    if parameters.clear_results:
        roles = {builder.messages[index].role for index in range(max(view.cleared, view.start), start)}
        if "tool" not in roles:
            return view
        return replace(view, cleared=start, cleared_text=builder.texts.cleared)
    if start <= view.start:
        return view
    summary = view.summary
    if parameters.summary:
        summary = fill_template(parameters.summary, build_template_reader(builder))
    return replace(
        view,
        start=start,
        kept=_list_kept(builder.messages, start, parameters.keep_first),
        summary=summary,
        summaries=_list_kept_summaries(builder.messages, start, view),
    )


def _list_kept_summaries(messages: MessageList, start: int, view: ContextView) -> tuple[tuple[str, str], ...]:
    """The summaries of results that are still shown."""
    if not view.summaries:
        return ()
    shown_ids = {messages[index].tool_call_id for index in range(start, len(messages))}
    return tuple(row for row in view.summaries if row[0] in shown_ids)


def _find_kept_start(
    messages: MessageList, view: ContextView, keep: int | None, keep_tokens: int | None
) -> int:
    """The index in the conversation where the newest exchanges begin that stay; at least one stays."""
    offset = view.start - view.first_count
    start, exchanges, tokens, size = len(messages) + offset, 0, 0, 0
    for index in range(len(messages) - 1, view.first_count - 1, -1):
        size += estimate_message(messages[index])
        if messages[index].role == "tool":
            continue
        is_full = exchanges == keep or (keep_tokens is not None and tokens + size > keep_tokens)
        if exchanges and is_full:
            break
        start, exchanges, tokens, size = index + offset, exchanges + 1, tokens + size, 0
    return start


def _list_kept(messages: MessageList, start: int, keeps_first: bool) -> tuple[int, ...]:
    """The messages before `start` that stay: the first one of the user, where it is asked for, and the one
    that the reply at `start` belongs to."""
    indexes = set()
    if keeps_first:
        indexes = {next((index for index in range(start) if messages[index].role == "user"), start)}
    if messages[start].role != "user":
        indexes.add(next((i for i in range(start - 1, -1, -1) if messages[i].role == "user"), start))
    return tuple(sorted(indexes - {start}))


# -- summaries of long results -------------------------------------------------------------------
#
# A model reads the result of a tool, and requests show its words instead. `summarise_result` is a model call
# with a result name. Its reply goes into the view of the conversation (`ContextView.summaries`): from then on
# requests show it in place of the tool's result. The log, `Turn.tool_calls` and `fetch_result` keep the
# whole. The limit `long_result_size` says which results are long; the fact `long_results` counts those of the
# latest reply that have no summary yet.


def count_long_results(snapshot: SnapshotFields) -> int:
    """Results of the latest reply's calls that are long and have no summary; 0 while a call is open."""
    return len(_list_long_results(snapshot, snapshot.limits.long_result_size))


def _list_long_results(snapshot: SnapshotFields, size: int) -> list[OpenCall]:
    """Calls of the latest reply whose result is longer than that and has no summary, the longest first."""
    if snapshot.calls.pending:
        return []
    messages = snapshot.shown
    known_ids = {call_id for call_id, _ in messages.view.summaries} if messages is not None else frozenset()
    calls = [
        call
        for call in snapshot.calls
        if call.outcome == "succeeded"
        and call.call.id not in known_ids
        and len(_format_whole_result(call)) > size
    ]
    return sorted(calls, key=lambda call: -len(_format_whole_result(call)))


def _format_whole_result(call: OpenCall) -> str:
    """The whole result of a call: a text as it is, other values as JSON."""
    value = (call.result or {}).get("result")
    return value if isinstance(value, str) else encode_canonical_text(value)


def build_summary_call(
    parameters: SummaryParameters, builder: SnapshotBuilder, name: str, id_: int, state: str
) -> CallModel:
    """Ask a model to sum up the longest result of the latest reply that has no summary yet.

    Where none is long, it is the longest one all the same; where there is none at all, the model reads an
    empty text and its reply replaces nothing.
    """
    settings = builder.settings
    assert settings is not None, "a turn has settings"
    call = next(iter(_list_long_results(builder, size=-1)), None)
    reader = build_template_reader(builder, _describe_result(call, parameters.at_most))
    system = fill_template(parameters.system, reader) or None
    prompt = Message(role="user", content=fill_template(parameters.prompt, reader))
    request = Request(
        model=parameters.model or settings.model,
        messages=RequestMessages(system, MessageList([prompt])),
        tools=OfferedTools(),
        options=parameters.options or {},
        turn=builder.turn,
        iteration=builder.iteration,
    )
    return CallModel(
        id=id_,
        name=name,
        state=state,
        kind="summarise_result",
        result=parameters.result,
        request=request,
        host=parameters.llm,
        own_messages=1,
        summarises=call.call.id if call is not None else "",
    )


def _describe_result(call: OpenCall | None, at_most: int) -> dict[str, Any]:
    """`{{item}}` of the prompt: tool, arguments and result of the call."""
    if call is None:
        return {"tool": "", "arguments": {}, "result": ""}
    text = _format_whole_result(call)
    if len(text) > at_most:
        text = f"{text[:at_most]}\n[{len(text) - at_most} of {len(text)} characters were left out]"
    return {"tool": call.call.name, "arguments": call.call.arguments or {}, "result": text}


def show_summary(builder: SnapshotBuilder, effect: Effect, event: Replied) -> None:
    """From now on requests show the reply in place of the result that it sums up.

    A reply without words replaces nothing. A summary that is no shorter than what is shown does, because the
    chart has asked for it: `long_results` counts each result once.
    """
    call_id = effect.summarises if isinstance(effect, CallModel) else ""
    words = (event.reply.content or "").strip()
    call = builder.calls.find(call_id)
    if call is None or not words:
        return
    result = dict(call.result or {})
    result["result"] = words
    result["summary_of"] = {"characters": len(_format_whole_result(call)), "handle": call_id}
    view = builder.shown.view if builder.shown is not None else ContextView()
    summaries = (*view.summaries, (call_id, encode_canonical_text(result)))
    show_view(builder, replace(view, summaries=summaries))
