"""What each wire format has to say of its answers, whole and streamed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from toolchart.app.watch.held_answers.reading import Verdict, read_json, read_object
from toolchart.specs.secrets import strike_secret_bytes
from toolchart.states.messages import Delta, Reply, ToolCall

Json = dict[str, Any]


class Accumulator(Protocol):
    """Joins the events of a streamed answer (`providers/*/stream.py`)."""

    def add_frame(self, value: Any, /) -> list[Delta]:
        """The deltas of one event."""
        ...

    def build_body(self, is_done: bool = False) -> Any:
        """The body that an unstreamed answer would have had.

        Args:
            is_done: whether the stream has the mark of its end.

        Raises:
            ProviderError: it was cut.
        """
        ...


class Wire(ABC):
    """The events of one stream, and the bodies of one wire format.

    It knows which events have passed (`note`), and goes on from there.
    """

    names_events = False
    """Whether each event has its type in its field `event`."""

    @abstractmethod
    def make_accumulator(self) -> Accumulator:
        """A new accumulator of events."""

    @abstractmethod
    def judge(self, event: Json) -> Verdict:
        """What an event of a stream is."""

    @abstractmethod
    def judge_body(self, body: Json) -> Verdict:
        """What a whole answer has; that it is held goes without saying."""

    @abstractmethod
    def note(self, event: Json) -> None:
        """Take notice of an event that has passed."""

    @abstractmethod
    def list_calls(self, body: Json) -> list[tuple[str, str, Json]]:
        """Id, name and the whole entry of each call in the body of an answer."""

    @abstractmethod
    def change_body(self, body: Json, reply: Reply) -> Json:
        """The body with the text and the calls of a reply."""

    @abstractmethod
    def write_rest(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json | str]:
        """The events after those that have passed: more text, the calls, and the end.

        Args:
            body: of the host's newest answer; empty where it could not be read.
        """

    @abstractmethod
    def write_error(self, words: str) -> Json:
        """The event at which clients raise."""

    def pair_calls(self, body: Json, calls: Sequence[ToolCall]) -> list[tuple[ToolCall, Json]]:
        """Each call with the host's entry of it, which may have more keys that the host wants back."""
        entries = self.list_calls(body)
        pairs: list[tuple[ToolCall, Json]] = []
        for call in calls:
            named = [entry for entry in entries if entry[1] == call.name]
            entry = next((entry for entry in named if entry[0] and entry[0] == get_id(call)), None)
            entry = entry or next((entry for entry in named if not (entry[0] and get_id(call))), None)
            if entry is not None:
                entries.remove(entry)
                call = _restore_secrets(call, entry[2])
            pairs.append((call, entry[2] if entry is not None else {}))
        return pairs


def _restore_secrets(call: ToolCall, entry: Json) -> ToolCall:
    """The call with the arguments that its host said, where what was decided about is these without secrets:
    those are struck from all that is kept, and not from what passes."""
    inner = read_object(entry.get("function") or entry.get("functionCall")) or entry
    said = next((inner[key] for key in ("arguments", "args", "input") if key in inner), None)
    value = read_json(said.encode("utf-8", "replace"))[0] if isinstance(said, str) else said
    if not isinstance(value, dict) or value == call.arguments:
        return call
    struck, _ = read_json(
        strike_secret_bytes(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    )
    return replace(call, arguments=value) if struck == call.arguments else call


def get_id(call: ToolCall) -> str:
    """The id by which the host and the program know a call."""
    return call.native_id or call.id


def write_arguments(call: ToolCall) -> str:
    """The arguments as text. What was decided about are the parsed ones, so they count."""
    return json.dumps(call.arguments) if call.arguments is not None else call.raw or ""


def get_arguments(call: ToolCall, entry: Mapping[str, Any], key: str) -> Any:
    """The arguments as an object; what could not be read stays as the host said it."""
    return call.arguments if call.arguments is not None else read_object(entry).get(key, {})
