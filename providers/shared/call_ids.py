"""Write the ids of tool calls in the form that a host takes, the same for a call and its result.

A call keeps the id that its model gave it, so a host may get the ids of another one: after a fallback, a
change of `llm`, or an import. Ids that a host takes go out as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import count
from types import MappingProxyType

import msgspec

from toolchart.states.messages import Message

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_SUFFIX_LENGTH = 9


class CallIdForm(msgspec.Struct, frozen=True, kw_only=True):
    """Which ids of calls a host takes."""

    pattern: str
    """Regular expression for the whole of an id that is taken."""
    refused: str = ""
    """Regular expression for the characters that become `_`; empty: no part of a refused id is kept."""
    length: int | None = None
    """Most characters; None for no limit."""

    def takes(self, call_id: str) -> bool:
        """Whether an id may go out as it is."""
        return re.fullmatch(self.pattern, call_id) is not None

    def takes_all(self, call_ids: Sequence[str]) -> bool:
        """Whether all of some ids may; one search over all of them, because each request asks for all."""
        lines = "\n".join(call_ids)
        is_whole = lines.count("\n") == len(call_ids) - 1
        return not call_ids or (
            is_whole and re.fullmatch(f"{self.pattern}(?:\\n{self.pattern})*", lines) is not None
        )

    def derive_id(self, call_id: str, number: int) -> str:
        """An id that is taken, made of one that is not.

        Args:
            number: 0 for the first try; another number gives another id.
        """
        if not self.refused:
            return _hash_text(f"{call_id} {number}" if number else call_id, self.length or _SUFFIX_LENGTH)
        readable = re.sub(self.refused, "_", call_id)
        if not number:
            return readable[: self.length] or "_"
        suffix = f"_{_hash_text(f'{call_id} {number}', _SUFFIX_LENGTH)}"
        return readable[: self.length and self.length - len(suffix)] + suffix


@lru_cache(maxsize=4096)
def _hash_text(text: str, length: int) -> str:
    """Letters and digits that depend on the text alone."""
    number, letters = int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()), []
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)


_NO_IDS: Mapping[str, str] = MappingProxyType({})


def map_call_ids(messages: Sequence[Message], form: CallIdForm | None) -> Mapping[str, str]:
    """The ids that a host gets in place of those of the messages; only those that differ.

    Two ids never become one, and an id that the host takes is never changed.

    Args:
        form: None for a host that takes every id.
    """
    if form is None:
        return _NO_IDS
    listed_ids: list[str] = []
    for message in messages:
        if message.tool_call_id is not None:
            listed_ids.append(message.tool_call_id)
        elif message.tool_calls:
            listed_ids += [call.id for call in message.tool_calls]
    if form.takes_all(listed_ids):
        return _NO_IDS
    ids = dict.fromkeys(listed_ids)
    refused_ids = [call_id for call_id in ids if not form.takes(call_id)]
    taken_ids = ids.keys() - set(refused_ids)
    mapping: dict[str, str] = {}
    for call_id in refused_ids:
        mapping[call_id] = next(
            own_id for number in count() if (own_id := form.derive_id(call_id, number)) not in taken_ids
        )
        taken_ids.add(mapping[call_id])
    return mapping


def select_call_ids(message: Message, mapping: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The part of a mapping that a message depends on; empty for most messages."""
    if not mapping:
        return ()
    ids = (*(call.id for call in message.tool_calls), message.tool_call_id or "")
    return tuple((call_id, mapping[call_id]) for call_id in ids if call_id in mapping)


ANTHROPIC_IDS = CallIdForm(pattern=r"[a-zA-Z0-9_-]+", refused=r"[^a-zA-Z0-9_-]")
"""Source: pydantic-ai, `profiles/anthropic.py`, 2026-08-22."""

BEDROCK_IDS = CallIdForm(pattern=r"[a-zA-Z0-9_.:-]{1,64}", refused=r"[^a-zA-Z0-9_.:-]", length=64)
"""Source: botocore 1.44.5, shape `ToolUseId`."""

MISTRAL_IDS = CallIdForm(pattern=r"[a-zA-Z0-9]{9}", length=9)
"""Source: error 3280 of Mistral's API, quoted in mistral-vibe#1075 (2026-09-10) and ironclaw#1241."""

CHAT_IDS = CallIdForm(pattern=r".{0,40}", refused=r"[\r\n]", length=40)
"""OpenAI's chat completions. Source: pi, `openai-completions.ts`, 2026."""

RESPONSES_IDS = CallIdForm(pattern=r".{0,64}", refused=r"[\r\n]", length=64)
"""OpenAI's Responses. Source: as for chat completions."""
