"""The kinds of effects that charts and specs declare: from the parameters of one to its row.

    effects:
      write_draft: {call_model: {llm: writer, prompt: "Write about {{user_message}}", as: draft}}

A declared effect has a row of its own, made by the `declare` function of its kind. The rows of kinds stand in
the table of effects beside all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolchart.states.core.building import (
    TEXT_FORM,
    build_agent_run,
    build_function_call,
    build_model_call,
    build_named_approval,
    build_question,
    build_text_answer,
    build_timer,
    build_user_wait,
    mark_started_function,
)
from toolchart.states.core.requests import EFFECT_ROWS
from toolchart.states.effects import DeclareEffect, EffectDescriptor
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.flows.compaction import build_compaction, build_count, build_summary_call
from toolchart.states.flows.facts_of_schema import build_result_facts
from toolchart.states.flows.parameters import (
    USER_PARTS,
    AnswerParameters,
    AskApprovalParameters,
    AskPersonParameters,
    AwaitUserParameters,
    CompactParameters,
    DeclarationProblem,
    FunctionParameters,
    ModelCallParameters,
    RunAgentParameters,
    SummaryParameters,
    WaitParameters,
    check_attachments,
    check_history,
    check_path,
    check_time,
    iterate_templates,
    read_parameters,
)
from toolchart.states.flows.reducers import declare_reducers
from toolchart.states.flows.results import has_open_items, keep_finished_items
from toolchart.states.messages import MODEL_OPTIONS
from toolchart.states.starts import list_agent_starts, list_call_starts, list_function_starts, list_no_starts
from toolchart.states.vocabulary import find_effect


def _declare(kind: str, name: str, **own: Any) -> EffectDescriptor:
    """The row of a declared effect: that of its kind, with what the declaration says."""
    return replace(find_effect(kind), name=name, kind=kind, declare=None, list_starts=None, **own)


def declare_model_call(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `call_model`."""
    parameters = read_parameters(data, ModelCallParameters, "prompt")
    check_history(parameters.history)
    if parameters.schema is not None and not parameters.result:
        raise DeclarationProblem("a schema needs a result", ("schema",), "name the result: `as: NAME`")
    for option in parameters.options or {}:
        if option not in MODEL_OPTIONS:
            raise DeclarationProblem(
                f"unknown option {option!r}", ("options", option), suggest_name(option, MODEL_OPTIONS)
            )
    check_attachments(parameters.attach)
    if parameters.tools and parameters.result:
        raise DeclarationProblem(
            "a call with a result offers no tools, because nobody would run their calls",
            ("tools",),
            "leave `as` out, or use `run_agent`",
        )
    reducers = declare_reducers(parameters, parameters.schema)
    return _declare(
        "call_model",
        name,
        meaning=f"call the model as `{name}` is declared",
        build=partial(build_model_call, parameters),
        uses_messages=not parameters.result,
        parameters=parameters,
        result=parameters.result,
        result_facts=build_result_facts(
            parameters.result, name, ("replied",), ("failed",), parameters.schema, reducers
        ),
        reducers=reducers,
        templates=(
            parameters.prompt,
            parameters.system or "",
            *(["{{user_message}}"] if USER_PARTS in parameters.attach else []),
        ),
    )


