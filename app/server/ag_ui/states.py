"""The state that a front end sees, the chart's configuration and its facts, and how it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.states.core.fact_rows import FactView
from toolchart.states.snapshot import Snapshot


def describe_state(snapshot: Snapshot | None) -> dict[str, Any]:
    """The configuration and the facts of a snapshot; no configuration before the chart has started."""
    if snapshot is None or snapshot.settings is None:
        return {"configuration": [], "is_over": False, "facts": {}}
    configuration = snapshot.configuration
    return {
        "configuration": list(configuration.states) if configuration is not None else [],
        "is_over": snapshot.is_over,
        "facts": dict(FactView(snapshot)),
    }


def compare_states(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str = ""
) -> Iterator[dict[str, Any]]:
    """The operations that make one state of the other.

    >>> list(compare_states({"facts": {"a": 1, "b": 2}}, {"facts": {"a": 3, "c": 4}}))
    [{'op': 'replace', 'path': '/facts/a', 'value': 3}, \
{'op': 'remove', 'path': '/facts/b'}, {'op': 'add', 'path': '/facts/c', 'value': 4}]
    """
    for name, value in before.items():
        place = f"{path}/{_escape(name)}"
        if name not in after:
            yield {"op": "remove", "path": place}
        elif isinstance(value, Mapping) and isinstance(after[name], Mapping):
            yield from compare_states(value, after[name], place)
        elif after[name] != value:
            yield {"op": "replace", "path": place, "value": after[name]}
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{_escape(name)}", "value": value}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
