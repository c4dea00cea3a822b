"""Digests of Python tools: a changed body has another digest, whatever the schema says."""

from __future__ import annotations

from typing import Any

from toolchart.tools.sources.python import make_tool
from toolchart.tools.sources.source_digest import digest_function_source, list_source_digests


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_changed_body_has_another_digest() -> None:
    """Two functions with one signature and two bodies differ; one function is always the same."""

    def make_function(body: str) -> Any:
        names: dict[str, Any] = {}
        exec(f"def add(a: int, b: int) -> int:\n    return {body}\n", names)  # noqa: S102
        return names["add"]

    digests = [digest_function_source(make_function(body)) for body in ("a + b", "a - b", "a + b")]
    assert digests[0] == digests[2] != digests[1]
    assert digest_function_source(add) == digest_function_source(add)


def test_a_function_without_source_has_a_digest() -> None:
    """A function in C, and an object that is called, have digests of their names."""
    assert digest_function_source(len) != digest_function_source(sorted)
    assert len(digest_function_source(add.__get__(1))) == 32


def test_only_functions_are_listed() -> None:
    """A tool that is no Python function has no source."""
    tool = make_tool(add)
    assert list_source_digests([tool]) == {"add": digest_function_source(add)}
