"""`{{rag_context}}` of a prompt: what the documents say to the user's message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from toolchart.specs.prompts import look_up, slots
from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.services import Search

VARIABLE = "rag_context"


async def with_documents(
    prompt: str | None, variables: Mapping[str, Any], search: Search | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The variables with `rag_context` where the prompt asks for it, and warnings.

    A value that was given stays. Without a search nothing is filled in. A search that fails leaves the
    turn without context and a warning that says so: its answer may be poorer, but there is one.
    """
    given = dict(variables)
    if search is None or not prompt or VARIABLE not in slots(prompt):
        return given, ()
    if look_up(given, VARIABLE) is not None:
        return given, ()
    from toolchart.tools.sources.documents import rag_context

    try:
        text = await asyncio.to_thread(rag_context, search, str(given.get("user_message", "")))
    except Exception as error:
        # A user's own search may raise anything; the turn does not depend on it.
        reason = (
            str(error) if isinstance(error, ToolFailure) else f"{type(error).__name__}: {error}"
        )
        return {**given, VARIABLE: ""}, (f"the documents could not be searched: {reason}",)
    return {**given, VARIABLE: text}, ()
