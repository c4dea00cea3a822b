"""Loads an agent spec from a shipped name, a file or a mapping; errors name file, line and key path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from toolchart.specs.document_files import check_nesting, read_document
from toolchart.specs.flows import list_shipped_flows, read_flow_text
from toolchart.specs.foreign_keys import translate_section
from toolchart.specs.models import AgentSpec, Implementation, LLMConfig, ToolEntry
from toolchart.specs.secrets import hide_secrets, remember_spec_secrets
from toolchart.specs.sections.base import IS_CHECKED, Section, find_misspelt_key
from toolchart.specs.sections.context import ModelChoice
from toolchart.specs.turn_plan import compile_pattern
from toolchart.states.chart.yaml_document import Document, SourcePosition, format_key_path, parse_document
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.response_format import find_format_problem

_MAX_PROBLEMS = 10
"""Most problems of one document that an error lists."""

UNLOGGED_SECTIONS = ("approvers",)
"""Sections that no log holds, so that nobody can take them from one: whom to trust is the operator's word."""

_AGENTS = Path(__file__).parent / "agents"

_OPEN_SECTIONS = (LLMConfig, ToolEntry, Implementation)
"""Sections whose additional keys belong to an adapter or a tool type, which checks them."""


@cache
def list_shipped_agents() -> tuple[str, ...]:
    """The names of the agents that come with Toolchart, those of the flows after the others."""
    names = sorted(path.stem for path in _AGENTS.glob("*.yaml"))
    return (*names, *list_shipped_flows())


def read_shipped_agent(name: str) -> str:
    """The YAML text of a shipped agent."""
    if name in list_shipped_flows():
        return read_flow_text(name)
    return (_AGENTS / f"{name}.yaml").read_text("utf-8")


def load_spec(source: str | Path | Mapping[str, Any]) -> AgentSpec:
    """Load an agent spec by the name of a shipped agent or flow (`"quickstart"`), by path, or from a mapping.

    Raises:
        SpecError: the spec cannot be used; names file, line, key path, what is allowed and the nearest
            known key. One error lists several problems of a document.
    """
    if isinstance(source, Mapping):
        check_nesting(source)
        return parse_spec(Document(data=dict(source)))
    if not isinstance(source, (str, Path)):
        kind = type(source).__name__
        raise SpecError(f"an agent spec is loaded from a name, a path or a mapping, not from {kind}")
    if str(source) in list_shipped_agents():
        text = read_shipped_agent(str(source))
        return parse_spec(parse_document(text, f"{source}.yaml (shipped)"), source=None)
    path = Path(source)
    is_bare_name = path.suffix == "" and len(path.parts) == 1
    if is_bare_name and not path.exists():
        close = get_close_matches(str(source), list_shipped_agents(), n=1, cutoff=0.7)
        raise SpecError(
            f"no agent spec {str(source)!r}: neither a file nor a shipped agent",
            hint=f"did you mean {close[0]!r}?"
            if close
            else "name a file, or a shipped agent: `toolchart init --list` lists them; "
            f"`toolchart init {source}` writes {source}.yaml",
        )
    document = read_document(path)
    remember_spec_secrets(document.data)  # before anything of it can be quoted in an error
    return parse_spec(document, source=str(path))


def parse_spec(document: Document, source: str | None = None) -> AgentSpec:
    """Validate a document as an agent spec; `source` is its file, if it has one.

    Raises:
        SpecError: the document is not a valid agent spec.
    """
    written = document.data
    document = replace(document, data=_drop_comments(AgentSpec, document.data))
    wrong, unused, notes = _translate_foreign_keys(document)
    misspelt, unknown = _find_unknown_keys(document)
    misspelt = [*wrong, *misspelt]
    try:
        spec = AgentSpec.model_validate(document.data, context={IS_CHECKED: True})
    except ValidationError as error:
        problems = [*misspelt, *_list_validation_problems(error, document)]
        raise merge_problems(problems) from None
    problems = [*misspelt, *_find_inconsistencies(spec, document)]
    if problems:
        raise merge_problems(problems)
    spec._source = source
    spec._chart_lines = {p[1:]: line for p, line in document.lines.items() if p[:1] == ("chart",)}
    spec._warnings = (*_build_foreign_warning([*unused, *unknown]), *notes, *_find_missing_parts(spec))
    spec._public_document = hide_secrets(
        {key: value for key, value in written.items() if key not in UNLOGGED_SECTIONS},
        globs=[glob.lower() for glob in spec.redact.keys] if spec.redact else (),
    )
    return spec


