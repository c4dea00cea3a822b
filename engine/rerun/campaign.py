"""Reruns: many recorded conversations run again under changes; one report.

    from toolchart import RerunChanges, rerun

    report = rerun("log.db", spec="agent.yaml", changes=RerunChanges(settings={"model": "new"}))
    print(report.totals.statuses, report.has_passed)

The agent spec is the operator's. Without one only the log answers (`offline`), and nothing of the log's own
spec acts: no tool is built and no host is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.read_records import ReadRecord, read_conversation
from toolchart.engine.log.replay import compile_recorded_chart, replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.figures import count_figures
from toolchart.engine.reading.listing import ConversationFilter, select_conversations
from toolchart.engine.reading.recorded_answers import collect_recorded_answers
from toolchart.engine.rerun.changes import (
    RerunChanges,
    TurnPlanner,
    change_configuration,
    change_definitions,
    change_spec,
    change_tools,
    change_turn,
)
from toolchart.engine.rerun.comparison import find_run_difference
from toolchart.engine.rerun.judges import CallView, Judge, RunView, judge_same
from toolchart.engine.rerun.parts import LiveParts, MissingAnswer, RerunRecords
from toolchart.engine.rerun.report import RerunReport, RerunResult
from toolchart.engine.rerun.request_differences import describe_request_differences
from toolchart.engine.rerun.runs import ConversationRerun
from toolchart.engine.runtime.agent import Agent
from toolchart.engine.runtime.parts import Parts
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.states.effects import CallModel
from toolchart.states.errors import SettingsWidened, SpecError, ToolchartError
from toolchart.states.events import Configured, TurnStarted
from toolchart.states.machine import Machine, get_machine
from toolchart.states.ports import Provider, Store
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

_REQUEST_DIFFERENCES = 5
"""Differences of a request that a result lists."""


class RerunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How conversations run again."""

    changes: RerunChanges
    judges: tuple[Judge, ...]
    is_offline: bool
    live: LiveParts
    agent: Agent | None
    """The operator's agent; None where the log alone says what the agent is."""


async def arerun(
    log: Store | str | Path,
    spec: AgentSpec | str | Path | Mapping[str, Any] | None = None,
    *,
    where: ConversationFilter | None = None,
    conversations: Iterable[str] | None = None,
    changes: RerunChanges | None = None,
    judges: Sequence[Judge] = (),
    offline: bool = False,
    live_tools: Iterable[str] = (),
    parallel: int = 4,
    functions: Sequence[Callable[..., Any] | Tool] = (),
    providers: Mapping[str, Provider] | None = None,
    on_result: Callable[[RerunResult], None] | None = None,
) -> RerunReport:
    """Run recorded conversations again and compare each with its recording.

    The user says what was recorded. Results of tools, functions and sub-agents, decisions and timers come
    from the log, found by what was asked and by the order of equal questions. Replies come from the live
    model of `spec`, or from the log with `offline`. A question without an answer ends that run as `diverged`.
    Nothing is written to the log.

    Args:
        log: the log with the recorded conversations.
        spec: the agent that runs; None is possible with `offline`, where the log has it.
        where: which conversations; children and forks are never selected.
        conversations: ids of conversations, in place of `where`.
        judges: what decides whether a rerun passes; none means that nothing may differ.
        live_tools: names of tools that run where the log has no result of a call.
        parallel: conversations at the same time, with a live model.
        functions: Python functions and tools, as those of `Engine`.
        providers: ready providers by `llms` name, as those of `Engine`.
        on_result: called with each result as it is known.

    Raises:
        SettingsWidened: a change gives a turn more than `RerunChanges.narrow` leaves.
        SpecError: the spec or a change cannot be used, or no agent is named.
        LogUnavailable: the log cannot be opened.
    """
    if spec is None and not offline:
        raise SpecError(
            "a rerun with a live model needs your agent spec: what a log says does not act",
            path="--spec",
            hint="--spec agent.yaml, or --offline to take all answers from the log",
        )
    if isinstance(conversations, str) or isinstance(live_tools, str):
        raise SpecError("`conversations` and `live_tools` are lists", hint="write [...] around a single name")
    changes = changes or RerunChanges()
    owns_store = isinstance(log, (str, Path))
    store = open_store(log, create=False) if isinstance(log, (str, Path)) else log
    agent = _open_agent(spec, changes, functions, providers) if spec is not None else None
    try:
        live = _choose_live_parts(agent, offline=offline, live_tools=frozenset(live_tools))
        plan = RerunPlan(
            changes=changes, judges=tuple(judges) or (judge_same,), is_offline=offline, live=live, agent=agent
        )
        names = list(conversations) if conversations is not None else select_conversations(store, where)
        results = await _rerun_all(store, names, plan, 1 if offline else max(1, parallel), on_result)
    finally:
        if agent is not None:
            await agent.aclose()
        if owns_store:
            store.close()
    return RerunReport(results=tuple(results), is_offline=offline)


