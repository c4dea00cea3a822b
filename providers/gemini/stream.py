"""Build a Gemini reply from the chunks of a streamed answer.

Each chunk has the form of a whole answer with some of its parts. The chunks are accumulated into the body
that `generateContent` would have sent; `wire.decode_reply` then reads either kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.gemini.wire import (
    FINISH_WORDS,
    collect_notes,
    collect_part,
    decode_usage,
    describe_kind,
    list_parts,
    read_finish_word,
)
from toolchart.providers.shared.choices import add_choice, select_deltas
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import (
    PartCollector,
    choose_finish_word,
    merge_counts,
    read_blocks,
    read_index,
    read_string,
)
from toolchart.providers.shared.streamed_calls import (
    StreamedCall,
    StreamedCalls,
    build_input,
    drop_other_arguments,
    find_arguments,
)
from toolchart.states.messages import Delta, ReasoningDelta, TextDelta, Usage


class _CandidateBuilder:
    """Builds one candidate. Parts keep their order and are not merged: a signature belongs to its part."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.held_deltas: list[Delta] = []
        self._content: dict[str, Any] = {}
        self._parts: list[Any] = []
        self._calls = StreamedCalls()
        self._collector = PartCollector()
        self._has_notes = False

    def add_candidate(self, candidate: Mapping[str, Any]) -> Iterator[Delta]:
        """Add a piece; yields its deltas."""
        values = _drop_nulls(candidate)
        later = read_finish_word(values.pop("finishReason", None))
        if later is not None:
            values["finishReason"] = choose_finish_word(self.values.get("finishReason"), later, FINISH_WORDS)
        self.values |= values
        content = candidate.get("content")
        self._content |= _drop_nulls(content) if isinstance(content, Mapping) else {}
        parts = list_parts(candidate)
        for part in parts if isinstance(parts, list) else [parts]:
            if part is not None:
                yield from self._add_part(part)
        if self.values.get("finishReason") and not self._has_notes:
            # The sources refer to the whole answer, so they are read when it is there.
            self._has_notes = True
            collect_notes(self._collector, read_blocks(self._parts, {})[0], self.values)
        yield from self._collector.take_deltas()

    def _add_part(self, part: Any) -> Iterator[Delta]:
        call = part.get("functionCall") if isinstance(part, Mapping) else None
        if isinstance(call, Mapping):
            # Each part is a whole call; one with the id and name of another one is that call again.
            count = len(self._calls.calls)
            call_id, name = read_string(call.get("id")) or "", str(call.get("name") or "")
            streamed, deltas = self._calls.add_piece(
                call_id=call_id, name=name, arguments=find_arguments(call), is_start=True
            )
            yield from deltas
            if streamed.index < count:
                self._repeat_call(streamed)
                return
        self._parts.append(part)
        is_plain = isinstance(part, Mapping) and isinstance(part.get("text"), str)
        for block in [part] if is_plain else read_blocks(part, {})[0]:
            collect_part(self._collector, block)
            text = block.get("text")
            if text:
                yield ReasoningDelta(text=text) if block.get("thought") else TextDelta(text=text)

    def _repeat_call(self, streamed: StreamedCall) -> None:
        """Put what a call means after all its parts into the first of them."""
        for position, part in enumerate(self._parts):
            call = part.get("functionCall") if isinstance(part, Mapping) else None
            if (
                isinstance(call, Mapping)
                and call.get("id") == streamed.id
                and call.get("name") == streamed.name
            ):
                function = {
                    **drop_other_arguments(call, "args"),
                    "args": build_input(streamed.build_arguments()),
                }
                self._parts[position] = {**part, "functionCall": function}

    def describe_kind(self) -> tuple[bool, int]:
        """Whether the candidate has text or other content so far, and how many calls."""
        return describe_kind(self._parts)

    def is_over(self) -> bool:
        """Whether the host has said why it ended."""
        return "finishReason" in self.values

    def build_candidate(self) -> dict[str, Any]:
        """The candidate as an unstreamed answer has it."""
        return {**self.values, "content": {**self._content, "parts": self._parts}}


class GeminiAccumulator:
    """Accumulates one streamed answer of `streamGenerateContent`.

    Any chunk may have usage; the last one counts. Each call comes whole, in one part. Several candidates come
    mixed, by index (`choices.py`).

    Source: recorded traffic; google-genai 3.4.0, `types.py` (`partial_args` is for Vertex, on request).
    """

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._candidates: dict[int, _CandidateBuilder] = {}

    def add_frame(self, chunk: Any) -> list[Delta]:
        """The deltas of one chunk; without `alt=sse` all chunks come in one array.

        Raises:
            ProviderError: the chunk is an error, or no object.
        """
        if isinstance(chunk, list):
            return [delta for element in chunk for delta in self._add_chunk(element)]
        return self._add_chunk(chunk)

    def _add_chunk(self, chunk: Any) -> list[Delta]:
        check_object(chunk, "the stream has a piece that is not an object")
        usage = self._body.get("usageMetadata") or {}
        self._body |= _drop_nulls(chunk)
        if chunk.get("usageMetadata"):
            self._body["usageMetadata"] = merge_counts(usage, chunk["usageMetadata"])
        candidates = chunk.get("candidates")
        return [
            delta
            for candidate in (candidates if isinstance(candidates, list) else ())
            if isinstance(candidate, Mapping)
            for delta in self._add_candidate(candidate)
        ]

    def _add_candidate(self, candidate: Mapping[str, Any]) -> list[Delta]:
        """The deltas of a piece of a candidate that are shown."""
        index = read_index(candidate.get("index")) or 0
        builder = self._candidates.get(index)
        if builder is None:
            builder = add_choice(self._candidates, index, _CandidateBuilder())
        deltas = list(builder.add_candidate(candidate))
        if len(self._candidates) == 1:
            return deltas
        return select_deltas(builder, self._candidates.values(), deltas)

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far."""
        return decode_usage(self._body.get("usageMetadata"))

    def build_body(self, is_done: bool = False) -> dict[str, Any]:
        """The body that an unstreamed answer would have had.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut: there is neither a finish reason nor a block reason.
        """
        feedback = self._body.get("promptFeedback")
        is_blocked = isinstance(feedback, Mapping) and feedback.get("blockReason")
        builders = list(self._candidates.values())
        if not any(builder.is_over() for builder in builders) and not is_blocked:
            raise build_bad_response_error("the stream ends without a finish reason")
        body = {key: value for key, value in self._body.items() if key != "candidates"}
        candidates = [builder.build_candidate() for builder in builders]
        return {**body, "candidates": candidates} if candidates else body


def _drop_nulls(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping without null values, so that a later chunk does not erase an earlier value."""
    return {str(key): value for key, value in mapping.items() if value is not None}
