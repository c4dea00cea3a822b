"""Plans a turn: which handler answers, and with which model, prompt, options, tools and limits.

The handler is the first whose `match` conditions hold for the variables. Each key of `match` is one
condition, and all must hold. `field: value` compares for equality. `field_contains: text` looks for a part of
the field, or a member of a list. `field_regexp: pattern` searches with `/pattern/flags` or a plain pattern;
the flag `y` lets it match only at the beginning. `rag_results: any` holds if the document search had a full
or partial result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from toolchart.specs.models import DEFAULT_MAX_ITERATIONS, AgentSpec, Handler, LLMConfig, ToolsConfig
from toolchart.specs.sections.context_limits import find_context_limit
from toolchart.states.canonical_json import is_whole_number
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.events import Limits, Settings
from toolchart.states.flows.templates import look_up_variable, render_template
from toolchart.states.messages import MODEL_OPTIONS
from toolchart.workers.patterns import Pattern, PatternTimeout, get_pattern

# -- which handler answers -----------------------------------------------------------------------

_FLAGS = "imsx"

_SUCCESSFUL_SEARCHES = ("match", "partial", "any")
"""Values of the variable `rag_results` for which the condition `rag_results: any` holds."""


def select_handler(spec: AgentSpec, variables: Mapping[str, Any], name: str | None = None) -> Handler:
    """Return the handler with this name; without a name, the first whose conditions hold.

    Raises:
        SpecError: there are no handlers, no handler has the name, or no handler matches.
    """
    require_handlers(spec)
    if name is not None:
        return _find_named_handler(spec, name)
    for handler in spec.responses:
        if conditions_hold(handler.match, variables):
            return handler
    raise SpecError(
        "no handler matches these variables",
        file=spec.source,
        path="responses",
        hint="add a handler without `match` as the fallback, or give variables with --var: "
        + ", ".join(sorted({key for h in spec.responses for key in h.match or {}})),
    )


def require_handlers(spec: AgentSpec) -> None:
    """Refuse an agent that is not configured yet.

    Raises:
        SpecError: it has no handlers.
    """
    if not spec.responses:
        raise SpecError(
            "the agent has no handlers, so no message can be answered",
            file=spec.source,
            path="responses",
            hint="add a host to `llms`, and a handler that names it to `responses`: `toolchart init` writes "
            "an example",
        )


def _find_named_handler(spec: AgentSpec, name: str) -> Handler:
    for handler in spec.responses:
        if handler.name == name:
            return handler
    if is_whole_number(name) and int(name) < len(spec.responses):
        return spec.responses[int(name)]
    names = [handler.name or str(number) for number, handler in enumerate(spec.responses)]
    raise SpecError(
        f"there is no handler {name!r}", file=spec.source, path="responses", hint=suggest_name(name, names)
    )


def conditions_hold(conditions: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> bool:
    """Whether every condition holds; an empty mapping or None always holds."""
    return not conditions or all(
        _condition_holds(key, condition, variables) for key, condition in conditions.items()
    )


def _condition_holds(key: str, condition: Any, variables: Mapping[str, Any]) -> bool:
    if key == "comment":
        return True
    if key == "rag_results":
        value = look_up_variable(variables, key)
        return value in _SUCCESSFUL_SEARCHES if condition == "any" else value == condition
    if key.endswith("_contains"):
        return _value_contains(look_up_variable(variables, key.removesuffix("_contains")), condition)
    if key.endswith("_regexp"):
        value = look_up_variable(variables, key.removesuffix("_regexp"))
        return value is not None and _pattern_occurs(key, str(condition), str(value))
    return bool(look_up_variable(variables, key) == condition)


def _pattern_occurs(key: str, pattern: str, text: str) -> bool:
    try:
        return compile_pattern(pattern).occurs_in(text)
    except PatternTimeout as error:
        hint = "write it without look-around and back references: then its time is linear"
        raise SpecError(str(error), path=f"match.{key}", hint=hint) from None


def _value_contains(value: Any, condition: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return condition in value
    return value is not None and str(condition).lower() in str(value).lower()


def compile_pattern(text: str) -> Pattern:
    """Compile `/pattern/flags` or a plain pattern.

    Raises:
        ValueError: it does not compile, or a flag is unknown.
    """
    letters = ""
    if len(text) > 1 and text.startswith("/") and "/" in text[1:]:
        text, _, letters = text[1:].rpartition("/")
    for letter in letters:
        if letter not in (*_FLAGS, "g", "u", "y"):  # g and u change nothing here
            raise ValueError(f"unknown flag {letter!r}; known: {', '.join((*_FLAGS, 'y'))}")
    if "y" in letters:  # in JavaScript: match where the last match ended, and so at the beginning
        text = rf"\A(?:{text})"
    return get_pattern(text, "".join(letter for letter in letters if letter in _FLAGS))


# -- the settings and the prompt -----------------------------------------------------------------


class TurnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, the prompt and the warnings of one turn."""

    settings: Settings
    system: str | None
    """The system prompt, variables filled in."""
    warnings: tuple[str, ...]


