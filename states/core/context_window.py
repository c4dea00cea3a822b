"""The part of a long conversation that requests contain, and its size in tokens.

A conversation keeps all of its messages. What a request shows of them is a *view*: some messages that are
always shown, a summary, and everything from an index on. A view is a small value, and what it shows is a
function of the view and the messages, so a checkpoint stores the view and no message twice.

Sizes are estimates: four bytes of text are about one token. They are corrected by what hosts count: the
`usage` of a reply says how long the conversation was, and only what was added since is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from toolchart.states.content import CitationPart, TextPart, add_text
from toolchart.states.core.message_list import MessageList, StoredMessages
from toolchart.states.messages import Message, Request, ToolDefinition, encode_arguments

# -- views ---------------------------------------------------------------------------------------


class ContextView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which messages of a conversation requests contain. All indexes count its messages from 0."""

    start: int = 0
    """The first message of the part that is shown whole."""
    kept: tuple[int, ...] = ()
    """Messages before `start` that are shown all the same."""
    summary: str = ""
    """A text in place of what is left out: a message of the user after `kept`; empty for none."""
    cleared: int = 0
    """Results of tools before this index are replaced by `cleared_text`, where that is shorter."""
    cleared_text: str = ""
    summaries: tuple[tuple[str, str], ...] = ()
    """Call id and text: what is shown in place of the result of a call."""

    @property
    def first_count(self) -> int:
        """How many messages are shown in front of the one at `start`."""
        return len(self.kept) + bool(self.summary)

    def iterate_shown(self, messages: Sequence[Message]) -> Iterator[Message]:
        """What is shown of these messages, in order."""
        for index in self.kept:
            yield messages[index]
        if self.summary:
            yield Message(role="user", content=self.summary)
        summaries = dict(self.summaries)
        for index in range(self.start, len(messages)):
            message = messages[index]
            if summaries and message.role == "tool" and message.tool_call_id in summaries:
                message = _replace_text(message, summaries[message.tool_call_id])
            yield self._clear_result(message) if index < self.cleared else message

    def _clear_result(self, message: Message) -> Message:
        """The message without its content, if it is a result that is longer than what would replace it."""
        is_long = bool(message.parts) or len(message.content or "") > len(self.cleared_text)
        if message.role != "tool" or not is_long:
            return message
        return replace(message, content=self.cleared_text, parts=())


def _replace_text(message: Message, text: str) -> Message:
    """The message with another text; pictures, files and sounds stay."""
    others = [part for part in message.parts if not isinstance(part, TextPart | CitationPart)]
    return replace(message, content=text, parts=add_text(text, others))


class ShownMessages(MessageList):
    """The messages that requests contain under a view. It grows with the conversation."""

    __slots__ = ("view",)

    view: ContextView

    @classmethod
    def from_view(cls, view: ContextView, messages: Sequence[Message]) -> ShownMessages:
        """What a view shows of a conversation."""
        return cls.from_messages(view, view.iterate_shown(messages))

    @classmethod
    def from_messages(cls, view: ContextView, messages: Iterable[Message]) -> ShownMessages:
        """A list of messages that are shown under this view."""
        shown = cls(messages)
        shown.view = view
        return shown

    @classmethod
    def from_conversation(
        cls, view: ContextView, count: int, digest: str, messages: Sequence[Message]
    ) -> ShownMessages:
        """The first messages that a view shows of a conversation, made when one of them is read.

        Args:
            count: how many.
            digest: hash chain over them, from a checkpoint.
        """

        def load_shown() -> list[Message]:
            return [message for message, _ in zip(view.iterate_shown(messages), range(count), strict=False)]

        shown: ShownMessages = cls.__new__(cls)
        stored = MessageList.from_store(StoredMessages(count, load_shown), digest)
        shown.copy_items(stored)
        shown.view = view
        return shown

    def append(self, message: Message) -> ShownMessages:
        """A list with one more message; this list does not change."""
        longer_list = super().append(message)
        shown: ShownMessages = ShownMessages.__new__(ShownMessages)
        shown.copy_items(longer_list)
        shown.view = self.view
        return shown


# -- sizes ---------------------------------------------------------------------------------------

_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_MEDIA = 1000


def _measure_text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate_message(message: Message) -> int:
    """About how many tokens a message takes in a request; a picture, a sound or a file counts as 1,000."""
    size = _measure_text(message.content) if message.content else 0
    for call in message.tool_calls:
        size += len(call.name) + _measure_text(encode_arguments(call))
    media = sum(1 for part in message.parts if not isinstance(part, TextPart | CitationPart))
    return _TOKENS_PER_MESSAGE + media * _TOKENS_PER_MEDIA + size // _BYTES_PER_TOKEN


def estimate_messages(messages: Iterable[Message]) -> int:
    """About how many tokens these messages take in a request."""
    return sum(map(estimate_message, messages))


def estimate_request(request: Request) -> int:
    """About how many tokens a request takes, its tools included."""
    return estimate_messages(request.messages) + estimate_prefix(None, request.tools)


def estimate_prefix(system: str | None, tools: Iterable[ToolDefinition]) -> int:
    """About how many tokens the system prompt and the definitions of the tools take."""
    size = _measure_text(system or "") + sum(len(msgspec.json.encode(tool)) for tool in tools)
    return size // _BYTES_PER_TOKEN
