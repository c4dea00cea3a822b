"""The one door for what goes back to a host: `fit_messages`.

A conversation holds what models and callers said, whatever that was. Hosts check the messages of a request:
they refuse arguments that are no JSON object, names and ids with characters that they do not know, a call
without a result, a result without a call, an empty reply. What one of them refuses once it refuses in every
later request, so one bad reply would be the end of its conversation.

So every adapter sends its messages through here, and then its wire map encodes what comes out. The log keeps
the messages as they were; the record of the call says what was changed (`Adaptation`). What comes out:

- **Arguments** are a JSON object. Text that is none stands inside one, `{"unreadable": text}`; where it was
  repaired, what was made of it goes out.
- **Names** of calls fit the host's form. The names of the offered tools are taken as they are.
- **Ids** of calls fit the host's form, and each stands for one call of the conversation.
- **Results** follow their calls, one for each, before any other message. A call without one gets one that
  says so. A result that answers no open call is a message of the user in words: nothing of it is lost.
- **An empty reply** has words in its place where the host refuses it. At the end of a request it is left out.

Almost all conversations are as they must be. One loop finds that out for the messages that came since the
last request: what was found is kept with the list of the conversation, and what was found of one message
(whether its arguments can be read) as long as the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import count
from types import MappingProxyType
from typing import Any
from weakref import ref

import msgspec
import orjson
from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import Media, TextPart, add_text
from toolchart.states.events import Adaptation
from toolchart.states.message_list import MessageList, RequestMessages
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition

# -- identifiers -----------------------------------------------------------------------------------
# A call keeps the id and the name that its model gave it, so a host may get those of another one: after a
# fallback, a change of `llm`, or an import. What a host takes goes out as it is.

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_SUFFIX_LENGTH = 9


class IdentifierForm(msgspec.Struct, frozen=True, kw_only=True):
    """Which ids of calls, or which names of tools, a host takes."""

    pattern: str
    """Regular expression for the whole of one that is taken."""
    refused: str = ""
    """Regular expression for the characters that become `_`; empty: no part of a refused one is kept."""
    length: int | None = None
    """Most characters; None for no limit."""

    def takes(self, word: str) -> bool:
        """Whether an id or a name may go out as it is."""
        return re.fullmatch(self.pattern, word) is not None

    def takes_all(self, words: Collection[str]) -> bool:
        """Whether all of some may; one search over all of them, because each request asks for all."""
        lines = "\n".join(words)
        is_whole = lines.count("\n") == len(words) - 1
        return not words or (
            is_whole and re.fullmatch(f"(?:{self.pattern})(?:\\n(?:{self.pattern}))*", lines) is not None
        )

    def derive(self, word: str, number: int) -> str:
        """One that is taken, made of one that is not.

        Args:
            number: 0 for the first try; another number gives another one.
        """
        if not self.refused:
            return _hash_text(f"{word} {number}" if number else word, self.length or _SUFFIX_LENGTH)
        readable = re.sub(self.refused, "_", word)[: self.length] or "_"
        if not number and self.takes(readable):
            return readable
        if not number:  # its first character is refused only there
            return f"_{readable}"[: self.length]
        suffix = f"_{_hash_text(f'{word} {number}', _SUFFIX_LENGTH)}"
        stem = readable if self.takes(readable) else f"_{readable}"
        return stem[: self.length and self.length - len(suffix)] + suffix

    def map_refused(self, words: Iterable[str], taken: Collection[str] = ()) -> Mapping[str, str]:
        """What a host gets in place of each word that it refuses. Two never become one.

        Args:
            taken: further words that must not be made.
        """
        words = dict.fromkeys(words)
        if self.takes_all(words):
            return _NO_WORDS
        refused = [word for word in words if not self.takes(word)]
        used = {*(words.keys() - set(refused)), *taken}
        mapping: dict[str, str] = {}
        for word in refused:
            mapping[word] = next(own for number in count() if (own := self.derive(word, number)) not in used)
            used.add(mapping[word])
        return mapping


_NO_WORDS: Mapping[str, str] = MappingProxyType({})


@lru_cache(maxsize=4096)
def _hash_text(text: str, length: int) -> str:
    """Letters and digits that depend on the text alone."""
    number, letters = int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()), []
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)


ANTHROPIC_IDS = IdentifierForm(pattern=r"[a-zA-Z0-9_-]+", refused=r"[^a-zA-Z0-9_-]")
"""Source: pydantic-ai, `profiles/anthropic.py`, 2026-08-22."""

BEDROCK_IDS = IdentifierForm(pattern=r"[a-zA-Z0-9_.:-]{1,64}", refused=r"[^a-zA-Z0-9_.:-]", length=64)
"""Source: botocore 1.44.5, shape `ToolUseId`."""

MISTRAL_IDS = IdentifierForm(pattern=r"[a-zA-Z0-9]{9}", length=9)
"""Source: error 3280 of Mistral's API, quoted in mistral-vibe#1075 (2026-09-10) and ironclaw#1241."""

