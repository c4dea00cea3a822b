"""From a spec and a message to what one turn runs with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolchart.specs.models import DEFAULT_MAX_ITERATIONS, AgentSpec, Handler, LLMConfig
from toolchart.specs.prompts import render
from toolchart.specs.tool_limits import answers_to, capped
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits, Settings
from toolchart.states.suggestions import nearest

_OPTIONS = (
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
)
"""Keys of a handler that reach the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """What one turn runs with."""

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
    """Settings, prompt and warnings of a turn.

    Args:
        tool_names: names of the tools that exist.
        aliases: the spec's own names of tools that a model calls by another one.
        llm, model: go before the handler's own.

    Raises:
        SpecError: an unknown `llms` entry, or no model named anywhere.
    """
    service = llm or handler.llm
    host = _host(spec, service)
    chosen = model or (handler.model if service == handler.llm else None) or host.model
    if not chosen:
        raise SpecError(
            "no model is named",
            file=spec.source,
            path=f"llms.{service}.model",
            hint="name one in the handler, in the llms entry, or with --model",
        )
    known = {name: (aliases or {}).get(name, name) for name in tool_names}
    tools, warnings = offered_tools(spec, handler, known)
    tools, left_out = capped({name: known[name] for name in tools}, host, spec.tools)
    warnings = (*warnings, *left_out)
    system, missing = _prompt(handler, {**variables, "service": variables.get("service", service)})
    if missing:
        names = ", ".join(missing)
        warnings = (*warnings, f"the prompt names variables that were not given: {names}")
    settings = Settings(
        service=service,
        provider=host.provider,
        model=chosen,
        options=_options(handler),
        tools=tools,
        limits=limits_of(spec, handler),
    )
    return TurnPlan(settings=settings, system=system, warnings=(*spec.warnings, *warnings))


def _host(spec: AgentSpec, service: str) -> LLMConfig:
    if service not in spec.llms:
        raise SpecError(
            f"there is no llm {service!r}",
            file=spec.source,
            path="llms",
            hint=nearest(service, spec.llms),
        )
    return spec.llms[service]


def _prompt(handler: Handler, variables: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    if not handler.prompt:
        return None, ()
    return render(handler.prompt, variables)


def _options(handler: Handler) -> dict[str, Any]:
    return {name: value for name in _OPTIONS if (value := getattr(handler, name)) is not None}


def offered_tools(
    spec: AgentSpec, handler: Handler, tools: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the tools that this handler offers, and warnings.

    Tools are offered only where the spec has tools, they are enabled, the handler enables them (or
    `apply_globally` does for it), and the allow-list leaves at least one.

    Args:
        tools: name of each tool that exists, and the spec's own name of it; a list may use either.
    """
    if spec.tools is None or not spec.tools.enabled:
        return (), ()
    if handler.tools is None:
        return (tuple(tools) if spec.tools.apply_globally else ()), ()
    if not handler.tools.enabled:
        return (), ()
    allowed = handler.tools.allowed_tools
    if not allowed:
        return tuple(tools), ()
    kept = tuple(name for name, own in tools.items() if answers_to(name, own, allowed))
    unknown = [
        glob
        for glob in allowed
        if not any(answers_to(name, own, [glob]) for name, own in tools.items())
    ]
    warnings = tuple(
        f"allowed_tools names {glob!r}, which no tool answers to ({nearest(glob, tools)})"
        for glob in unknown
    )
    if not kept:
        warnings = (*warnings, "the allow-list leaves no tool: answering without tools")
    return kept, warnings


def limits_of(spec: AgentSpec, handler: Handler) -> Limits:
    """The limits of a turn: the handler's iterations go before the tools section's, that before the rest."""
    limits = spec.limits
    own = handler.tools.max_iterations if handler.tools else None
    shared = spec.tools.max_iterations if spec.tools and _says_max(spec) else None
    return Limits(
        max_iterations=own or shared or limits.max_iterations or DEFAULT_MAX_ITERATIONS,
        max_tool_only_streak=limits.max_tool_only_streak,
        max_repeats=limits.max_repeats,
        max_attempts=spec.retry.max_attempts or limits.max_attempts,
        first_wait_s=spec.retry.first_wait_s,
        max_wait_s=spec.retry.max_wait_s,
        max_tokens=limits.max_tokens,
        max_cost=limits.max_cost,
        max_seconds=limits.max_seconds,
        max_tool_calls=limits.max_tool_calls,
    )


def _says_max(spec: AgentSpec) -> bool:
    """Whether the tools section itself sets the limit, rather than leaving the default."""
    return spec.tools is not None and "max_iterations" in spec.tools.model_fields_set
