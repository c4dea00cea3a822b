"""docs/agent-spec.md is correct: every key of an agent spec with its type, default and meaning.

`python tests/packaging/test_agent_spec_doc.py` writes the page from the models of the spec.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from toolchart.specs.models import AgentSpec

DOC = Path(__file__).resolve().parents[2] / "docs" / "agent-spec.md"

INTRODUCTION = """\
# Agent spec: every key

Here you look up a key of an agent spec, which is a YAML or JSON file. `toolchart schema` prints its JSON
Schema for editors. Each section may have a `comment`. Sections that a key opens have a table of their own
below. [Tools](tools.md) has the settings of each kind of tool, and [Providers](providers.md) those of
hosts.

A word without quotes means what the core schema of YAML 1.2 says, in specs and charts alike. Only `true`
and `false` are booleans: `on`, `off`, `yes` and `NO` are texts. So are dates, `12:30`, `1_000`, and numbers
with a zero in front (`007`). `1.10` is a number: write a version as `"1.10"`. Where a number or a boolean
stands for a text, in a field of the spec or under `enum`, `const`, `default` or `examples` of a schema with
`type: string`, the error says to write it in quotes. `yes` and its like under `type: boolean` are errors too.

This page is generated: `python tests/packaging/test_agent_spec_doc.py` writes it from the models, and the
same file tests it.
"""


def print_page() -> str:
    """The page as it should be."""
    schema = AgentSpec.model_json_schema()
    sections = [("The agent", schema), *sorted(schema.get("$defs", {}).items())]
    tables = [print_section(name, section) for name, section in sections if section.get("properties")]
    return "\n".join((INTRODUCTION, *tables))


def print_section(name: str, section: dict[str, Any]) -> str:
    """One section with its keys."""
    required = section.get("required", ())
    rows = [
        f"| `{key}` | {describe_type(value)} | {describe_default(key, value, required)} "
        f"| {describe_meaning(value)} |"
        for key, value in section["properties"].items()
        if key != "comment"
    ]
    meaning = " ".join(section.get("description", "").split())
    head = "| key | type | default | meaning |\n| --- | --- | --- | --- |"
    return "\n".join((f"## {name}", "", *([escape(meaning), ""] if meaning else []), head, *rows, ""))


def describe_type(value: dict[str, Any]) -> str:
    """The type of a key in a few words; a section is a link."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        words = dict.fromkeys(describe_type(part) for part in value["anyOf"] if part.get("type") != "null")
        return " or ".join(words)
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    if value.get("type") == "array":
        return f"list of {describe_type(value.get('items', {}))}"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"mapping to {describe_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}.get(
        str(value.get("type", "")), "anything"
    )


def describe_default(key: str, value: dict[str, Any], required: Any) -> str:
    """The default of a key; empty where it has none."""
    if key in required:
        return "**required**"
    default = value.get("default")
    return (
        ""
        if default in (None, [], {}, "")
        else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    )


def describe_meaning(value: dict[str, Any]) -> str:
    """The meaning of a key on one line."""
    return escape(" ".join(value.get("description", "").split()))


def escape(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def test_the_page_has_every_key() -> None:
    """The committed page is the one that the models give; each key has a meaning."""
    assert DOC.read_text("utf-8") == print_page(), f"write it again: python {Path(__file__).name}"
    assert "|  |\n" not in print_page()


if __name__ == "__main__":
    DOC.write_text(print_page(), "utf-8")
    sys.stdout.write(f"{DOC.name} written\n")
