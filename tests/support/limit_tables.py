"""Tables of limits in documents, from the classes whose fields they are."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import msgspec


def write_limit_table(limits: type[msgspec.Struct]) -> str:
    """A row for each field: its name, its default and its docstring."""
    (class_node,) = ast.parse(inspect.getsource(limits)).body
    assert isinstance(class_node, ast.ClassDef)
    sentences = [
        " ".join(node.value.value.split())
        for node in class_node.body[1:]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    rows = [
        f"| `{field.name}` | {field.default:,} | {sentence} |"
        for field, sentence in zip(msgspec.structs.fields(limits), sentences, strict=True)
    ]
    return "\n".join(["| limit | default | what |", "|---|---|---|", *rows, ""])


def fill_limit_table(text: str, limits: type[msgspec.Struct]) -> str:
    """A document with the table between its marks as it should be.

    Raises:
        ValueError: it has no such marks.
    """
    table = re.compile(r"(<!-- limits: [^>]*-->\n).*?(<!-- end of limits -->)", re.DOTALL)
    if table.search(text) is None:
        raise ValueError("the document has no marks of a table of limits")
    return table.sub(lambda match: f"{match[1]}\n{write_limit_table(limits)}\n{match[2]}", text)


def write_document(path: Path, limits: type[msgspec.Struct]) -> None:
    """Write the table into a document."""
    path.write_text(fill_limit_table(path.read_text(), limits))
