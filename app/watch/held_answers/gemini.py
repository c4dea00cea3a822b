"""Answers of Gemini."""

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
    judge_all,
    read_list,
    read_object,
    tell_unknown,
)
from toolchart.app.watch.held_answers.wire import Json, Wire, get_arguments, get_id
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.states.messages import Reply, ToolCall

_PLAIN_PARTS = frozenset(
    {
        *("text", "thought", "thoughtSignature", "inlineData", "fileData", "executableCode"),
        *("codeExecutionResult", "videoMetadata", "partMetadata", "toolCall", "toolResponse"),
    }
)
"""Keys of parts; `toolCall` is a call that the host runs itself (google-genai 3.6.1, `types.py`)."""
_CALL_KEYS = {"id", "name", "args"}


def _judge_part(part: Any) -> Verdict:
    if not isinstance(part, Mapping):
        return tell_unknown("a part that is no object")
    strange = next((key for key in part if key not in _PLAIN_PARTS and key != "functionCall"), "")
    texts = [part.get(key) for key in ("text", "thought", "thoughtSignature")]
    if strange or any(isinstance(text, Mapping | list) for text in texts):
        return tell_unknown(strange or "a text that is none")
    if "functionCall" not in part:
        return PLAIN if part else HEAD
    call = part["functionCall"]
    if not isinstance(call, Mapping) or not _CALL_KEYS.issuperset(call):
        return tell_unknown("a functionCall in pieces")
    return CALL


class GeminiWire(Wire):
    """Chunks in the form of whole answers, each with some of the parts."""

    def __init__(self) -> None:
        self._head: Json = {}

    def make_accumulator(self) -> GeminiAccumulator:
        """A new accumulator of chunks."""
        return GeminiAccumulator()

    def judge(self, event: Json) -> Verdict:
        """What a chunk is."""
        candidates = event.get("candidates")
        verdict = tell_unknown(find_call_word(event, ("candidates", "usageMetadata")))
        if event.get("error") or read_object(event.get("promptFeedback")).get("blockReason"):
            verdict = verdict.join(HELD)
        if candidates is not None and not isinstance(candidates, list):
            return tell_unknown("candidates that are no list")
        verdict = verdict.join(judge_all(map(self._judge_candidate, candidates or [])))
        is_mixed = verdict.has_call and len(candidates or ()) > 1
        return verdict.join(tell_unknown("a call in one of several candidates" if is_mixed else ""))

    def judge_body(self, body: Json) -> Verdict:
        """What a whole answer has."""
        return self.judge(body)

    def _judge_candidate(self, candidate: Any) -> Verdict:
        content = candidate.get("content") if isinstance(candidate, Mapping) else None
        if content is None:
            content = {}
        if not isinstance(candidate, Mapping) or not isinstance(content, Mapping):
            return tell_unknown("a candidate of another form")
        verdict = tell_unknown(
            find_call_word(candidate, ("content",))
            or find_call_word(content, ("parts",))
            or next((key for key in content if key not in ("parts", "role")), "")
        )
        parts = content.get("parts")
        if parts is not None and not isinstance(parts, list):
            return tell_unknown("parts that are no list")
        verdict = verdict.join(judge_all(map(_judge_part, parts or [])))
        if not verdict.is_plain and candidate.get("index") not in (None, 0) and not verdict.unknown:
            verdict = tell_unknown("a call of another candidate")
        return verdict.join(HELD) if candidate.get("finishReason") else verdict

    def note(self, event: Json) -> None:
        """Keep the head of the first chunk."""
        self._head = self._head or _read_head(event)

    def list_calls(self, body: Json) -> list[tuple[str, str, Json]]:
        """The parts that are calls."""
        calls = [(part, read_object(part.get("functionCall"))) for part in _list_parts(body)]
        return [(str(call.get("id") or ""), str(call.get("name")), part) for part, call in calls if call]

    def _build_calls(self, body: Json, calls: Sequence[ToolCall]) -> list[Json]:
        """The parts of calls. The first one has a signature where one of the host's has: the host wants it
        back, and refuses the next request without it."""
        parts: list[Json] = []
        for call, entry in self.pair_calls(body, calls):
            arguments = get_arguments(call, read_object(entry.get("functionCall")), "args")
            function = {"id": get_id(call)} if get_id(call) else {}
            parts.append({**entry, "functionCall": {**function, "name": call.name, "args": arguments}})
        signatures = (part.get("thoughtSignature") for _, _, part in self.list_calls(body))
        signature = next(filter(None, signatures), None)
        if parts and signature:
            parts[0] = {"thoughtSignature": signature, **parts[0]}
        return parts

    def change_body(self, body: Json, reply: Reply) -> Json:
        """The answer with another text and other calls in its first candidate."""
        candidate, *others = body.get("candidates") or [{"index": 0}]
        parts = [part for part in _list_parts(body) if "functionCall" not in part]
        texts = [part for part in parts if part.get("text") and not part.get("thought")]
        if "".join(part["text"] for part in texts) != (reply.content or ""):
            parts = [part for part in parts if part not in texts]
            parts += [{"text": reply.content}] if reply.content else []
        parts += self._build_calls(body, reply.tool_calls)
        content = {"role": "model", **read_object(candidate.get("content")), "parts": parts}
        return {**body, "candidates": [{**candidate, "content": content, "finishReason": "STOP"}, *others]}

    def write_rest(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json | str]:
        """A last chunk, with all that is left."""
        parts: list[Json] = [{"text": text}] if text or not calls else []
        parts += self._build_calls(body, calls)
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        counts = {"usageMetadata": body["usageMetadata"]} if body.get("usageMetadata") else {}
        yield {**(self._head or _read_head(body)), "candidates": [candidate], **counts}

    def write_error(self, words: str) -> Json:
        """The error in the place of a chunk."""
        return {"error": {"code": 500, "message": words, "status": "INTERNAL"}}


def _read_head(event: Json) -> Json:
    return {key: event[key] for key in ("responseId", "modelVersion", "createTime") if key in event}


def _list_parts(body: Json) -> list[Json]:
    candidates = read_list(body.get("candidates"))
    content = read_object(read_object(candidates[0]).get("content")) if candidates else {}
    return [read_object(part) for part in read_list(content.get("parts"))]
