"""Rows whose functions are elsewhere, so that a broken one does not keep the others from being used."""

from __future__ import annotations

from toolchart.app.cli.command_table import CommandDescriptor
from toolchart.states.diagram import RendererDescriptor

LONGEST = CommandDescriptor(
    name="longest",
    summary="Print the conversation with the most records.",
    command="toolchart_shop.command:command",
)

OUTLINE = RendererDescriptor(
    name="outline",
    summary="states and transitions as an indented list",
    render="toolchart_shop.renderer:render",
    media_type="text/plain",
)
