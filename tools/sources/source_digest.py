"""Digests of the sources of Python tools: replay names a changed body, although the schema is the same."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable
from tokenize import TokenError
from types import CodeType
from typing import Any

from toolchart.tools.definition import Tool


def list_source_digests(tools: Iterable[Tool]) -> dict[str, str]:
    """By tool name: the digest of its source; only tools that are Python functions."""
    return {tool.name: digest_function_source(tool.function) for tool in tools if tool.function is not None}


def digest_function_source(function: Callable[..., Any]) -> str:
    """The digest of a function's source: 32 hexadecimal digits.

    It covers the text of the function, decorators and comments included, and nothing that the function calls.
    Where there is no text (a function typed at a prompt), it covers the compiled code, which may differ
    between versions of Python. Where there is neither (a function in C), it covers the name alone.
    """
    inner = inspect.unwrap(function)
    try:
        text = textwrap.dedent(inspect.getsource(inner))
    except (OSError, TypeError, SyntaxError, TokenError):
        # Python looks where the function once stood in a file, and may find other text there.
        code = getattr(inner, "__code__", None)
        name = getattr(inner, "__qualname__", type(inner).__qualname__)
        text = _describe_code(code) if isinstance(code, CodeType) else f"no source: {name}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _describe_code(code: CodeType) -> str:
    """Compiled code as text, without the addresses of nested code and without line numbers."""
    constants = [
        _describe_code(constant) if isinstance(constant, CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames))
