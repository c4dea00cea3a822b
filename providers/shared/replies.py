"""What the wires share about replies: values of the wrong type, arguments, finish reasons, deltas."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.states.call_arguments import decode_call, name_json_type
from toolchart.states.content import ContentPart, HostCallPart, TextPart, join_host_calls, merge_texts
from toolchart.states.errors import ProviderError
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    FinishReason,
    PartDelta,
    ReasoningDelta,
    Reply,
    TextDelta,
    TextWithdrawn,
    ToolCall,
    encode_arguments,
)

# -- values of JSON --------------------------------------------------------------------------------


_HALVES = re.compile("[\ud800-\udfff]")
_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})


def read_string(value: Any) -> str | None:
    """The value if it is non-empty text, else None.

    >>> read_string("a"), read_string(""), read_string(["a"])
    ('a', None, None)
    """
    return value if isinstance(value, str) and value else None


def read_mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; empty if the value is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def read_token_count(value: Any) -> int | None:
    """The value as an integer number of tokens, also from its text; None if it is no number from 0 to 2**53.

    >>> read_token_count(3), read_token_count("3"), read_token_count(True), read_token_count(2.0)
    (3, 3, None, 2)
    >>> read_token_count(-1), read_token_count("many")
    (None, None)
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 <= value < 2**53 else None


