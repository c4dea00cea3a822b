"""The request that a model takes at its host, made of one that it refuses, with a word for each change.

What is refused stands in `host_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.providers.shared.host_rows import (
    ChoiceForm,
    Modality,
    RequestRule,
    Wire,
    find_changing_rules,
    find_row,
    find_thinking,
    shorten_model_name,
)
from toolchart.providers.shared.host_tools import encode_host_tools
from toolchart.providers.shared.requests import ToolChoice, read_file_text, read_tool_choice, refuse_part
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import AudioPart, FilePart, ImagePart
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.events import Adaptation
from toolchart.states.message_list import RequestMessages
from toolchart.states.messages import Message, Request
from toolchart.states.response_format import find_format_schema, find_format_type

# -- whether a model thinks ----------------------------------------------------------------------


def is_thinking(host: str, model: str, switches: Mapping[str, bool]) -> bool | None:
    """Whether a model thinks; None where no row knows it and the request says nothing.

    Args:
        switches: what the request says of it, by name.
    """
    rule = find_thinking(host.lower(), shorten_model_name(model))
    if rule is None:
        return switches.get("thinking", switches.get("enable_thinking"))
    if rule.default == "always":
        return True
    words = [switches[name] for name in rule.switches if name in switches]
    return words[-1] if words else rule.default == "on"


def read_switches(*sources: Mapping[str, Any] | None) -> dict[str, bool]:
    """What options and further keys of a body say of thinking; the last one counts."""
    switches: dict[str, bool] = {}
    for source in sources:
        if source:
            switches.update(_iterate_switches(source))
    return switches


def _iterate_switches(source: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for name in ("chat_template_kwargs", "additionalModelRequestFields"):
        inner = source.get(name)
        if isinstance(inner, Mapping):
            yield from _iterate_switches(inner)
    reasoning, thinking = source.get("reasoning"), source.get("thinking")
    effort = reasoning.get("effort") if isinstance(reasoning, Mapping) else source.get("reasoning_effort")
    if effort is not None:
        yield "reasoning_effort", effort != "none"
    if isinstance(thinking, Mapping):
        yield "thinking", thinking.get("type") != "disabled"
    elif isinstance(thinking, bool):
        yield "thinking", thinking
    if isinstance(source.get("enable_thinking"), bool):
        yield "enable_thinking", source["enable_thinking"]


# -- adapting a request --------------------------------------------------------------------------


class AdaptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that its model takes, and what was changed for that."""

    request: Request
    thinking: Mapping[str, Any] | None = None
    """The `thinking` of an Anthropic request."""
    warnings: tuple[str, ...] = ()
    """One sentence for each setting that was left out or changed."""
    needs_reply_after_results: bool = False
    """Whether a message of the user must not stand right after a tool's result."""
    needs_call_signatures: bool = False
    """Whether each call needs a thought signature."""
    takes_closed_schemas: bool = True
    """Whether a tool's schema may say `additionalProperties: false`."""
    is_thinking: bool | None = None
    """Whether the model thinks; None where nothing says so."""
    may_think: bool = True
    """Whether the model thinks for any request; true where that is not known."""

    def list_adaptations(self, request: Request) -> tuple[Adaptation, ...]:
        """What differs from the request that was adapted, as the record says it."""
        if not self.warnings:
            return ()
        reasons = {text.partition(": ")[0]: text.partition(": ")[2] for text in self.warnings}
        before, after = request.options, self.request.options
        changes = [
            (
                "rewritten" if name in before and name in after else "dropped" if name in before else "added",
                name,
            )
            for name in dict.fromkeys((*before, *after))
            # A tool of the host in the host's own words is the same tool.
            if before.get(name) != after.get(name) and name != "host_tools"
        ]
        adaptations = [
            Adaptation(field=f"/options/{name}", change=change, reason=reasons.get(name, ""))
            for change, name in changes
        ]
        if request.tools != self.request.tools:
            reason = reasons.get("tool_choice", "")
            adaptations.append(Adaptation(field="/tools", change="rewritten", reason=reason))
        if "thinking" in reasons and not any(one.reason == reasons["thinking"] for one in adaptations):
            adaptations.append(
                Adaptation(field="/options/thinking_budget", change="rewritten", reason=reasons["thinking"])
            )
        return tuple(adaptations)


