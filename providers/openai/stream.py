"""Build the body of a streamed chat completion from its chunks.

The chunks are accumulated into the body that an unstreamed answer would have had; `wire.decode_reply` then
reads either kind.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolchart.providers.openai.wire import (
    CALL_KEYS,
    FINISH_WORDS,
    decode_citation,
    decode_content_piece,
    decode_executed_tool,
    decode_picture,
    decode_usage,
    find_usage,
    read_annotations,
    read_content_text,
    read_part_thinking,
)
from toolchart.providers.shared.choices import add_choice, select_deltas
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import (
    choose_finish_word,
    join_text,
    list_call_entries,
    merge_counts,
    read_function,
    read_index,
    read_mappings,
    read_string,
)
from toolchart.providers.shared.streamed_calls import StreamedCall, StreamedCalls, find_arguments
from toolchart.states.content import AudioPart, ContentPart
from toolchart.states.messages import Delta, PartDelta, ReasoningDelta, TextDelta, Usage


def _read_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _ValueBuilder:
    """Builds a mapping: texts and lists are extended, and any other value is replaced by the newest one.

    Where text and lists of parts take turns (Mistral), the text becomes a part.

    Texts are joined once, at the end. Joining them at every piece would take quadratic time.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def add_value(self, key: str, value: Any) -> None:
        """Add the next piece of a key."""
        previous = self._values.get(key)
        if key == "content" and not isinstance(value, (str, list)):
            value = [value]  # a number or an object in the place of text
        if isinstance(value, str) and key != "role":
            if isinstance(previous, _TextPieces):
                previous.pieces.append(value)
            elif isinstance(previous, list):
                previous.append({"type": "text", "text": value})
            else:
                self._values[key] = _TextPieces([value])
        elif isinstance(value, list):
            if isinstance(previous, _TextPieces):
                previous = self._values[key] = [{"type": "text", "text": join_text(previous.pieces)}]
            if isinstance(previous, list):
                previous += value  # a list of its own, which grows in place: copies would take quadratic time
            else:
                self._values[key] = list(value)
        else:
            self._values[key] = value

    def build_mapping(self) -> dict[str, Any]:
        """The mapping of all pieces so far."""
        return {
            key: join_text(value.pieces) if isinstance(value, _TextPieces) else value
            for key, value in self._values.items()
        }


@dataclass(slots=True)
class _TextPieces:
    pieces: list[str]


class _CallsBuilder:
    """Builds the calls of a choice, by the rule of `streamed_calls.py`."""

    def __init__(self) -> None:
        self._streamed = StreamedCalls()
        self._keys: list[dict[str, Any]] = []
        """By call: its type, and the keys that the host wants back with it."""
        self._entries: list[Any] = []
        """Entries that are no objects, which are refused."""

    def add_pieces(self, values: Any) -> Iterator[Delta]:
        """Add the pieces of one chunk; yields their deltas.

        Several pieces of a chunk without an index are those of calls in the same order.
        """
        pieces = list_call_entries(values)
        for number, piece in enumerate(pieces):
            if not isinstance(piece, Mapping):
                self._entries.append(piece)
                continue
            function = read_function(piece)
            index = read_index(piece.get("index"))
            call, deltas = self._streamed.add_piece(
                index=number if index is None and len(pieces) > 1 else index,
                # An id that is no text is none, as in an unstreamed answer.
                call_id=read_string(piece.get("id")) or "",
                name=str(function.get("name") or ""),
                arguments=find_arguments(function, piece),
            )
            if call.index == len(self._keys):
                self._keys.append({"type": str(piece.get("type") or "function")})
            self._keys[call.index] |= {key: piece[key] for key in CALL_KEYS if piece.get(key)}
            yield from deltas

    def add_whole_calls(self, entries: list[Any]) -> int:
        """Add whole forms of the calls so far, in their order; how many of them are such."""
        wholes = [entry if isinstance(entry, Mapping) else {} for entry in entries]
        for number, (call, whole) in enumerate(zip(self._streamed.calls, wholes, strict=False)):
            function = read_function(whole)
            if function.get("name") not in (None, "", call.name):
                return number
            call.add_whole(find_arguments(function, whole))
        return min(len(wholes), len(self._streamed.calls))

    def get_count(self) -> int:
        """How many calls there are so far."""
        return len(self._streamed.calls) + len(self._entries)

    def build_calls(self) -> list[Any]:
        """The calls as an unstreamed answer has them."""
        return [*map(self._build_call, self._streamed.calls), *self._entries]

    def _build_call(self, call: StreamedCall) -> dict[str, Any]:
        keys = self._keys[call.index]
        if keys["type"] == "custom":
            return {"id": call.id, **keys, "custom": {"name": call.name, "input": call.build_text()}}
        arguments = call.build_arguments()
        return {"id": call.id, **keys, "function": {"name": call.name, "arguments": arguments}}


