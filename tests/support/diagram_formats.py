"""The formats of diagrams that are text."""

from __future__ import annotations

from toolchart.states.diagram import RENDERERS

TEXT_DIAGRAMS = [name for name in RENDERERS if name not in ("svg", "png")]
