"""The declared effects of an agent: those of its chart, changed and completed by its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from toolchart.specs.document_files import find_spec_line
from toolchart.specs.models import AgentSpec
from toolchart.specs.own_modules import explain_own_fault, load_own_reference
from toolchart.states.chart.yaml_document import Document, copy_plain_data
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.flows.parameters import USER_PARTS

_ATTACHMENT_LOADER = "toolchart.tools.sources.attachments:load_file_data"
"""Reads a file; named by a reference, because tools are a higher layer."""

_FUNCTION_LOADER = "toolchart.tools.sources.effect_functions:load_effect_function"
"""A reference, since a spec is read without an import of the room that runs functions."""

DescribeFunction = Callable[[str], Any]
"""Returns a function that a chart names, with the fields `schema` (of its result) and `tool.idempotent`."""


class EffectResolver:
    """Completes the declared effects of an agent.

    Args:
        describe_function: finds the functions of `call_function`; without it they are imported.
        outputs: pydantic classes by result name: each is the schema of its result.
    """

    def __init__(
        self,
        spec: AgentSpec,
        describe_function: DescribeFunction | None = None,
        outputs: Mapping[str, type[BaseModel]] | None = None,
    ) -> None:
        self._spec = spec
        self._folder = Path(spec.source).parent if spec.source else None
        self._describe_function = describe_function
        self._outputs = dict(outputs or {})
        self.output_classes: dict[str, type[BaseModel]] = dict(outputs or {})
        """The classes of results, those that `schema` names included; complete after `resolve`."""

    def copy_for(self, spec: AgentSpec) -> EffectResolver:
        """The resolver of another agent that the same functions and classes were given to."""
        return EffectResolver(spec, self._describe_function, self._outputs)

    def resolve(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """The effects that are in force.

        Args:
            declared: the effects of the chart.

        Raises:
            SpecError: an effect names a host, a model, a handler, a function or a class that does not exist.
        """
        return {name: self._resolve_effect(name, body) for name, body in self.merge(declared).items()}

    def merge(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """The effects that are in force as they are declared: nothing that they name is loaded.

        Args:
            declared: the effects of the chart.

        Raises:
            SpecError: the spec declares something else than plain data.
        """
        own_effects = copy_plain_data(self._spec.effects or {}, Document(source=self._spec.source))
        return _merge_declarations(dict(declared), own_effects)

    def _resolve_effect(self, name: str, body: Any) -> Any:
        if not isinstance(body, Mapping) or len(body) != 1:
            return body  # refused where declarations are read, with its line
        kind, parameters = next(iter(body.items()))
        if kind == "call_function" and isinstance(parameters, str):
            parameters = {"function": parameters}
        if not isinstance(parameters, Mapping):
            return body
        parameters = self._resolve_schema(name, kind, dict(parameters))
        if kind in ("call_model", "summarise_result"):
            parameters = self._resolve_attachments(name, self._resolve_model(name, kind, parameters))
        elif kind == "call_function":
            parameters = self._resolve_function(name, parameters)
        elif kind == "run_agent" and parameters.get("handler"):
            self._require_handler(name, str(parameters["handler"]))
        return {kind: parameters}

    def _resolve_schema(self, name: str, kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with the schema of a pydantic class, where one stands for it."""
        schema, result = parameters.get("schema"), str(parameters.get("as") or "")
        if isinstance(schema, str):
            output_class = self._load_class(schema, f"effects.{name}.{kind}.schema")
            self.output_classes[result] = output_class
        elif schema is None and result in self.output_classes and kind in ("call_model", "run_agent"):
            output_class = self.output_classes[result]
        else:
            return parameters
        return {**parameters, "schema": output_class.model_json_schema()}

    def _load_class(self, reference: str, path: str) -> type[BaseModel]:
        try:
            model_class = load_own_reference(reference, self._folder)
        except Exception as error:  # the user's module may fail in any way
            reason, fault_hint = explain_own_fault(error, reference, self._folder)
            hint = fault_hint or "write `module:Class`, or a JSON Schema"
            message = f"the class {reference!r} cannot be imported: {reason}"
            raise self._build_problem(message, path, hint) from error
        if not (isinstance(model_class, type) and issubclass(model_class, BaseModel)):
            raise self._build_problem(f"{reference!r} is no pydantic class", path, "derive it from BaseModel")
        return model_class

    def _resolve_model(self, name: str, kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with the model of the host that they name."""
        spec, llm = self._spec, parameters.get("llm")
        if not llm:
            return parameters
        path = f"effects.{name}.{kind}.llm"
        if llm not in spec.llms:
            raise self._build_problem(f"there is no llm {llm!r}", path, suggest_name(str(llm), spec.llms))
        model = parameters.get("model") or spec.llms[llm].model
        if not model:
            hint = f"name one in `llms.{llm}.model` or in the effect"
            raise self._build_problem(f"no model is named for {llm!r}", path, hint)
        return {**parameters, "model": model}

    def _resolve_attachments(self, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with each file that they attach as a part, so that a log holds what was sent."""
        attachments = parameters.get("attach")
        if not isinstance(attachments, list):
            return parameters
        parts = [
            self._load_file(name, attachment)
            if isinstance(attachment, str) and attachment != USER_PARTS
            else attachment
            for attachment in attachments
        ]
        return {**parameters, "attach": parts}

    def _load_file(self, name: str, file: str) -> Any:
        """The part for a file. Only a spec that stands in a file names one; a spec from a log reads none."""
        path = f"effects.{name}.call_model.attach"
        if self._folder is None:
            hint = "write the spec to a file, and the path relative to it"
            raise self._build_problem(f"a spec without a file cannot attach {file!r}", path, hint)
        try:
            return load_reference(_ATTACHMENT_LOADER)(self._folder / file)
        except SpecError as error:
            raise self._build_problem(f"{file}: {error.message}", path, error.hint) from None

    def _resolve_function(self, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with the schema of the function's result, and whether it may run twice."""
        describe = self._describe_function or partial(load_reference(_FUNCTION_LOADER), folder=self._folder)
        try:
            function = describe(str(parameters.get("function")))
        except SpecError as error:
            path = f"effects.{name}.call_function.function"
            raise self._build_problem(error.message, path, error.hint) from None
        if function.schema is not None:
            parameters = {"schema": function.schema, **parameters}
        if function.tool.idempotent:
            parameters = {"idempotent": True, **parameters}
        return parameters

    def _require_handler(self, name: str, handler: str) -> None:
        names = [entry.name for entry in self._spec.responses if entry.name]
        if handler not in names:
            raise self._build_problem(
                f"there is no handler {handler!r}",
                f"effects.{name}.run_agent.handler",
                suggest_name(handler, names) if names else "give the handler a `name`",
            )

    def _build_problem(self, message: str, path: str, hint: str | None) -> SpecError:
        line = find_spec_line(self._spec.source, path)
        return SpecError(message, file=self._spec.source, line=line, path=path, hint=hint)


def _merge_declarations(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where both declare an effect of one kind, the parameters of the second are merged in."""
    merged = dict(base)
    for name, body in changes.items():
        before = merged.get(name)
        if isinstance(before, Mapping) and isinstance(body, Mapping) and before.keys() == body.keys():
            merged[name] = {kind: _merge_parameters(before[kind], body[kind]) for kind in body}
        else:
            merged[name] = body
    return merged


def _merge_parameters(base: Any, changes: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(changes, Mapping):
        return {key: item for key, item in {**base, **changes}.items() if item is not None}
    return changes
