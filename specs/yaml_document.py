"""Reading a YAML or JSON document with the line of every key, for errors that point at the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolchart.states.chart.source_positions import Place, lines_of, nearest_line, not_yaml
from toolchart.states.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A mapping and where its parts stand."""

    data: dict[str, Any]
    source: str | None = None
    lines: Mapping[Place, int] = field(default_factory=dict, repr=False)

    def line(self, place: Place) -> int | None:
        """The line of a place, or of the nearest thing around it."""
        return nearest_line(self.lines, place)


def read_document(path: Path, *, holds: str = "`llms` and `responses`") -> Document:
    """The document of a file; `holds` are the keys that it should have, for an error's words.

    Raises:
        SpecError: no such file, not readable, not UTF-8, or not a YAML or JSON mapping.
    """
    source = str(path)
    if path.is_dir():
        raise SpecError("this is a folder, not a file", file=source)
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise SpecError("there is no such file", file=source) from None
    except UnicodeDecodeError as error:
        raise SpecError(
            f"not UTF-8 text ({error.reason} at byte {error.start})", file=source
        ) from None
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=source) from None
    return parse_document(text, source, json_only=path.suffix == ".json", holds=holds)


def parse_document(
    text: str,
    source: str | None,
    *,
    json_only: bool = False,
    holds: str = "`llms` and `responses`",
) -> Document:
    """The document of a text; JSON where `json_only`, else YAML, of which JSON is a part."""
    if json_only:
        _check_json(text, source)
        # YAML takes no tabs between JSON's tokens; a raw tab cannot stand inside a JSON string.
        text = text.replace("\t", " ")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = lines_of(node, source)
        data = json.loads(text) if json_only else yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise not_yaml(error, source) from None
    except RecursionError:
        raise SpecError("nested too deeply", file=source) from None
    if data is None:
        raise SpecError(
            "the file is empty", file=source, line=1, hint="start from an example: toolchart init"
        )
    if not isinstance(data, dict):
        raise SpecError(
            f"expected a mapping with {holds}, found a {type(data).__name__}",
            file=source,
            line=1,
        )
    return Document(data=data, source=source, lines=lines)


def _check_json(text: str, source: str | None) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"not valid JSON: {error.msg} (column {error.colno})", file=source, line=error.lineno
        ) from None
    except RecursionError:
        raise SpecError("nested too deeply", file=source) from None
