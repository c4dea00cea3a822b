"""How models write calls as text: one row per format, with where a call begins, where it ends, how its body
is read and how it is written.

Source: the models' own chat templates, as vLLM, SGLang and llama.cpp read them (see docs/text-calls.md).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolchart.providers.shared.arguments import parse_arguments
from toolchart.states.canonical_json import canonical_text

Written = tuple[str, dict[str, Any]]
"""Name and arguments of one call."""

Schemas = Mapping[str, Mapping[str, Any]]
"""JSON Schema of the arguments of each offered tool, by name."""

Read = Callable[[str, Schemas], list[Written] | None]
"""The calls of a body; None where it is no call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One way to write calls."""

    name: str
    opener: str
    """What a call begins with; empty for calls that are a whole message."""
    closer: str = ""
    """What it ends with; empty where it goes on to the end of the message."""
    read: Read
    write: Callable[[str, str], str]
    """The text of a call from its name and its arguments as JSON."""


# -- bodies ------------------------------------------------------------------------------------------


def read_json(body: str, schemas: Schemas) -> list[Written] | None:
    """`{"name": ..., "arguments" or "parameters": {...}}`, or a list of these."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = [_named(one) for one in (value if isinstance(value, list) else [value])]
    return [one for one in found if one is not None] if found and None not in found else None


def _named(value: Any) -> Written | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    given = value.get("arguments", value.get("parameters", {}))
    if isinstance(given, str):
        given, _ = parse_arguments(given)
    return (value["name"], given) if isinstance(given, dict) else None


_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>", re.DOTALL)


def read_function_tags(body: str, schemas: Schemas) -> list[Written] | None:
    """`<function=name><parameter=key>value</parameter></function>` (Qwen3-Coder); a text stays a text where
    the tool's schema says so, anything else is read as JSON where it is."""
    found = _FUNCTION.fullmatch(body)
    if not found:
        return None
    properties = schemas.get(found[1], {}).get("properties") or {}
    given = {
        key: _value(text.removeprefix("\n").removesuffix("\n"), properties.get(key))
        for key, text in _PARAMETER.findall(found[2])
    }
    return [(found[1], given)]


def _value(text: str, schema: Any) -> Any:
    if isinstance(schema, Mapping) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_hermes(body: str, schemas: Schemas) -> list[Written] | None:
    """Either of the two bodies that `<tool_call>` is seen with."""
    return read_json(body, schemas) or read_function_tags(body, schemas)


_MISTRAL = re.compile(r"\s*([\w.-]+)\s*(?:\[ARGS\]|\[CALL_ID\]\w+\[ARGS\])?\s*(?=\{)")


def read_mistral(body: str, schemas: Schemas) -> list[Written] | None:
    """A list of calls (to v10), or `name{...}` or `name[ARGS]{...}`, several behind further markers (v11)."""
    found: list[Written] = []
    for part in body.split("[TOOL_CALLS]"):
        head = _MISTRAL.match(part)
        if head:
            given, _ = parse_arguments(part[head.end() :])
            calls = [(head[1], given)] if given is not None else None
        else:
            calls = read_json(part, schemas)
        if not calls:
            return None
        found += calls
    return found


def read_llama(body: str, schemas: Schemas) -> list[Written] | None:
    """One or several JSON objects, `;` between them."""
    whole = read_json(body, schemas)
    if whole is not None:
        return whole
    found = [read_json(part, schemas) for part in re.split(r";\s*(?=\{)", body)]
    return [one for calls in found if calls for one in calls] if all(found) else None


_DEEPSEEK = re.compile(
    r"\s*<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?\s*([^\s<`]+?)\s*"
    r"(?:<｜tool▁sep｜>|\n```json\n)(.*?)(?:\n```)?\s*<｜tool▁call▁end｜>\s*",
    re.DOTALL,
)


def read_deepseek(body: str, schemas: Schemas) -> list[Written] | None:
    """`name<sep>{...}` (V3.1) or `function<sep>name` with a fenced object (V3), several in one block."""
    found, place = [], 0
    while place < len(body):
        call = _DEEPSEEK.match(body, place)
        given = parse_arguments(call[2])[0] if call else None
        if call is None or given is None:
            return None
        found.append((call[1], given))
        place = call.end()
    return found or None


def read_pythonic(body: str, schemas: Schemas) -> list[Written] | None:
    """`[f(a=1), g(b="x")]`: literals only, by keyword only."""
    try:
        tree = ast.parse(body.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.List) or not tree.elts:
        return None
    found = [_called(one) for one in tree.elts]
    return [one for one in found if one is not None] if None not in found else None


def _called(node: ast.expr) -> Written | None:
    if not isinstance(node, ast.Call) or node.args:
        return None
    try:
        given = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords if word.arg}
        name = ast.unparse(node.func)
        json.dumps(given)
    except (ValueError, TypeError, RecursionError):
        return None
    plain = re.fullmatch(r"[A-Za-z_][\w.]*", name) and len(given) == len(node.keywords)
    return (name, given) if plain else None


def _json_call(name: str, arguments: str) -> str:
    return f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'


def _tagged(name: str, arguments: str) -> str:
    given = parse_arguments(arguments)[0] or {}
    inner = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else canonical_text(value)}\n</parameter>\n"
        for key, value in given.items()
    )
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def _python(name: str, arguments: str) -> str:
    given = parse_arguments(arguments)[0] or {}
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})]"


# -- the table ---------------------------------------------------------------------------------------

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(
            name="hermes",
            opener="<tool_call>",
            closer="</tool_call>",
            read=read_hermes,
            write=lambda name, given: f"<tool_call>\n{_json_call(name, given)}\n</tool_call>",
        ),
        Format(
            name="qwen3_coder",
            opener="<tool_call>",
            closer="</tool_call>",
            read=read_hermes,
            write=_tagged,
        ),
        Format(
            name="mistral",
            opener="[TOOL_CALLS]",
            read=read_mistral,
            write=lambda name, given: f"[TOOL_CALLS]{name}[ARGS]{given}",
        ),
        Format(
            name="llama3",
            opener="<|python_tag|>",
            read=read_llama,
            write=lambda name, given: _json_call(name, given).replace(
                '"arguments"', '"parameters"', 1
            ),
        ),
        Format(
            name="deepseek",
            opener="<｜tool▁calls▁begin｜>",
            closer="<｜tool▁calls▁end｜>",
            read=read_deepseek,
            write=lambda name, given: (
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
                f"{name}<｜tool▁sep｜>{given}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        Format(name="pythonic", opener="", read=read_pythonic, write=_python),
    )
}
"""Every format but `bracket`, whose markers are drawn for each conversation."""

NAMES = ("native", "auto", "bracket", *FORMATS)
"""What a spec's `tool_format` may be."""

WHOLE: dict[str, Read] = {"llama3": read_llama, "pythonic": read_pythonic}
"""Formats in which a bare body may be the whole message, if it names offered tools only."""


def bracket(boundary: str) -> Format:
    """`[TOOL_CALL:id]{...}[/TOOL_CALL:id]`. A marker with another id is plain text: what a tool or a user
    wrote cannot become a call, since nobody knows the id."""
    opener, closer = f"[TOOL_CALL:{boundary}]", f"[/TOOL_CALL:{boundary}]"
    return Format(
        name="bracket",
        opener=opener,
        closer=closer,
        read=read_json,
        write=lambda name, given: f"{opener}{_json_call(name, given)}{closer}",
    )
