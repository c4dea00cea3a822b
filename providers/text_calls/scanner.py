"""Scans the text of a reply for tool calls, and loses no character of it.

While a reply is streamed, text is passed on at once up to the first place at which a call may begin. From
there on all of it is held back until the reply ends, and then read in one go. So a whole and a streamed reply
are read by the same code, no markup is shown that turns out to be a call, and what turns out to be text is
passed on as text, complete. Models stop after a call, so little is held back for nothing.

What counts as a call:

- A block that names an offered tool and whose own form is whole: with both markers, with one, or with more.
- A block that was meant as a call and is not whole, or names no offered tool. It is passed on as a call that
  cannot be run, since its markup is no answer.
- Markers in code (a fence, or between backticks) are quoted: an answer may explain them. Only where the whole
  message is one piece of code with calls in it, they are calls. Within a line of text a block with an unknown
  name, or one that is not whole, is text too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from toolchart.providers.shared.thoughts import THOUGHT_MARKERS, ThoughtSplitter
from toolchart.providers.text_calls.formats import (
    TEXT_FORMATS,
    UNREADABLE,
    CallText,
    Schemas,
    TextFormat,
    fold,
    read_json_block,
    skip_fence,
)
from toolchart.states.messages import ReasoningDelta, Request, ToolCall


class TextPiece(msgspec.Struct, frozen=True):
    """Text of the answer."""

    text: str


class ReasoningPiece(msgspec.Struct, frozen=True):
    """Reasoning, without its markers. A call inside it is not a call."""

    text: str


class CallsPiece(msgspec.Struct, frozen=True):
    """One block of calls."""

    calls: tuple[ToolCall, ...]
    """Calls without ids. One that cannot be run has a `problem`; its name is empty where none can be read."""
    raw: str
    """The text that the model wrote."""


Piece = TextPiece | ReasoningPiece | CallsPiece


class _Start(msgspec.Struct, frozen=True):
    """A place at which a call may begin."""

    position: int
    kind: str
    """`opener`, `inner` (the opener is missing), `object` (a JSON object with the keys of a call), `closer`,
    `message` (the whole message may be a call), `code` (it may be one piece of code), `thought`, or
    `end of thought` (of one whose opener is missing)."""
    marker: str = ""
    is_line_start: bool = False


_UNDECIDED = "undecided"
_TOKEN = re.compile(r"\n|`++|[<\[]")
_LINE_END = re.compile(r"[ \t\r]*+(?:\n|\Z)")
_INDENT = re.compile(r"[ \t\r]*+")
_FENCE = re.compile(r"`{3,}+|~{3,}+")
_CODE_HEAD = re.compile(r"(?:(`{3,}+|~{3,}+)[^\n`]*+\n|`{1,2}+(?!`))\s*+")
_OBJECT_HEAD = re.compile(r'\{\s*+(?:"([a-z]*+)("?))?')
_LIST_HEAD = re.compile(r"\[\s*+")
_CALL_HEAD = re.compile(r"([A-Za-z_][\w.]*+)[ \t]*+([({]?)")
_CALL_KEYS = ("name", "arguments", "parameters", "function", "type")
_REPLY_ENDS = ("<|im_end|>", "<|eom_id|>", "<|eot_id|>", "<|end_of_text|>", "<|end_of_sentence|>", "</s>")
"""What ends a reply; behind a call it says nothing."""
_MAX_NAME_SEARCH = 2000
"""So many characters of a broken block are searched for its name."""
_MAX_BLANKS = 200
"""So many blanks are looked through for what follows a marker."""
_NAMES = re.compile(
    r'"name"\s*+:\s*+"([^"\\\n]{1,128})"|<function=\s*+["\']?([^<>"\'\s]{1,128})'
    r"|<[|｜]tool[_▁]sep[|｜]>\s*+([\w.-]{1,128})",
    re.IGNORECASE,
)
_FIRST_NAME = re.compile(r"[^\w]*+([\w.-]{1,128})")


class TextCallScanner:
    """Scans one reply.

    Args:
        formats: the formats to look for.
        schemas: of the offered tools.
        is_code_quoted: whether markers in code are no calls.
    """

    def __init__(
        self, formats: Sequence[TextFormat], schemas: Schemas, *, is_code_quoted: bool = True
    ) -> None:
        self._formats = formats
        self._schemas = schemas
        self._thoughts = ThoughtSplitter("opened")
        self._openers = {fold(row.opener): row for row in formats if row.opener}
        self._inner: dict[str, TextFormat] = {}
        self._line_inner: dict[str, TextFormat] = {}
        for row in formats:
            for start in row.list_starts(list(schemas)):
                is_plain = start[:1] in ("<", "[")
                (self._inner if is_plain else self._line_inner).setdefault(start, row)
        self._closers = {fold(row.closer) for row in formats if row.closer}
        if "<function=" in self._inner:
            self._closers.add("</function>")
        self._has_code = is_code_quoted and not any(row.is_certain for row in formats)
        ends = THOUGHT_MARKERS.values()
        marks = sorted({*self._openers, *self._inner, *self._closers, *ends}, key=len, reverse=True)
        self._any_marker = re.compile("|".join(map(re.escape, marks)) or "(?!)")
        thought_markers = THOUGHT_MARKERS if formats else {}
        self._markers: dict[str, str] = {
            **dict.fromkeys(thought_markers, "thought"),
            **dict.fromkeys(thought_markers.values(), "end of thought"),
            **dict.fromkeys(self._closers, "closer"),
            **dict.fromkeys(self._inner, "inner"),
            **dict.fromkeys(self._openers, "opener"),
        }
        """The kind of each marker."""
        self._messages = [row for row in formats if row.read_message is not None]
        self._reads_objects = bool(self._closers or self._messages)
        # the context of what comes next
        self._fence = ""
        self._code = 0
        self._is_line_start = True
        self._has_content = False
        # text that is not passed on
        self._tail = ""
        self._held: list[str] = []
        self._is_held = False

    # -- streaming ---------------------------------------------------------------------------------

    def add_text(self, text: str) -> list[Piece]:
        """The pieces that this text completes."""
        pieces: list[Piece] = []
        for delta in self._thoughts.add_text(text):
            if isinstance(delta, ReasoningDelta):
                pieces.append(ReasoningPiece(delta.text))
            else:
                pieces += self._add_answer(delta.text)
        return pieces

    def finish_text(self, *, reads_calls: bool = True) -> list[Piece]:
        """The pieces that remain when no more text comes.

        Args:
            reads_calls: whether what is held back is searched for calls, or passed on as text.
        """
        pieces: list[Piece] = []
        for delta in self._thoughts.finish_text():
            if isinstance(delta, ReasoningDelta):
                pieces.append(ReasoningPiece(delta.text))
            else:
                pieces += self._add_answer(delta.text)
        text = "".join([*self._held, self._tail])
        self._held, self._tail = [], ""
        if reads_calls:
            return [*pieces, *self._read_pieces(text)]
        return [*pieces, *([TextPiece(text)] if text else [])]

    def _add_answer(self, text: str) -> Iterator[Piece]:
        """Pass on what cannot belong to a call."""
        if self._is_held or not self._formats:
            if self._is_held:
                self._held.append(text)
            else:
                yield TextPiece(text)
            return
        source = CallText(self._tail + text)
        start = self._find_start(source, 0, is_last=False)
        end = len(source.text) if start is None else start.position
        if end:
            yield TextPiece(source.text[:end])
        self._tail = source.text[end:]
        if start is not None and start.kind != _UNDECIDED:
            # The context is that of the place before the start, so the start is found again from there.
            self._held, self._tail, self._is_held = [self._tail], "", True

    # -- where a call may begin --------------------------------------------------------------------

    def _find_start(self, source: CallText, position: int, *, is_last: bool) -> _Start | None:
        """The first place at which a call may begin; `undecided` where more text must tell.

        The context is left as it is at that place, or at the end.
        """
        text, folded, length = source.text, source.folded, len(source.text)
        while position < length:
            if self._is_line_start:
                indent = _INDENT.match(text, position)
                position = indent.end() if indent else position
                if position == length:
                    return None
                start = self._match_line_start(source, position, is_last=is_last)
                if isinstance(start, _Start):
                    return start
                if start is not None:
                    position = start
                    continue
            if self._fence:
                position = self._skip_line(text, position)
                continue
            token = _TOKEN.search(folded, position)
            plain_end = token.start() if token else length
            if plain_end > position:
                self._has_content = self._has_content or not text[position:plain_end].isspace()
                self._is_line_start = False
            if token is None:
                return None
            position = token.start()
            sign = token.group()
            if sign == "\n":
                self._is_line_start, self._code = True, 0
            elif sign[0] == "`" and self._has_code:
                if token.end() == length and not is_last:
                    return _Start(position, _UNDECIDED)
                self._code = len(sign) if not self._code else 0 if self._code == len(sign) else self._code
                self._is_line_start, self._has_content = False, True
            elif sign[0] != "`" and not self._code:
                start = self._match_marker(source, position, is_last=is_last)
                if start is not None:
                    return start
                self._is_line_start, self._has_content = False, True
            position = token.end()
        return None

    def _skip_line(self, text: str, position: int) -> int:
        end = text.find("\n", position)
        self._is_line_start = end >= 0
        self._has_content = True
        return end + 1 if end >= 0 else len(text)

    def _match_line_start(self, source: CallText, position: int, *, is_last: bool) -> _Start | int | None:
        """What begins at the first sign of a line: a start; the place behind a fence; or nothing."""
        text = source.text
        sign = text[position]
        if self._fence:
            return self._match_closing_fence(text, position, is_last=is_last)
        if sign in "`~" and self._has_code:
            return self._match_opening_fence(source, position, is_last=is_last)
        found = self._match_head(source, position, is_last=is_last)
        if found is not None:
            return _Start(position, found[0], found[1], is_line_start=True)
        return None

    def _match_head(self, source: CallText, position: int, *, is_last: bool) -> tuple[str, str] | None:
        """The kind and the marker of what begins here, as the first of its line; None for text."""
        sign = source.text[position : position + 1]
        is_first = not self._has_content and bool(self._messages)
        rest = source.text[position : position + 2 * _MAX_BLANKS]
        is_open = not is_last and position + len(rest) == len(source.text)
        found: tuple[str, str] | None = None
        if sign == "{" and self._reads_objects:
            found = self._match_object(rest, is_open)
        elif sign == "[" and is_first:
            head = _LIST_HEAD.match(rest)
            inner = rest[head.end() :] if head else ""
            found = (
                self._match_object(inner, is_open) if inner[:1] == "{" else self._match_call(inner, is_open)
            )
            if not inner and is_open:
                found = (_UNDECIDED, "")
        elif is_first and (sign.isalpha() or sign == "_"):
            found = self._match_call(rest, is_open)
        if found is not None and found[0] != _UNDECIDED:
            return ("message" if is_first else "object", "")
        marker = self._match_marker(source, position, is_last=is_last) if sign in ("<", "[") else None
        if marker is not None and marker.kind != _UNDECIDED:
            return (marker.kind, marker.marker)
        folded = source.folded[position : position + 2 * _MAX_BLANKS]
        for start in self._line_inner:
            if folded.startswith(start):
                return ("inner", start)
            if is_open and start.startswith(folded):
                found = (_UNDECIDED, "")
        return found or ((_UNDECIDED, "") if marker is not None else None)

    def _match_object(self, rest: str, is_open: bool) -> tuple[str, str] | None:
        """Whether a JSON object begins with a key of a call."""
        head = _OBJECT_HEAD.match(rest)
        if head is None:
            return None
        key, quote = head[1] or "", head[2]
        if quote and key in _CALL_KEYS:
            return ("object", "")
        may_go_on = is_open and head.end() == len(rest) and any(word.startswith(key) for word in _CALL_KEYS)
        return (_UNDECIDED, "") if may_go_on and not quote else None

    def _match_call(self, rest: str, is_open: bool) -> tuple[str, str] | None:
        """Whether an offered tool's name with a bracket behind it begins here."""
        head = _CALL_HEAD.match(rest)
        if head is None:
            return None
        if head[2]:
            return ("message", "") if head[1] in self._schemas else None
        if not is_open or head.end() < len(rest):
            return None
        is_whole = head.end(1) < len(rest)
        fits = (
            head[1] in self._schemas if is_whole else any(name.startswith(head[1]) for name in self._schemas)
        )
        return (_UNDECIDED, "") if fits else None

    def _match_marker(self, source: CallText, position: int, *, is_last: bool) -> _Start | None:
        """The marker that stands here."""
        folded, length = source.folded, len(source.text)
        best, is_partial = "", False
        for marker in self._markers:
            if folded.startswith(marker, position):
                best = marker if len(marker) > len(best) else best
            elif not is_last and position + len(marker) > length and marker.startswith(folded[position:]):
                is_partial = True
        if is_partial:
            return _Start(position, _UNDECIDED)
        if not best:
            return None
        kind = self._markers[best]
        if (kind == "thought" and not self._is_line_start) or (kind == "end of thought" and not is_last):
            return None
        if kind == "opener" and not self._is_line_start and self._openers[best].closer:
            # In running text a marker is mentioned, unless what follows has the form of a call.
            begin = position + len(best)
            follower = source.text[begin : begin + _MAX_BLANKS].lstrip()
            if not follower and length - begin < _MAX_BLANKS:
                return None if is_last else _Start(position, _UNDECIDED)
            if follower and follower[0] not in "{[<`" and not self._openers[best].is_certain:
                names = [name for name in self._schemas if name.startswith(follower[: len(name)])]
                if not names:
                    return None
        return _Start(position, kind, best, is_line_start=self._is_line_start)

    def _match_opening_fence(self, source: CallText, position: int, *, is_last: bool) -> _Start | int | None:
        """A fence, or a piece of code that may be the whole message."""
        text = source.text
        if not self._has_content and self._formats:
            head = _CODE_HEAD.match(text, position)
            if head is not None and head.end() < len(text):
                self._is_line_start = True
                found = self._match_head(source, head.end(), is_last=is_last)
                if found is not None:
                    kind = _UNDECIDED if found[0] == _UNDECIDED else "code"
                    return _Start(position, kind, is_line_start=True)
            elif not is_last:
                may_go_on = head is not None or "\n" not in text[position:]
                if may_go_on and len(text) - position < 2 * _MAX_BLANKS:
                    return _Start(position, _UNDECIDED)
        fence = _FENCE.match(text, position)
        line_end = text.find("\n", position)
        if line_end < 0 and not is_last and len(text) - position < 2 * _MAX_BLANKS:
            return _Start(position, _UNDECIDED)
        line_end = line_end if line_end >= 0 else len(text)
        if fence is None or (fence.group()[0] == "`" and "`" in text[fence.end() : line_end]):
            return None
        self._fence = fence.group()
        return self._skip_line(text, position)

    def _match_closing_fence(self, text: str, position: int, *, is_last: bool) -> _Start | int | None:
        """The end of a fence."""
        if text[position] != self._fence[0]:
            return None
        line_end = text.find("\n", position)
        if line_end < 0 and not is_last and len(text) - position < _MAX_BLANKS:
            return _Start(position, _UNDECIDED)
        line = text[position : line_end if line_end >= 0 else len(text)].strip()
        if len(line) >= len(self._fence) and not line.strip(self._fence[0]):
            self._fence = ""
            return self._skip_line(text, position)
        return None

    # -- reading what is held back -----------------------------------------------------------------

    def _read_pieces(self, text: str) -> list[Piece]:
        """The pieces of the rest of a reply."""
        pieces: list[Piece] = []
        source, position, begin, thoughts_end = CallText(text), 0, 0, 0
        while begin < len(text) and (start := self._find_start(source, begin, is_last=True)) is not None:
            if start.kind == "end of thought":
                # The calls before it were thought of, and not made.
                position = begin = start.position + len(start.marker)
                thoughts_end = start.position
                pieces.clear()
                continue
            piece, end = self._read_start(source, start)
            if piece is None:
                begin = max(end, start.position + 1)
                self._is_line_start, self._has_content = False, True
                continue
            if start.position > position:
                pieces.append(TextPiece(text[position : start.position]))
            pieces.append(piece)
            position = begin = end
            self._is_line_start, self._has_content, self._code = True, True, 0
        if position < len(text):
            pieces.append(TextPiece(text[position:]))
        return [*([ReasoningPiece(text[:thoughts_end])] if thoughts_end else []), *pieces]

    def _read_start(self, source: CallText, start: _Start) -> tuple[Piece | None, int]:
        """The piece that begins at a start, and where it ends; no piece where it is text up to there."""
        position = start.position
        if start.kind == "thought":
            return self._read_thought(source, start)
        if start.kind == "code":
            return self._read_code(source, position)
        if start.kind == "closer":
            return self._read_closer(source, start)
        if start.kind == "message":
            calls = self._read_message(source.text[position:])
            if calls is not None:
                return CallsPiece(calls, source.text[position:]), len(source.text)
        if start.kind in ("message", "object"):
            if source.text[position : position + _MAX_BLANKS].lstrip("[ \t\r\n")[:1] == "{":
                return self._read_object(source, position)
            return None, position + 1
        row = (self._openers if start.kind == "opener" else {**self._inner, **self._line_inner})[start.marker]
        return self._read_block(source, start, row)

    def _read_thought(self, source: CallText, start: _Start) -> tuple[Piece | None, int]:
        """Thoughts that have an end; a call in them is none."""
        closer = THOUGHT_MARKERS[start.marker]
        begin = start.position + len(start.marker)
        end = source.find(closer, begin)
        if end < 0:
            return None, begin
        return ReasoningPiece(source.text[begin:end]), end + len(closer)

    def _read_code(self, source: CallText, position: int) -> tuple[Piece | None, int]:
        """A message that is nothing but a piece of code with calls in it."""
        text = source.text[position:]
        body = text.strip()
        sign = body[0]
        width = len(body) - len(body.lstrip(sign))
        begin = body.find("\n") + 1 if width >= 3 else width
        inner, rest = body[begin:], ""
        end = re.search(rf"^[ \t]*{re.escape(sign)}{{{width},}}" if width >= 3 else "`", inner, re.MULTILINE)
        if end is not None:
            inner, rest = inner[: end.start()], inner[end.start() :].lstrip(sign)
        if not rest.strip() and (end is not None or width >= 3):
            scanner = TextCallScanner(self._formats, self._schemas)
            pieces = [*scanner.add_text(inner), *scanner.finish_text()]
            calls = [call for piece in pieces if isinstance(piece, CallsPiece) for call in piece.calls]
            others = "".join(piece.text for piece in pieces if not isinstance(piece, CallsPiece))
            if calls and not others.strip():
                return CallsPiece(tuple(calls), text), len(source.text)
        # It is code, and begins as such: what is in it is quoted.
        if width < 3:
            self._code = width
            return None, position + width
        self._fence = sign * width
        line_end = source.text.find("\n", position)
        return None, line_end if line_end >= 0 else len(source.text)

    def _read_closer(self, source: CallText, start: _Start) -> tuple[Piece | None, int]:
        """A closing marker of nothing that was read: alone on the last line it ends a call that was lost."""
        end = self._skip_ends(source, start.position, start.position)[0]
        if start.is_line_start and source.skip_blanks(end) == len(source.text):
            problem = f"{UNREADABLE}: the text has {start.marker} without the call"
            raw = source.text[start.position : end]
            return CallsPiece((ToolCall(name="", raw=raw, problem=problem),), raw), end
        return None, end

    def _read_message(self, text: str) -> tuple[ToolCall, ...] | None:
        """The whole message as calls of offered tools."""
        text = text.rstrip()
        while end := next((end for end in _REPLY_ENDS if fold(text[-len(end) :]) == end), ""):
            text = text[: -len(end)].rstrip()
        for row in self._messages:
            assert row.read_message is not None
            calls = row.read_message(text, self._schemas)
            if calls and all(call.name in self._schemas for call in calls):
                return tuple(calls)
        head = re.match(r"\s*+\[?\s*+([A-Za-z_][\w.-]*+)\s*+([({])", text)
        if head is None or head[1] not in self._schemas:
            return None
        last = text.rfind({"(": ")", "{": "}"}[head[2]])
        if last >= 0 and text[last + 1 :].strip(" \t\r\n]"):
            return None  # a sentence goes on behind it
        return (_describe_broken(head[1], text, "its arguments are neither literals nor a JSON object"),)

    def _read_object(self, source: CallText, position: int) -> tuple[Piece | None, int]:
        """JSON objects that are calls only with a closing marker behind them."""
        is_message = not self._has_content and bool(self._messages)
        if not is_message and not any(source.comes(closer, position) for closer in self._closers):
            return None, position + 1
        reading = read_json_block(source, position, self._schemas)
        if reading.problem:
            end, has_closer = self._find_end(source, max(reading.end, position))
            name = self._find_name(source, position, end)
            if name not in self._schemas or not (is_message or has_closer):
                return None, max(reading.end, position + 1)
            block = source.text[position:end]
            return CallsPiece((_describe_broken(name, block, reading.problem),), block), end
        end, has_closer = self._skip_ends(source, position, reading.end)
        if not has_closer:
            return None, reading.end
        return CallsPiece(reading.calls, source.text[position:end]), end

    def _read_block(self, source: CallText, start: _Start, row: TextFormat) -> tuple[Piece | None, int]:
        """The calls behind an opener, or in front of which it is missing."""
        assert row.read_block is not None
        has_opener = start.kind == "opener"
        begin = start.position + (len(start.marker) if has_opener else 0)
        reading = row.read_block(source, begin, self._schemas)
        if not reading.problem:
            end, has_closer = self._skip_ends(source, start.position, reading.end)
            calls = reading.calls
        else:
            end, has_closer = self._find_end(source, max(start.position + len(start.marker), reading.end))
            block = source.text[start.position : end]
            calls = (_describe_broken(self._find_name(source, start.position, end), block, reading.problem),)
        piece = CallsPiece(calls, source.text[start.position : end])
        is_alone = _LINE_END.match(source.text, end) is not None
        is_known = all(call.name in self._schemas for call in calls)
        is_meant = row.is_certain or (is_known and not reading.problem)
        if not is_meant and is_known:
            is_meant = start.is_line_start or is_alone
        elif not is_meant and not any(call.name for call in calls):
            is_meant = start.is_line_start and (has_closer or is_alone)
        elif not is_meant:
            is_meant = is_alone and (start.is_line_start or (has_opener and has_closer) or not row.closer)
        if is_meant:
            return piece, end
        return None, max(begin, min(reading.end, end))

    def _skip_ends(self, source: CallText, begin: int, position: int) -> tuple[int, bool]:
        """The place behind the closing markers that follow a block, and whether there are any.

        The last one may be cut off by the end of the reply.
        """
        has_closer, end = False, position
        if source.text.count("```", begin, position) % 2:
            end = skip_fence(source, position)
        while True:
            place = source.skip_blanks(end)
            closer = next((closer for closer in self._closers if source.has(closer, place)), "")
            marker = closer or next((marker for marker in _REPLY_ENDS if source.has(marker, place)), "")
            if not marker:
                break
            end, has_closer = place + len(marker), has_closer or bool(closer)
        rest = source.folded[place:] if len(source.text) - place < 40 else ""
        if len(rest) > 1 and any(marker.startswith(rest) for marker in (*self._closers, *_REPLY_ENDS)):
            return len(source.text), True
        return end, has_closer

    def _find_end(self, source: CallText, position: int) -> tuple[int, bool]:
        """Where a broken block ends, and whether it has a closing marker: behind that, else before the next
        call, or with the reply."""
        match = source.search(self._any_marker, position)
        if match is None:
            return len(source.text), False
        if match.group() in self._closers:
            return self._skip_ends(source, match.start(), match.start())[0], True
        return match.start(), False

    def _find_name(self, source: CallText, begin: int, end: int) -> str:
        """The tool that a broken block names; empty where none can be read."""
        end = min(end, begin + _MAX_NAME_SEARCH)
        names = [
            name for match in _NAMES.finditer(source.text, begin, end) for name in match.groups() if name
        ]
        while marker := self._any_marker.match(source.folded, begin, end):
            begin = marker.end()
        first = _FIRST_NAME.match(source.text, begin, end)
        known = [name for name in (*names, first[1] if first else "") if name in self._schemas]
        return (known or names or [""])[0]


