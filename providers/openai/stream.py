"""Streamed chat completions, put together as they come.

What is read in the end is the body that an unstreamed answer would have had, so that one map reads both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolchart.providers.openai.wire import told_failure
from toolchart.providers.shared.failures import unreadable
from toolchart.states.canonical_json import canonical_text
from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Grown:
    """An object whose texts and lists go on, while anything else stands as it came last.

    Texts are joined once, at the end: joined at every piece, a long answer would cost its square.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def add(self, key: str, value: Any) -> None:
        """One more piece of a key."""
        before = self._values.get(key)
        if isinstance(value, str) and key != "role":
            if isinstance(before, _Text):
                before.pieces.append(value)
            else:
                self._values[key] = _Text([value])
        elif isinstance(value, list) and isinstance(before, list):
            before.extend(value)
        else:
            self._values[key] = list(value) if isinstance(value, list) else value

    def whole(self) -> dict[str, Any]:
        """The object."""
        return {
            key: "".join(value.pieces) if isinstance(value, _Text) else value
            for key, value in self._values.items()
        }


@dataclass(slots=True)
class _Text:
    pieces: list[str]


@dataclass(slots=True)
class _Call:
    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    given: Any = None
    """Arguments that came as a value instead of text."""

    def whole(self) -> dict[str, Any]:
        text = "".join(self.arguments)
        given = self.given if self.given is not None and not text else text
        if self.type == "custom":  # free text
            return {"id": self.id, "type": "custom", "custom": {"name": self.name, "input": given}}
        function = {"name": self.name, "arguments": given}
        return {"id": self.id, "type": self.type, "function": function}


class ChatStream:
    """Chat completions. Source: openai 3.52.0 `chat_completion_chunk.py`, and recorded streams of hosts
    that leave out indexes, number every call 0, or send a call whole."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._message = _Grown()
        self._calls: list[_Call] = []
        self._places: dict[int, int] = {}
        self._old: _Call | None = None
        self._word: Any = None

    def feed(self, chunk: Any) -> list[Delta]:
        """What a chunk adds: text, reasoning and calls.

        Raises:
            ProviderError: an error told inside the stream, or a chunk that is no object.
        """
        if not isinstance(chunk, Mapping):
            raise unreadable(f"the stream has a piece that is no object but {type(chunk).__name__}")
        if chunk.get("error"):
            raise told_failure(chunk)
        return list(self._deltas(chunk))

    def _deltas(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        self._whole |= {key: event[key] for key in ("id", "model", "usage") if event.get(key)}
        choice = _mapping(next(iter(_list(event.get("choices"))), None))
        delta = _mapping(choice.get("delta") or choice.get("message"))
        self._word = choice.get("finish_reason") or self._word
        for key, value in delta.items():
            if key == "tool_calls":
                yield from self._grow_calls(_list(value))
            elif key == "function_call" and isinstance(value, Mapping):
                self._old = self._old or _Call()
                yield from _grow_call(self._old, 0, value)
            elif value is not None:
                self._message.add(key, value)
                yield from _said(key, value)

    def body(self, done: bool) -> Any:
        """The answer as it would have come in one piece.

        Args:
            done: whether the stream said `[DONE]`. A host may leave the finish reason out (recorded from
                Novita); then this is the end.

        Raises:
            ProviderError: the stream was cut.
        """
        if self._word is None and not done:
            raise unreadable("the stream ended without a finish reason")
        message = self._message.whole()
        if self._calls:
            message["tool_calls"] = [call.whole() for call in self._calls]
        if self._old:
            message["function_call"] = self._old.whole()["function"]
        return {**self._whole, "choices": [{"message": message, "finish_reason": self._word}]}

    def _grow_calls(self, listed: Iterable[Any]) -> Iterator[Delta]:
        pieces = [piece for piece in listed if isinstance(piece, Mapping)]
        for beside, piece in enumerate(pieces):
            place = self._place(piece, beside if len(pieces) > 1 else len(self._calls) - 1)
            call, told = self._calls[place], piece.get("function") or piece.get("custom")
            call.id = call.id or _id(piece)
            yield from _grow_call(call, place, _mapping(told))

    def _place(self, piece: Mapping[str, Any], otherwise: int) -> int:
        """A piece belongs to the call of its index, unless it brings another id.

        Args:
            otherwise: the place of a piece without an index: beside others in its chunk its place there,
                alone that of the last call.
        """
        index, new_id = piece.get("index"), _id(piece)
        place = self._places.get(index, -1) if isinstance(index, int) else otherwise
        known = self._calls[place] if 0 <= place < len(self._calls) else None
        if known is None or (new_id and known.id and new_id != known.id):
            place = len(self._calls)
            self._calls.append(_Call(type=str(piece.get("type") or "function")))
        if isinstance(index, int):
            self._places[index] = place
        return place


def _id(piece: Mapping[str, Any]) -> str:
    """The id of a piece; one that is no text is none, as in a whole answer."""
    told = piece.get("id")
    return told if isinstance(told, str) else ""


def _grow_call(call: _Call, place: int, told: Mapping[str, Any]) -> Iterator[Delta]:
    name = told.get("name")
    if name and not call.name:
        call.name = str(name)
        yield CallStarted(index=place, name=call.name)
    given = told.get("arguments", told.get("input"))
    if isinstance(given, str):
        call.arguments.append(given)
        if given:
            yield CallArguments(index=place, text=given)
    elif given is not None:
        call.given = given
        yield CallArguments(index=place, text=canonical_text(given))


def _said(key: str, value: Any) -> Iterator[Delta]:
    """What a key of a message says to somebody who looks on."""
    if isinstance(value, str) and value:
        if key == "content":
            yield TextDelta(text=value)
        elif key in ("reasoning_content", "reasoning", "thinking"):
            yield ReasoningDelta(text=value)
    elif key == "content":  # Mistral: a list of parts, of which some are thinking
        for part in map(_mapping, _list(value)):
            if isinstance(part.get("text"), str):
                yield TextDelta(text=part["text"])
            yield from (
                ReasoningDelta(text=inner["text"])
                for inner in map(_mapping, _list(part.get("thinking")))
                if isinstance(inner.get("text"), str)
            )
