"""Bounds of turns: what a recorded turn may have under the agent spec, whoever wrote the record.

A log may say anything. So whoever may only narrow a turn (a caller of a server that forks or runs again) gets
its recorded settings cut down to what the operator's spec gives for the handler of that turn, and may change
them only within that. The tables say, field by field, what narrows:

    free      any value: it says how a model answers, or the same caller may choose it when a turn begins
    at_most   a number that is not above the bound; none is the highest
    subset    some of the names of the bound
    stricter  true where either is
    fixed     the value of the bound

A field without a row is fixed; a test compares the tables with the fields of the structs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import plan_settings
from toolchart.states.call_arguments import get_call_limit
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits, Settings

Narrow = Callable[[Any, Any], Any]
"""The value that remains of a value under a bound."""


def _keep_free(value: Any, bound: Any) -> Any:
    return value


def _keep_fixed(value: Any, bound: Any) -> Any:
    return bound


def _keep_at_most(value: Any, bound: Any) -> Any:
    if bound is None:
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and value <= bound else bound


def _keep_call_limit(value: int | msgspec.UnsetType, bound: int | msgspec.UnsetType) -> Any:
    """As `at_most`; unset stands for the default."""
    return bound if get_call_limit(value) >= get_call_limit(bound) else value


def _keep_context_limit(value: int, bound: int) -> int:
    """As `at_most`; here 0 stands for none."""
    return _keep_at_most(value or None, bound or None) or 0


def _keep_subset(value: Sequence[str], bound: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in value if name in bound)


def _keep_stricter(value: bool, bound: bool) -> bool:
    return value or bound


SETTING_RULES: Mapping[str, Narrow] = {
    "service": _keep_free,  # callers choose an entry of `llms` when they begin a turn; it must exist
    "provider": _keep_fixed,  # that of the service
    "model": _keep_free,  # callers choose it when they begin a turn
    "options": lambda value, bound: _narrow_options(value, bound),
    "tools": _keep_subset,
    "limits": lambda value, bound: narrow_limits_to(value, bound),
    "strict": _keep_stricter,
    "context_limit": _keep_context_limit,
}
"""What narrows each field of `Settings`."""

LIMIT_RULES: Mapping[str, Narrow] = {
    "max_iterations": _keep_at_most,
    "max_tool_only_streak": _keep_at_most,
    "max_repeats": _keep_at_most,
    "max_attempts": _keep_at_most,
    "first_wait_s": _keep_fixed,  # a shorter wait asks the host more often, a longer one holds the turn open
    "max_wait_s": _keep_at_most,
    "max_tokens": _keep_at_most,
    "max_cost": _keep_at_most,
    "max_seconds": _keep_at_most,
    "max_tool_calls": _keep_at_most,
    "long_result_size": _keep_at_most,
    "max_steps": _keep_at_most,
    "max_calls_per_reply": lambda value, bound: _keep_call_limit(value, bound),
}
"""What narrows each field of `Limits`."""

OPTION_RULES: Mapping[str, Narrow] = {
    "max_tokens": _keep_at_most,
    "temperature": _keep_free,
    "top_p": _keep_free,
    "top_k": _keep_free,
    "seed": _keep_free,
    "stop": _keep_free,
    "presence_penalty": _keep_free,
    "frequency_penalty": _keep_free,
    "reasoning_effort": _keep_fixed,  # costs money
    "thinking_budget": _keep_fixed,  # costs money
    "verbosity": _keep_free,
    "logprobs": _keep_free,
    "service_tier": _keep_fixed,  # costs money
    "cache_key": _keep_fixed,  # shares a cache with others
    "cache_ttl": _keep_fixed,
    "batch": _keep_fixed,  # a client does not make an answer wait for a day, nor the bill double
    "safety_settings": _keep_fixed,
    "host_tools": _keep_fixed,  # tools that run at the host
    "strict_tools": _keep_fixed,
    "metadata": _keep_fixed,  # what the operator writes to the host's books
    "extra_body": _keep_fixed,  # anything at all
    "tool_choice": _keep_fixed,  # may name tools that run at the host
    "parallel_tool_calls": _keep_fixed,
    "response_format": _keep_free,
}
"""What narrows each of `MODEL_OPTIONS`."""


def narrow_settings(settings: Settings, bound: Settings) -> Settings:
    """What remains of the settings of a turn under those of another one.

    >>> wide = Settings(service="m", provider="p", model="m", tools=("a", "b"))
    >>> narrow_settings(wide, Settings(service="m", provider="p", model="m", tools=("b", "c"))).tools
    ('b',)
    """
    return Settings(**_narrow_fields(settings, bound, Settings.__struct_fields__, SETTING_RULES))


def narrow_limits_to(limits: Limits, bound: Limits) -> Limits:
    """What remains of limits under others."""
    return Limits(**_narrow_fields(limits, bound, Limits.__struct_fields__, LIMIT_RULES))


def _narrow_fields(
    value: Any, bound: Any, names: Sequence[str], rules: Mapping[str, Narrow]
) -> dict[str, Any]:
    return {name: rules.get(name, _keep_fixed)(getattr(value, name), getattr(bound, name)) for name in names}


def _narrow_options(options: Mapping[str, Any], bound: Mapping[str, Any]) -> dict[str, Any]:
    names = dict.fromkeys((*options, *bound))
    narrowed = {
        name: OPTION_RULES.get(name, _keep_fixed)(options.get(name), bound.get(name)) for name in names
    }
    return {name: value for name, value in narrowed.items() if value is not None}


class TurnBounds:
    """What the handlers of an agent give to turns.

    Args:
        tool_names: names of the tools that exist.
        aliases: for tools that models call by another name, the name in the spec.
    """

    def __init__(self, spec: AgentSpec, tool_names: Sequence[str], aliases: Mapping[str, str]) -> None:
        self._spec, self._tool_names, self._aliases = spec, tuple(tool_names), aliases

    def narrow(self, settings: Settings, handler: str) -> Settings:
        """The settings of a turn within what the spec gives for its handler, its host and its model.

        Args:
            handler: its name as a record has it; empty for one without a name. Where several handlers have
                none, what each of them gives is the bound.

        Raises:
            SpecError: the spec has no such handler, or no such host.
        """
        handlers = [row for row in self._spec.responses if (row.name or "") == handler]
        if not handlers:
            name = repr(handler) if handler else "without a name"
            raise SpecError(f"the handler {name} of that turn is none of this agent's")
        for row in handlers:
            bound, _ = plan_settings(
                self._spec,
                row,
                self._tool_names,
                aliases=self._aliases,
                llm=settings.service,
                model=settings.model,
            )
            settings = narrow_settings(settings, bound)
        return settings
