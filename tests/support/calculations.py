"""Calls the calculator from a test, also where it answers from a worker."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from toolchart.tools.builtin.calculator import calculate


def compute_value(expression: str) -> Any:
    """The result of the calculator, on an event loop of its own where it is awaited."""
    value = calculate({"expression": expression})
    if not inspect.isawaitable(value):
        return value

    async def await_value() -> Any:
        return await value

    return asyncio.run(await_value())