_INPUT_NAMES = ("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_eval_count")
_OUTPUT_NAMES = ("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "eval_count")


def read_input_count(counts: Mapping[str, Any]) -> int | None:
    """The tokens of a request, under the name of whichever API: hosts take those of another one.

    >>> read_input_count({"prompt_tokens": None, "input_tokens": "3"})
    3
    """
    return _read_first_count(counts, _INPUT_NAMES)


def read_output_count(counts: Mapping[str, Any]) -> int | None:
    """The tokens of a reply, under the name of whichever API."""
    return _read_first_count(counts, _OUTPUT_NAMES)


def _read_first_count(counts: Mapping[str, Any], names: Iterable[str]) -> int | None:
    return next((count for name in names if (count := read_token_count(counts.get(name))) is not None), None)


def read_index(value: Any) -> int | None:
    """The number with which a host numbers its calls or blocks; None if it sent none.

    >>> read_index(1), read_index("1"), read_index(1.0), read_index(None), read_index(True)
    (1, 1, 1, None, None)
    """
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
    return value if type(value) is int and -(2**53) < value < 2**53 else read_token_count(value)


def read_text(value: Any) -> str:
    """A text; of any other value its JSON text, of null nothing.

    Hosts send numbers and objects in the place of a text (`find_odd_texts` warns of it).

    >>> read_text("a"), read_text(42), read_text({"a": True}), read_text(None)
    ('a', '42', '{"a": true}', '')
    """
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def find_odd_texts(values: Iterable[Any]) -> tuple[str, ...]:
    """A warning if there is something else than text where the answer has text."""
    kinds = dict.fromkeys(
        name_json_type(value) for value in values if value is not None and not isinstance(value, str)
    )
    return tuple(
        f"the host sent a JSON {kind} in the place of text; its JSON text was read as the answer"
        for kind in kinds
    )


def join_pieces(pieces: Sequence[Any]) -> Any:
    """The text of its pieces; the pieces themselves where one is no text (`read_blocks` reads these)."""
    return join_text(pieces) if all(isinstance(piece, str) for piece in pieces) else list(pieces)


def read_blocks(
    content: Any, text_block: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """The blocks of a content, whose texts are texts, and a warning if one was not.

    The content may be a text, or a block without its list; a text may stand in the place of a block.

    Args:
        text_block: a block of text without its `text`. Where it has a type, so has every block.
    """
    blocks: list[Mapping[str, Any]] = []
    odd_texts: list[Any] = []
    for entry in content if isinstance(content, list) else [content]:
        is_block = isinstance(entry, Mapping) and (not text_block or "type" in entry or "text" in entry)
        text = entry.get("text") if is_block else entry
        if is_block and (text is None or isinstance(text, str)) and (not text_block or "type" in entry):
            blocks.append(entry)
        elif entry is not None:
            pieces = text if isinstance(text, list) else [text]
            odd_texts += pieces
            block = {**text_block, **entry} if is_block else text_block
            blocks.append({**block, "text": join_text(map(read_text, pieces))})
    return blocks, find_odd_texts(odd_texts)


def merge_counts(counts: Any, later: Any) -> dict[str, Any]:
    """The counts of a reply with those of a later event. What is null or zero there erases nothing: hosts
    send a last event of zeros.

    >>> merge_counts({"a": 3, "b": {"c": 1}}, {"a": 0, "b": {"c": None, "d": 2}})
    {'a': 3, 'b': {'c': 1, 'd': 2}}
    """
    merged = dict(counts) if isinstance(counts, Mapping) else {}
    for key, value in later.items() if isinstance(later, Mapping) else ():
        earlier = merged.get(key)
        if isinstance(earlier, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_counts(earlier, value)
        elif value or earlier is None:
            merged[key] = value
    return merged


def add_separate_reasoning(
    output: int | None, *, prompt: int | None, reasoning: int | None, total: int | None
) -> int | None:
    """The tokens of a reply with its reasoning, for hosts that count it apart from the reply.

    xAI's chat completions do so. The total tells: there it is the sum of all three.
    Source: recorded answers, Wei-Shaw/sub2api#5771, UKGovernmentBEIS/inspect_ai#5528, vercel/ai#12425.

    >>> add_separate_reasoning(5, prompt=10, reasoning=100, total=115)
    105
    >>> add_separate_reasoning(105, prompt=10, reasoning=100, total=115)
    105
    """
    if output is None or not reasoning or prompt is None or total != prompt + output + reasoning:
        return output
    return output + reasoning


def join_text(pieces: Iterable[str]) -> str:
    """The text of its pieces. A character whose halves (UTF-16 surrogates) came in two pieces is whole.

    >>> join_text(["a\\ud83d", "\\ude00"]) == "a\\U0001f600"
    True
    """
    text = "".join(pieces)
    if text.isascii() or not _HALVES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def select_others(mapping: Any, known_keys: Collection[str]) -> dict[str, Any]:
    """What a mapping holds besides the known keys and empty values."""
    if not isinstance(mapping, Mapping):
        return {}
    return {
        key: value
        for key, value in mapping.items()
        if key not in known_keys and not any(value is empty or value == empty for empty in _EMPTY_VALUES)
    }


def select_other_counts(usage: Any, known_keys: Collection[str]) -> dict[str, Any]:
    """`{"usage": ...}` with the counts besides the known ones and zeros; empty where there are none.

    Args:
        known_keys: names of counts, at any depth.
    """
    others = _select_counts(usage, known_keys)
    return {"usage": others} if others else {}


def _select_counts(value: Any, known_keys: Collection[str]) -> Any:
    if not isinstance(value, Mapping):
        return value
    counts = {key: _select_counts(item, known_keys) for key, item in value.items() if key not in known_keys}
    return {key: count for key, count in counts.items() if count}


_OWN_KEYS = ("model", "messages", "input", "contents", "instructions", "system", "systemInstruction", "tools")
_OWN_FLAGS = ("stream", "stream_options", "n")


def add_extra_body(body: dict[str, Any], extra: Any) -> dict[str, Any]:
    """The body with the keys of a handler's `extra_body`, merged into its objects.

    Raises:
        ProviderError: `bad_request`; a key for which the engine answers: the conversation, the tools, the
            model, the stream.
    """
    if not isinstance(extra, Mapping):
        return body
    for key in extra:
        if key in (*_OWN_KEYS, *_OWN_FLAGS):
            raise ProviderError(kind="bad_request", message=f"extra_body must not set {key!r}")
    return _merge_objects(body, extra)


def _merge_objects(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        is_object = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge_objects(old, value) if is_object else value  # type: ignore[arg-type]
    return merged


# -- arguments of calls ----------------------------------------------------------------------------
# `decode_call` of `states/call_arguments.py` reads them, for every wire and for what comes in as history.


def refuse_call(wire: Any) -> ToolCall:
    """The call for an entry that is none: it never runs, and the model reads why."""
    raw = json.dumps(wire, ensure_ascii=False)
    return ToolCall(name="", raw=raw, problem=f"the call is a JSON {name_json_type(wire)}, not an object")


def list_call_entries(value: Any) -> list[Any]:
    """The entries of `tool_calls`; a single one may stand without its list, or they by their indexes."""
    if isinstance(value, list):
        return [entry for entry in value if entry is not None]
    if isinstance(value, Mapping) and value and all(read_index(key) is not None for key in value):
        return [
            {"index": key, **entry} if isinstance(entry, Mapping) else entry for key, entry in value.items()
        ]
    is_none = not value or (isinstance(value, str) and value.strip() in ("null", "[]", "{}"))
    return [] if is_none else [value]


def read_function(wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """The name and arguments of a call; some hosts write them without the object around them."""
    function = wire.get("function") or wire.get("custom")
    if isinstance(function, Mapping):
        return function
    return {**wire, "name": function} if isinstance(function, str) else wire


def describe_waiting(kinds: Iterable[str]) -> str | None:
    """Why a reply cannot be carried out that has calls of these kinds, which nobody here performs; None
    where it has none.

    >>> describe_waiting(["computer_call"])
    'it waits for what its computer_call asks, which is not supported'
    """
    names = ", ".join(dict.fromkeys(kinds))
    return f"it waits for what its {names} asks, which is not supported" if names else None


def is_call_kind(kind: str) -> bool:
    """Whether a kind of block or key is, by its name, that of calls. The wires know those that they read.

    >>> is_call_kind("client_tool_use"), is_call_kind("functionCalls"), is_call_kind("text")
    (True, True, False)
    """
    return kind.lower().endswith(("_use", "tooluse", "call", "calls"))


def read_call_input(arguments: Any) -> dict[str, Any]:
    """The arguments of a call that the host ran itself; those that cannot be read under `arguments`, as they
    came."""
    call = decode_call("", "", arguments)
    return call.arguments if call.arguments is not None else {"arguments": call.raw}


# -- finish reasons --------------------------------------------------------------------------------
# Each host has its own table, `FINISH_WORDS` in the `wire.py` of its folder. A word that is not there is read
# as one of another API, which gateways pass on (`_COMMON_WORDS`). Words alone do not decide: a
# reply with tool calls has the reason `tool_calls` whatever its word is, unless it was cut or filtered. The
# reply keeps the word itself as `native_reason`. A stream or a reply in parts may end more than once: see
# `choose_finish_word`.


FinishWords = Mapping[str, FinishReason]
"""A host's finish words and their meaning."""

_COMMON_WORDS: FinishWords = {
    **dict.fromkeys(("stop", "endturn", "stopsequence", "eos", "eostoken", "complete", "completed"), "stop"),
    **dict.fromkeys(("toolcalls", "toolcall", "tooluse", "functioncall"), "tool_calls"),
    **dict.fromkeys(("length", "maxtokens", "maxoutputtokens", "incomplete"), "length"),
    **dict.fromkeys(("contentfilter", "contentfiltered", "safety", "refusal"), "content_filter"),
    **dict.fromkeys(("error", "failed", "cancelled", "abort"), "error"),
    "pauseturn": "paused",
}
"""Words of all APIs, folded. A host's own table comes first.
Source: BerriAI/litellm issue 15714 (`stop` as the status of a response); Vercel's AI SDK (`tool-calls`)."""

_OVERRIDING_REASONS: tuple[FinishReason, ...] = ("error", "malformed_call", "length", "content_filter")
"""Reasons that hold even for a reply with calls: its calls may be incomplete and must not run."""


_NO_WORDS = ("", "null", "none")


def is_finish_word(value: Any) -> bool:
    """Whether a host says why the reply ended: null, an empty text and the text `null` say nothing."""
    return bool(value) and not (isinstance(value, str) and value.strip().lower() in _NO_WORDS)


def choose_finish_word(word: Any, later: Any, finish_words: FinishWords) -> Any:
    """The finish word that counts of two: what is no word says nothing, an overriding reason stays beside
    others, and of two of these the first in their order; else the later word.

    >>> choose_finish_word("length", "stop", {"length": "length"}), choose_finish_word("stop", None, {})
    ('length', 'stop')
    """
    if not is_finish_word(later):
        return word
    if word is None:
        return later
    return word if _rank_word(word, finish_words) < _rank_word(later, finish_words) else later


def _rank_word(word: Any, finish_words: FinishWords) -> int:
    reason = find_finish_reason(word, finish_words)
    if reason is None or reason not in _OVERRIDING_REASONS:
        return len(_OVERRIDING_REASONS)
    return _OVERRIDING_REASONS.index(reason)


def find_missing_word(word: Any, reason: FinishReason) -> tuple[str, ...]:
    """A warning if the host did not say why a reply ended that has text or calls."""
    if is_finish_word(word) or reason not in ("stop", "tool_calls"):
        return ()
    return (f"the host sent no finish reason; its answer arrived whole, so it counts as {reason!r}",)


def find_finish_reason(word: Any, finish_words: FinishWords) -> FinishReason | None:
    """What a word means in a host's table, else among those of all APIs; None where it is in neither.

    Case, separators, and the class of an enum before a point make no difference.

    >>> find_finish_reason("STOP", {"stop": "stop"}), find_finish_reason("end", {"stop": "stop"})
    ('stop', None)
    >>> find_finish_reason("FinishReason.MAX_TOKENS", {}), find_finish_reason("tool-calls", {})
    ('length', 'tool_calls')
    """
    if not isinstance(word, str):
        return None
    if word in finish_words:
        return finish_words[word]
    folded = _fold_word(word)
    for known, reason in finish_words.items():
        if _fold_word(known) == folded:
            return reason
    return _COMMON_WORDS.get(folded)


def _fold_word(word: str) -> str:
    return "".join(filter(str.isalnum, word.rpartition(".")[2].lower()))


def resolve_finish_reason(
    word: str | None,
    finish_words: FinishWords,
    *,
    call_count: int,
    has_answer: bool,
    is_refusal: bool = False,
) -> FinishReason:
    """Our finish reason for a provider's finish word.

    Precedence: error, malformed_call, length, content_filter, calls present, then the word itself. A word
    that means `tool_calls` in an empty reply gives `unknown`; beside a text it stays, and unless the calls
    stand in the text, the reply is a failed one (`answer_form.py`). Without a word an answer that arrived
    whole ended of itself (`find_missing_word` warns of it), and an empty one gives `unknown`.

    Args:
        word: the provider's word; None if it sent none.
        finish_words: the provider's table.
        call_count: number of tool calls in the reply.
        has_answer: whether it has text, or other content.
        is_refusal: whether the model refused to answer.
    """
    reason = find_finish_reason(word, finish_words)
    if reason is None:
        reason = "stop" if has_answer and not is_finish_word(word) else "unknown"
    if reason in _OVERRIDING_REASONS:
        return reason
    if is_refusal:
        return "content_filter"
    if call_count:
        return "tool_calls"
    return "unknown" if reason == "tool_calls" and not has_answer else reason


# -- parts -----------------------------------------------------------------------------------------


class PartCollector:
    """Collects the parts of a reply in their order, block by block, whole or streamed."""

    def __init__(self) -> None:
        self.length = 0
        """Characters of the answer so far."""
        self._parts: list[ContentPart] = []
        self._others: list[int] = []
        """Positions of the parts that are no text."""
        self._calls: dict[str, int] = {}
        """By id or key of a call of the host: its index in `_others`."""
        self._changes: list[int] = []

    def add_text(self, text: str) -> None:
        """Add more of the answer."""
        self._parts.append(TextPart(text=text))
        self.length += len(text)

    def add_part(self, part: ContentPart) -> None:
        """Add a part that is no text."""
        self._changes.append(len(self._others))
        self._others.append(len(self._parts))
        self._parts.append(part)

    def begin_call(self, call: HostCallPart, key: str = "") -> None:
        """Add a call of the host; what comes with its id or key belongs to it, and no longer to an earlier
        call."""
        self._calls[key or call.id] = len(self._others)
        self.add_part(call)

    def add_call(self, call: HostCallPart, key: str = "") -> None:
        """Add a call of the host, or what became of the one with this id or key."""
        index = self._calls.get(key or call.id) if key or call.id else None
        if index is None:
            self.begin_call(call, key)
            return
        earlier = self._parts[self._others[index]]
        assert isinstance(earlier, HostCallPart), "calls alone have a place here"
        self._parts[self._others[index]] = join_host_calls(earlier, call)
        self._changes.append(index)

    def take_deltas(self) -> list[Delta]:
        """The parts that are new or have changed since the last time."""
        changes, self._changes = dict.fromkeys(self._changes), []
        return [PartDelta(index=index, part=self._parts[self._others[index]]) for index in changes]

    def build(self) -> tuple[ContentPart, ...]:
        """The whole content; empty where it is nothing but text."""
        return merge_texts(self._parts)


# -- deltas ----------------------------------------------------------------------------------------
# The scripted, recorded and text-call providers use this: they hold the whole reply before they stream it.


_WORD = re.compile(r"\s*\S+\s*")


def iterate_deltas(reply: Reply) -> Iterator[Delta]:
    """The deltas of a reply, one per word: reasoning, then content, other parts, and tool calls."""
    for word in _split_words(reply.reasoning):
        yield ReasoningDelta(text=word)
    for word in _split_words(reply.content):
        yield TextDelta(text=word)
    for index, part in enumerate(part for part in reply.parts if not isinstance(part, TextPart)):
        yield PartDelta(index=index, part=part)
    for index, call in enumerate(reply.tool_calls):
        yield CallStarted(index=index, name=call.name)
        for word in _split_words(encode_arguments(call)):
            yield CallArguments(index=index, text=word)


async def stream_reply(reply: Reply) -> AsyncGenerator[Delta | Reply, None]:
    """The deltas of a reply, then the reply itself, as `StreamingProvider.stream` promises."""
    for delta in iterate_deltas(reply):
        yield delta
    yield reply


class DeltaJoiner:
    """Passes deltas on. Half a character at the end of one waits for its other half in the next."""

    def __init__(self) -> None:
        self._halves: dict[tuple[type, int], str] = {}

    def join_delta(self, delta: Delta) -> Delta | None:
        """The delta with the half that waited before it; None while there is nothing to show."""
        if isinstance(delta, CallStarted | PartDelta | TextWithdrawn):
            return delta
        place = (type(delta), delta.index if isinstance(delta, CallArguments) else 0)
        half = self._halves.pop(place, "") if self._halves else ""
        if not half and not "\ud800" <= delta.text[-1:] <= "\udbff":
            return delta
        text = half + delta.text
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._halves[place] = text[:-1], text[-1]
        return replace(delta, text=join_text([text])) if text else None


def _split_words(text: str | None) -> list[str]:
    """The words of a text with their white space, so that joining them gives the text back."""
    return (_WORD.findall(text) or [text]) if text else []