CHAT_IDS = IdentifierForm(pattern=r".{1,40}", refused=r"[\r\n]", length=40)
"""OpenAI's chat completions. Source: pi, `openai-completions.ts`, 2026."""

RESPONSES_IDS = IdentifierForm(pattern=r".{1,64}", refused=r"[\r\n]", length=64)
"""OpenAI's Responses. Source: as for chat completions."""

TOOL_NAMES = IdentifierForm(pattern=r"[a-zA-Z0-9_-]{1,64}", refused=r"[^a-zA-Z0-9_-]", length=64)
"""OpenAI and Bedrock, and what every host takes. Sources: OpenAI's refusal in mcp-use/mcp-use#94
(`messages[9].tool_calls[0].function.name`); anomalyco/opencode#48750; botocore 1.44.5, shape `ToolName`."""

ANTHROPIC_NAMES = IdentifierForm(pattern=r"[a-zA-Z0-9_-]{1,128}", refused=r"[^a-zA-Z0-9_-]", length=128)
"""Source: platform.claude.com, Tool use, the form of `name`."""

GEMINI_NAMES = IdentifierForm(
    pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", refused=r"[^a-zA-Z0-9_.:-]", length=128
)
"""Source: google-genai 3.6.1, `types.FunctionDeclaration.name`."""


# -- arguments -------------------------------------------------------------------------------------


def read_sent_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as an object. Text that could not be read stands inside one: the model reads
    there what it wrote, and every host takes it."""
    return call.arguments if call.arguments is not None else {"unreadable": call.raw or ""}


def encode_sent_arguments(call: ToolCall) -> str:
    """The arguments of a call as the text of an object: the provider's own text if it sent one."""
    return call.raw or encode_canonical_text(read_sent_arguments(call))


def restore_arguments(wire: Mapping[str, Any], key: str, call: ToolCall) -> dict[str, Any]:
    """The object of an earlier call as it came, where its arguments stand as an object under the host's own
    key and are those of the call, which a fork may have changed; else with those that go out, under that key
    alone."""
    from toolchart.providers.shared.streamed_calls import drop_other_arguments

    own = drop_other_arguments(wire, key)
    value = own.get(key)
    if len(own) < len(wire) or not isinstance(value, Mapping) or not _are_equal(call, value):
        own[key] = read_sent_arguments(call)
    return own


def _are_equal(call: ToolCall, arguments: Mapping[str, Any]) -> bool:
    """Whether arguments as they came are those of the call, or are all that is known of them."""
    return call.arguments is None or encode_canonical_text(call.arguments) == encode_canonical_text(arguments)


def _fit_arguments(call: ToolCall) -> ToolCall:
    """The call with arguments that go out as an object; itself where they do."""
    if call.arguments is not None and (not call.raw or _is_object(call.raw)):
        return call
    return replace(call, arguments=read_sent_arguments(call), raw=None)


def _is_object(text: str) -> bool:
    """Whether a text is a JSON object for the strictest of the hosts that parse it."""
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


# -- what is kept of a message ---------------------------------------------------------------------
# Messages never change, and a wire keeps the encoded parts of each by its identity. So a message that was
# made of another one is kept as long as that one: it would be encoded anew in every request.


class _Reference(ref[Message]):
    """A weak reference to a message that knows under which key something is kept."""

    __slots__ = ("key",)

    key: int