def _write_host_tools(declared: Any, wire: Wire, host: str) -> list[dict[str, Any]]:
    """What a handler declares of the host's own tools, as the host wants them."""
    try:
        return encode_host_tools(declared, (wire,), find_row(host).name)
    except SpecError as error:
        raise ProviderError(kind="bad_request", message=str(error)) from None


def adapt_request(
    request: Request,
    *,
    wire: Wire,
    host: str,
    extra: Mapping[str, Any] | None = None,
    thinking: Mapping[str, Any] | None = None,
) -> AdaptedRequest:
    """The request without what its model refuses at a host.

    What `extra_body` says, of the entry or of the handler, is never changed: it is the user's own word.

    Args:
        host: name and port, or the name of a profile.
        extra: the entry's `extra_body`.
        thinking: the `thinking` of an Anthropic request.

    Raises:
        ProviderError: `bad_request`; the tool choice has no known form, or names a tool that is not offered.
    """
    declared = request.options.get("host_tools")
    if declared:
        request = _change_options(request, host_tools=_write_host_tools(declared, wire, host))
    rules = find_changing_rules(wire, host, request.model)
    own_extra = request.options.get("extra_body")
    bodies = (own_extra if isinstance(own_extra, Mapping) else None, extra)
    warnings: list[str] = []
    # In this order: what replaces a budget, and an effort that is set, decide whether the model thinks; and
    # which rows hold depends on that.
    if thinking is not None and not all(rule.takes_budget for rule in rules):
        request, thinking = _replace_budget(request, thinking, warnings)
    switches = read_switches(request.options, {"thinking": thinking} if thinking else None, *bodies)
    needs_none = bool(request.tools) and any(
        rule.tools_need_effort_none and rule.is_thinking in (None, is_thinking(host, request.model, switches))
        for rule in rules
    )
    if needs_none and "reasoning_effort" not in switches:
        switches["reasoning_effort"] = False
        request = _change_options(request, reasoning_effort="none")
        warnings.append(
            f"reasoning_effort: chat completions refuse tools while {request.model} reasons, so it was asked "
            "not to (`none`); with `api: responses` in the llms entry it reasons beside tools"
        )
    thinks = is_thinking(host, request.model, switches)
    budget = has_budget(thinking, *bodies)
    rules = tuple(
        rule for rule in rules if rule.is_thinking in (None, thinks) and rule.has_budget in (None, budget)
    )
    _refuse_what_cannot_be_changed(request, rules, find_row(host).title if find_row(host).name else host)
    request = _drop_options(request, rules, warnings)
    request = _rewrite_format(request, rules, warnings)
    request = _fit_tool_choice(request, rules, host, warnings)
    return AdaptedRequest(
        request=request,
        thinking=thinking,
        warnings=tuple(warnings),
        needs_reply_after_results=any(rule.needs_reply_after_results for rule in rules),
        needs_call_signatures=any(rule.needs_call_signatures for rule in rules),
        takes_closed_schemas=all(rule.takes_closed_schemas for rule in rules),
        is_thinking=thinks,
        may_think=not any(rule.never_thinks for rule in rules),
    )


_PART_TYPES: dict[Modality, type] = {"image": ImagePart, "audio": AudioPart, "file": FilePart}


def _refuse_what_cannot_be_changed(request: Request, rules: tuple[RequestRule, ...], title: str) -> None:
    """Raise for what the host refuses, and what nobody but the author can leave out.

    Raises:
        ProviderError: too many tools, tools at all, a name that is too long, or a part.
    """
    # Hearsay refuses nothing: the request goes out, and the host says whether it takes it.
    for rule in (rule for rule in rules if rule.is_certain):
        if rule.max_tools is not None and len(request.tools) > rule.max_tools:
            raise ProviderError(
                kind="bad_request",
                message=f"{title} takes at most {rule.max_tools} tools, not {len(request.tools)}; set "
                "`max_tools` and `essential_tools` in the llms entry",
            )
        most = rule.name_form.length if rule.name_form is not None else None
        long_name = next((tool.name for tool in request.tools if most and len(tool.name) > most), None)
        if long_name is not None:
            raise ProviderError(
                kind="bad_request",
                message=f"{title} takes names of at most {most} characters, and the tool {long_name!r} has "
                f"{len(long_name)}; give it a shorter name",
            )
        if not rule.takes_tools and request.tools:
            raise ProviderError(
                kind="tools_unsupported",
                message=f"{title} takes no tools for {request.model}; name another model",
            )
        types = tuple(_PART_TYPES[modality] for modality in rule.refused_parts)
        for message in request.messages if types else ():
            part = next((part for part in message.parts if isinstance(part, types)), None)
            if part is not None and read_file_text(part) is None and message.role != "assistant":
                raise refuse_part(part, title, "send its text, or use another API")  # type: ignore[arg-type]


