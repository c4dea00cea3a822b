"""Fills `{{rag_context}}` in a prompt with document passages that match the user's message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolchart.states.flows.templates import list_template_variables, look_up_variable
from toolchart.tools.definition import ToolFailure
from toolchart.tools.services import Search

RAG_VARIABLE = "rag_context"


async def fill_rag_context(
    prompt: str | None, variables: Mapping[str, Any], search: Search | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The variables with `rag_context` added where the prompt uses it, and warnings.

    A value that the caller passed is kept. Without `search` nothing is added. Where the search fails,
    `rag_context` is empty and a warning names the reason; the turn continues.
    """
    values = dict(variables)
    if search is None or not prompt or RAG_VARIABLE not in list_template_variables(prompt):
        return values, ()
    if look_up_variable(values, RAG_VARIABLE) is not None:
        return values, ()
    from toolchart.tools.sources.documents import build_rag_context

    try:
        text = await asyncio.to_thread(build_rag_context, search, str(values.get("user_message", "")))
    except Exception as error:
        # A user's search function may raise any exception; it must not end the turn.
        reason = str(error) if isinstance(error, ToolFailure) else f"{type(error).__name__}: {error}"
        return {**values, RAG_VARIABLE: ""}, (f"the documents could not be searched: {reason}",)
    return {**values, RAG_VARIABLE: text}, ()