@dataclass(slots=True)
class _SoundBuilder:
    """Builds the spoken answer. Each piece of `data` is Base64 of its own.

    Source: openai 3.54.0, `chat_completion_audio.py`; platform.openai.com, Audio.
    """

    index: int
    values: dict[str, Any] = field(default_factory=dict)
    data: list[bytes] = field(default_factory=list)
    transcript: list[str] = field(default_factory=list)

    def add_piece(self, piece: Mapping[str, Any]) -> Iterator[Delta]:
        """Add a piece; yields its deltas."""
        self.values |= {key: value for key, value in piece.items() if value is not None}
        words, data = piece.get("transcript"), piece.get("data")
        if isinstance(words, str) and words:
            self.transcript.append(words)
            yield TextDelta(text=words)
        if isinstance(data, str) and data:
            try:
                self.data.append(base64.b64decode(data))
            except ValueError:
                return
            yield PartDelta(index=self.index, part=AudioPart(data=data))

    def build_audio(self) -> dict[str, Any]:
        """The sound as an unstreamed answer has it."""
        data = base64.b64encode(b"".join(self.data)).decode("ascii")
        return {**self.values, "data": data, "transcript": join_text(self.transcript)}


class _ChoiceBuilder:
    """Builds one choice: its message, its calls, its log probabilities, and its finish word."""

    def __init__(self) -> None:
        self.finish_word: Any = None
        self.usage: Any = None
        """Counts in its last piece."""
        self.held_deltas: list[Delta] = []
        self._message = _ValueBuilder()
        self._log_probabilities = _ValueBuilder()
        self._calls: _CallsBuilder | None = None
        self._function_call: StreamedCalls | None = None
        self._sound: _SoundBuilder | None = None
        self._part_count = 0
        self._part_indexes: dict[Any, int] = {}
        """Indexes of the parts that may come again, by what names them; of the others by a new object."""

    def add_choice(self, choice: Mapping[str, Any]) -> Iterator[Delta]:
        """Add a piece; yields its deltas."""
        word = choice.get("finish_reason")
        if word:
            self.finish_word = choose_finish_word(self.finish_word, word, FINISH_WORDS)
            self.usage = choice.get("usage") or self.usage
        for key, value in _read_mapping(choice.get("logprobs")).items():
            self._log_probabilities.add_value(key, value)
        delta = choice.get("delta")
        if not delta and choice.get("message"):
            delta = self._drop_known(_read_mapping(choice["message"]))
        for key, value in _read_mapping(delta).items():
            if key == "tool_calls":
                if self._calls is None:
                    self._calls = _CallsBuilder()
                yield from self._calls.add_pieces(value)
            elif key == "function_call" and isinstance(value, Mapping):
                name, arguments = str(value.get("name") or ""), find_arguments(value)
                self._function_call = self._function_call or StreamedCalls()
                yield from self._function_call.add_piece(index=0, name=name, arguments=arguments)[1]
            elif key == "audio" and isinstance(value, Mapping):
                if self._sound is None:
                    self._sound = _SoundBuilder(index=self._part_count)
                    self._part_count += 1
                yield from self._sound.add_piece(value)
            elif value is not None:
                self._message.add_value(key, value)
                yield from _build_text_deltas(key, value)
                for name, part in _list_parts(key, value):
                    if name not in self._part_indexes:
                        self._part_indexes[name] = self._part_count
                        self._part_count += 1
                    yield PartDelta(index=self._part_indexes[name], part=part)

    def _drop_known(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What a whole message has beyond the deltas: MiniMax sends it at the end of a stream."""
        known, rest = self._message.build_mapping(), dict(message)
        for key, value in known.items():
            new = message.get(key)
            if isinstance(value, str) and isinstance(new, str) and key != "role":
                rest[key] = new[len(value) :] if new.startswith(value) else ""
            elif new == value:
                rest.pop(key)
        entries = list_call_entries(message.get("tool_calls")) if self._calls else []
        if self._calls and entries:
            rest["tool_calls"] = entries[self._calls.add_whole_calls(entries) :]
        return rest

    def describe_kind(self) -> tuple[bool, int]:
        """Whether the choice has text or other content so far, and how many calls."""
        message = self._message.build_mapping()
        has_answer = bool(message.get("content") or message.get("refusal") or self._part_count)
        call_count = self._calls.get_count() if self._calls else 0
        return has_answer, call_count + (len(self._function_call.calls) if self._function_call else 0)

    def is_over(self) -> bool:
        """Whether the host has said why it ended."""
        return self.finish_word is not None

    def build_choice(self) -> dict[str, Any]:
        """The choice as an unstreamed answer has it."""
        message = self._message.build_mapping()
        if self._sound:
            message["audio"] = self._sound.build_audio()
        calls = self._calls.build_calls() if self._calls else []
        functions = [
            {"name": call.name, "arguments": call.build_arguments()}
            for call in (self._function_call.calls if self._function_call else ())
        ]
        if len(functions) == 1:
            message["function_call"] = functions[0]
        else:
            calls += [{"type": "function", "function": function} for function in functions]
        if calls:
            message["tool_calls"] = calls
        log_probabilities = self._log_probabilities.build_mapping() or None
        choice = {"message": message, "logprobs": log_probabilities, "finish_reason": self.finish_word}
        return {**choice, "usage": self.usage} if self.usage else choice


class ChatAccumulator:
    """Accumulates one streamed chat completion.

    Several choices come mixed, by index. The one that begins the stream is the reply, or they are parts of
    one (`choices.py`).

    Source: openai 3.52.0 `chat_completion_chunk.py`, and recorded streams of hosts that leave out indexes,
    number every call 0, or send a call whole.
    """

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._choices: dict[Any, _ChoiceBuilder] = {}

    def add_frame(self, chunk: Any) -> list[Delta]:
        """The deltas of one chunk: text, reasoning and calls.

        Raises:
            ProviderError: the chunk is an error, or no object.
        """
        check_object(chunk, "the stream has a piece that is not an object")
        usage = self._body.get("usage") if chunk.get("usage") else None
        self._body |= {key: value for key, value in chunk.items() if value and key != "choices"}
        if usage:
            self._body["usage"] = merge_counts(usage, chunk["usage"])
        return [
            delta
            for choice in _read_list(chunk.get("choices"))
            if isinstance(choice, Mapping)
            for delta in self._add_choice(choice)
        ]

    def _add_choice(self, choice: Mapping[str, Any]) -> list[Delta]:
        """The deltas of a piece of a choice that are shown."""
        index = choice.get("index")
        if type(index) is not int:
            index = read_index(index) or 0
        builder = self._choices.get(index)
        if builder is None:
            builder = add_choice(self._choices, index, _ChoiceBuilder())
        deltas = list(builder.add_choice(choice))
        if len(self._choices) == 1:
            return deltas
        return select_deltas(builder, self._choices.values(), deltas)

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far."""
        usages = ({"usage": builder.usage} for builder in self._choices.values())
        return decode_usage(find_usage(self._body, next(usages, {})))

    def build_body(self, is_done: bool = False) -> Any:
        """The body that an unstreamed answer would have had.

        Args:
            is_done: whether the stream ended with `[DONE]`. Then the finish reason may be missing (recorded
                from Novita).

        Raises:
            ProviderError: the stream was cut.
        """
        if not any(builder.is_over() for builder in self._choices.values()) and not is_done:
            raise build_bad_response_error("the stream ended without a finish reason")
        choices = [builder.build_choice() for builder in self._choices.values()]
        return {**self._body, "choices": choices or [_ChoiceBuilder().build_choice()]}


def _list_parts(key: str, value: Any) -> list[tuple[Any, ContentPart]]:
    """The parts beside text of a message key, each with what names it."""
    parts: list[ContentPart] = []
    if key == "executed_tools":
        executed = read_mappings(value)
        return [(("executed", tool.get("index")), decode_executed_tool(tool)) for tool in executed]
    if key == "images":
        parts = [part for image in read_mappings(value) for part in decode_picture(image)]
    if key == "content":
        parts = [part for piece in read_mappings(value) for part in decode_content_piece(piece)]
    if key == "annotations":
        parts = [*map(decode_citation, read_annotations({key: value}))]
    return [(object(), part) for part in parts]


def _build_text_deltas(key: str, value: Any) -> Iterator[Delta]:
    """The deltas of a message key that holds text or reasoning."""
    if key == "content" and not isinstance(value, str):
        # Mistral and Databricks: a list of parts, of which some are thinking
        for part in value if isinstance(value, list) else [value]:
            text = read_content_text(part)
            if text:
                yield TextDelta(text=text)
            thought = read_part_thinking(part) if isinstance(part, Mapping) else ""
            if thought:
                yield ReasoningDelta(text=thought)
    elif isinstance(value, str) and value:
        if key == "content":
            yield TextDelta(text=value)
        elif key in ("reasoning_content", "reasoning", "thinking"):
            yield ReasoningDelta(text=value)
