"""The manifest of an agent: everything that it can start, load, call, open, send or read, as rows for people.

It is computed from the loaded spec and the tables. Each row of a table says what its entries start
(`list_starts`), so nothing is listed by hand here but the sections of a spec that have no table. Agents that
the chart runs are followed, and so are charts by path and charts that they extend.

Computing it acts on nothing that it lists: no module of a user is imported, no program is started, no
connection is opened, no variable is resolved. Charts and specs that are named by path are read, as data. The
one thing that is loaded is the row of an installed plug-in, which must speak for itself; it is on the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.providers.hosts import HOSTS, find_host
from toolchart.specs.charts import read_spec_chart
from toolchart.specs.child_agents import MAX_DEPTH, build_child_spec
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.loader import list_shipped_agents
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import find_references
from toolchart.specs.sections.debug import read_debug_switches
from toolchart.states.descriptors import Registry, find_row, load_row_reference
from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING
from toolchart.states.starts import START_KINDS, Start, find_addresses, quote_whole, quote_words
from toolchart.states.vocabulary import get_effects
from toolchart.tools.sources.registry_entries import list_entry_starts, list_section_starts
from toolchart.tools.sources.table import TOOL_SOURCES
from toolchart.workers.error_text import describe_error

_WORD = re.compile(r"[^\W\d]\w*")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can start, reach or read, the most dangerous first, each once."""

    starts: tuple[Start, ...]

    def format_lines(self) -> list[str]:
        """One numbered line for each start: whole, and of plain ASCII, so that nothing is hidden in it."""
        width = len(str(len(self.starts)))
        return [f"{n:>{width}}. {_format_start(start)}" for n, start in enumerate(self.starts, 1)]


def build_manifest(spec: AgentSpec) -> Manifest:
    """The manifest of an agent.

    Raises:
        SpecError: a part of it cannot say what it starts: a row is incomplete, a chart or a child's spec
            cannot be read, a setting is not allowed. Such an agent cannot be trusted by its list.
    """
    try:
        starts = dict.fromkeys(_list_agent(spec, "", 0, set()))
    except SpecError:
        raise
    except Exception as error:  # the function of another package's row may fail in any way
        message = f"the agent cannot say what it starts: {describe_error(error)}"
        raise SpecError(message, file=spec.source) from error
    return Manifest(starts=tuple(sorted(starts, key=lambda start: START_KINDS.index(start.kind))))


def _format_start(start: Start) -> str:
    """`KIND  SUBJECT  (PURPOSE; PLACE)`."""
    subject = quote_words(start.words) if start.words else quote_whole(start.subject)
    size = f" [{len(start.subject):,} characters]" if len(start.subject) > 200 else ""
    details = "; ".join(quote_whole(text) for text in (start.purpose, start.place) if text)
    return f"{start.kind}{size}: {subject}{f'  ({details})' if details else ''}"


# -- one agent -----------------------------------------------------------------------------------------


def _list_agent(spec: AgentSpec, place: str, depth: int, known_agents: set[str]) -> Iterator[Start]:
    """The starts of an agent and of those that it runs.

    Args:
        place: stands before the key path of every start: the effects that lead to a child.
        known_agents: the agents that are listed already, filled here; agents may run each other.
    """
    key = repr((spec.source, spec.to_public_dict(), spec.chart, spec.effects))
    if key in known_agents:
        return
    if depth > MAX_DEPTH:
        raise SpecError(f"agents run each other more than {MAX_DEPTH} deep", file=spec.source)
    known_agents.add(key)
    children: list[Start] = []
    for start in (*_list_sections(spec), *_list_chart(spec)):
        if start.agent is not None:
            children.append(start)
        yield replace(start, place=f"{place}{start.place}", agent=None)
    for child in children:
        assert child.agent is not None
        yield from _list_child(spec, child, place, depth, known_agents)


def _list_child(
    spec: AgentSpec, child: Start, place: str, depth: int, known_agents: set[str]
) -> Iterator[Start]:
    """The file of a child's spec, and the starts of the child."""
    agent = dict(child.agent or {})
    _check_child_file(spec, agent)
    child_spec = build_child_spec(spec, agent)
    child_place = f"{place}{child.place}"
    if agent.get("spec") and child_spec.source:
        purpose = "is read: an agent spec"
        yield Start(kind="file", subject=child_spec.source, purpose=purpose, place=child_place)
    yield from _list_agent(child_spec, f"{child_place} > ", depth + 1, known_agents)


def _check_child_file(spec: AgentSpec, agent: Mapping[str, Any]) -> None:
    """Refuse a child's spec that is no regular file of a spec's size: reading a device might never end.

    Raises:
        SpecError: it is none.
    """
    reference = str(agent.get("spec") or "")
    if not reference or reference in list_shipped_agents():
        return
    beside = Path(spec.source).parent if spec.source else Path()
    for path in (beside / reference, Path(reference)):
        if path.exists() and not (path.is_file() and path.stat().st_size <= READING.spec_characters):
            raise SpecError("this is no file of an agent spec", file=str(path))


