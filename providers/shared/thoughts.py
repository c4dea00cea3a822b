"""Splits the thoughts with which the text of a reply begins from the answer behind them.

Models that think write their thoughts as text before the answer, between `<think>` and `</think>`. Most hosts
send them apart. A host without a parser for its model leaves them in the text, and then they are no part of
the answer. The same code reads whole and streamed replies, so both give the same.

- Only the beginning of a reply is searched. An answer that mentions a marker further on stays as it is.
- Where nothing comes behind the thoughts, or their end is missing, there is no answer.
- The templates of some models put the opening marker into the prompt. Their text begins with thoughts, and
  only the closing marker tells. So a stream of such a model is held back until it comes, unless the host has
  sent reasoning apart before.

Sources: Qwen's page about thinking ("it is normal for the model's output to contain only </think>"),
Cerebras/cerebras-cloud-sdk-python#10 (both forms at one host), sigoden/aichat#1528 (Qwen3.6),
ggml-org/llama.cpp#24671; llama.cpp, tools/server (`--reasoning-format none` and `deepseek-legacy`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from toolchart.providers.shared.host_rows import ThoughtForm
from toolchart.states.content import CitationPart, ContentPart, TextPart
from toolchart.states.messages import Delta, ReasoningDelta, Reply, TextDelta

THOUGHT_MARKERS = {"<think>": "</think>", "<thinking>": "</thinking>", "[think]": "[/think]"}
"""Closing marker by opening marker, in lower case: of Qwen, DeepSeek and many others; then of Claude and of
Mistral."""

_OPENERS = tuple(THOUGHT_MARKERS)
_CLOSERS = tuple(THOUGHT_MARKERS.values())
_LONGEST = max(map(len, _CLOSERS))
_CLOSER_PATTERNS = {closer: re.compile(re.escape(closer), re.IGNORECASE) for closer in _CLOSERS}
_UNQUOTED_CLOSER = re.compile(f"(?<!`){re.escape(_CLOSERS[0])}", re.IGNORECASE)

_UNOPENED_WARNING = (
    "thoughts_in_text: the text has </think> without <think>; if its template has that in the prompt, "
    "write `thoughts_in_text: unopened` in the llms entry: what stands before is no part of the answer"
)


class ThoughtSplitter:
    """Splits one reply, piece by piece.

    Args:
        form: `unopened` where the text may begin with thoughts without an opening marker.
    """

    def __init__(self, form: ThoughtForm) -> None:
        self.answer_start = 0
        """Where the answer begins in the whole text, in characters."""
        self._may_lack_opener = form == "unopened"
        self._has_host_reasoning = False
        self._buffer: list[str] = []
        """Text that is not decided."""
        self._held: list[str] = []
        """Text before the buffer, which is thoughts only if the closing marker comes."""
        self._closer: str | None = None
        """The marker that ends the thoughts that have begun."""
        self._is_open_question = False
        """Whether the text so far is thoughts, which only a closing marker can tell."""
        self.is_answer = False
        """Whether the thoughts have ended: what comes now is shown as it is."""
        self._has_block = False
        """Whether thoughts have ended."""
        self._blanks: list[str] = []
        """White space that is shown only between thoughts."""
        self._has_thoughts = False

    def split_delta(self, delta: Delta) -> Sequence[Delta]:
        """What is shown in place of a delta."""
        if isinstance(delta, TextDelta):
            return list(self.add_text(delta.text))
        if isinstance(delta, ReasoningDelta):
            self._has_host_reasoning, self._may_lack_opener = True, False
        return (delta,)

    def add_text(self, text: str) -> Iterator[TextDelta | ReasoningDelta]:
        """The deltas that this text completes."""
        self._buffer.append(text)
        if text.isspace() and not self.is_answer:
            return iter(())  # nothing is decided by it, so what is held back is not searched again
        return self._scan_buffer(is_last=False)

    def finish_text(self) -> Iterator[TextDelta | ReasoningDelta]:
        """The deltas that remain when no more text comes."""
        return self._scan_buffer(is_last=True)

    def _scan_buffer(self, *, is_last: bool) -> Iterator[TextDelta | ReasoningDelta]:
        text, before = "".join(self._buffer), None
        while not self.is_answer and before != (before := (text, self._closer)):
            if self._closer is None:
                text = self._scan_head(text, is_last=is_last)
            else:
                thoughts, text = self._scan_thoughts(text, self._closer, is_last=is_last)
                yield from self._show_thoughts(thoughts)
        if self.is_answer and text:
            yield TextDelta(text=text)
            text = ""
        self._buffer = [text] if text else []

    def _scan_head(self, text: str, *, is_last: bool) -> str:
        """Decide what the text begins with; what is left of it."""
        head = text.lstrip()
        start = head[:_LONGEST].lower()
        markers = (*_OPENERS, *_CLOSERS) if self._has_block else _OPENERS
        marker = next((marker for marker in markers if start.startswith(marker)), None)
        if marker is not None:
            self.answer_start += len(text) - len(head) + len(marker)
            self._closer = THOUGHT_MARKERS.get(marker)  # a closing marker that comes twice says nothing
            self._blanks = ["\n"]
            return head[len(marker) :]
        if not is_last and any(marker.startswith(start) for marker in markers):
            return text
        if self._may_lack_opener and not self._has_block and start:
            self._closer, self._is_open_question = THOUGHT_MARKERS[_OPENERS[0]], True
            return text
        self.is_answer = True
        if self._has_block:
            self.answer_start += len(text) - len(head)
            return head
        return text

    def _scan_thoughts(self, text: str, closer: str, *, is_last: bool) -> tuple[str, str]:
        """The thoughts in the text, and what is left of it."""
        pattern = _UNQUOTED_CLOSER if self._is_open_question else _CLOSER_PATTERNS[closer]
        match = pattern.search(text, 1 if self._held else 0)
        if match is None and self._is_open_question:
            if is_last:
                self.is_answer = True
                return "", "".join([*self._held, text])
            # A marker may begin in the last characters. The first of them is only looked at from behind.
            if len(text) > len(closer):
                self._held.append(text[: -len(closer)])
                text = text[-len(closer) :]
            return "", text
        if match is None:
            end = len(text) if is_last else len(text) - _measure_overlap(text, closer)
            self.answer_start += end
            return text[:end], text[end:]
        thoughts = "".join([*self._held, text[: match.start()]])
        self._held.clear()
        self._closer, self._is_open_question, self._has_block = None, False, True
        self.answer_start += len(thoughts) + len(closer)
        return thoughts, text[match.end() :]

    def _show_thoughts(self, text: str) -> Iterator[ReasoningDelta]:
        """The thoughts without the white space around them."""
        if self._has_host_reasoning:
            return  # llama.cpp's `deepseek-legacy` sends them apart, and leaves them in the text
        content = text.rstrip()
        if content:
            shown = "".join([*self._blanks, content]) if self._has_thoughts else content.lstrip()
            yield ReasoningDelta(text=shown)
            self._blanks, self._has_thoughts = [], True
        self._blanks.append(text[len(content) :])


def split_reply(reply: Reply, form: ThoughtForm) -> tuple[Reply, str]:
    """A reply without the thoughts in its text, which join its reasoning; and the text that was taken out."""
    content = reply.content or ""
    if form != "unopened" and not content.lstrip()[:_LONGEST].lower().startswith(_OPENERS):
        closing = _UNQUOTED_CLOSER.search(content) if _CLOSERS[0] in content else None
        if closing is not None and _OPENERS[0] not in content[: closing.start()]:
            reply = replace(reply, warnings=(*reply.warnings, _UNOPENED_WARNING))
        return reply, ""
    splitter = ThoughtSplitter("opened" if reply.reasoning else form)
    deltas = [*splitter.add_text(content), *splitter.finish_text()]
    start = splitter.answer_start
    if not start:
        return reply, ""
    thoughts = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    reasoning = reply.reasoning or thoughts
    if reply.reasoning and thoughts and thoughts not in reply.reasoning:
        reasoning = f"{reply.reasoning}\n{thoughts}"
    parts = tuple(_cut_parts(reply.parts, start))
    cut = replace(reply, content=content[start:] or None, reasoning=reasoning or None, parts=parts)
    return cut, content[:start]


def _cut_parts(parts: Sequence[ContentPart], length: int) -> Iterator[ContentPart]:
    """The parts without the first `length` characters of their texts."""
    left = length
    for part in parts:
        if isinstance(part, TextPart):
            if len(part.text) > left:
                yield TextPart(text=part.text[left:])
            left = max(0, left - len(part.text))
        elif isinstance(part, CitationPart) and part.start is not None:
            end = None if part.end is None else max(0, part.end - length)
            yield replace(part, start=max(0, part.start - length), end=end)
        else:
            yield part


def _measure_overlap(text: str, marker: str) -> int:
    """Length of the longest end of `text` with which `marker` begins, the whole marker excluded."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text[-length:].lower() == marker[:length]:
            return length
    return 0
