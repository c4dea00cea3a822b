"""The Python functions and the output classes that the chart of an agent names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart
from toolchart.states.errors import SpecError
from toolchart.states.flows.parameters import FunctionParameters
from toolchart.states.flows.templates import list_template_variables
from toolchart.tools.sources.effect_functions import (
    EffectFunction,
    is_effect_function,
    load_effect_function,
    name_effect_function,
)


class ChartFunctions:
    """The functions that the operator's own chart names, each imported once, when the chart is loaded.

    While conversations run, nothing is imported: a name that stands in a log finds what is here, or nothing.

    Args:
        functions: what the engine was given; those that `@effect` marks are called by their names.
        folder: the folder of the spec, for modules beside it.
    """

    def __init__(self, functions: Sequence[Callable[..., Any] | Any], folder: Path | None = None) -> None:
        self._folder = folder
        self._functions = {
            name_effect_function(function): function for function in functions if is_effect_function(function)
        }
        self._ready_functions: dict[str, EffectFunction] = {}

    def get_function(self, reference: str) -> EffectFunction:
        """A function that the operator's own chart names.

        Raises:
            SpecError: that chart does not name it.
        """
        function = self._ready_functions.get(reference)
        if function is None:
            raise SpecError(f"the chart of the agent names no function {reference!r}")
        return function

    def load_function(self, reference: str) -> EffectFunction:
        """The function that the operator's own chart names; its module is imported now.

        Raises:
            SpecError: there is none, or it cannot be called by a chart.
        """
        if reference not in self._ready_functions:
            self._ready_functions[reference] = load_effect_function(reference, self._functions, self._folder)
        return self._ready_functions[reference]

    def list_sources(self, chart: Chart) -> dict[str, str]:
        """The digest of the source of each function that a chart calls, by its reference."""
        return {
            row.parameters.function: self.load_function(row.parameters.function).source_digest
            for row in chart.vocabulary.declared.values()
            if isinstance(row.parameters, FunctionParameters)
        }


def select_tool_functions(functions: Sequence[Callable[..., Any] | Any]) -> list[Any]:
    """What the engine was given, without the functions that only charts call."""
    return [function for function in functions if not is_effect_function(function)]


def select_variables(chart: Chart, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the caller that templates of a chart name, as JSON data; they are recorded."""
    names = {
        slot.partition(".")[0]
        for row in chart.vocabulary.declared.values()
        for template in row.templates
        for slot in list_template_variables(template)
    }
    chosen = {name: variables[name] for name in variables if name in names and name != "user_message"}
    data: dict[str, Any] = msgspec.to_builtins(chosen, enc_hook=str)
    return data