def _list_sections(spec: AgentSpec) -> Iterator[Start]:
    """What the sections of a spec start, its chart aside."""
    folder = Path(spec.source).parent if spec.source else Path()
    yield from _list_hosts(spec, folder)
    yield from _list_tools(spec, folder)
    for name, service in spec.rag_services.items():
        purpose = "is searched with what the user says"
        yield Start(kind="address", subject=service.url, purpose=purpose, place=f"rag_services.{name}")
    if isinstance(spec.prices, str):
        yield Start(kind="file", subject=str(folder / spec.prices), purpose="is read: prices", place="prices")
    receipts = spec.approval.get("receipts") if isinstance(spec.approval, Mapping) else None
    if isinstance(receipts, str):
        purpose = "folder that gets a receipt for each signed approval that is used"
        yield Start(kind="file", subject=str(folder / receipts), purpose=purpose, place="approval.receipts")
    switches = read_debug_switches(spec.debug)
    if switches.traces or switches.message_parts:
        path = str(folder / switches.folder)
        purpose = "folder that gets debug files, with what is said"
        yield Start(kind="file", subject=path, purpose=purpose, place="debug")
    for index, handler in enumerate(spec.responses):
        options = handler.model_dump(exclude={"prompt", "comment"}, exclude_none=True)
        for address in find_addresses(options):
            purpose = "is handed to a model host, which may ask it"
            yield Start(kind="address", subject=address, purpose=purpose, place=f"responses[{index}]")
    yield from _list_variables(spec)


def _list_hosts(spec: AgentSpec, folder: Path) -> Iterator[Start]:
    """What the model hosts start, and the packages that they come from."""
    for name, config in spec.llms.items():
        place = f"llms.{name}"
        row = find_host(config.provider)
        yield from _list_plugin(HOSTS, config.provider, place)
        for start in load_row_reference(row, row.list_starts)(row, name, config, folder):
            yield replace(start, place=place)


def _list_tools(spec: AgentSpec, folder: Path) -> Iterator[Start]:
    """What the entries and the sections of `tools` start."""
    if spec.tools is None:
        return
    for index, entry in enumerate(spec.tools.registry):
        place = f"tools.registry[{index}]"
        yield from _list_plugin(TOOL_SOURCES, entry.kind.type, place)
        for start in list_entry_starts(entry, folder):
            yield replace(start, place=place)
    own_sections = [row.name for row in TOOL_SOURCES.builtin_rows if row.place == "section"]
    for name in (*own_sections, *(spec.tools.model_extra or {})):
        section, place = getattr(spec.tools, name), f"tools.{name}"
        if section and name in TOOL_SOURCES:
            yield from _list_plugin(TOOL_SOURCES, name, place)
            source = TOOL_SOURCES.find(name, place)
            if source.place == "section":
                for start in list_section_starts(source, section, folder):
                    yield replace(start, place=place)


def _list_variables(spec: AgentSpec) -> Iterator[Start]:
    """Every variable of the environment that a text of the spec refers to, with the key path of the text."""
    for place, text in _iterate_texts(spec.to_public_dict(), ""):
        for variable, reference in find_references(text):
            yield Start(kind="variable", subject=variable, purpose=f"stands as {reference}", place=place)


def _iterate_texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iterate_texts(str(key), place)
            yield from _iterate_texts(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _iterate_texts(item, f"{place}[{index}]")


# -- charts --------------------------------------------------------------------------------------------


def _list_chart(spec: AgentSpec) -> Iterator[Start]:
    """What the chart of an agent starts: files and declared effects."""
    document, paths = read_spec_chart(spec)
    for path in paths:
        yield Start(kind="file", subject=path, purpose="is read: a chart", place="chart")
    declared = document.get("effects") or {}
    if not isinstance(declared, Mapping):
        raise SpecError("`effects` is a mapping of names to declarations", file=spec.source, path="effects")
    folder = Path(spec.source).parent if spec.source else Path()
    effects = EffectResolver(spec).merge(declared)
    for name, body in effects.items():
        for start in _list_effect(name, body):
            subject = str(folder / start.subject) if start.kind == "file" else start.subject
            yield replace(start, subject=subject)


def _list_effect(name: str, body: Any) -> Iterator[Start]:
    """What a declared effect starts, in each spelling that its declaration may have.

    Raises:
        SpecError: it is declared by something else than one kind.
    """
    place = f"effects.{name}"
    if not isinstance(body, Mapping) or len(body) != 1:
        raise SpecError(f"the effect {name!r} is declared by one kind with its parameters", path=place)
    kind, parameters = next(iter(body.items()))
    row = find_row(get_effects(), "effect", str(kind), place)
    if isinstance(parameters, str):  # the short form; that of the other kinds names nothing
        parameters = {"function": parameters} if kind == "call_function" else {}
    list_starts = row.list_starts
    assert list_starts is not None  # `find_gaps` refuses a row without it
    keys: Mapping[str, Any] = parameters if isinstance(parameters, Mapping) else {}
    for start in list_starts(keys):
        yield replace(start, place=place)
    schema = keys.get("schema")
    if isinstance(schema, str):  # the loader imports it for every kind, before it looks at the kind
        yield Start(
            kind="function", subject=schema, purpose="is imported as the schema of a result", place=place
        )


def _list_plugin(registry: Registry[Any], name: str, place: str) -> Iterator[Start]:
    """The installed package that a row comes from, where it is not Toolchart itself."""
    origin = registry.describe_origin(name)
    if origin:
        purpose = f"is loaded for the {registry.kind} {name}"
        yield Start(kind="plugin", subject=origin, purpose=purpose, place=place)