def merge_problems(problems: list[SpecError]) -> SpecError:
    """Merge problems into one error, which has the position of the first."""
    first, rest = problems[0], problems[1:_MAX_PROBLEMS]
    if not rest:
        return first
    more = len(problems) - len(rest) - 1
    hint = "\n".join([*([f"  {first.hint}"] if first.hint else []), *map(str, rest)])
    if more:
        hint += f"\n({more} more)"
    return SpecError(first.message, file=first.file, line=first.line, path=first.path, hint=hint.strip())


def _make_problem(
    document: Document, position: SourcePosition, message: str, hint: str | None = None
) -> SpecError:
    return SpecError(
        message,
        file=document.source,
        line=document.find_line(position),
        path=format_key_path(position),
        hint=hint,
    )


# -- problems that pydantic reports -----------------------------------------------------------------


def _list_validation_problems(error: ValidationError, document: Document) -> Iterator[SpecError]:
    for detail in error.errors(include_url=False):
        position = _trim_location(document.data, detail["loc"])
        if detail["type"] == "missing":
            yield _make_problem(document, position[:-1], f"the key {position[-1]!r} is missing")
            continue
        value = detail.get("input")
        hint = detail.get("ctx", {}).get("hint") or _suggest_word(value, detail)
        if detail["type"] == "string_type" and isinstance(value, (int, float)):
            hint = "a text that looks like a number or a boolean stands in quotes"
        is_plain = isinstance(value, (str, int, float, bool, type(None)))
        suffix = f", found {value!r}" if is_plain else ""
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        yield _make_problem(document, position, message + suffix, hint)


def _suggest_word(value: Any, detail: Mapping[str, Any]) -> str | None:
    """The nearest of the allowed words; None where the value is no word, or like none of them."""
    words = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
    close = get_close_matches(value, words, n=1) if isinstance(value, str) else []
    return f"did you mean {close[0]!r}?" if close else None


def _trim_location(data: Any, loc: tuple[Any, ...]) -> SourcePosition:
    """Cut pydantic's location to the keys of the document, plus the first key that is missing.

    For a union pydantic adds the type that it tried, which is not a key of the document.
    """
    position: list[str | int] = []
    current = data
    for part in loc:
        exists = (isinstance(current, dict) and part in current) or (
            isinstance(current, list) and isinstance(part, int) and part < len(current)
        )
        if exists:
            position.append(part)
            current = current[part]
        elif isinstance(current, dict):
            position.append(part)
            break
        else:
            break
    return tuple(position)


# -- comments --------------------------------------------------------------------------------------


def _drop_comments(model: type[Section], data: Any) -> Any:
    """A copy of a section without the keys that begin with `_` or `$`, which are comments in existing files.

    What is inside a value that is no section (a JSON Schema, the answer of a mock) stays as it is.
    """
    if not isinstance(data, dict):
        return data
    section = _drop_comment_keys(data)
    for name, info in model.model_fields.items():
        inner = _find_section_model(info.annotation)
        value = section.get(name)
        if inner is None or value is None:
            continue
        if isinstance(value, list):
            section[name] = [_drop_comments(inner, entry) for entry in value]
        elif isinstance(value, dict) and get_origin(info.annotation) is dict:
            section[name] = {key: _drop_comments(inner, v) for key, v in _drop_comment_keys(value).items()}
        else:
            section[name] = _drop_comments(inner, value)
    return section


def _drop_comment_keys(data: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in data.items() if not str(key).startswith(("_", "$"))}


# -- keys of other systems ---------------------------------------------------------------------------


def _translate_foreign_keys(document: Document) -> tuple[list[SpecError], list[str], list[str]]:
    """Put our keys in place of those of other systems, in the sections of a document that may be changed.

    Returns:
        Wrong values, keys without an effect, and warnings about others.
    """
    wrong: list[SpecError] = []
    unused: list[str] = []
    notes: list[str] = []
    for model, data, position in list(_walk_sections(AgentSpec, document.data, ())):
        translated = translate_section(model, data)
        for key, problem in translated.problems.items():
            wrong.append(_make_problem(document, (*position, key), problem))
        unused += [format_key_path((*position, key)) or key for key in translated.unused]
        notes += [f"{format_key_path((*position, key))} {text}" for key, text in translated.warnings.items()]
        data.clear()
        data.update(translated.data)
    return wrong, unused, notes


def _find_missing_parts(spec: AgentSpec) -> Iterator[str]:
    """What an agent that is not configured yet still needs."""
    if not spec.llms:
        yield "there are no hosts: `llms` is empty"
    if not spec.responses:
        yield "there are no handlers: `responses` is empty, so no message can be answered"


# -- unknown keys ----------------------------------------------------------------------------------