def rerun(
    log: Store | str | Path,
    spec: AgentSpec | str | Path | Mapping[str, Any] | None = None,
    *,
    where: ConversationFilter | None = None,
    conversations: Iterable[str] | None = None,
    changes: RerunChanges | None = None,
    judges: Sequence[Judge] = (),
    offline: bool = False,
    live_tools: Iterable[str] = (),
    parallel: int = 4,
    functions: Sequence[Callable[..., Any] | Tool] = (),
    providers: Mapping[str, Provider] | None = None,
    on_result: Callable[[RerunResult], None] | None = None,
) -> RerunReport:
    """The blocking form of `arerun`, with the same arguments and errors."""
    return asyncio.run(
        arerun(
            log,
            spec,
            where=where,
            conversations=conversations,
            changes=changes,
            judges=judges,
            offline=offline,
            live_tools=live_tools,
            parallel=parallel,
            functions=functions,
            providers=providers,
            on_result=on_result,
        )
    )


# -- the agent -------------------------------------------------------------------------------------


def _open_agent(
    spec: AgentSpec | str | Path | Mapping[str, Any],
    changes: RerunChanges,
    functions: Sequence[Callable[..., Any] | Tool],
    providers: Mapping[str, Provider] | None,
) -> Agent:
    """The agent of the rerun with the changes, on an empty log of its own."""
    loaded_spec = change_spec(spec if isinstance(spec, AgentSpec) else load_spec(spec), changes)
    parts = Parts(functions=functions, providers=providers or {})
    agent = Agent(loaded_spec, parts)
    store = MemoryStore()
    agent.open_conversations(store, GroupCommit(store))
    change_tools(agent.tools, changes)
    return agent


def _choose_live_parts(agent: Agent | None, *, offline: bool, live_tools: frozenset[str]) -> LiveParts:
    if agent is None:
        return LiveParts()
    for name in live_tools:
        if agent.tools.registry.get(name) is None:
            raise SpecError(
                f"there is no tool {name!r}", path="--live-tool", hint=agent.tools.registry.suggest_name(name)
            )
    return LiveParts(
        get_provider=None if offline else agent.hosts.get_provider,
        bind_executor=agent.tools.bind,
        live_tools=live_tools,
        price=agent.parts.price,
        output_classes=agent.parts.output_classes,
    )


# -- the conversations -----------------------------------------------------------------------------


async def _rerun_all(
    store: Store,
    names: Sequence[str],
    plan: RerunPlan,
    parallel: int,
    on_result: Callable[[RerunResult], None] | None,
) -> list[RerunResult]:
    """The results in the order of the names."""
    gate = asyncio.Semaphore(parallel) if parallel > 1 else nullcontext()

    async def rerun_one(name: str) -> RerunResult:
        async with gate:
            result = await _rerun_conversation(store, name, plan)
        if on_result is not None:
            on_result(result)
        return result

    if parallel == 1:
        return [await rerun_one(name) for name in names]
    return list(await asyncio.gather(*map(rerun_one, names)))


async def _rerun_conversation(store: Store, name: str, plan: RerunPlan) -> RerunResult:
    """The result of one conversation; what goes wrong with it is its result."""
    try:
        records = list(read_conversation(store, name))
        reason = _find_obstacle(records)
        if reason:
            return RerunResult(conversation=name, status="skipped", reason=reason)
        run = await _run_again(records, name, plan)
        return await _judge(store, name, records, run, plan)
    except SettingsWidened:
        raise  # the changes are refused, for whichever conversation
    except ToolchartError as error:
        return RerunResult(conversation=name, status="failed", reason=str(error))


def _find_obstacle(records: Sequence[ReadRecord]) -> str:
    """Why a conversation cannot run again by itself; empty where it can."""
    if not records:
        return "there is no such conversation"
    first = records[0]
    if first.event_type == "forked":
        return f"it is a fork of {first.event.get('parent')}"
    if first.event.get("parent"):
        return f"it is a child of {first.event['parent'].get('conversation')}"
    return ""


