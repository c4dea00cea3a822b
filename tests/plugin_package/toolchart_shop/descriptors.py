"""The row of a renderer, whose function is elsewhere."""

from __future__ import annotations

from toolchart.states.diagram import RendererDescriptor

OUTLINE = RendererDescriptor(
    name="outline",
    summary="states and transitions as an indented list",
    render="toolchart_shop.renderer:render",
    media_type="text/plain",
)