class _KeptMessages:
    """The newest message that was made of each message; None for one that is good as it is."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[_Reference, Message | None]] = {}
        """By the identity of the message."""
        entries = self.entries

        def forget(reference: _Reference) -> None:
            entries.pop(reference.key, None)

        self._forget: Callable[[Any], None] = forget

    def keep(self, message: Message, made: Message | None) -> None:
        """Keep what was made of a message."""
        reference = _Reference(message, self._forget)
        reference.key = id(message)
        self.entries[id(message)] = (reference, made)

    def change(self, message: Message, **fields: Any) -> Message:
        """The message with other fields; the kept one where that has them."""
        entry = self.entries.get(id(message))
        # An identity is given again when its object has gone; the reference tells whether it is this
        # message.
        kept = entry[1] if entry is not None and entry[0]() is message else None
        if kept is not None and all(getattr(kept, name) == value for name, value in fields.items()):
            return kept
        made = replace(message, **fields)
        self.keep(message, made)
        return made


_readable = _KeptMessages()
"""Replies whose calls have arguments that go out as they are (None), or the reply with such arguments."""

_made = _KeptMessages()
"""What else was made of a message, for the host that was asked last."""


def _check_arguments(message: Message) -> Message | None:
    """The reply with arguments that go out as objects; None if it is one."""
    calls = tuple(map(_fit_arguments, message.tool_calls))
    made = None if calls == message.tool_calls else replace(message, tool_calls=calls)
    _readable.keep(message, made)
    return made


# -- the door --------------------------------------------------------------------------------------


class MessageForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a host demands of messages, by its row."""

    id_form: IdentifierForm | None = None
    """The form of ids of calls; None for any."""
    name_form: IdentifierForm | None = None
    """The form of names of calls; None for any."""
    takes_empty_replies: bool = True
    """Whether a reply without text and calls is taken."""


EMPTY_TEXT = "(nothing)"
"""Sent for a message without text where a host refuses an empty or a blank one."""

NO_RESULT = "(this call has no result)"
"""Sent for the result that a call does not have."""


class _Finding:
    """How far the messages of a conversation are known to be as a host demands, all results there."""

    __slots__ = ("count", "ids")

    def __init__(self) -> None:
        self.count = 0
        self.ids: dict[str, None] = {}
        """Ids of the calls among them."""


def fit_messages(request: Request, form: MessageForm) -> tuple[Request, tuple[Adaptation, ...]]:
    """The request with messages that its host takes, and what was changed of them."""
    messages = request.messages
    conversation = messages.messages if isinstance(messages, RequestMessages) else messages
    finding = None
    if isinstance(conversation, MessageList):
        finding = conversation.findings.get(form)
        if finding is None:
            finding = conversation.findings[form] = _Finding()
    if finding is None or finding.count > len(conversation):  # of a longer list, of which this is a beginning
        finding = _Finding()
    if _extend_finding(finding, conversation[finding.count :], request.tools, form):
        return request, ()
    fitting = _Fitting(form, {tool.name for tool in request.tools})
    return replace(request, messages=fitting.fit(list(messages))), fitting.list_changes()


def _extend_finding(
    finding: _Finding, messages: Sequence[Message], tools: Iterable[ToolDefinition], form: MessageForm
) -> bool:
    """Whether further messages are as a host demands too; then the finding is about them as well."""
    known_ids, ids = finding.ids, dict[str, None]()
    names: dict[str, None] = {}
    waiting: dict[str | None, str] = {}
    """Names of the calls that have no result yet, by id."""
    readable, message = _readable.entries, None
    for message in messages:
        if message.role == "tool":
            if waiting.pop(message.tool_call_id, None) != message.name or message.name is None:
                return False
        elif waiting:
            return False
        elif message.tool_calls:
            for call in message.tool_calls:
                if not call.id or call.id in ids or call.id in known_ids:
                    return False
                ids[call.id] = names[call.name] = None
                waiting[call.id] = call.name
            entry = readable.get(id(message))
            if entry is None or entry[0]() is not message:
                if _check_arguments(message) is not None:
                    return False
            elif entry[1] is not None:
                return False
        elif not (message.content or form.takes_empty_replies) and _is_empty(message):
            return False
    if waiting or (message is not None and _is_left_out(message)):
        return False
    if names:
        if form.id_form is not None and not form.id_form.takes_all(ids):
            return False
        if form.name_form is not None and not form.name_form.takes_all(names):
            # The names of offered tools are taken. Another request may not offer them, so this is not kept.
            return form.name_form.takes_all({*names} - {tool.name for tool in tools})
    finding.count += len(messages)
    known_ids.update(ids)
    return True


