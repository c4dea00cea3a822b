"""Parses `--where K=V` options into a filter of conversations."""

from __future__ import annotations

from toolchart.app.cli.parameters.options import Moment
from toolchart.engine.reading.listing import ConversationFilter
from toolchart.states.errors import SpecError, suggest_name

_TEXTS = ("search", "status", "agent", "owner", "state", "model", "tool", "text")
_TIMES = ("since", "until")


def parse_conditions(texts: tuple[str, ...]) -> ConversationFilter | None:
    """The filter of texts such as `state=error` and `since=30d`; None where there are none.

    Raises:
        SpecError: a text names no condition, or no time.
    """
    if not texts:
        return None
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in (*_TEXTS, *_TIMES):
            raise SpecError(f"--where {text!r} is no condition", hint=suggest_name(name, (*_TEXTS, *_TIMES)))
        values[name] = Moment().convert(value, None, None) if name in _TIMES else value
    return ConversationFilter(**values)  # type: ignore[arg-type]
