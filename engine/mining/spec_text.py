"""Writes YAML with comments: the text of a spec that says where each thing comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolchart.states.visible_text import make_visible_line

WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NOT_PLAIN = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"))


def format_scalar(value: Any) -> str:
    """A value on one line; a mapping or a list in flow style."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{format_scalar(key)}: {format_scalar(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_scalar, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    return '"' + "".join(map(_escape, value)) + '"'


def _escape(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if letter.isprintable():
        return letter
    code = ord(letter)
    named = {10: "\\n", 9: "\\t", 13: "\\r"}.get(code)
    return named or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def format_entry(key: str, value: Any, indent: int) -> list[str]:
    """The lines of one key of a mapping: on one line where it fits, else in block style."""
    pad, name = " " * indent, format_scalar(key)
    if isinstance(value, str) and "\n" in value and _fits_block(value):
        return [f"{pad}{name}: {_name_block(value)}", *_indent_block(value, indent + 2)]
    line = f"{pad}{name}: {format_scalar(value)}"
    if len(line) <= WIDTH or not value or not isinstance(value, Mapping | list | tuple):
        return [line]
    if isinstance(value, Mapping):
        lines = [line for inner, item in value.items() for line in format_entry(inner, item, indent + 2)]
        return [f"{pad}{name}:", *lines]
    return [f"{pad}{name}:", *format_items(value, indent + 2)]


def format_items(values: Sequence[Any], indent: int) -> list[str]:
    """The lines of a list in block style."""
    lines: list[str] = []
    for value in values:
        flow = f"{' ' * indent}- {format_scalar(value)}"
        if not isinstance(value, Mapping) or not value or len(flow) <= WIDTH:
            lines.append(flow)
            continue
        entries = [line for key, item in value.items() for line in format_entry(key, item, indent + 2)]
        lines += [f"{' ' * indent}- {entries[0].lstrip()}", *entries[1:]]
    return lines


def format_comments(texts: Iterable[str], indent: int = 0) -> list[str]:
    """The lines of comments, each text broken into lines; what would act on a terminal is visible."""
    lines: list[str] = []
    for text in texts:
        line = ""
        for word in make_visible_line(text).split(" "):
            if line and len(line) + len(word) + indent + 3 > WIDTH:
                lines.append(line)
                line = "  "
            line += word if not line.strip() else f" {word}"
        lines.append(line)
    return [f"{' ' * indent}# {line}".rstrip() for line in lines]


def _fits_block(text: str) -> bool:
    """Whether a literal block gives the text back as it is."""
    return all(letter.isprintable() or letter in "\n\t" for letter in text) and bool(text.strip("\n"))


def _name_block(text: str) -> str:
    """The head of a literal block. The indentation is said: the text may begin with a blank."""
    if not text.endswith("\n"):
        return "|2-"
    return "|2+" if text.endswith("\n\n") else "|2"


def _indent_block(text: str, indent: int) -> list[str]:
    lines = text.split("\n")
    if text.endswith("\n"):
        lines = lines[:-1]
    return [f"{' ' * indent}{line}" if line else "" for line in lines]
