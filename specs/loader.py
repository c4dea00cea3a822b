"""Loading an agent spec: from a shipped name, a file or a mapping, with errors that point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from toolchart.specs.handler_selection import pattern
from toolchart.specs.models import AgentSpec, Implementation, LLMConfig, Section, ToolEntry
from toolchart.specs.secrets import hidden
from toolchart.specs.yaml_document import Document, parse_document, read_document
from toolchart.states.chart.source_positions import Place, dotted
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

_MOST_PROBLEMS = 10
"""Problems of one document that are told at once."""

_AGENTS = "toolchart.specs.agents"

_OPEN = (LLMConfig, ToolEntry, Implementation)
"""Parts whose further keys belong to an adapter or a tool type, which checks them itself."""


@cache
def shipped_agents() -> tuple[str, ...]:
    """Names of the agents that come with Toolchart."""
    names = (entry.name for entry in files(_AGENTS).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_spec(source: str | Path | Mapping[str, Any]) -> AgentSpec:
    """The agent spec of a shipped name (`"quickstart"`), a path, or a mapping.

    Raises:
        SpecError: it cannot be used; names file, line, key path, what is allowed and the nearest
            known key. Several problems of one document are told together.
    """
    if isinstance(source, Mapping):
        return spec_of(Document(data=dict(source)))
    if str(source) in shipped_agents():
        text = files(_AGENTS).joinpath(f"{source}.yaml").read_text("utf-8")
        return spec_of(parse_document(text, f"{source}.yaml (shipped)"), source=None)
    path = Path(source)
    looks_like_name = path.suffix == "" and len(path.parts) == 1
    if looks_like_name and not path.exists():
        raise SpecError(
            f"no agent spec {str(source)!r}: neither a file nor a shipped agent",
            hint=nearest(str(source), shipped_agents()),
        )
    return spec_of(read_document(path), source=str(path))


def spec_of(document: Document, source: str | None = None) -> AgentSpec:
    """The spec of a document.

    Raises:
        SpecError: it is no agent spec.
    """
    misspelt, foreign = _unknown_keys(document)
    try:
        spec = AgentSpec.model_validate(document.data)
    except ValidationError as error:
        problems = [*misspelt, *_told(error, document)]
    else:
        problems = [*misspelt, *_inconsistencies(spec, document)]
    if problems:
        raise _together(problems)
    spec._source = source
    spec._warnings = _foreign_warning(foreign)
    spec._authored = hidden(document.data)
    return spec


def _together(problems: list[SpecError]) -> SpecError:
    """One error that tells all; its place is that of the first."""
    first, rest = problems[0], problems[1:_MOST_PROBLEMS]
    if not rest:
        return first
    more = len(problems) - len(rest) - 1
    hint = "\n".join([*([f"  {first.hint}"] if first.hint else []), *map(str, rest)])
    if more:
        hint += f"\n({more} more)"
    return SpecError(
        first.message, file=first.file, line=first.line, path=first.path, hint=hint.strip()
    )


def _problem(document: Document, place: Place, message: str, hint: str | None = None) -> SpecError:
    return SpecError(
        message, file=document.source, line=document.line(place), path=dotted(place), hint=hint
    )


# -- what pydantic says --------------------------------------------------------------------------


def _told(error: ValidationError, document: Document) -> Iterator[SpecError]:
    for detail in error.errors(include_url=False):
        place = _known_part(document.data, detail["loc"])
        if detail["type"] == "missing":
            yield _problem(document, place[:-1], f"the key {place[-1]!r} is missing")
            continue
        found = detail.get("input")
        shown = (
            f", found {found!r}" if isinstance(found, (str, int, float, bool, type(None))) else ""
        )
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        yield _problem(document, place, message + shown)


def _known_part(data: Any, loc: tuple[Any, ...]) -> Place:
    """The part of pydantic's place that the document has, and the first key that it lacks.

    A union puts the type that it tried into the place; that is no key of the document.
    """
    place: list[str | int] = []
    here = data
    for part in loc:
        inside = (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        )
        if inside:
            place.append(part)
            here = here[part]
        elif isinstance(here, dict):
            place.append(part)
            break
        else:
            break
    return tuple(place)


# -- keys that nobody knows ----------------------------------------------------------------------


def _unknown_keys(document: Document) -> tuple[list[SpecError], list[str]]:
    """Misspelt keys, which are errors, and foreign ones, which are named once and ignored."""
    misspelt: list[SpecError] = []
    foreign: list[str] = []
    for model, data, place in _sections(AgentSpec, document.data, ()):
        known = set(model.model_fields)
        for key in data:
            if key in known:
                continue
            # Where further keys belong to others, only what is hardly different is a slip: `headers` of
            # an HTTP tool is no misspelt `handler`.
            cutoff = 0.8 if issubclass(model, _OPEN) else 0.7
            close = get_close_matches(str(key), sorted(known - set(data)), n=1, cutoff=cutoff)
            if close:
                hint = f"did you mean {close[0]!r}?"
                here = (*place, str(key))
                misspelt.append(_problem(document, here, f"unknown key {key!r}", hint))
            elif not issubclass(model, _OPEN):
                foreign.append(dotted((*place, str(key))) or str(key))
    return misspelt, foreign


def _sections(
    model: type[Section], data: Any, place: Place
) -> Iterator[tuple[type[Section], dict[str, Any], Place]]:
    """Every mapping of the document that a model describes."""
    if not isinstance(data, dict):
        return
    yield model, data, place
    for name, info in model.model_fields.items():
        inner = _section_of(info.annotation)
        if inner is None or name not in data:
            continue
        value, here = data[name], (*place, name)
        if isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _sections(inner, entry, (*here, index))
        elif name == "llms" and isinstance(value, dict):
            for key, entry in value.items():
                yield from _sections(inner, entry, (*here, str(key)))
        else:
            yield from _sections(inner, value, here)


def _section_of(annotation: Any) -> type[Section] | None:
    """The model inside an annotation such as `list[ToolEntry]` or `ToolsConfig | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if issubclass(annotation, Section) else None
    for part in get_args(annotation):
        found = _section_of(part)
        if found is not None:
            return found
    return None


def _foreign_warning(foreign: list[str]) -> tuple[str, ...]:
    if not foreign:
        return ()
    return (f"keys that Toolchart does not use: {', '.join(foreign)}",)


# -- what the parts say of each other ------------------------------------------------------------


def _inconsistencies(spec: AgentSpec, document: Document) -> Iterator[SpecError]:
    for index, handler in enumerate(spec.responses):
        place: Place = ("responses", index)
        if handler.llm not in spec.llms:
            yield _problem(
                document,
                (*place, "llm"),
                f"there is no llm {handler.llm!r}",
                nearest(handler.llm, spec.llms),
            )
        for key, wanted in (handler.match or {}).items():
            if key.endswith("_regexp"):
                try:
                    pattern(str(wanted))
                except ValueError as error:
                    yield _problem(
                        document, (*place, "match", key), f"not a regular expression: {error}"
                    )
    names: dict[str, int] = {}
    for index, entry in enumerate(spec.tools.registry if spec.tools else ()):
        if entry.name in names:
            yield _problem(
                document,
                ("tools", "registry", index, "name"),
                f"the tool {entry.name!r} stands twice",
                "keep one of them",
            )
        names[entry.name] = index
