"""A text format: a model writes `=> name {"argument": 1} <=`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolchart.providers.text_calls.formats import TextFormat


def read_body(body: str, schemas: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, dict[str, Any]]] | None:
    """Name and arguments between the markers; None if it is no call."""
    name, _, text = body.strip().partition(" ")
    try:
        arguments = json.loads(text)
    except ValueError:
        return None
    return [(name, arguments)] if isinstance(arguments, dict) else None


def write_call(name: str, arguments: str) -> str:
    """A call with these arguments, which are JSON already."""
    return f"=> {name} {arguments} <="


DESCRIPTOR = TextFormat(name="arrow", opener="=>", closer="<=", read_body=read_body, write_call=write_call)