def plan_turn(
    spec: AgentSpec,
    handler: Handler,
    variables: Mapping[str, Any],
    tool_names: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    llm: str | None = None,
    model: str | None = None,
) -> TurnPlan:
    """Choose the settings and fill the prompt of a turn.

    Args:
        tool_names: names of the tools that exist.
        aliases: for tools that models call by another name, the name in the spec.
        llm, model: have precedence over the handler's.

    Raises:
        SpecError: an unknown `llms` entry, or no model is named.
    """
    planned = plan_settings(spec, handler, tool_names, aliases=aliases, llm=llm, model=model)
    return complete_plan(spec, handler, variables, *planned)


def complete_plan(
    spec: AgentSpec,
    handler: Handler,
    variables: Mapping[str, Any],
    settings: Settings,
    warnings: tuple[str, ...],
) -> TurnPlan:
    """The plan of a turn under settings, with their warnings, from `plan_settings`: its prompt is filled."""
    system: str | None = None
    if handler.prompt:
        service = variables.get("service", settings.service)
        system, missing = render_template(handler.prompt, {**variables, "service": service})
        if missing:
            names = ", ".join(missing)
            warnings = (*warnings, f"the prompt names variables that were not given: {names}")
    return TurnPlan(settings=settings, system=system, warnings=(*spec.warnings, *warnings))


def plan_settings(
    spec: AgentSpec,
    handler: Handler,
    tool_names: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
    llm: str | None = None,
    model: str | None = None,
) -> tuple[Settings, tuple[str, ...]]:
    """The settings of a turn of a handler, and warnings; arguments and errors are those of `plan_turn`."""
    service = llm or handler.llm
    host = _find_host(spec, service)
    model_name = model or (handler.model if service == handler.llm else None) or host.model
    if not model_name:
        raise SpecError(
            "no model is named",
            file=spec.source,
            path=f"llms.{service}.model",
            hint="name one in the handler, in the llms entry, or with --model",
        )
    spec_names = {name: (aliases or {}).get(name, name) for name in tool_names}
    tools, warnings = select_tools(spec, handler, spec_names)
    tools, cap_warnings = apply_tool_cap({name: spec_names[name] for name in tools}, host, spec.tools)
    settings = Settings(
        service=service,
        provider=host.provider,
        model=model_name,
        options=collect_options(handler, host),
        tools=tools,
        limits=build_limits(spec, handler, host),
        strict=spec.policy == "strict",
        context_limit=find_context_limit(host, model_name),
    )
    return settings, (*warnings, *cap_warnings)


def _find_host(spec: AgentSpec, service: str) -> LLMConfig:
    if service not in spec.llms:
        raise SpecError(
            f"there is no llm {service!r}",
            file=spec.source,
            path="llms",
            hint=suggest_name(service, spec.llms),
        )
    return spec.llms[service]


def collect_options(handler: Handler, host: LLMConfig) -> dict[str, Any]:
    """The options of a handler, and those of its host where it sets none."""
    defaults = {"max_tokens": host.maxTokens, "temperature": host.temperature}
    values = {name: getattr(handler, name) for name in MODEL_OPTIONS}
    values |= {name: default for name, default in defaults.items() if values[name] is None}
    return {name: value for name, value in values.items() if value is not None}


