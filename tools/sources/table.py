"""The table of tool sources: what can stand after `implementation.type`, and the sections `tools.openapi` and
`tools.mcp`.

To add a source, write a function that loads an entry, and add a row. Another package adds a row by an entry
point of the group `toolchart.tool_sources`; see `docs/extending.md`. This module imports no loader: a spec is
checked against the table before any tool is made.
"""

from __future__ import annotations

from typing import Literal

from toolchart.states.descriptors import Descriptor, Registry, find_reference_gaps, find_text_gaps
from toolchart.tools.definition import Trust


class ToolSourceDescriptor(Descriptor, frozen=True, kw_only=True):
    """One kind of tools: where they come from, and how they are made from the spec."""

    summary: str = ""
    """What such a tool is, in a few words."""
    load: str = ""
    """Reference to the loader. For an entry: a function `(ToolEntry, LoadingContext)` that returns a `Tool`.
    It raises `EntryLeftOut` if the entry cannot be used now, `SpecError` if its settings are not allowed. For
    a section: a function `(section, LoadingContext)` that returns a list of tools and a list of warnings."""
    list_starts: str = ""
    """Reference to a function that lists what an entry can start, load, call, send or read, as `Start`s: what
    a person is asked to trust. For an entry: `(ToolEntry, base_folder)`; for a section: `(section,
    base_folder)`. It loads nothing itself. `toolchart.states.starts:list_no_starts` for a source whose tools
    stay inside the process."""
    place: Literal["entry", "section"] = "entry"
    """`entry`: the name is a word of `implementation.type`, and makes one tool. `section`: the name is a key
    of the `tools` section, and makes any number."""
    settings: tuple[str, ...] = ()
    """Names of its settings, beside the ones that every entry has. Others give a warning."""
    required: tuple[str, ...] = ()
    """Settings without which an entry is refused."""
    checks_settings: bool = False
    """Whether the loader checks the settings itself, so that nothing else looks at them."""
    list_settings: str = ""
    """Reference to a function from the handler of an entry to the names of its settings, where these depend
    on the handler."""
    trust: Trust = "untrusted"
    """Whether strangers may have written what its tools return, where an entry does not say."""
    is_own_code: bool = False
    """Whether the tools are code of the program: `check` follows what such a tool returns until its entry
    says whether strangers write it."""
    writes: bool = True
    """Whether its tools may change something, where nothing says that one only reads."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        gaps = [
            *super().find_gaps(),
            *find_text_gaps(summary=self.summary),
            *find_reference_gaps("load", self.load, "the function that makes the tool"),
            *find_reference_gaps("list_starts", self.list_starts, "the function that lists what it starts"),
        ]
        if self.list_settings:
            gaps += find_reference_gaps("list_settings", self.list_settings, "")
        if self.place not in ("entry", "section"):
            gaps.append(f"`place` is {self.place!r}, and not `entry` or `section`")
        unlisted = [key for key in self.required if key not in (*self.settings, "handler")]
        if unlisted and not (self.checks_settings or self.list_settings):
            gaps.append(f"`required` names {', '.join(unlisted)}, which `settings` does not list")
        return gaps

    def list_references(self) -> dict[str, str]:
        """The loader, the function that lists starts, and the one that lists the settings if there is one."""
        settings = {"list_settings": self.list_settings} if self.list_settings else {}
        return {"load": self.load, "list_starts": self.list_starts, **settings}


def _list_builtin_sources() -> tuple[ToolSourceDescriptor, ...]:
    return (*_list_entry_sources(), *_list_section_sources())


def _list_entry_sources() -> tuple[ToolSourceDescriptor, ...]:
    """Return the sources of entries of `tools.registry`."""
    entries = "toolchart.tools.sources.registry_entries"
    return (
        ToolSourceDescriptor(
            name="agent",
            summary="another handler of the spec, run as a child conversation",
            load="toolchart.tools.sources.agents:load_agent_tool",
            list_starts="toolchart.tools.sources.agents:list_called_agent_starts",
            required=("handler",),
            settings=("chart",),
        ),
        ToolSourceDescriptor(
            name="mock",
            summary="a fixed answer",
            load=f"{entries}:load_mock_tool",
            list_starts="toolchart.states.starts:list_no_starts",
            trust="trusted",
            writes=False,
        ),
        ToolSourceDescriptor(
            name="builtin",
            summary="a tool that comes with Toolchart",
            load=f"{entries}:load_builtin_tool",
            list_starts=f"{entries}:list_builtin_starts",
            list_settings=f"{entries}:list_builtin_settings",
            trust="trusted",
            writes=False,
        ),
        ToolSourceDescriptor(
            name="internal",
            summary="a service of the program",
            load=f"{entries}:load_internal_tool",
            list_starts=f"{entries}:list_internal_starts",
            list_settings=f"{entries}:list_internal_settings",
            trust="trusted",
            is_own_code=True,
        ),
        ToolSourceDescriptor(
            name="http",
            summary="an HTTP request",
            load=f"{entries}:load_http_tool",
            list_starts=f"{entries}:list_http_starts",
            required=("url",),
            checks_settings=True,
        ),
        ToolSourceDescriptor(
            name="python",
            summary="a Python function",
            load=f"{entries}:load_python_tool",
            list_starts=f"{entries}:list_python_starts",
            required=("handler",),
            trust="trusted",
            is_own_code=True,
        ),
    )


def _list_section_sources() -> tuple[ToolSourceDescriptor, ...]:
    """Return the sources that have a section of their own under `tools`."""
    return (
        ToolSourceDescriptor(
            name="openapi",
            summary="the operations of OpenAPI documents",
            load="toolchart.tools.sources.openapi:load_openapi_section",
            list_starts="toolchart.tools.sources.openapi:list_openapi_starts",
            place="section",
            checks_settings=True,
        ),
        ToolSourceDescriptor(
            name="mcp",
            summary="the tools of MCP servers",
            load="toolchart.tools.sources.mcp:load_mcp_section",
            list_starts="toolchart.tools.sources.mcp:list_mcp_starts",
            place="section",
            checks_settings=True,
        ),
    )


TOOL_SOURCES = Registry("tool source", "toolchart.tool_sources", ToolSourceDescriptor, _list_builtin_sources)
"""Every source of tools."""
