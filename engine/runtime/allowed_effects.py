"""Which effects may be performed: those that the operator's own chart declares alike.

A log is data, whoever wrote it, and the chart of an open conversation stands in the log. That chart says
where the conversation is and what comes next. It does not say what this process may do: a second writer could
have planted it, with a function such as `os:system` in it. So before an effect of a declared kind is
performed, it is looked up in the operator's own chart, by name, and both declarations must have the same
digest: the same function, agent, host, prompt and schema. The value itself must be one that this declaration
makes, because a planted checkpoint may hold any value.

What needs no declaration (`call_model`, `run_tools`, ...) acts through the hosts and tools of the operator's
spec, which are found there by their names, and with no option that lets a host act (`host_tools`) but those
of the spec. Effects that only wait start nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolchart.specs.models import Handler
from toolchart.states.chart.document import Chart, digest_declaration
from toolchart.states.effects import (
    EFFECT_CLASSES,
    AwaitUser,
    CallFunction,
    CallModel,
    Effect,
    RunAgent,
    Wait,
)
from toolchart.states.errors import EffectRefused
from toolchart.states.flows.parameters import FunctionParameters, RunAgentParameters
from toolchart.states.vocabulary import describe_effect_class

_WAITS = frozenset({Wait, AwaitUser})
"""The effects that only wait, so that no chart can do anything with them."""


def list_undeclared_types(classes: Iterable[type[Effect]] = EFFECT_CLASSES) -> list[type[Effect]]:
    """The classes of effects that a chart may name without a declaration and that an event answers.

    Raises:
        SpecError: a class has no row.
    """
    rows = {type_: describe_effect_class(type_) for type_ in classes}
    return [type_ for type_, row in rows.items() if row.build is not None and row.closing]


_UNDECLARED_TYPES = frozenset(list_undeclared_types())

ACTING_OPTIONS = ("host_tools", "extra_body")
"""Options of a request that let the host act: search, run code, ask a server that the request names."""

_ACTING_NAMES = frozenset(ACTING_OPTIONS)


class AllowedEffects:
    """The effects that the conversations of one agent may perform.

    Args:
        chart: the agent's own chart, loaded from the operator's files.
        handlers: the agent's own.
    """

    def __init__(self, chart: Chart, handlers: Iterable[Handler] = ()) -> None:
        self._chart = chart
        self._options: set[tuple[str, str]] = set()
        """Acting options that the operator names: each name with the digest of its value."""
        for handler in handlers:
            self.allow_options({name: getattr(handler, name) for name in ACTING_OPTIONS})
        for row in chart.vocabulary.declared.values():
            self.allow_options(getattr(row.parameters, "options", None) or {})
        self._digests = {name: digest_declaration(body) for name, body in chart.effects.items()}

    def allow_options(self, options: Mapping[str, Any]) -> None:
        """Allow the acting options among these, because the operator names them: for a fork, for instance."""
        for name in ACTING_OPTIONS:
            if options.get(name) is not None:
                self._options.add((name, digest_declaration(options[name])))

    def require_allowed(self, effect: Effect, chart: Chart, conversation: str) -> None:
        """Return where an effect may be performed.

        Args:
            chart: the chart that asked for it: the agent's own, or the one of the log.

        Raises:
            EffectRefused: the agent's own chart does not name it, or declares it otherwise.
        """
        # By its class, because that decides how it is performed; its name and kind may be planted.
        type_ = type(effect)
        if isinstance(effect, CallModel) and not _ACTING_NAMES.isdisjoint(effect.request.options):
            self._require_allowed_options(effect, conversation)
        if type_ in _WAITS or (
            not effect.kind and type_ in _UNDECLARED_TYPES and not getattr(effect, "host", "")
        ):
            return
        problem = self._find_problem(effect, chart)
        if problem is not None:
            raise EffectRefused(effect.name, describe_action(effect), problem, conversation)

    def _require_allowed_options(self, effect: CallModel, conversation: str) -> None:
        """Check what a request lets its host do: the settings of an open turn stand in the log, too.

        Raises:
            EffectRefused: no handler and no declared effect of the agent has the option with this value.
        """
        options = effect.request.options
        for name in ACTING_OPTIONS:
            if name in options and (name, digest_declaration(options[name])) not in self._options:
                action = f"{describe_action(effect)} with {name}"
                raise EffectRefused(effect.name, action, f"has no such {name}", conversation)

    def _find_problem(self, effect: Effect, chart: Chart) -> str | None:
        """Why the agent's own chart does not allow an effect; None where it does."""
        if not effect.kind:
            return "does not name it"
        own_digest = self._digests.get(effect.name)
        if own_digest is None:
            return "declares no such effect"
        declaration = chart.effects.get(effect.name)
        if chart is not self._chart and own_digest != digest_declaration(declaration):
            return "declares it otherwise"
        return None if self._is_made_here(effect) else "makes another value of it"

    def _is_made_here(self, effect: Effect) -> bool:
        """Whether the agent's own declaration makes values such as this one."""
        row = self._chart.vocabulary.declared[effect.name]
        if row.kind != effect.kind:
            return False
        parameters = row.parameters
        match effect:
            case CallFunction():
                return isinstance(parameters, FunctionParameters) and effect.function == parameters.function
            case RunAgent():
                return isinstance(parameters, RunAgentParameters) and all(
                    effect.agent.get(key, "") == getattr(parameters, key)
                    for key in ("handler", "spec", "chart", *effect.agent)
                )
            case CallModel():
                return effect.host == getattr(parameters, "llm", None)
        return True


def describe_action(effect: Effect) -> str:
    """What performing an effect would do, in a few words: `call_function os:system`."""
    kind = effect.kind or effect.name
    match effect:
        case CallFunction():
            return f"{kind} {effect.function}"
        case RunAgent():
            return " ".join([kind, *(str(effect.agent[key]) for key in sorted(effect.agent))])
        case CallModel() if effect.host:
            return f"{kind} of {effect.host}"
    return kind
