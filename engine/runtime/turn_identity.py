"""What a turn that is run once answers: its input, and the agent that answers it.

Two requests are for one turn where the model is asked the same in the same flow: message, history,
attachments and variables, the filled prompt, model, options and tools, the chart and its effects. What only
carries the question is no part of it: hosts, keys, limits, prices, and what the code of a tool does inside.

The log has all of this already, in the records of the turn's beginning. So nothing more is recorded, and a
conversation that was begun in another way is compared as well. Where models or searches found a part of the
prompt, that part is left out: finding it again would ask them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import count, islice, takewhile
from typing import Any

import msgspec

from toolchart.engine.log.family import name_context
from toolchart.engine.log.redaction import hide_marks
from toolchart.engine.runtime.agent import CONTEXT_MARK, Agent
from toolchart.engine.runtime.answer_form import AnswerType
from toolchart.engine.runtime.parts import TurnOptions
from toolchart.specs.child_agents import MAX_DEPTH, describe_agent
from toolchart.specs.turn_plan import needs_preparation
from toolchart.states.canonical_json import (
    ABSENT,
    encode_canonical,
    encode_canonical_text,
    find_json_differences,
)
from toolchart.states.core.encoding import make_plain_event, read_json
from toolchart.states.events import CONFIGURATION_TYPES, Event, Forked, TurnStarted
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.states.ports import Store
from toolchart.states.visible_text import make_visible_line

_INPUT_PARTS = ("message", "history", "attachments", "variables")
"""The parts of an identity that only the caller gives."""

_AGENT_PARTS = ("spec", "tools", "chart", "effects")
"""The parts of a configuration: where they are as they were, whatever differs was given by the caller."""

_CARRYING_OPTIONS = ("batch", "cache_key", "cache_ttl", "metadata", "service_tier")
"""Options that say how a question travels, not what is asked."""

_CONTEXT_SECTIONS = ("intent", "topic", "rag_services")
"""Sections of a spec that find the context of a turn."""

_PLACES = "collections"
"""The variable that names the places where the context of a turn is searched."""

_SHOWN = 60
"""Characters of a value in a message."""


class TurnDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The most telling difference between a turn of the log and what it is asked for now."""

    part: str
    """`message`, `prompt`, `model`, `options.temperature`, `tools.add.description`, `chart`, ..."""
    before: Any
    """The value in the log; `ABSENT` where it has none."""
    now: Any
    is_input: bool
    """Whether the caller gave another input; else the agent is another one."""

    def __str__(self) -> str:
        before, now = _show_both(self.before, self.now)
        means = ", by its variables" if self.part == "prompt" and self.is_input else ""
        return f"another {self.part}{means}: {before} then, {now} now"


