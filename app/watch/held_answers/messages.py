"""Answers of Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchart.app.watch.held_answers.reading import (
    CALL,
    HEAD,
    HELD,
    PLAIN,
    Verdict,
    find_call_word,
    find_other_spelling,
    judge_all,
    read_kind,
    read_list,
    read_object,
    tell_unknown,
)
from toolchart.app.watch.held_answers.wire import Json, Wire, get_arguments, get_id, write_arguments
from toolchart.providers.anthropic.stream import AnthropicAccumulator
from toolchart.states.messages import Reply, ToolCall

_PLAIN_BLOCKS = ("text", "thinking", "redacted_thinking", "container_upload", "compaction")
_HOST_CALLS = ("server_tool_use", "mcp_tool_use")
_PLAIN_DELTAS = ("text_delta", "thinking_delta", "signature_delta", "citations_delta", "compaction_delta")


def _judge_block(block: Any) -> Verdict:
    kind = read_kind(block)
    if kind == "tool_use":
        return CALL.join(tell_unknown(find_other_spelling(block)))
    if kind in _HOST_CALLS or kind.endswith("_tool_result"):
        return PLAIN
    if kind in _PLAIN_BLOCKS:
        return PLAIN.join(tell_unknown(find_call_word(block, ("citations",))))
    return tell_unknown(kind or "a block without a type")


class MessagesWire(Wire):
    """A message of blocks, each with an index: clients count them without gaps."""

    names_events = True

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        """Types of the blocks that have begun, by index."""
        self._has_started = False
        self._next = 0
        self._open: int | None = None

    def make_accumulator(self) -> AnthropicAccumulator:
        """A new accumulator of events."""
        return AnthropicAccumulator()

    def judge(self, event: Json) -> Verdict:
        """What an event is."""
        match event.get("type"):
            case "message_start" if isinstance(event.get("message"), Mapping):
                self._kinds.clear()
                known, verdict = ("message",), self.judge_body(event["message"])
                if verdict.has_call:  # it stands beside the blocks, or in their place
                    verdict = verdict.join(tell_unknown("a call in the beginning"))
            case "content_block_start":
                block = event.get("content_block")
                self._kinds[str(event.get("index"))] = read_kind(block)
                known, verdict = ("content_block",), _judge_block(block)
            case "content_block_delta":
                known, verdict = ("delta",), self._judge_delta(event)
            case "content_block_stop":
                known, verdict = (), PLAIN
            case "ping":
                known, verdict = (), HEAD
            case "message_delta":
                known, verdict = ("usage", "context_management"), HELD
            case _:
                known, verdict = (), HELD
        return verdict.join(tell_unknown(find_call_word(event, known)))

    def _judge_delta(self, event: Json) -> Verdict:
        delta, kind = event.get("delta"), read_kind(event.get("delta"))
        if kind in _PLAIN_DELTAS:
            return PLAIN.join(tell_unknown(find_call_word(delta, ("citation",))))
        block = self._kinds.get(str(event.get("index")))
        if kind == "input_json_delta" and block in ("tool_use", *_HOST_CALLS):
            return HELD if block == "tool_use" else PLAIN
        return tell_unknown(kind or "a delta without a type")

    def judge_body(self, body: Json) -> Verdict:
        """What a whole message has."""
        content = body.get("content")
        known = ("content", "usage", "context_management")
        verdict = tell_unknown(find_call_word(body, known))
        if content is not None and not isinstance(content, list):
            return tell_unknown("content that is no list")
        return verdict.join(judge_all(map(_judge_block, content or [])))

    def note(self, event: Json) -> None:
        """Keep which block comes next, and which one is open."""
        index = event.get("index")
        index = index if isinstance(index, int) else self._next
        match event.get("type"):
            case "message_start":
                self._has_started = True
            case "content_block_start":
                self._next, self._open = max(self._next, index + 1), index
            case "content_block_stop" if self._open == index:
                self._open = None
            case _:
                pass

    def list_calls(self, body: Json) -> list[tuple[str, str, Json]]:
        """The blocks of calls."""
        blocks = map(read_object, read_list(body.get("content")))
        return [
            (str(block.get("id") or ""), str(block.get("name")), block)
            for block in blocks
            if block.get("type") == "tool_use"
        ]

    def _build_calls(self, body: Json, calls: Sequence[ToolCall]) -> list[Json]:
        return [
            {
                **entry,
                "type": "tool_use",
                "id": get_id(call),
                "name": call.name,
                "input": get_arguments(call, entry, "input"),
            }
            for call, entry in self.pair_calls(body, calls)
        ]

    def change_body(self, body: Json, reply: Reply) -> Json:
        """The message with another text and other calls."""
        blocks = [block for block in map(read_object, body["content"]) if block.get("type") != "tool_use"]
        texts = [block for block in blocks if block.get("type") == "text"]
        if "".join(str(block.get("text")) for block in texts) != (reply.content or ""):
            place = next((blocks.index(text) for text in texts), len(blocks))
            before = blocks[:place]
            after = [block for block in blocks[place:] if block.get("type") != "text"]
            new = [{"type": "text", "text": reply.content}] if reply.content else []
            blocks = [*before, *new, *after]
        word = "tool_use" if reply.tool_calls else "end_turn"
        content = [*blocks, *self._build_calls(body, reply.tool_calls)]
        return {**body, "content": content, "stop_reason": word, "stop_sequence": None}

    def write_rest(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json | str]:
        """More blocks."""
        if not self._has_started:
            head = {"type": "message", "role": "assistant", **body}
            start = {**head, "content": [], "stop_reason": None, "stop_sequence": None}
            yield {"type": "message_start", "message": start}
        if self._open is not None:
            yield {"type": "content_block_stop", "index": self._open}
        index = self._next
        if text:
            delta = {"type": "text_delta", "text": text}
            yield from _write_block(index, {"type": "text", "text": ""}, delta)
            index += 1
        for (call, _), block in zip(
            self.pair_calls(body, calls), self._build_calls(body, calls), strict=True
        ):
            delta = {"type": "input_json_delta", "partial_json": write_arguments(call)}
            yield from _write_block(index, {**block, "input": {}}, delta)
            index += 1
        end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        if body.get("container"):
            end["container"] = body["container"]
        yield {"type": "message_delta", "delta": end, "usage": body.get("usage") or {"output_tokens": 0}}
        yield {"type": "message_stop"}

    def write_error(self, words: str) -> Json:
        """The event of an error."""
        return {"type": "error", "error": {"type": "api_error", "message": words}}


def _write_block(index: int, block: Json, delta: Json) -> Iterator[Json]:
    yield {"type": "content_block_start", "index": index, "content_block": block}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