_SCHEMA_IN_WORDS = "Answer with JSON only, without any other text. It must fit this JSON Schema: {schema}"


def _rewrite_format(request: Request, rules: tuple[RequestRule, ...], warnings: list[str]) -> Request:
    """The request with the form of the answer asked for in a way that its host takes.

    In place of a `json_object` that is refused stands a schema for any object. A schema that is refused is
    written into the system prompt, with `json_object` beside it. The answer is checked in any case.
    """
    form = request.options.get("response_format")
    if not isinstance(form, Mapping):
        return request
    kind, schema = find_format_type(form), find_format_schema(form)
    refused = {name for rule in rules for name in rule.refused_formats}
    if kind == "json_object" and kind in refused:
        warnings.append(
            "response_format: the host refuses `json_object`, so a schema that takes any object was sent "
            "instead"
        )
        any_object = {"name": "answer", "schema": {"type": "object"}}
        return _change_options(request, response_format={"type": "json_schema", "json_schema": any_object})
    if kind == "json_schema" and kind in refused and schema is not None:
        warnings.append(
            "response_format: the host takes no JSON Schema for the answer, so the schema was written into "
            "the system prompt"
        )
        # `json_object` allows objects only.
        takes_object = "json_object" not in refused and schema.get("type") == "object"
        request = _change_options(request, response_format={"type": "json_object"} if takes_object else None)
        words = _SCHEMA_IN_WORDS.format(schema=encode_canonical_text(schema))
        return replace(request, messages=_add_system_text(request.messages, words))
    return request


def _add_system_text(messages: Sequence[Message], text: str) -> Sequence[Message]:
    """The messages with a text at the end of the system prompt; the list of the others is not copied."""
    if isinstance(messages, RequestMessages):
        system = f"{messages.system}\n\n{text}" if messages.system else text
        return RequestMessages(system, messages.messages)
    if messages and messages[0].role == "system":
        first = replace(messages[0], content=f"{messages[0].content or ''}\n\n{text}".lstrip())
        return (first, *messages[1:])
    return (Message(role="system", content=text), *messages)


def _change_options(request: Request, **changes: Any) -> Request:
    """The request with other options; None removes one."""
    options = {**request.options, **changes}
    return replace(request, options={name: value for name, value in options.items() if value is not None})


_EFFORTS_OF_BUDGETS = ((4_096, "low"), (12_288, "medium"))
"""Up to how many tokens a budget stands for which effort; above, for `high`."""


def _replace_budget(
    request: Request, thinking: Mapping[str, Any], warnings: list[str]
) -> tuple[Request, Mapping[str, Any]]:
    """Adaptive thinking in place of a budget, with an effort of about its size."""
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled":
        return request, thinking
    size = budget if isinstance(budget, int) else 0
    effort = request.options.get("reasoning_effort") or next(
        (word for most, word in _EFFORTS_OF_BUDGETS if size <= most), "high"
    )
    warnings.append(
        f"thinking: {request.model} takes no budget of thinking ({budget} tokens), so it thinks adaptively "
        f"with the effort {effort!r}; set `reasoning_effort`, and `thinking: {{type: adaptive}}`"
    )
    others = {key: value for key, value in thinking.items() if key not in ("type", "budget_tokens")}
    return _change_options(request, reasoning_effort=effort, thinking_budget=None), {
        "type": "adaptive",
        **others,
    }