def _describe_broken(name: str, raw: str, problem: str) -> ToolCall:
    """A call that is not whole."""
    return ToolCall(name=name, raw=raw, problem=f"{UNREADABLE}: {problem}")


_HINT = re.compile(
    r"</?tool_call>|<function=|\[TOOL_CALLS\]|\[ARGS\]|<\|python_|<[|｜]tool[_▁]|\"name\"|\w\(", re.IGNORECASE
)
"""What every call as text has; most answers have none of it."""


def find_text_call_warnings(text: str, request: Request) -> tuple[str, ...]:
    """A warning if an answer with native tools has a call of an offered tool as text."""
    if _HINT.search(text) is None:
        return ()
    schemas: Schemas = {tool.name: tool.parameters for tool in request.tools}
    scanner = TextCallScanner([row for row in TEXT_FORMATS.values() if row.is_detected], schemas)
    pieces = [*scanner.add_text(text), *scanner.finish_text()]
    calls = [call for piece in pieces if isinstance(piece, CallsPiece) for call in piece.calls]
    if not calls:
        return ()
    names = sorted({call.name for call in calls if call.name in schemas}) or ["a tool"]
    return (
        f"tool_format: the answer has a call of {', '.join(names)} as text, and it was not run; with "
        "`tool_format: auto` in the llms entry such calls are read",
    )
