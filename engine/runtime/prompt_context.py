"""What a function that writes a prompt may know: `PromptContext`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, get_origin

import msgspec

from toolchart.states.errors import SpecError, ToolchartError
from toolchart.workers.error_text import describe_error

Given = TypeVar("Given")
"""The type of what the program gave a turn, or its engine, as `dependencies`."""


class PromptContext(msgspec.Struct, Generic[Given], frozen=True, kw_only=True):
    """The turn that begins, for a function that writes its prompt or a part of it.

    It is called before anything of the turn is recorded. The prompt is recorded as it was filled, so
    `replay`, `rerun` and forks do not call the function again. `run_once` calls it to compare the prompt.
    """

    message: str
    """The user's message; in an agent that another one runs, what that one asks it."""
    variables: Mapping[str, Any]
    """The variables of the turn."""
    dependencies: Given
    """What the turn was given as `dependencies`, or its engine; None without that."""


PromptFunction: TypeAlias = Callable[[PromptContext[Given]], str | Awaitable[str]]
"""Writes a prompt, or a part of it. A plain function runs in a thread, as a tool does."""


def check_prompt_function(function: Any, name: str) -> None:
    """Refuse what cannot be called with a `PromptContext`.

    Args:
        name: of the variable that it writes.

    Raises:
        SpecError: it is no function, or takes other arguments.
    """
    hint = "write `def write_it(context: PromptContext[...]) -> str`"
    if not callable(function):
        problem = f"the prompt variable {name!r} is written by a function, not by {type(function).__name__}"
        raise SpecError(problem, hint=hint)
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        problem = f"{_name_function(function, name)} does not take one argument"
        raise SpecError(problem, hint=hint) from None
    except ValueError:  # a builtin that says nothing of its arguments
        return


def is_prompt_context(annotation: Any) -> bool:
    """Whether an annotation is `PromptContext`, with or without a type of the dependencies."""
    return annotation is PromptContext or get_origin(annotation) is PromptContext


async def write_variable(function: PromptFunction[Any], context: PromptContext[Any], name: str) -> str:
    """The text that a function writes for a variable.

    Raises:
        SpecError: it has failed, or gives no text.
    """
    try:
        if inspect.iscoroutinefunction(function):
            text = await function(context)
        else:
            text = await asyncio.to_thread(function, context)
            if inspect.isawaitable(text):
                text = await text
    except Exception as error:  # a function of the program may raise anything
        reason = str(error) if isinstance(error, ToolchartError) else describe_error(error)
        problem = f"{_name_function(function, name)} failed, so the turn does not begin: {reason}"
        raise SpecError(problem) from error
    if not isinstance(text, str):
        what = type(text).__name__
        raise SpecError(f"{_name_function(function, name)} gives {what}, and not a text")
    return text


def _name_function(function: Any, name: str) -> str:
    own_name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"the function {own_name!r}, which writes the prompt variable {name!r},"
