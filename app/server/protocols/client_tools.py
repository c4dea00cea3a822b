"""Tools that a client declares and runs itself: engines that offer them, and the outcomes it sends."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.app.server.answers import Refusal, make_not_found
from toolchart.engine.log.family import find_root
from toolchart.engine.reading.steps import read_configured
from toolchart.engine.runtime.engine import Engine
from toolchart.states.canonical_json import encode_canonical
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool, ToolFailure, ToolPending
from toolchart.tools.execution.context import CallContext

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says about a call that it has run."""

    value: Any
    is_error: bool = False


class ClientTools:
    """Engines beside that of the site, one for each set of tools; they share its log and its hosts.

    Args:
        tools: how many one request may declare.
        sets: how many sets of tools are kept; the one that was used longest ago is forgotten first.
    """

    def __init__(self, engine: Engine, tools: int, sets: int) -> None:
        self._max_tools, self._max_sets = tools, sets
        self._base = engine
        self._engines: OrderedDict[bytes, Engine] = OrderedDict()
        self._outcomes: dict[tuple[str, str], CallOutcome] = {}
        self._watchers: list[Callable[[str], None]] = []

    def watch_records(self, watch: Callable[[str], None]) -> None:
        """Let each of these engines call `watch` as `Engine.watch_records` does."""
        self._watchers.append(watch)
        for engine in self._engines.values():
            engine.watch_records(watch)

    def get_engine(self, definitions: Sequence[ToolDefinition]) -> Engine:
        """The engine that offers these tools; the site's own where there are none.

        Raises:
            Refusal: 400; a tool has no usable name, or that of another one.
            SpecError: its schema is not valid.
        """
        if not definitions:
            return self._base
        self._check_names([definition.name for definition in definitions])
        key = encode_canonical(msgspec.to_builtins(list(definitions)))
        if key not in self._engines:
            engine = self._base.with_tools([self._make_tool(item) for item in definitions])
            for watch in self._watchers:
                engine.watch_records(watch)
            self._engines[key] = engine
            if len(self._engines) > self._max_sets:
                self._engines.popitem(last=False)
        self._engines.move_to_end(key)
        return self._engines[key]

    def find_engine(self, conversation: str) -> Engine:
        """The engine for a conversation that exists: one with the tools that its client has declared.

        Raises:
            Refusal: 404; there is no such conversation.
        """
        configured = read_configured(self._base.store, find_root(self._base.store, conversation))
        if configured is None:
            raise make_not_found(conversation)
        registry_entries = (configured.spec.get("tools") or {}).get("registry") or ()
        # A tool that the spec had then and has no more is no client's.
        own = {*self._base.tools.names(), *(entry.get("name") for entry in registry_entries)}
        return self.get_engine([tool for tool in configured.tools if tool.name not in own])

    def find_engine_or_own(self, conversation: str) -> Engine:
        """As `find_engine`; the site's own where its tools can be offered no more, or it is not there."""
        try:
            return self.find_engine(conversation)
        except (Refusal, SpecError):
            return self._base

    def choose_engine(self, conversation: str, definitions: Sequence[ToolDefinition] = ()) -> Engine:
        """The engine for a message: one that offers these tools, where it begins a turn.

        An open turn has the tools with which it began, whoever sends the message: with others, the calls that
        wait for its client would be closed.

        Raises:
            Refusal: 400; as `get_engine`.
            SpecError: as `get_engine`.
        """
        if self._base.conversation(conversation).has_open_turn:
            return self.find_engine_or_own(conversation)
        return self.get_engine(definitions)

    def is_client_tool(self, name: str) -> bool:
        """Whether a tool is none of the site's own."""
        return self._base.tools.registry.get(name) is None

    def add_outcomes(self, outcomes: Mapping[tuple[str, str], CallOutcome]) -> None:
        """Keep outcomes, by conversation and call id, until their turn has gone on."""
        self._outcomes.update(outcomes)

    def drop_outcomes(self, keys: Sequence[tuple[str, str]]) -> None:
        """Forget outcomes."""
        for key in keys:
            self._outcomes.pop(key, None)

    def list_engines(self) -> list[Engine]:
        """The engines with tools of clients that exist now."""
        return list(self._engines.values())

    async def stop(self, grace_s: float) -> None:
        """Begin nothing more with any of these engines."""
        await asyncio.gather(*(engine.astop(grace_s) for engine in self._engines.values()))

    def _check_names(self, names: Sequence[str]) -> None:
        if len(names) > self._max_tools:
            raise Refusal(400, f"at most {self._max_tools} tools may be declared")
        for name in names:
            if not _NAME.fullmatch(name):
                raise Refusal(400, f"the tool name {name!r} is not of the form [a-zA-Z0-9_-]{{1,64}}")
            if not self.is_client_tool(name) or names.count(name) > 1:
                raise Refusal(400, f"there is another tool {name!r}; rename yours")

    def _make_tool(self, definition: ToolDefinition) -> Tool:
        return Tool(
            definition=definition, run=self._give_outcome, kind="client", needs_context=True, idempotent=True
        )

    def _give_outcome(self, arguments: Mapping[str, Any], context: CallContext) -> Any:
        """What the client has said about a call.

        Raises:
            ToolPending: nothing yet.
            ToolFailure: that it failed.
        """
        outcome = self._outcomes.get((context.conversation, context.call_id))
        if outcome is None:
            raise ToolPending
        if outcome.is_error:
            raise ToolFailure(str(outcome.value))
        return outcome.value
