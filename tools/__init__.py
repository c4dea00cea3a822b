"""Tools: what they are, how calls of them are reviewed and run, and where they come from.

From the lowest room to the highest; none imports a higher one, which import-linter holds (`pyproject.toml`):

1. `schemas`: whether data fits a JSON Schema; `services`: searches that a program supplies
2. `definition.py`: the `Tool` value
3. `whole_definition.py`, `formats.py`, `tool_context.py`: a tool as people, hosts and its own code see it
4. `registry.py`: tools by name; `conditions.py`, `approvers.py`, `approval.py`: the approval policy
5. `execution`: one call from its review to its result
6. `builtin`, `retrieval`: tools and document services that ship
7. `sources`: tools from functions, entries of a spec, HTTP, OpenAPI and MCP
8. `manager.py`: the tools of one agent; `data_flow.py`: what `check` knows of them; `validation`: suites

The exports are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.tools.definition import Tool as Tool
    from toolchart.tools.definition import ToolFailure as ToolFailure
    from toolchart.tools.sources.python import tool as tool

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {"toolchart.tools.sources.python": ("tool",), "toolchart.tools.definition": ("Tool", "ToolFailure")},
    )
