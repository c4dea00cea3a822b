"""What the id of a conversation may be."""

from __future__ import annotations

import re

MAX_ID_LENGTH = 512
"""Characters of the id of a conversation that somebody gives it."""

_AGENT_NUMBERS = re.compile(r"(\.[0-9]+)+\Z")


def find_id_fault(conversation: str) -> str | None:
    """Why a text cannot be the id of a conversation; None if it can.

    It must be such that it can be typed again: not blank, without control characters and what turns the
    direction of text, and not too long. The id of an agent is that of its parent with numbers.
    """
    if len(_AGENT_NUMBERS.sub("", conversation)) > MAX_ID_LENGTH:
        return f"the id of a conversation is a text of at most {MAX_ID_LENGTH} characters"
    if not conversation.strip() or not conversation.isprintable():
        return f"{conversation!r} cannot be the id of a conversation"
    return None
