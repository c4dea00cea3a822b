"""What the readers of all forms share: messages with their places, on their way to the one reader.

A form says in its own words what a message, a call and a result are. Its reader turns each entry into a
`Message`, or refuses it with its place; the one reader (`specs/chat_messages.py`) then gives ids to calls and
puts results behind them, by the same rule for all forms.

What a model said is decoded by the wire of its API, the code that decodes its answers: so thinking with its
signature, and what the host ran itself, come back to the host as they were.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.specs.chat_messages import IMPORTED, History, Recording, read_history, read_recording
from toolchart.specs.message_pairs import OTHER_KEYS, Mends
from toolchart.states.content import (
    AudioPart,
    ContentPart,
    FilePart,
    ImagePart,
    TextPart,
    decode_media,
    join_texts,
)
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import FAILED_RESULT, Message, Reply, Role

FAILED_DATA = {"provider": IMPORTED, FAILED_RESULT: True}
"""The `provider_data` of a result that says, beside its words, that the tool failed."""


class FormReader:
    """Collects the messages of a list in another form.

    Args:
        form: what the list is one of, in words, for errors.
        source: file of the list, for errors and warnings.
    """

    def __init__(self, form: str, source: str | None = None) -> None:
        self.source = source
        self.messages: list[Message] = []
        self.places: list[str] = []
        self.mends = Mends()
        self._form = form

    def add(self, message: Message, place: str) -> None:
        """Take the next message, which stands at a place of what came in."""
        self.messages.append(message)
        self.places.append(place)

    def add_text(self, role: Role, text: Any, place: str) -> None:
        """Take a message that is one text.

        Raises:
            SpecError: it is no text.
        """
        self.add(Message(role=role, content=self.require_text(text, place)), place)

    def add_reply(self, decode: Callable[[], Reply], place: str) -> None:
        """Take what a model said, decoded by the wire of its API.

        Raises:
            SpecError: the wire cannot read it.
        """
        try:
            reply = decode()
        except ProviderError as error:
            raise self.refuse(error.message, place) from None
        self.add(
            Message(
                role="assistant",
                content=reply.content if reply.content is not None else reply.refusal,
                tool_calls=reply.tool_calls,
                provider_data=reply.provider_data,
                parts=reply.parts,
            ),
            place,
        )

    def refuse(self, problem: str, place: str, hint: str = "") -> SpecError:
        """The error about something that no message can say."""
        return SpecError(problem, file=self.source, path=place, hint=hint or f"this is read as {self._form}")

    def leave_out(self, names: Iterable[str], place: str) -> None:
        """Note what is not kept of an entry; nothing where there are no names."""
        if listed := ", ".join(names):
            self.mends.add(OTHER_KEYS, f"{place} ({listed})")

    def check_keys(self, entry: Mapping[str, Any], known: Collection[str], place: str) -> None:
        """Note the keys of an entry that say something and have no place in a message."""
        self.leave_out((key for key, value in entry.items() if key not in known and value), place)

    def refuse_chat_calls(self, entry: Mapping[str, Any], place: str) -> None:
        """Refuse calls of chat completions in a list of another form: they would be lost.

        Raises:
            SpecError: there are some.
        """
        if entry.get("tool_calls"):
            hint = f"this list is read as {self._form}; write all of it in one form"
            raise self.refuse("these calls are of chat completions", f"{place}.tool_calls", hint)

    def require_list(self, value: Any, what: str, place: str) -> list[Any]:
        """A value that must be a list.

        Raises:
            SpecError: it is none.
        """
        if not isinstance(value, list | tuple):
            raise self.refuse(f"{what} are a list, not {type(value).__name__}", place)
        return list(value)

    def require_object(self, value: Any, what: str, place: str) -> Mapping[str, Any]:
        """A value that must be an object.

        Raises:
            SpecError: it is none.
        """
        if hasattr(value, "model_dump"):
            value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not isinstance(value, Mapping):
            raise self.refuse(f"{what} is an object, not {type(value).__name__}", place)
        return value

    def require_text(self, value: Any, place: str) -> str:
        """A value that must be a text.

        Raises:
            SpecError: it is none.
        """
        if not isinstance(value, str):
            raise self.refuse(f"a text is expected here, not {type(value).__name__}", place)
        return value

    def read_media(
        self, data: Any, media_type: Any, place: str, name: Any = ""
    ) -> ImagePart | FilePart | AudioPart:
        """The part of bytes that stand here as base64, also in the alphabet for addresses (RFC 4648, 5).

        Raises:
            SpecError: they do not.
        """
        text = self.require_text(data, place).replace("-", "+").replace("_", "/").rstrip("=")
        text += "=" * (-len(text) % 4)
        try:
            base64.b64decode(text, validate=True)
        except binascii.Error:
            raise self.refuse("the bytes of a part are base64, and this is not", place) from None
        return decode_media(text, str(media_type or ""), str(name or ""))

    def read_history(self) -> History:
        """The messages as a history."""
        history = read_history(self.messages, self.source, self.places)
        return History(history, (*self.mends.list_warnings(self.source), *history.warnings))

    def read_recording(self) -> Recording:
        """The messages as a recording.

        Raises:
            SpecError: nobody says anything.
        """
        recording = read_recording(self.messages, self.source, self.places)
        return recording._replace(warnings=(*self.mends.list_warnings(self.source), *recording.warnings))


def build_message(role: Role, parts: Sequence[ContentPart], **fields: Any) -> Message:
    """The message with these parts: one text alone is its content."""
    has_texts = any(isinstance(part, TextPart) for part in parts)
    message = Message(role=role, content=join_texts(parts) if has_texts else None, **fields)
    is_plain = len(parts) < 2 and all(isinstance(part, TextPart) for part in parts)
    return message if is_plain else replace(message, parts=tuple(parts))
