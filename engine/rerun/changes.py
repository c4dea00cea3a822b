"""The changes of a rerun: what is different from the recording, and how it reaches the recorded events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.continuation.versions import build_versions
from toolchart.engine.log.fork import SETTABLE_NAMES, NarrowTurn, change_within_bound, replace_setting
from toolchart.specs.charts import load_chart
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import TurnPlan, plan_turn, select_handler
from toolchart.states.chart.loading import Chart
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.events import Configured, TurnStarted
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.machine import Machine, get_machine
from toolchart.states.messages import ToolDefinition
from toolchart.tools.manager import ToolManager

_TOOL_FIELDS = ("description", "parameters")

_TURN_FIELDS = ("service", "provider", "model", "options", "tools", "limits", "strict")
"""The fields of `Settings` that a spec plans."""


class RerunChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a rerun changes."""

    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """New values by name, as `ForkChanges.settings`: `model`, `llm`, `tools`, `limits.max_tokens`, ..."""
    system: str | None = None
    """A new system prompt for every turn."""
    chart: str | None = None
    """Name or path of another chart."""
    tools: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """By tool: a new `description` or new `parameters` (JSON Schema)."""
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Variables of the prompt and of `match` that the log does not have."""
    narrow: NarrowTurn | None = None
    """What remains of the settings of a turn for whoever asks; None where a rerun may have any."""


def parse_changes(texts: Iterable[str], variables: Mapping[str, Any] | None = None) -> RerunChanges:
    """The changes of texts such as `model=m`, `prompt=@new.md`, `chart=full`, `tool.add.description=Adds.`

    `@FILE` in place of a value is the text of that file. A value that is JSON is its value.

    Raises:
        SpecError: a text is not of this form, or names nothing that can be changed.
    """
    settings: dict[str, Any] = {}
    tools: dict[str, dict[str, Any]] = {}
    system = chart = None
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise SpecError(f"--set {text!r} is not of the form NAME=VALUE")
        value = _read_value(value)
        if name == "prompt":
            system = value
        elif name == "chart":
            chart = value
        elif name.startswith("tool."):
            tool, _, field = name.removeprefix("tool.").rpartition(".")
            _check_tool_field(name, tool, field)
            tools.setdefault(tool, {})[field] = (
                value if field == "description" else _parse_schema(name, value)
            )
        else:
            settings[name] = _parse_value(value)
    _check_setting_names(settings)
    return RerunChanges(
        settings=settings, system=system, chart=chart, tools=tools, variables=dict(variables or {})
    )


def _check_tool_field(name: str, tool: str, field: str) -> None:
    if not tool or field not in _TOOL_FIELDS:
        raise SpecError(
            f"a rerun cannot set {name!r}",
            hint="tool.NAME.description=TEXT or tool.NAME.parameters=@schema.json",
        )


def _check_setting_names(settings: Iterable[str]) -> None:
    names = (*SETTABLE_NAMES, "max_iterations", "prompt", "chart")
    for name in settings:
        if name not in names and name not in ("tools.max_iterations", "tools.allowed_tools"):
            raise SpecError(f"a rerun cannot set {name!r}", hint=suggest_name(name, names))


def _read_value(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the value cannot be read: {error}", file=text[1:]) from None


def _parse_value(text: str) -> Any:
    try:
        return parse_foreign_json(text)
    except ValueError:
        return text


def _parse_schema(name: str, text: str) -> dict[str, Any]:
    value = _parse_value(text)
    if not isinstance(value, dict):
        raise SpecError(f"{name} is not a JSON Schema of an object", hint="write JSON, or @FILE")
    return value


# -- the agent -------------------------------------------------------------------------------------


def change_spec(spec: AgentSpec, changes: RerunChanges) -> AgentSpec:
    """The agent spec with another chart."""
    return spec if changes.chart is None else spec.model_copy(update={"chart": changes.chart})


def change_definitions(
    definitions: Iterable[ToolDefinition], changes: RerunChanges
) -> tuple[ToolDefinition, ...]:
    """The definitions of tools with the changes.

    Raises:
        SpecError: a changed tool is not among them.
    """
    definitions = tuple(definitions)
    names = [definition.name for definition in definitions]
    for name in changes.tools:
        if name not in names:
            raise SpecError(f"there is no tool {name!r} to change", hint=suggest_name(name, names))
    return tuple(replace(tool, **changes.tools.get(tool.name, {})) for tool in definitions)


def change_tools(tools: ToolManager, changes: RerunChanges) -> None:
    """Give the tools of an agent their changed definitions, before any of them is used."""
    change_definitions(tools.definitions(), changes)
    for name, fields in changes.tools.items():
        tool = tools.registry.get(name)
        assert tool is not None, "it has just been found"
        tools.replace_tool(replace(tool, definition=replace(tool.definition, **fields)))


def load_changed_chart(changes: RerunChanges, configuration: Configured) -> Chart | None:
    """The chart that replaces the recorded one; None where it stays.

    Raises:
        SpecError: there is no such chart, or it breaks a rule.
    """
    if changes.chart is None:
        return None
    chart = load_chart(changes.chart)
    if not chart.effects and not configuration.effects:
        return chart
    return load_chart(changes.chart, effects=lambda own: {**configuration.effects, **own})


def change_configuration(
    configuration: Configured, changes: RerunChanges, machine: Machine
) -> tuple[Configured, Machine]:
    """A recorded configuration with the changes, under this release, and the machine of its chart.

    Args:
        machine: that of the recorded chart.
    """
    chart = load_changed_chart(changes, configuration)
    tools = change_definitions(configuration.tools, changes)
    event = replace(
        configuration,
        tools=tools,
        parent=None,
        versions=replace(build_versions(tools, {}), sources=configuration.versions.sources),
    )
    if chart is None:
        return event, machine
    return replace(event, chart=chart.to_yaml(), effects=dict(chart.effects)), get_machine(chart)


# -- the turns -------------------------------------------------------------------------------------


def change_turn(turn: TurnStarted, changes: RerunChanges) -> TurnStarted:
    """A recorded turn with the changes of settings and prompt.

    Raises:
        SettingsWidened: a change gives a turn more than its handler has.
        SpecError: a setting cannot have that value.
    """
    settings = turn.settings
    narrow = changes.narrow
    if narrow is not None:
        settings = change_within_bound(settings, changes.settings, lambda value: narrow(value, turn.handler))
    else:
        for name, value in changes.settings.items():
            settings = replace_setting(settings, name, value)
    system = turn.system if changes.system is None else changes.system
    return replace(turn, settings=settings, system=system)


class TurnPlanner:
    """Plans recorded turns anew where the agent spec has changed since they were recorded.

    Both specs plan the turn with the same variables. What the plans have in common stays as recorded, also
    where the caller chose it, for instance another model; what differs is taken from the new spec.
    """

    def __init__(self, spec: AgentSpec, tools: ToolManager, variables: Mapping[str, Any]) -> None:
        self._spec, self._tools, self._variables = spec, tools, variables
        self._recorded_specs: dict[int, tuple[Configured, AgentSpec]] = {}

    def adapt(self, turn: TurnStarted, configuration: Configured) -> TurnStarted:
        """The turn as the new spec plans it.

        Raises:
            SpecError: the new spec cannot plan it.
        """
        if configuration.spec == self._spec.to_public_dict():
            return turn
        values = {**turn.variables, **self._variables, "user_message": turn.message}
        old_spec = self._load_recorded_spec(configuration)
        new_handler = select_handler(self._spec, values, _find_handler_name(turn, self._spec))
        new = plan_turn(self._spec, new_handler, values, self._tools.names(), aliases=self._tools.aliases)
        names = tuple(tool.name for tool in configuration.tools)
        old = _plan_recorded_turn(old_spec, turn, values, names)
        if old is None:
            return replace(turn, settings=new.settings, system=new.system)
        old_plan, old_prompt = old
        changed_fields = {
            name: getattr(new.settings, name)
            for name in _TURN_FIELDS
            if getattr(new.settings, name) != getattr(old_plan.settings, name)
        }
        system = turn.system if new_handler.prompt == old_prompt else new.system
        return replace(turn, settings=replace(turn.settings, **changed_fields), system=system)

    def _load_recorded_spec(self, configuration: Configured) -> AgentSpec:
        entry = self._recorded_specs.get(id(configuration))
        if entry is None:
            entry = self._recorded_specs[id(configuration)] = (configuration, load_spec(configuration.spec))
        return entry[1]


def _find_handler_name(turn: TurnStarted, spec: AgentSpec) -> str | None:
    """The recorded handler, where the spec still has one of that name."""
    return turn.handler if turn.handler in [row.name for row in spec.responses] else None


def _plan_recorded_turn(
    spec: AgentSpec, turn: TurnStarted, values: Mapping[str, Any], tools: tuple[str, ...]
) -> tuple[TurnPlan, str | None] | None:
    """What the recorded spec plans now, and its prompt; None where it cannot be said any more."""
    try:
        handler = select_handler(spec, values, _find_handler_name(turn, spec))
        return plan_turn(spec, handler, values, tools), handler.prompt
    except SpecError:
        return None
