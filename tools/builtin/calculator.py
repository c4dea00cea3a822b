"""The `calculator` tool: exact arithmetic here, everything harder in a bounded worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.tools.builtin.algebra import solve_symbolically
from toolchart.tools.builtin.arithmetic import NotPlain, evaluate_plain, format_exact
from toolchart.tools.builtin.expressions import parse_expression, require_expression_text
from toolchart.tools.builtin.worker_calls import run_in_worker

EXPRESSION_TIMEOUT_S = 0.35
"""Seconds for an expression that needs algebra. Most take a hundredth; what takes longer is refused."""


def calculate(arguments: Mapping[str, Any]) -> Any:
    """Compute `expression`; where that needs algebra return an awaitable of the worker's answer.

    An integer is returned as a number (beyond 64 bits as text), a finite decimal as a number, anything
    else as `{"exact": text, "decimal": number}`.

    Raises:
        ToolFailure: the text is not an allowed expression, or its value would be too large.
    """
    if arguments.get("operation", "evaluate") != "evaluate":
        return solve_symbolically(arguments)
    text = require_expression_text(arguments["expression"])
    try:
        return format_exact(evaluate_plain(parse_expression(text)))
    except NotPlain:
        return run_in_worker("evaluate_text", {"text": text}, timeout_s=EXPRESSION_TIMEOUT_S)