class TurnIdentities:
    """Compares requests for turns with what the log has of them."""

    def __init__(self, agent: Agent, store: Store) -> None:
        self._agent = agent
        self._store = store
        self._configured: Mapping[str, Any] | None = None

    async def find_difference(
        self, conversation: str, message: str, options: TurnOptions, form: AnswerType | None, start: int = 0
    ) -> TurnDifference | None:
        """What differs between a turn of a conversation and a request; None where nothing does, and where
        there is no such turn.

        Of a log that is redacted, everything but the secrets is compared.

        Args:
            start: the turn is the first one that begins at this record or later.

        Raises:
            SpecError: there is no handler, prompt or model for the request.
        """
        configured, started = _read_beginning(self._store, conversation, start)
        if not started:
            return None
        difference = TurnDifference(
            part="handler", before=started.get("handler", ""), now=ABSENT, is_input=False
        )
        recorded = self._hide_marks(_describe(configured, started))
        recorded["variables"] |= _read_searched_places(self._store, conversation)
        for current in await self._describe_request(message, options, form, started.get("handler", "")):
            _take_found_context(current, recorded)
            places = find_json_differences(recorded, current, splits_lists=False)
            place = next(places, None)
            if place is None:
                return self._find_child_difference(conversation, self._agent)
            pointer, before, now = place
            names = _split_pointer(pointer)
            is_same_agent = all(configured.get(name) == self._configure().get(name) for name in _AGENT_PARTS)
            is_input = names[0] in _INPUT_PARTS or is_same_agent
            difference = TurnDifference(part=".".join(names), before=before, now=now, is_input=is_input)
        return difference

    async def digest_request(self, message: str, options: TurnOptions, form: AnswerType | None) -> str:
        """The digest of what a request asks, of which agent: equal requests have equal digests.

        Raises:
            SpecError: there is no handler, prompt or model for the request.
        """
        identities = await self._describe_request(message, options, form, None)
        identities += _describe_children(self._agent, 0)
        return hashlib.sha256(encode_canonical(identities)).hexdigest()[:16]

    async def _describe_request(
        self, message: str, options: TurnOptions, form: AnswerType | None, handler: str | None
    ) -> list[dict[str, Any]]:
        """The identity of a request under each handler that it may have."""
        plans = await self._agent.outline_turns(message, options, form, handler)
        redact = self._agent.conversations.redact_event
        started = [redact(_make_plain(plan)) for plan in plans]
        identities = [self._hide_marks(_describe(self._configure(), event)) for event in started]
        if needs_preparation(self._agent.spec):
            places = (options.get("variables") or {}).get(_PLACES) or []
            for identity in identities:
                identity["variables"][_PLACES] = places
        return identities

    def _find_child_difference(self, conversation: str, agent: Agent) -> TurnDifference | None:
        """The first difference of an agent that ran in a conversation from each one that would run there."""
        children = list_child_agents(agent)
        for name in _iterate_children(self._store, conversation) if children else ():
            recorded = _describe_agent(_read_beginning(self._store, name)[0])
            difference: TurnDifference | None = None
            for child in children:
                places = find_json_differences(
                    recorded, _describe_agent(_configure(child)), splits_lists=False
                )
                place = next(places, None)
                if place is None:
                    difference = self._find_child_difference(name, child)
                    break
                pointer, before, now = place
                part = ".".join(["agents", *_split_pointer(pointer)])
                difference = difference or TurnDifference(part=part, before=before, now=now, is_input=False)
            if difference is not None:
                return difference
        return None

    def _configure(self) -> Mapping[str, Any]:
        """The configuration of the agent as it is now."""
        if self._configured is None:
            self._configured = _configure(self._agent)
        return self._configured

    def _hide_marks(self, identity: Any) -> Any:
        """The identity without the marks of secrets, which each process makes anew."""
        return identity if self._agent.spec.redact is None else _mask(identity)


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mask(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return hide_marks(value) if isinstance(value, str) else value


def _make_plain(event: Event) -> dict[str, Any]:
    """An event as the log has it."""
    data: dict[str, Any] = read_json(make_plain_event(event)[1])
    return data


def _read_beginning(
    store: Store, conversation: str, start: int = 0
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The configuration of a conversation, or of the one that it was forked from, and the event that began
    its first turn from a record on; empty where there is none."""
    configured: Mapping[str, Any] = {}
    system: str | None = None
    for seq, event in _iterate_events(store, conversation):
        if event["type"] in CONFIGURATION_TYPES:
            configured = event
        elif event["type"] == TurnStarted.TYPE:
            system = event.get("system", system)  # a turn without one keeps that of the turn before
            if seq >= start or not start:
                return configured, {**event, "system": system}
    return configured, {}


def _read_searched_places(store: Store, conversation: str) -> dict[str, Any]:
    """The variable that says where the context of a turn was searched; empty where nothing was searched."""
    for line in store.read_lines(conversation):
        event = read_json(line)["event"]
        if event["type"] == Forked.TYPE:
            return _read_searched_places(store, event["parent"])
        break
    variables = _read_beginning(store, name_context(conversation))[1].get("variables") or {}
    return {name: value for name, value in variables.items() if name == _PLACES}


def _iterate_events(store: Store, conversation: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The events of a conversation with the numbers of their records; those of the parent first, with -1,
    where it is a fork."""
    for seq, line in enumerate(store.read_lines(conversation)):
        event = read_json(line)["event"]
        if event["type"] == Forked.TYPE:
            shared = islice(_iterate_events(store, event["parent"]), event["seq"] + 1)
            yield from ((-1, each) for _, each in shared)
            continue
        yield seq, event


def _describe(configured: Mapping[str, Any], started: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a turn, from the events of its beginning as JSON data."""
    settings, spec = started["settings"], configured["spec"]
    tools = {tool["name"]: tool for tool in configured.get("tools") or ()}
    identity = {
        "message": started["message"],
        "history": started.get("history"),
        "attachments": [part for part in started.get("parts") or () if part.get("type") != "text"],
        "variables": started.get("variables") or {},
        "prompt": started.get("system"),
        "model": settings["model"],
        "options": _drop(settings.get("options") or {}, _CARRYING_OPTIONS),
        "tools": {name: tools.get(name) for name in settings.get("tools") or ()},
        "chart": configured["chart"],
        "effects": configured.get("effects") or {},
        "spec": {name: spec[name] for name in _CONTEXT_SECTIONS if name in spec},
    }
    return {name: value for name, value in identity.items() if value is not None and value != []}


def _describe_agent(configured: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent is that another one runs, whatever it is asked; from its configuration as JSON data."""
    spec = configured["spec"]
    return {
        "responses": spec.get("responses") or [],
        "models": {name: llm.get("model") for name, llm in (spec.get("llms") or {}).items()},
        "tools": {tool["name"]: tool for tool in configured.get("tools") or ()},
        "chart": configured["chart"],
        "effects": configured.get("effects") or {},
    }


def _configure(agent: Agent) -> dict[str, Any]:
    """The configuration of an agent as its conversations have it."""
    return _make_plain(agent.conversations.build_configured_event(""))


def _describe_children(agent: Agent, depth: int) -> list[dict[str, Any]]:
    """The agents that an agent may run, and those that these may run."""
    if depth > MAX_DEPTH:
        return []
    children = list_child_agents(agent)
    described = [_describe_agent(_configure(child)) for child in children]
    return described + [each for child in children for each in _describe_children(child, depth + 1)]


def list_child_agents(agent: Agent) -> list[Agent]:
    """The agents that the chart of an agent runs."""
    runs = [row.parameters for row in agent.chart.vocabulary.declared.values()]
    return [agent.get_child(describe_agent(run)) for run in runs if isinstance(run, RunAgentParameters)]


def _iterate_children(store: Store, conversation: str) -> Iterator[str]:
    """The conversations of the agents that a conversation has run, in order."""
    for line in store.read_lines(conversation):
        record = read_json(line)
        if record["event"]["type"] == Forked.TYPE:
            yield from _iterate_children(store, record["event"]["parent"])
        for ask in record.get("asks") or ():
            name = f"{conversation}.{ask['id']}"
            if store.read_last_line(name) is not None:
                yield name
            items = (f"{name}.{item}" for item in count())
            yield from takewhile(lambda child: store.read_last_line(child) is not None, items)


def _split_pointer(pointer: str) -> list[str]:
    return [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]


def _drop(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _take_found_context(current: dict[str, Any], recorded: Mapping[str, Any]) -> None:
    """Let what models and searches find for a turn be as it is in the log."""
    pieces, prompt = current.get("prompt", "").split(CONTEXT_MARK), recorded.get("prompt", "")
    if len(pieces) > 1 and _fits(pieces, prompt):
        current["prompt"] = prompt
    variables, found = current["variables"], recorded["variables"]
    if _PLACES not in found:
        variables.pop(_PLACES, None)
    found_names = [name for name, value in variables.items() if value == CONTEXT_MARK]
    if found_names:
        kept = {name: value for name, value in variables.items() if name not in found_names}
        kept |= {name: found[name] for name in found_names if name in found}
        current["variables"] = kept


def _fits(pieces: list[str], text: str) -> bool:
    """Whether a text is made of pieces in this order, with anything between two of them."""
    first, *middle, last = pieces
    if not (text.startswith(first) and text.endswith(last) and len(text) >= len(first) + len(last)):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        position = text.find(piece, position, end)
        if position < 0:
            return False
        position += len(piece)
    return True


def _show_both(before: Any, now: Any) -> tuple[str, str]:
    """Both values, each on one line; of long ones the part that begins a little before their difference."""
    texts = [_write(value) for value in (before, now)]
    pairs = enumerate(zip(*texts, strict=False))
    start = next((at for at, (left, right) in pairs if left != right), min(map(len, texts)))
    start = max(0, start - _SHOWN // 3) if max(map(len, texts)) > _SHOWN else 0
    left, right = (
        f"'{_cut(text, start)}'" if isinstance(value, str) else _cut(text, start)
        for text, value in zip(texts, (before, now), strict=True)
    )
    return left, right


def _write(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    text = value if isinstance(value, str) else encode_canonical_text(value)
    return make_visible_line(text.replace(CONTEXT_MARK, "…"))


def _cut(text: str, start: int) -> str:
    shown = text[start : start + _SHOWN]
    return f"{'…' if start else ''}{shown}{'…' if len(text) > start + _SHOWN else ''}"
