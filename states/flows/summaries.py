"""Summaries of long results: a model reads the result of a tool, and requests show its words instead.

`summarise_result` is a model call with a result name. Its reply goes into the view of the conversation
(`ContextView.summaries`): from then on requests show it in place of the tool's result. The log,
`TurnResult.tool_calls` and `fetch_result` keep the whole. The limit `long_result_size` says which results are
long; the fact `long_results` counts those of the latest reply that have no summary yet.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import CallModel, Effect
from toolchart.states.events import Replied
from toolchart.states.flows.compaction import show_view
from toolchart.states.flows.parameters import SummaryParameters
from toolchart.states.flows.results import build_template_reader
from toolchart.states.flows.templates import fill_template
from toolchart.states.message_list import ContextView, MessageList, OfferedTools, RequestMessages
from toolchart.states.messages import Message, Request
from toolchart.states.snapshot import OpenCall, SnapshotBuilder, SnapshotFields

# -- which results -------------------------------------------------------------------------------


def count_long_results(snapshot: SnapshotFields) -> int:
    """Results of the latest reply's calls that are long and have no summary; 0 while a call is open."""
    return len(_list_long_results(snapshot, snapshot.limits.long_result_size))


def _list_long_results(snapshot: SnapshotFields, size: int) -> list[OpenCall]:
    """Calls of the latest reply whose result is longer than that and has no summary, the longest first."""
    if snapshot.calls.pending:
        return []
    shown = snapshot.shown
    known_ids = {call_id for call_id, _ in shown.view.summaries} if shown is not None else frozenset()
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


# -- the model call ------------------------------------------------------------------------------


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


# -- its answer ----------------------------------------------------------------------------------


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