def has_budget(thinking: Mapping[str, Any] | None, *bodies: Mapping[str, Any] | None) -> bool:
    """Whether thinking is switched on with a budget."""
    for body in bodies:
        fields = (body or {}).get("additionalModelRequestFields", body) or {}
        if isinstance(fields, Mapping) and isinstance(fields.get("thinking"), Mapping):
            thinking = fields["thinking"]
    return thinking is not None and thinking.get("type") == "enabled"


def _describe_rule(rule: RequestRule) -> str:
    """When a row holds, at the end of a warning."""
    if rule.has_budget:
        return " while its thinking has a budget"
    return {True: " while it thinks", False: " unless it thinks", None: ""}[rule.is_thinking]


def _drop_options(request: Request, rules: tuple[RequestRule, ...], warnings: list[str]) -> Request:
    """The request without the options that some rows refuse."""
    refused: dict[str, None] = {}
    for rule in rules:
        for option in rule.refuses:
            value = request.options.get(option.name)
            if option.name not in refused and option.refuses(value):
                refused[option.name] = None
                word = f" {value!r}" if option.words else ""
                warnings.append(
                    f"{option.name}: {request.model} refuses it{word and f' at {word.strip()}'}"
                    f"{_describe_rule(rule)}, so it was left out"
                )
    return _change_options(request, **dict.fromkeys(refused)) if refused else request


def _fit_tool_choice(
    request: Request, rules: tuple[RequestRule, ...], host: str, warnings: list[str]
) -> Request:
    """The request with a tool choice that no row refuses, and with the tools that express it otherwise."""
    refused = {form: rule for rule in reversed(rules) for form in rule.refused_choices}
    choice = read_tool_choice(request) if refused else None
    if choice is None or (choice.mode == "auto" and not choice.names):
        return request
    names, mode = choice.names, choice.mode
    kept_names: tuple[str, ...] = ()
    notes: list[str] = []

    def note(form: ChoiceForm, refusal: str, result: str) -> None:
        rule = refused[form]
        who = request.model if rule.models or rule.is_thinking is not None else host
        notes.append(f"tool_choice: {who} {refusal}{_describe_rule(rule)}, so {result}")

    if mode == "none" and "none" in refused:
        note("none", "knows no `none`", "no tools were sent")
        warnings += notes
        return replace(_change_options(request, tool_choice=None), tools=())
    is_list = _is_list(request.options["tool_choice"], choice)
    if is_list and "lists" in refused and (choice.required_name is None or "named" in refused):
        note("lists", "takes no list of allowed tools", f"only {', '.join(names)} went out as tools")
        kept_names, names = names, choice.names if choice.required_name else ()
    if mode == "required":
        listed = ", ".join(names)
        form: ChoiceForm = "named" if len(names) == 1 else "required"
        offered_count = len(kept_names) or len(request.tools)
        if form in refused and form == "named" and "required" not in refused:
            note(form, "takes no tool by its name", f"only {listed} went out, and a call was required")
            kept_names, names = names, ()
        elif form in refused and form == "required" and offered_count == 1 and "named" not in refused:
            names = kept_names or (request.tools[0].name,)
        elif form in refused:
            what = f"only {listed} went out as a tool, and" if form == "named" else "nothing is forced:"
            note(form, "cannot be forced to call a tool", f"{what} the model decides")
            kept_names, mode = names or kept_names, "auto"
            names = names if len(names) > 1 else ()
    if (names, mode, kept_names) == (choice.names, choice.mode, ()) and not (is_list and "lists" in refused):
        return request
    warnings += notes
    tools = tuple(tool for tool in request.tools if not kept_names or tool.name in kept_names)
    return replace(_change_options(request, tool_choice=_spell_choice(mode, names)), tools=tools)


def _is_list(option: Any, choice: ToolChoice) -> bool:
    """Whether a choice is spelled as a list of tools."""
    is_spelled = isinstance(option, Mapping) and ("allowed" in option or "allowed_tools" in option)
    return is_spelled or len(choice.names) > 1 or bool(choice.names and choice.mode == "auto")


def _spell_choice(mode: str, names: tuple[str, ...]) -> Any:
    """The option of a choice; None for `auto`."""
    if not names:
        return None if mode == "auto" else mode
    return names[0] if mode == "required" and len(names) == 1 else {"allowed": list(names), "mode": mode}
