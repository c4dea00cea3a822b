"""What the analysis knows about an agent: its chart, its tools, whom it trusts, and which agents it runs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import field

from toolchart.states.chart.document import Chart
from toolchart.states.effects import EffectDescriptor


class Hop(msgspec.Struct, frozen=True):
    """One place that a value passes on its way."""

    text: str
    place: str
    """File and line, or the file alone."""

    def __str__(self) -> str:
        return f"{self.text} ({self.place})"


Trail = tuple[Hop, ...]
"""The way of a value from its source, hop by hop."""


class UndeclaredSource(msgspec.Struct, frozen=True, kw_only=True):
    """Code of the program of which nothing says whether strangers write what it returns."""

    name: str
    """`the tool 'x'` or `the function 'x'`."""
    place: str


class FlowTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, or all tools of one server, as the analysis sees them."""

    name: str
    place: str
    is_untrusted: bool
    """Whether strangers may have written what it returns."""
    is_high_risk: bool
    """Whether a wrong call can do much harm, as declared or by default."""
    asks: bool = False
    """Whether every call of it is denied or approved by a person before it runs."""
    undeclared_sources: tuple[UndeclaredSource, ...] = ()
    """Where nothing says who writes what it returns: itself, or the tools of the agent that it runs."""


class FlowHandler(msgspec.Struct, frozen=True, kw_only=True):
    """One handler that a turn may use."""

    tools: tuple[FlowTool, ...] = ()
    prompt_variables: tuple[str, ...] = ()
    """The names that its prompt shows the model."""
    documents: Trail | None = None
    """What `{{rag_context}}` stands for, unless the documents are trusted."""
    topic: Trail | None = None
    """What `{{topic}}` stands for, where the agent that runs this one has found it."""
    finds_topic: bool = False
    """Whether a model finds `{{topic}}` in the messages."""
    descriptions: Trail | None = None
    """The descriptions of tools that strangers have written, if it offers such tools."""


class FlowAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent."""

    chart: Chart
    handlers: tuple[FlowHandler, ...]
    """Those that a turn may use; the analysis tries each."""
    find_place: Callable[[str, str], str]
    """Returns file and line of an effect, from its name and the state that asks for it."""
    find_child: Callable[[EffectDescriptor], FlowAgent]
    """Returns the agent that a `run_agent` runs."""
    user: Hop | None = None
    """The user's messages, where strangers write them."""
    dead_rules: tuple[str, ...] = ()
    """Rules of approval for tools that there are not, whose calls run unasked."""
    idle_rules: tuple[str, ...] = ()
    """Other rules of approval that match no tool."""
    distrusts: Callable[[str], bool] = field(default=lambda source: False)
    """Which undeclared tools and functions count as untrusted."""