def declare_summary(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `summarise_result`."""
    parameters = read_parameters(data, SummaryParameters)
    if not parameters.result:
        raise DeclarationProblem("a summary needs a result", ("as",), "name the result: `as: NAME`")
    for option in parameters.options or {}:
        if option not in MODEL_OPTIONS:
            raise DeclarationProblem(
                f"unknown option {option!r}", ("options", option), suggest_name(option, MODEL_OPTIONS)
            )
    return _declare(
        "summarise_result",
        name,
        meaning="let a model sum up the longest result of the latest reply, for later requests",
        build=partial(build_summary_call, parameters),
        parameters=parameters,
        result=parameters.result,
        result_facts=build_result_facts(parameters.result, name, ("replied",), ("failed",), None),
        templates=(parameters.prompt, parameters.system),
    )


def declare_agent_run(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `run_agent`."""
    parameters = read_parameters(data, RunAgentParameters)
    check_history(parameters.history)
    if sum(map(bool, (parameters.handler, parameters.spec, parameters.chart))) == 0:
        raise DeclarationProblem("no agent is named", (), "name one: `handler`, `spec` or `chart`")
    if parameters.handler and parameters.spec:
        raise DeclarationProblem(
            "two agents are named", ("spec",), "name a handler of this spec or another spec"
        )
    if parameters.for_each:
        check_path(parameters.for_each, "for_each")
    for key in ("for_each", "schema"):
        if getattr(parameters, key) and not parameters.result:
            raise DeclarationProblem(f"`{key}` needs a result", (key,), "name the result: `as: NAME`")
    schema = None if parameters.for_each else parameters.schema
    reducers = declare_reducers(parameters, schema)
    return _declare(
        "run_agent",
        name,
        meaning=f"run the agent of `{name}`",
        build=partial(build_agent_run, parameters),
        list_source=parameters.for_each,
        uses_messages=not parameters.result,
        parameters=parameters,
        result=parameters.result,
        result_facts=build_result_facts(
            parameters.result, name, ("agent_finished",), ("agent_failed",), schema, reducers
        ),
        reducers=reducers,
        templates=(parameters.message, *([f"{{{{{parameters.for_each}}}}}"] if parameters.for_each else [])),
    )


def declare_function_call(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `call_function`."""
    parameters = read_parameters(data, FunctionParameters, "function")
    reducers = declare_reducers(parameters, parameters.schema)
    return _declare(
        "call_function",
        name,
        meaning=f"call the function {parameters.function}",
        build=partial(build_function_call, parameters),
        parameters=parameters,
        result=parameters.result,
        result_facts=build_result_facts(
            parameters.result, name, ("returned",), ("failed",), parameters.schema, reducers
        ),
        reducers=reducers,
        templates=tuple(iterate_templates(parameters.arguments)),
    )


def declare_question(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `ask_person`."""
    parameters = read_parameters(data, AskPersonParameters, "question")
    form = parameters.form if parameters.form is not None else TEXT_FORM
    reducers = declare_reducers(parameters, parameters.form)
    return _declare(
        "ask_person",
        name,
        meaning=f"ask a person the question of `{name}`",
        build=partial(build_question, parameters),
        parameters=parameters,
        result=parameters.result,
        result_facts=build_result_facts(parameters.result, name, ("answered",), (), form, reducers),
        reducers=reducers,
        templates=(parameters.question,),
    )


def declare_approval(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `ask_approval`."""
    parameters = read_parameters(data, AskApprovalParameters)
    return _declare(
        "ask_approval",
        name,
        meaning=f"let one of {', '.join(parameters.to)} decide every call that needs approval",
        build=partial(build_named_approval, parameters),
        parameters=parameters,
    )


def declare_timer(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `wait`."""
    parameters = read_parameters(data, WaitParameters, "time")
    check_time(parameters)
    return _declare(
        "wait",
        name,
        meaning=f"wait: {parameters.time}",
        build=partial(build_timer, parameters),
        reads_limits=(),
        parameters=parameters,
    )


def declare_user_wait(name: str, data: Any) -> EffectDescriptor:
    """The row of `await_user`, declared or not."""
    parameters = read_parameters(data, AwaitUserParameters, "content")
    return _declare(
        "await_user",
        name,
        meaning="end the turn and wait for the user's next message",
        build=partial(build_user_wait, parameters),
        parameters=parameters,
        templates=(parameters.content,),
    )


def declare_compaction(name: str, data: Any) -> EffectDescriptor:
    """The row of `compact`, declared or not."""
    parameters = read_parameters(data, CompactParameters)
    if parameters.clear_results and (parameters.summary or parameters.keep_first):
        raise DeclarationProblem(
            "no message is left out where only results are cleared",
            ("clear_results",),
            "leave `summary` and `keep_first` out, or declare two effects",
        )
    return _declare(
        "compact",
        name,
        meaning="show less of the conversation in requests from now on",
        build=partial(build_compaction, parameters),
        parameters=parameters,
        templates=(parameters.summary,),
    )


def declare_answer(name: str, data: Any) -> EffectDescriptor:
    """The row of a declared `answer`."""
    parameters = read_parameters(data, AnswerParameters, "content")
    return _declare(
        "answer",
        name,
        meaning=f"end the turn with the text of `{name}`",
        build=partial(build_text_answer, parameters),
        parameters=parameters,
        templates=(parameters.content,),
    )


DECLARE: dict[str, DeclareEffect] = {
    "call_model": declare_model_call,
    "summarise_result": declare_summary,
    "run_agent": declare_agent_run,
    "call_function": declare_function_call,
    "ask_approval": declare_approval,
    "ask_person": declare_question,
    "wait": declare_timer,
    "await_user": declare_user_wait,
    "compact": declare_compaction,
    "answer": declare_answer,
}
"""The function of each kind; some kinds are also effects that charts name without a declaration."""

KIND_ROWS = (
    EffectDescriptor(
        name="summarise_result",
        meaning="let a model sum up a long result, for later requests",
        closing=("replied", "failed"),
        calls_model=True,
        uses_messages=True,
        list_starts=list_call_starts,
    ),
    EffectDescriptor(
        name="run_agent",
        meaning="run a turn of another agent as a child conversation",
        closing=("agent_finished", "agent_failed"),
        progress=("agent_finished", "agent_failed", "agent_rested"),
        has_open_items=has_open_items,
        cancel=keep_finished_items,
        counts_as="agent_runs",
        list_starts=list_agent_starts,
    ),
    EffectDescriptor(
        name="call_function",
        meaning="call a Python function",
        closing=("returned", "failed"),
        start=mark_started_function,
        counts_as="function_calls",
        list_starts=list_function_starts,
    ),
    EffectDescriptor(
        name="ask_person",
        meaning="ask a person a question with a form",
        closing=("answered",),
        counts_as="questions",
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="await_user",
        meaning="end the turn and wait for the user's next message",
        build=partial(build_user_wait, AwaitUserParameters()),
        closing=("user_said",),
        uses_messages=True,
        waits_for_user=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="compact",
        meaning="show less of the conversation in requests from now on",
        build=partial(build_compaction, CompactParameters()),
        uses_messages=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="count_tokens",
        meaning="count the tokens of the conversation, by the host where its entry says so",
        build=build_count,
        closing=("counted",),
        uses_messages=True,
        list_starts=list_no_starts,
    ),
)
"""The rows of kinds that belong to flows. `call_model`, `wait` and `answer` stand with the effects of the
loop."""


def attach_declarations(
    rows: Iterable[EffectDescriptor], declare: Mapping[str, DeclareEffect]
) -> tuple[EffectDescriptor, ...]:
    """The rows, each kind with the function that makes the row of a declared effect.

    Raises:
        SpecError: a function belongs to no row.
    """
    declared_rows = tuple(replace(row, declare=declare.get(row.name)) for row in rows)
    names = [name for name in declare if name not in [row.name for row in declared_rows]]
    if names:
        raise SpecError(f"`DECLARE` has functions for effects without a row: {', '.join(names)}")
    return declared_rows


ALL_EFFECT_ROWS = attach_declarations((*EFFECT_ROWS, *KIND_ROWS), DECLARE)
"""The rows of effects: those of the loop and those of flows."""