async def _run_again(records: Sequence[ReadRecord], name: str, plan: RerunPlan) -> RerunRecords:
    planner = TurnPlanner(plan.agent.spec, plan.agent.tools, plan.changes.variables) if plan.agent else None

    def adapt_turn(turn: TurnStarted, configuration: Configured) -> TurnStarted:
        return change_turn(planner.adapt(turn, configuration) if planner is not None else turn, plan.changes)

    conversation_run = ConversationRerun(
        name,
        collect_recorded_answers(records),
        plan.live,
        _build_configurator(name, plan),
        adapt_turn,
        ToolExecutor(Registry()),
    )
    return await conversation_run.run()


def _build_configurator(
    name: str, plan: RerunPlan
) -> Callable[[Configured], tuple[Configured, Machine] | None]:
    """What a recorded configuration becomes: the agent's, once; or the recorded one with the changes."""
    agent = plan.agent
    if agent is None:
        return lambda configuration: change_configuration(
            configuration, plan.changes, compile_recorded_chart(configuration)
        )
    is_first = True

    def configure(configuration: Configured) -> tuple[Configured, Machine] | None:
        nonlocal is_first
        if not is_first:
            return None
        is_first = False
        # The texts of a conversation stay, whatever this release would write.
        current = agent.conversations.build_configured_event(name)
        tools = change_definitions(current.tools, plan.changes)
        return replace(current, at=configuration.at, tools=tools, texts=configuration.texts), get_machine(
            agent.chart
        )

    return configure


# -- the result ------------------------------------------------------------------------------------


async def _judge(
    store: Store, name: str, records: Sequence[ReadRecord], run: RerunRecords, plan: RerunPlan
) -> RerunResult:
    rerun_records = list(read_conversation(run.store, run.conversation))
    first = find_run_difference(records, rerun_records)
    recorded_view, rerun_view = build_run_view(name, records), build_run_view(name, rerun_records)
    result = RerunResult(
        conversation=name,
        status="same" if first is None else "different",
        first=first,
        recorded=recorded_view,
        rerun=rerun_view,
    )
    if first is not None and run.missing is not None:
        differences = _describe_request_differences(store, name, run.missing)
        return replace(
            result, status="diverged", reason=run.missing.text, request_differences=tuple(differences)
        )
    judgements = [await judge(recorded_view, rerun_view, first) for judge in plan.judges]
    return replace(result, judgements=tuple(judgements))


def build_run_view(conversation: str, records: Sequence[ReadRecord]) -> RunView:
    """A run as judges see it."""
    figures = count_figures(records)
    calls: dict[str, CallView] = {}
    answers: list[str] = []
    content = ""
    for record in records:
        event = record.event
        if record.event_type == TurnStarted.TYPE:
            answers.append("")
        elif record.event_type == "replied":
            content = event["reply"].get("content") or ""
            _add_calls(calls, record)
        elif event.get("call_id") in calls and record.event_type == "tool_finished":
            calls[event["call_id"]] = replace(calls[event["call_id"]], outcome=event["outcome"])
        if record.ends_turn and answers:
            answer = next((ask.data["content"] for ask in record.asks if ask.data.get("content")), content)
            answers[-1] = str(answer)
    return RunView(
        conversation=conversation,
        messages=tuple(turn.message for turn in figures.turns),
        answers=tuple(answers),
        states=tuple(turn.state for turn in figures.turns),
        calls=tuple(calls.values()),
        usage=figures.usage,
        seconds=round(sum(call.seconds for turn in figures.turns for call in turn.model_calls), 3),
    )


def _add_calls(calls: dict[str, CallView], record: ReadRecord) -> None:
    tool_calls = record.event["reply"].get("tool_calls", ())
    ids = record.calls or tuple(call.get("id", "") for call in tool_calls)
    for call_id, call in zip(ids, tool_calls, strict=False):
        calls[call_id] = CallView(tool=call.get("name", ""), arguments=call.get("arguments"))


def _describe_request_differences(store: Store, name: str, missing: MissingAnswer) -> list[str]:
    """How a request without an answer differs from the recorded request in its place."""
    if missing.request is None:
        return []
    requests = (
        effect.request
        for replayed_step in replay_conversation(store, name)
        for effect in replayed_step.step.effects
        if isinstance(effect, CallModel)
    )
    for number, request in enumerate(requests, 1):
        if number == missing.number:
            return describe_request_differences(request, missing.request)[:_REQUEST_DIFFERENCES]
    return ["the recorded conversation made fewer requests"]