def _find_unknown_keys(document: Document) -> tuple[list[SpecError], list[str]]:
    """Return misspelt keys, which are errors, and foreign ones, which are ignored with a warning."""
    misspelt: list[SpecError] = []
    foreign: list[str] = []
    for model, data, position in _walk_sections(AgentSpec, document.data, ()):
        for key in data:
            if model.has_key(key):
                continue
            nearest = find_misspelt_key(model, str(key), data)
            if nearest is not None:
                hint = f"did you mean {nearest!r}?"
                misspelt.append(_make_problem(document, (*position, str(key)), f"unknown key {key!r}", hint))
            elif not issubclass(model, _OPEN_SECTIONS):
                foreign.append(format_key_path((*position, str(key))) or str(key))
    return misspelt, foreign


def _walk_sections(
    model: type[Section], data: Any, position: SourcePosition
) -> Iterator[tuple[type[Section], dict[str, Any], SourcePosition]]:
    """Yield every mapping of the document that a section model describes, with its position."""
    if not isinstance(data, dict):
        return
    yield model, data, position
    for name, info in model.model_fields.items():
        inner = _find_section_model(info.annotation)
        if inner is None or name not in data:
            continue
        value, child = data[name], (*position, name)
        if isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _walk_sections(inner, entry, (*child, index))
        elif isinstance(value, dict) and get_origin(info.annotation) is dict:
            for key, entry in value.items():
                yield from _walk_sections(inner, entry, (*child, str(key)))
        else:
            yield from _walk_sections(inner, value, child)


def _find_section_model(annotation: Any) -> type[Section] | None:
    """Return the section model inside an annotation such as `list[ToolEntry]` or `ToolsConfig | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if issubclass(annotation, Section) else None
    for part in get_args(annotation):
        model = _find_section_model(part)
        if model is not None:
            return model
    return None


def _build_foreign_warning(foreign: list[str]) -> tuple[str, ...]:
    if not foreign:
        return ()
    return (f"keys that Toolchart does not use: {', '.join(foreign)}",)


# -- contradictions between sections --------------------------------------------------------------


def _find_inconsistencies(spec: AgentSpec, document: Document) -> Iterator[SpecError]:
    for index, handler in enumerate(spec.responses):
        position: SourcePosition = ("responses", index)
        if handler.llm not in spec.llms:
            yield _make_problem(
                document,
                (*position, "llm"),
                f"there is no llm {handler.llm!r}",
                suggest_name(handler.llm, spec.llms),
            )
        for key, pattern in (handler.match or {}).items():
            if key.endswith("_regexp"):
                try:
                    compile_pattern(str(pattern))
                except ValueError as error:
                    yield _make_problem(
                        document, (*position, "match", key), f"not a regular expression: {error}"
                    )
        yield from _find_broken_format(handler.response_format or {}, document, position)
    if spec.log_answers and spec.redact is not None:
        # A raw answer is no text in which secrets could be found: an escape or a piece of a stream hides one.
        yield _make_problem(
            document,
            ("log_answers",),
            "a redacted log keeps no raw answers: they would hold what `redact` takes out",
            "leave out `log_answers` or `redact`",
        )
    yield from _find_unknown_hosts(spec, document)
    yield from _find_duplicate_tools(spec, document)


def _find_broken_format(
    response_format: Mapping[str, Any], document: Document, position: SourcePosition
) -> Iterator[SpecError]:
    """A `response_format` that no answer could fit, or that would not be checked as it was meant."""
    problem = find_format_problem(response_format)
    if problem is not None:
        yield _make_problem(document, (*position, "response_format"), problem.message, problem.hint)


def _find_unknown_hosts(spec: AgentSpec, document: Document) -> Iterator[SpecError]:
    """Sections that name an `llms` entry which does not exist."""
    choices: list[tuple[SourcePosition, ModelChoice | None]] = [
        (("intent", "provider"), spec.intent.provider if spec.intent else None),
        (("topic", "provider"), spec.topic.provider if spec.topic else None),
        (("embedding",), spec.embedding),
    ]
    for position, choice in choices:
        if choice is not None and choice.llm not in spec.llms:
            message, hint = f"there is no llm {choice.llm!r}", suggest_name(choice.llm, spec.llms)
            yield _make_problem(document, (*position, "llm"), message, hint)


def _find_duplicate_tools(spec: AgentSpec, document: Document) -> Iterator[SpecError]:
    tool_names: set[str] = set()
    for index, entry in enumerate(spec.tools.registry if spec.tools else ()):
        if entry.name in tool_names:
            yield _make_problem(
                document,
                ("tools", "registry", index, "name"),
                f"the tool {entry.name!r} is defined twice",
                "keep one of them",
            )
        tool_names.add(entry.name)