def _is_empty(message: Message) -> bool:
    """Whether a reply has neither text nor calls, nor anything that a host is sent."""
    is_reply = message.role == "assistant" and not message.tool_calls
    return is_reply and not message.content and not any(isinstance(part, Media) for part in message.parts)


def _is_left_out(message: Message) -> bool:
    """Whether a reply at the end is left out: an empty one that its host does not want back either."""
    is_reply = message.role == "assistant" and not message.tool_calls
    return is_reply and not (message.content or message.parts or message.provider_data)


class _Fitting:
    """Makes messages that a host takes of a list of which it would refuse something.

    Args:
        offered: names of the tools of the request.
    """

    def __init__(self, form: MessageForm, offered: set[str]) -> None:
        self._form = form
        self._offered = offered
        self._changes: dict[str, list[str]] = {}

    def fit(self, messages: Sequence[Message]) -> list[Message]:
        """The messages as they go out."""
        while messages and _is_left_out(messages[-1]):
            self._note("end", "")
            messages = messages[:-1]
        answers = self._match_results(messages)
        calls = self._name_calls(messages, answers)
        sent: list[Message] = []
        for index, message in enumerate(messages):
            if message.role == "tool":
                if index not in answers.indices:
                    sent.append(self._describe_result(message))
            elif message.tool_calls:
                sent += self._fit_reply(message, calls[index], answers.results[index], index)
            elif not self._form.takes_empty_replies and _is_empty(message):
                self._note("empty", EMPTY_TEXT)
                sent.append(_made.change(message, content=EMPTY_TEXT))
            else:
                sent.append(message)
        return sent

    def _match_results(self, messages: Sequence[Message]) -> _Answers:
        """Which results answer the calls of each reply."""
        open_calls: dict[str, list[tuple[int, int]]] = {}
        answers = _Answers()
        for index, message in enumerate(messages):
            if message.role == "tool":
                places = open_calls.get(message.tool_call_id or "")
                if not places:
                    continue
                # An id that came twice stands for its newest call without a result.
                newest = places[-1][0]
                place = next(place for place in places if place[0] == newest)
                places.remove(place)
                answers.results[newest].append((place[1], index, message))
                answers.indices.add(index)
            elif message.tool_calls:
                answers.results[index] = []
                for position, call in enumerate(message.tool_calls):
                    open_calls.setdefault(call.id, []).append((index, position))
        return answers

    def _name_calls(self, messages: Sequence[Message], answers: _Answers) -> dict[int, tuple[ToolCall, ...]]:
        """The calls of each reply as they go out."""
        used: dict[str, None] = {}
        calls: dict[int, list[ToolCall]] = {}
        for index, message in enumerate(messages):
            if not message.tool_calls:
                continue
            entry = _readable.entries.get(id(message))
            is_known = entry is not None and entry[0]() is message
            made = entry[1] if is_known and entry is not None else _check_arguments(message)
            if made is not None:
                pairs = zip(message.tool_calls, made.tool_calls, strict=True)
                self._note("arguments", *(call.id for call, own in pairs if call != own))
            repaired = {position: result.arguments for position, _, result in answers.results[index]}
            calls[index] = []
            for position, call in enumerate((made or message).tool_calls):
                if message.tool_calls[position].arguments is None and repaired.get(position) is not None:
                    call = replace(call, arguments=repaired[position])
                number, id_ = 1, call.id or "call"
                while id_ in used:
                    number += 1
                    id_ = f"{call.id or 'call'}_{number}"
                used[id_] = None
                if id_ != call.id:
                    self._note("repeated", f"{call.id!r} as {id_!r}")
                calls[index].append(replace(call, id=id_) if id_ != call.id else call)
        ids, names = self._map_ids(used), self._map_names(calls.values())
        return {
            index: tuple(
                replace(call, id=ids.get(call.id, call.id), name=names.get(call.name, call.name))
                if call.id in ids or call.name in names
                else call
                for call in own_calls
            )
            for index, own_calls in calls.items()
        }

    def _map_ids(self, ids: Iterable[str]) -> Mapping[str, str]:
        mapping = self._form.id_form.map_refused(ids) if self._form.id_form is not None else _NO_WORDS
        self._note("ids", *(f"{_shorten(word)} as {own!r}" for word, own in mapping.items()))
        return mapping

    def _map_names(self, calls: Iterable[Sequence[ToolCall]]) -> Mapping[str, str]:
        """What the host gets in place of names of tools that are not offered."""
        names = dict.fromkeys(call.name for own_calls in calls for call in own_calls)
        for name in self._offered & names.keys():
            del names[name]
        form = self._form.name_form
        mapping = form.map_refused(names, self._offered) if form is not None else _NO_WORDS
        self._note("names", *(f"{_shorten(word)} as {own!r}" for word, own in mapping.items()))
        return mapping

    def _fit_reply(
        self,
        message: Message,
        calls: tuple[ToolCall, ...],
        results: Sequence[tuple[int, int, Message]],
        index: int,
    ) -> list[Message]:
        """A reply with calls, and a result for each of them right after it."""
        sent = [message if calls == message.tool_calls else _made.change(message, tool_calls=calls)]
        answered = set()
        for offset, (position, place, result) in enumerate(results, 1):
            call = calls[position]
            answered.add(position)
            if place != index + offset:
                self._note("moved", call.id)
            is_own = (result.tool_call_id, result.name) == (call.id, call.name)
            sent.append(result if is_own else _made.change(result, tool_call_id=call.id, name=call.name))
        for position, call in enumerate(calls):
            if position not in answered:
                self._note("missing", call.id)
                sent.append(Message(role="tool", content=NO_RESULT, tool_call_id=call.id, name=call.name))
        return sent

    def _describe_result(self, message: Message) -> Message:
        """A result that answers no open call, as words of the user."""
        self._note("unasked", message.tool_call_id or message.name or "")
        text = f"The result of {message.name or 'a tool'}:\n{message.content or ''}"
        media = [part for part in message.parts if not isinstance(part, TextPart)]
        parts = add_text(text, media) if media else ()
        return _made.change(
            message, role="user", content=text, parts=parts, tool_call_id=None, name=None, arguments=None
        )

    def _note(self, kind: str, *words: str) -> None:
        if words:
            self._changes.setdefault(kind, []).extend(words)

    def list_changes(self) -> tuple[Adaptation, ...]:
        """What was changed, as the record says it: one entry for each kind of change."""
        return tuple(
            Adaptation(field="/messages", change=change, reason=f"{reason}{_list_words(self._changes[kind])}")
            for kind, (change, reason) in _KINDS.items()
            if kind in self._changes
        )


