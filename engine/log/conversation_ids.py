"""What the id of a conversation may be."""

from __future__ import annotations

import re

from toolchart.states.errors import SpecError

MAX_ID_LENGTH = 512
"""Characters of the id of a conversation that somebody gives it."""

_LENGTH_RULE = f"the id of a conversation is a text of at most {MAX_ID_LENGTH} characters"

SHORTER = "use a shorter one, such as a digest of it"
"""What to do about an id or a key that is too long."""

_AGENT_NUMBERS = re.compile(r"(\.[0-9]+)+\Z")


def require_id_length(conversation: object) -> None:
    """Check that somebody may begin a conversation with this id, as far as stores and queues care.

    Raises:
        SpecError: it is no text, or too long.
    """
    if not isinstance(conversation, str):
        raise SpecError(_LENGTH_RULE, path="conversation")
    if len(conversation) > MAX_ID_LENGTH:
        raise SpecError(
            f"{_LENGTH_RULE}, and this one has {len(conversation):,}", path="conversation", hint=SHORTER
        )


def find_id_fault(conversation: str) -> str | None:
    """Why a text cannot be the id of a conversation; None if it can.

    It must be such that it can be typed again: not blank, without control characters and what turns the
    direction of text, and not too long. The id of an agent is that of its parent with numbers.
    """
    if len(_AGENT_NUMBERS.sub("", conversation)) > MAX_ID_LENGTH:
        return _LENGTH_RULE
    if not conversation.strip() or not conversation.isprintable():
        return f"{conversation!r} cannot be the id of a conversation"
    return None