def select_tools(
    spec: AgentSpec, handler: Handler, tools: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the tools that a handler offers, and warnings.

    A handler offers tools if the spec has an enabled `tools` section, and its own says `enabled: true` (or
    `apply_globally` is set). Its `allowed_tools` then selects among them.

    Args:
        tools: name of each tool, and its name in the spec; `allowed_tools` may use either.
    """
    if spec.tools is None or not spec.tools.enabled:
        return (), ()
    if handler.tools is None:
        return (tuple(tools) if spec.tools.apply_globally else ()), ()
    if not handler.tools.enabled:
        is_forgotten = bool(handler.tools.allowed_tools) and "enabled" not in handler.tools.model_fields_set
        warning = "the handler lists allowed_tools, and offers none without `enabled: true`"
        return (), (warning,) if is_forgotten else ()
    globs = handler.tools.allowed_tools
    if not globs:
        return tuple(tools), ()
    allowed_names = tuple(name for name, spec_name in tools.items() if matches_globs(name, spec_name, globs))
    unused_globs = [
        glob
        for glob in globs
        if not any(matches_globs(name, spec_name, [glob]) for name, spec_name in tools.items())
    ]
    warnings = tuple(
        f"allowed_tools names {glob!r}, which matches no tool ({suggest_name(glob, tools)})"
        for glob in unused_globs
    )
    if not allowed_names:
        warnings = (*warnings, "the allow-list leaves no tool: answering without tools")
    return allowed_names, warnings


def cap_tools(
    tools: Mapping[str, str], max_tools: int | None, essential: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split tools into those that a host with a cap is offered and the others, both in their order.

    Essential tools are offered before others. Without a cap all tools are offered.

    Args:
        tools: name of each tool, and its name in the spec.
        essential: names of either kind, or globs.

    >>> cap_tools({"a": "a", "b": "b", "c_d": "c.d"}, 2, ["c.d"])
    (('a', 'c_d'), ('b',))
    """
    if max_tools is None or len(tools) <= max_tools:
        return tuple(tools), ()
    essential_names = [name for name, spec_name in tools.items() if matches_globs(name, spec_name, essential)]
    offered_names = {
        *[*essential_names, *(name for name in tools if name not in essential_names)][:max_tools]
    }
    kept_names = tuple(name for name in tools if name in offered_names)
    return kept_names, tuple(name for name in tools if name not in offered_names)


def apply_tool_cap(
    tools: Mapping[str, str], host: LLMConfig, section: ToolsConfig | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tools that a host is offered, and warnings about those that its cap leaves out.

    The cap is the smaller of `max_tools` of the host and of the tools section. A tool is essential if
    either lists it.
    """
    caps = [host.max_tools, section.max_tools if section else None]
    max_tools = min((cap for cap in caps if cap is not None), default=None)
    essential = [*host.essential_tools, *(section.essential_tools if section else ())]
    kept_names, dropped_names = cap_tools(tools, max_tools, essential)
    if not dropped_names:
        return kept_names, ()
    warnings = [f"{max_tools} tools at most (max_tools): {', '.join(dropped_names)} not offered"]
    warnings += [
        f"essential_tools names {glob!r}, which is not among the tools ({suggest_name(glob, tools)})"
        for glob in essential
        if not any(matches_globs(name, spec_name, [glob]) for name, spec_name in tools.items())
    ]
    return kept_names, tuple(warnings)


def matches_globs(name: str, spec_name: str, globs: Sequence[str]) -> bool:
    """Whether a glob matches a tool by either of its names: the one that models use or the spec's."""
    return any(fnmatchcase(text, glob) for glob in globs for text in {name, spec_name})


def build_limits(spec: AgentSpec, handler: Handler, host: LLMConfig | None = None) -> Limits:
    """Build the limits of a turn. For iterations the handler has precedence, then `tools`, then `limits`; for
    attempts the host (by default the handler's), then `retry`, then `limits`."""
    limits, host = spec.limits, host or spec.llms.get(handler.llm)
    host_attempts = host.retries + 1 if host is not None and host.retries is not None else None
    handler_iterations = handler.tools.max_iterations if handler.tools else None
    section_iterations = spec.tools.max_iterations if spec.tools and _sets_max_iterations(spec) else None
    return Limits(
        max_iterations=handler_iterations
        or section_iterations
        or limits.max_iterations
        or DEFAULT_MAX_ITERATIONS,
        max_tool_only_streak=limits.max_tool_only_streak,
        max_repeats=limits.max_repeats,
        max_attempts=host_attempts or spec.retry.max_attempts or limits.max_attempts,
        first_wait_s=spec.retry.first_wait_s,
        max_wait_s=spec.retry.max_wait_s,
        max_tokens=limits.max_tokens,
        max_cost=limits.max_cost,
        max_seconds=limits.max_seconds,
        max_tool_calls=limits.max_tool_calls,
        max_steps=limits.max_steps,
        long_result_size=limits.long_result_size,
        max_calls_per_reply=limits.max_calls_per_reply
        if "max_calls_per_reply" in limits.model_fields_set
        else msgspec.UNSET,
    )


def _sets_max_iterations(spec: AgentSpec) -> bool:
    """Whether the tools section sets the limit itself instead of having the default."""
    return spec.tools is not None and "max_iterations" in spec.tools.model_fields_set


def needs_preparation(spec: AgentSpec) -> bool:
    """Whether the spec has a section that finds context before a handler is chosen."""
    return bool(spec.rag_services or spec.intent or spec.topic)
