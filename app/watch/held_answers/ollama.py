"""Answers of Ollama."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from toolchart.app.watch.held_answers.reading import (
    CALL,
    HELD,
    PLAIN,
    Verdict,
    find_call_word,
    find_other_spelling,
    read_list,
    read_object,
    tell_unknown,
)
from toolchart.app.watch.held_answers.wire import Json, Wire, get_arguments, get_id
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.states.messages import Reply, ToolCall


class OllamaWire(Wire):
    """Lines of JSON, each with the model and a piece of the message."""

    def __init__(self) -> None:
        self._head: Json = {}

    def make_accumulator(self) -> OllamaAccumulator:
        """A new accumulator of lines."""
        return OllamaAccumulator()

    def judge(self, event: Json) -> Verdict:
        """What a line is."""
        verdict = HELD if event.get("done") or event.get("error") else PLAIN
        verdict = verdict.join(tell_unknown(find_call_word(event, ("message",))))
        message = event.get("message")
        if message is None:
            return verdict
        if not isinstance(message, Mapping):
            return tell_unknown("a message that is no object")
        verdict = verdict.join(tell_unknown(find_call_word(message, ("tool_calls",))))
        if not isinstance(message.get("content") or "", str):
            verdict = tell_unknown("content that is no text")
        calls = message.get("tool_calls")
        if not calls:
            return verdict
        are_calls = isinstance(calls, list) and all(
            isinstance(call, Mapping) and isinstance(call.get("function"), Mapping) for call in calls
        )
        if not are_calls:
            return verdict.join(tell_unknown("tool_calls"))
        strange = (find_other_spelling(call, call["function"]) for call in calls)
        return verdict.join(CALL).join(tell_unknown(next(filter(None, strange), "")))

    def judge_body(self, body: Json) -> Verdict:
        """What a whole answer has."""
        return self.judge(body)

    def note(self, event: Json) -> None:
        """Keep what each line begins with."""
        self._head = self._head or {key: event[key] for key in ("model", "created_at") if key in event}

    def list_calls(self, body: Json) -> list[tuple[str, str, Json]]:
        """The calls of the message."""
        entries = map(read_object, read_list(read_object(body.get("message")).get("tool_calls")))
        return [
            (str(entry.get("id") or ""), str(read_object(entry.get("function")).get("name")), entry)
            for entry in entries
        ]

    def _build_calls(self, body: Json, calls: Sequence[ToolCall]) -> list[Json]:
        built: list[Json] = []
        for index, (call, entry) in enumerate(self.pair_calls(body, calls)):
            arguments = get_arguments(call, read_object(entry.get("function")), "arguments")
            function = {"index": index, "name": call.name, "arguments": arguments}
            head = {"id": get_id(call)} if get_id(call) else {}
            built.append({**head, "function": function})
        return built

    def change_body(self, body: Json, reply: Reply) -> Json:
        """The answer with another text and other calls."""
        message = {key: value for key, value in read_object(body["message"]).items() if key != "tool_calls"}
        message["content"] = reply.content or ""
        if reply.tool_calls:
            message["tool_calls"] = self._build_calls(body, reply.tool_calls)
        return {**body, "message": message, "done_reason": "stop"}

    def write_rest(self, body: Json, text: str, calls: Sequence[ToolCall]) -> Iterator[Json | str]:
        """More lines."""
        names = ("model", "created_at")
        head = self._head or {key: body[key] for key in names if key in body}
        message = {"role": "assistant", "content": ""}
        if text:
            yield {**head, "message": {**message, "content": text}, "done": False}
        if calls:
            yield {
                **head,
                "message": {**message, "tool_calls": self._build_calls(body, calls)},
                "done": False,
            }
        yield {**body, **head, "message": message, "done": True, "done_reason": "stop"}

    def write_error(self, words: str) -> Json:
        """A line with an error."""
        return {"error": words}