class _Answers:
    """The results of a list of messages."""

    def __init__(self) -> None:
        self.results: dict[int, list[tuple[int, int, Message]]] = {}
        """By the index of a reply: the position of a call, the index of its result, and the result."""
        self.indices: set[int] = set()
        """Of the results that answer a call."""


_KINDS = {
    "arguments": ("rewritten", "arguments that are no JSON object went out as one; calls: "),
    "names": ("renamed", "the host refuses these names of calls: "),
    "ids": ("renamed", "the host refuses these ids of calls: "),
    "repeated": ("renamed", "each call needs an id of its own: "),
    "missing": ("added", f"calls without a result got {NO_RESULT!r}; calls: "),
    "moved": ("rewritten", "results were put right after their calls; calls: "),
    "unasked": ("rewritten", "results that answer no open call went out as messages of the user; calls: "),
    "empty": ("rewritten", "the host refuses an empty reply, so it went out as words: "),
    "end": ("dropped", "an empty reply at the end was left out"),
}
"""By the kind of a change: its word in the record, and its reason."""

_MOST_LISTED = 3


def _list_words(words: Sequence[str]) -> str:
    listed = ", ".join(dict.fromkeys(words[:_MOST_LISTED]))
    more = len(words) - _MOST_LISTED
    return f"{listed} and {more} more" if more > 0 else listed


def _shorten(word: str) -> str:
    """A word for people; a model may invent one of any length."""
    return repr(word if len(word) <= 40 else f"{word[:37]}...")
