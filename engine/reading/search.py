"""The search over conversations: what a word is, what is searched, and the index that makes it quick.

In: the words of a person (`parse_search`). Out: the conversations in which each word is found, the newest or
the neediest first, with the record of the hit (`iterate_found`, `read_hit`). A word is found in what the user
said, in answers, in arguments and results of tools, and in the name of the agent, the owner and the tags; or
the id of the conversation begins with it. Of a record the first `MAX_TEXT` characters count.

A store may keep an index of it, which is derived: no append writes it. `catch_up` reads what the index lacks
and writes it, in commits of a bounded size; a process that is killed leaves the index as its last commit did.
What the index lacks is read from the records while searching. So a search finds the same with an index,
without one, and where nobody may write; it only takes longer.

Where the spec of a conversation, or of one that runs it, redacts what is recorded, no message of it is
searched: only its id, its agent, its owner and its tags.
"""

from __future__ import annotations

import heapq
import re
import time
import unicodedata
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.family import NO_HEADING, find_origin, find_parent, read_heading
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.engine.reading.steps import read_configuration
from toolchart.engine.reading.waiting import has_open_turn, read_waiting
from toolchart.states.content import Value
from toolchart.states.core.encoding import read_json
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError, suggest_name
from toolchart.states.events import CONFIGURATION_TYPES, Forked
from toolchart.states.ports import IndexEntry, IndexGap, IndexQuery, Outline, SearchTerm, Store

MAX_TEXT = 8000
"""Characters of a record that are searched."""

MAX_WORD = 64
"""Characters of a word; a longer one is several."""

MAX_QUERY = 400
"""Characters of a search."""

MAX_TERMS = 20
"""Words of a search."""

MAX_SCANNED = 2000
"""Conversations that the index lacks and that one page reads from their records, where it sorts them."""

MAX_CHOICES = 100
"""Values of one kind that a list offers to choose from."""

CATCH_UP_S = 1.0
"""Seconds for which a search brings the index up to date before it reads what is still lacking."""

_RECORDS_AT_ONCE = 2000
"""Records of one conversation in one entry of the index."""

_CHARACTERS_AT_ONCE = 1 << 20
_CONVERSATIONS_AT_ONCE = 200
"""What one commit of the index writes at most, so that a writer of the log does not wait for long."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What a database cannot take as a text. No id has it, nor the control character in its place."""

# -- words ---------------------------------------------------------------------------------------------

_ASCII_WORD = re.compile(rf"[a-z0-9]{{1,{MAX_WORD}}}")
_RUN = re.compile(r"[^\W_]+")
_ALONE = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]{{1,{MAX_WORD}}}")
"""Scripts that write no spaces between words: each letter of them is a word, and several are found as they
stand one after the other."""


def split_words(text: str) -> list[str]:
    """The words of a text: runs of letters and digits, without upper case."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return [word for _, _, word in _find_words(unicodedata.normalize("NFC", text))]


def _find_words(text: str) -> Iterator[tuple[int, int, str]]:
    """The words of a text in NFC, each with where the run that it stands in begins and ends."""
    if text.isascii():
        for match in _ASCII_WORD.finditer(text.lower()):
            yield match.start(), match.end(), match.group()
        return
    for run in _RUN.finditer(text):
        folded = unicodedata.normalize("NFKC", run.group().casefold())
        words = list(_WORD.finditer(folded))
        is_same_length = len(folded) == run.end() - run.start()
        for word in words:
            if is_same_length:
                yield run.start() + word.start(), run.start() + word.end(), word.group()
            else:
                yield run.start(), run.end(), word.group()


def parse_search(text: str) -> tuple[SearchTerm, ...]:
    """The words of a search. `order-7731` is found as these two words one after the other; the last word may
    go on, unless a space follows it.

    Raises:
        SpecError: there is no letter or digit in it, or it is too long.
    """
    if len(text) > MAX_QUERY:
        raise SpecError(f"search: {len(text)} characters; a search has {MAX_QUERY} at most")
    pieces = [(piece, tuple(split_words(piece))) for piece in text.split()]
    pieces = [(piece, words) for piece, words in pieces if words]
    if not pieces:
        raise SpecError(
            "search: there is no letter and no digit to search for", hint="give words: refund order-7"
        )
    if len(pieces) > MAX_TERMS:
        raise SpecError(f"search: {len(pieces)} words; a search has {MAX_TERMS} at most")
    last = len(pieces) - 1
    goes_on = not text[-1].isspace()
    return tuple(
        SearchTerm(words, goes_on and number == last, _UNSTORABLE.sub("\x01", piece))
        for number, (piece, words) in enumerate(pieces)
    )


def has_term(words: str, term: SearchTerm) -> bool:
    """Whether words, separated by spaces, have a term among them."""
    return f" {' '.join(term.words)}{'' if term.is_prefix else ' '}" in f" {words} "


# -- the text of a record ------------------------------------------------------------------------------


class _Line(msgspec.Struct):
    """What a search reads of a record."""

    at: str = ""
    event: dict[str, Any] = {}


_decode_line = msgspec.json.Decoder(_Line).decode


def _read_event(line: bytes) -> dict[str, Any]:
    """The event of a record; empty where the line cannot be read. Hashes are not checked."""
    try:
        return _decode_line(line).event
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        try:  # an escaped lone surrogate
            event = read_json(line)["event"]
        except (ValueError, RecursionError, LookupError, TypeError):
            return {}
        return event if isinstance(event, dict) else {}


def read_text(event: Mapping[str, Any]) -> str:
    """What is searched of an event, piece by piece on lines of its own."""
    text, size = [], 0
    for piece in _list_pieces(event):
        text.append(piece)
        size += len(piece) + 1
        if size > MAX_TEXT:
            break
    return unicodedata.normalize("NFC", "\n".join(text)[:MAX_TEXT])


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "turn_started": ("message",),
    "user_said": ("message",),
    "failed": ("message",),
    "decided": ("reason",),
    "tool_finished": ("result",),
    "returned": ("value",),
    "answered": ("content",),
    "agent_finished": ("content", "output"),
    "agent_failed": ("message",),
    "cancelled": ("reason", "content"),
}
"""What is searched of an event, beside earlier messages and replies."""


def _list_pieces(event: Mapping[str, Any]) -> Iterator[str]:
    kind = event.get("type")
    if kind == "turn_started":
        for message in event.get("history") or ():
            yield from _flatten(message.get("content") if isinstance(message, dict) else None)
    for field in _FIELDS.get(kind, ()) if isinstance(kind, str) else ():
        yield from _flatten(event.get(field))
    reply = event.get("reply") if kind == "replied" else None
    if isinstance(reply, dict):
        yield from _flatten(reply.get("content"))
        for call in reply.get("tool_calls") or ():
            if isinstance(call, dict):
                yield from _flatten(call.get("name"))
                yield from _flatten(call.get("arguments") or call.get("raw"))


def _flatten(value: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    """The texts and numbers of JSON data, each after the key that it stands under."""
    before = f"{name}: " if name else ""
    if isinstance(value, str):
        if value:
            yield before + value
    elif isinstance(value, bool) or value is None or depth > 30:
        return
    elif isinstance(value, int | float):
        yield f"{before}{value}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flatten(item, str(key), depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _flatten(item, name, depth + 1)


# -- what the index holds ------------------------------------------------------------------------------

STATUSES: Mapping[str, str] = {
    "approval": "a call waits for a decision",
    "answer": "a question waits for an answer",
    "open": "the turn is open: it runs, or waits for a tool or a timer",
    "failed": "the turn ended in error",
    "limit": "a limit ended the turn",
    "cancelled": "somebody stopped the turn",
    "finished": "the turn ended with an answer",
    "new": "no turn has begun",
    "unreadable": "a record is damaged",
}
"""How the newest turn of a conversation stands."""

WAITING = ("approval", "answer")
"""The statuses in which a person is needed."""

STATUS_GROUPS: Mapping[str, tuple[str, ...]] = {"waiting": WAITING}
"""Names that stand for several statuses."""

_RANKS = {"approval": 9, "answer": 9, "failed": 8, "limit": 8, "unreadable": 8}


def parse_status(text: str) -> tuple[str, ...]:
    """The statuses that a condition names: one, or `waiting` for both in which a person is needed.

    Raises:
        SpecError: there is no such status; the hint names the others.
    """
    if text in STATUS_GROUPS:
        return STATUS_GROUPS[text]
    if text not in STATUSES:
        names = (*STATUS_GROUPS, *STATUSES)
        raise SpecError(f"there is no status {text!r}", path="status", hint=suggest_name(text, names))
    return (text,)


def read_status(store: Store, conversation: str) -> str:
    """How the newest turn of a conversation stands; a key of `STATUSES`."""
    try:
        newest = store.read_last_line(conversation)
        if newest is None:
            return "unreadable"
        return _read_status(store, conversation, parse_line(newest[1], newest[0], conversation))
    except (LogDamaged, LogUnavailable):
        return "unreadable"


def _read_status(store: Store, conversation: str, last: ReadRecord) -> str:
    if not last.turn and not last.ends_turn:
        return "new"
    if not last.ends_turn:
        waiting = read_waiting(store, conversation)
        if waiting.approvals:
            return "approval"
        if waiting.questions:
            return "answer"
        if has_open_turn(store, conversation):
            return "open"
        ended = _find_end(store, conversation, last)
        if ended is None:  # a fork of a conversation at rest
            return "new"
        last = ended
    if last.event_type == "cancelled":
        return "cancelled"
    if last.ended_in_error:
        return "failed"
    return "limit" if last.ended is not None and last.ended.limit else "finished"


_QUIET_EVENTS = ("continued", "migrated")


def _find_end(store: Store, conversation: str, last: ReadRecord) -> ReadRecord | None:
    """The record that ended the newest turn, where only late answers and quiet events follow it."""
    if not (last.is_late or last.event_type in _QUIET_EVENTS):
        return None
    for seq, line in reversed(list(enumerate(store.read_lines(conversation)))):
        record = parse_line(line, seq, conversation)
        if record.ends_turn:
            return record
        if not (record.is_late or record.event_type in _QUIET_EVENTS):
            return None
    return None


def _build_place(status: str, newest_at: str, number: int) -> str:
    """Sorts by attention: who waits, what failed, then all others, each the newest first."""
    return f"{_RANKS.get(status, 0)} {newest_at} {number:012d}"


class _Origin(msgspec.Struct, frozen=True):
    """What a conversation has from the record that it begins with, and from those that it comes from."""

    agent: str = ""
    is_redacted: bool = False
    is_child: bool = False


class IndexReader:
    """Reads from records what the search index holds of conversations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._origins: dict[str, _Origin] = {}

    def build_entries(self, gap: IndexGap, known: Outline | None) -> Iterator[IndexEntry]:
        """What closes a gap, a bounded number of records at a time.

        Args:
            known: what the index has of the conversation; None where that is nothing.
        """
        name, store = gap.conversation, self._store
        outline = known or self._begin_outline(name)
        newest_at = status = state = ""
        try:
            last = store.read_last_line(name)
            if last is not None:
                record = parse_line(last[1], last[0], name)
                newest_at, state = record.at, record.target
                status = _read_status(store, name, record)
        except (LogDamaged, LogUnavailable):
            status = "unreadable"
        place = _build_place(status or "unreadable", newest_at, gap.number)
        outline = replace(outline, status=status or "unreadable", state=_clean(state), place=place)
        models, texts = dict.fromkeys(outline.models), list[tuple[int, str]]()
        start = end = gap.start
        lines = self._iterate_lines(name, gap.start)
        for end, line in enumerate(lines, gap.start + 1):
            if end > gap.end:
                break
            event = _read_event(line)
            kind = event.get("type")
            if kind in CONFIGURATION_TYPES and _is_redacted(event):
                outline = replace(outline, is_redacted=True)
            if kind == "turn_started" and isinstance(event.get("settings"), dict):
                models[str(event["settings"].get("model") or "")] = None
            words = self._read_words(name, end - 1, event, outline)
            if words:
                texts.append((end - 1, words))
            if end - start >= _RECORDS_AT_ONCE and end < gap.end:
                outline = replace(outline, models=_list_models(models))
                yield IndexEntry(replace(gap, start=start, end=end), outline, texts)
                start, texts = end, []
        outline = replace(outline, models=_list_models(models))
        yield IndexEntry(replace(gap, start=start), outline, texts)

    def _iterate_lines(self, name: str, start: int) -> Iterator[bytes]:
        """The lines of a conversation, up to the first that is damaged: `verify` tells of that."""
        try:
            yield from self._store.read_lines(name, start)
        except LogDamaged:
            return

    def _begin_outline(self, name: str) -> Outline:
        """The outline of a conversation that the index does not have yet."""
        origin = self._find_origin(name)
        try:
            heading = read_heading(self._store, name)
        except (LogDamaged, LogUnavailable):
            heading = None
        return Outline(
            status="",
            state="",
            place="",
            owner=_clean(heading.owner) if heading is not None else "",
            tags={_clean(tag): _clean(value) for tag, value in (heading or NO_HEADING).tags.items()},
            agent=_clean(origin.agent),
            is_child=origin.is_child,
            is_redacted=origin.is_redacted,
        )

    def _find_origin(self, name: str) -> _Origin:
        origin = self._origins.get(name)
        if origin is None:
            if len(self._origins) > 10_000:
                self._origins.clear()
            self._origins[name] = _Origin()  # a circle ends here
            try:
                origin = self._read_origin(name)
            except (LogDamaged, LogUnavailable):
                origin = _Origin(is_redacted=True)  # whether it is redacted cannot be read
            self._origins[name] = origin
        return origin

    def _read_origin(self, name: str) -> _Origin:
        line = next(iter(self._store.read_lines(name)), None)
        if line is None:
            return _Origin()
        record = parse_line(line, 0, name)
        event, base = record.event, _Origin()
        source = find_origin(name, event.get("parent"))
        if source is not None:
            base = self._find_origin(source)
        if record.event_type == Forked.TYPE:
            configuration = read_configuration(self._store, name)
            event = configuration.event if configuration is not None else {}
        spec = event.get("spec")
        agent = str(spec.get("name") or "") if isinstance(spec, dict) else ""
        return _Origin(agent, base.is_redacted or _is_redacted(event), find_parent(record) is not None)

    def _read_words(self, name: str, seq: int, event: Mapping[str, Any], outline: Outline) -> str:
        return " ".join(split_words(describe_record(seq, event, outline)))


def _clean(text: str) -> str:
    """A text that every database can keep."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def _list_models(models: Iterable[str]) -> list[str]:
    return [_clean(model) for model in models if model][:MAX_CHOICES]


def _is_redacted(event: Mapping[str, Any]) -> bool:
    spec = event.get("spec")
    return isinstance(spec, dict) and bool(spec.get("redact"))


def describe_record(seq: int, event: Mapping[str, Any], outline: Outline) -> str:
    """The text of a record that is searched: of the first one also agent, owner and tags; of a conversation
    that is redacted nothing else."""
    text = "" if outline.is_redacted else read_text(event)
    if seq:
        return text
    tags = [f"{name}: {value}" for name, value in outline.tags.items()]
    return "\n".join(part for part in (outline.agent, outline.owner, *tags, text) if part)


# -- catching up ---------------------------------------------------------------------------------------


def catch_up(store: Store, *, seconds: float | None = None) -> int:
    """Write to the search index of a store what it lacks; how many conversations it lacks afterwards.

    Several processes may do it at once: each writes what the others have not. Records that are appended
    meanwhile are left for the next time.

    Args:
        seconds: end after about so long; None for never.
    """
    until = None if seconds is None else time.monotonic() + seconds
    gaps = store.list_index_gaps()
    reader, batch, size, done, count = IndexReader(store), list[IndexEntry](), 0, 0, 0
    try:
        if gaps and not store.write_index(()):
            return len(gaps)
        lacking = {gap.conversation for gap in gaps}
        for count, gap in enumerate(gaps, 1):
            known = store.read_outlines([gap.conversation]) if gap.start else {}
            outline = known[gap.conversation][1] if gap.conversation in known else None
            for entry in reader.build_entries(gap, outline):
                batch.append(entry)
                size += sum(len(text) for _, text in entry.texts) + 500
                if size >= _CHARACTERS_AT_ONCE or len(batch) >= _CONVERSATIONS_AT_ONCE:
                    _write_batch(store, reader, batch, lacking)
                    batch, size, done = [], 0, count
            if until is not None and time.monotonic() >= until:
                break
        if batch:
            _write_batch(store, reader, batch, lacking)
            done = count
    except LogUnavailable:  # nobody may write here: what is lacking is read while searching
        return len(gaps) - done
    return len(gaps) - done


def _write_batch(store: Store, reader: IndexReader, batch: list[IndexEntry], lacking: set[str]) -> None:
    """Write entries, and in the same commit how the conversations stand that run these: what waits in a child
    waits in them, and their own records do not tell."""
    children = [entry.gap.conversation for entry in batch if entry.outline.is_child]
    parents = _list_parents(store, children, lacking)
    store.write_index([*batch, *(entry for gap, own in parents for entry in reader.build_entries(gap, own))])


def _list_parents(
    store: Store, children: Iterable[str], lacking: Collection[str]
) -> list[tuple[IndexGap, Outline]]:
    """The conversations that run these, with what the index has of them; but not those that it lacks."""
    names: dict[str, None] = {}
    for child in children:
        for name in _iterate_parents(store, child):
            if name in names:
                break
            names[name] = None
    parents = []
    for name, (number, outline) in store.read_outlines([*names]).items():
        newest = store.read_last_line(name)
        if newest is not None and name not in lacking:
            parents.append((IndexGap(number, name, newest[0] + 1, newest[0] + 1), outline))
    return parents


def _iterate_parents(store: Store, conversation: str) -> Iterator[str]:
    """The conversation that runs another one, the one that runs that, and so on; up to a damaged one."""
    try:
        while (line := next(iter(store.read_lines(conversation)), None)) is not None:
            link = find_parent(parse_line(line, 0, conversation))
            if link is None:
                return
            conversation = str(link["conversation"])
            yield conversation
    except LogDamaged:
        return


# -- searching -----------------------------------------------------------------------------------------


class Candidate(msgspec.Struct, frozen=True):
    """A conversation that a search has looked at."""

    conversation: str
    is_found: bool


def iterate_found(store: Store, query: IndexQuery, before: str | None = None) -> Iterator[Candidate]:
    """The conversations that a query finds, in its order; those whose records were read and that it does not
    find too, so that whoever reads on may stop.

    Args:
        before: a conversation: only those that come after it; none where it is unknown.
    """
    if CATCH_UP_S:
        catch_up(store, seconds=CATCH_UP_S)
    gaps = store.list_index_gaps()
    lacking = {gap.conversation: gap for gap in gaps}
    reader = IndexReader(store)
    if query.statuses or query.by_attention:
        parents = _list_parents(store, [gap.conversation for gap in gaps[:MAX_SCANNED]], lacking)
        lacking |= {gap.conversation: gap for gap, _ in parents}
        gaps = sorted(lacking.values(), key=lambda gap: -gap.number)
    if before is not None:
        place = _find_place(store, reader, before, lacking)
        if place is None:
            return
        query = replace(query, before=place)
    found = (
        ((place if query.by_attention else number), Candidate(name, True))
        for number, name, place in store.find_in_index(query)
        if name not in lacking
    )
    yield from (
        candidate
        for _, candidate in heapq.merge(
            found, _scan(reader, query, gaps), key=lambda pair: pair[0], reverse=True
        )
    )


def _find_place(
    store: Store, reader: IndexReader, conversation: str, lacking: Mapping[str, IndexGap]
) -> tuple[int, str] | None:
    """Number and place of a conversation; None where it is unknown."""
    if gap := lacking.get(conversation):
        return gap.number, _read_whole(reader, gap)[0].place
    outline = store.read_outlines([conversation]).get(conversation)
    return None if outline is None else (outline[0], outline[1].place)


def _read_whole(reader: IndexReader, gap: IndexGap) -> tuple[Outline, list[tuple[int, str]]]:
    """What the index would have of a conversation, from all its records."""
    outline, texts = None, list[tuple[int, str]]()
    for entry in reader.build_entries(replace(gap, start=0), None):
        outline = entry.outline
        texts += entry.texts
    assert outline is not None
    return outline, texts


def _scan(
    reader: IndexReader, query: IndexQuery, gaps: Sequence[IndexGap]
) -> Iterator[tuple[Any, Candidate]]:
    """The conversations that the index lacks, read from their records, in the order of the query."""
    if query.by_attention:
        rows = [(_read_whole(reader, gap), gap) for gap in gaps[:MAX_SCANNED]]
        rows.sort(key=lambda row: row[0][0].place, reverse=True)
        for (outline, texts), gap in rows:
            if query.before is None or outline.place < query.before[1]:
                yield outline.place, Candidate(gap.conversation, _is_found(query, gap, outline, texts))
        return
    for gap in gaps:
        if query.before is None or gap.number < query.before[0]:
            yield gap.number, Candidate(gap.conversation, _is_found(query, gap, *_read_whole(reader, gap)))


def _is_found(query: IndexQuery, gap: IndexGap, outline: Outline, texts: Sequence[tuple[int, str]]) -> bool:
    if query.owner is not None and outline.owner != query.owner:
        return False
    if query.statuses and outline.status not in query.statuses:
        return False
    return all(
        gap.conversation.startswith(term.text) or any(has_term(words, term) for _, words in texts)
        for term in query.terms
    )


def is_found(store: Store, conversation: str, query: IndexQuery) -> bool:
    """Whether a query finds one conversation, by its records alone.

    Raises:
        LogDamaged: a record cannot be read.
    """
    newest = store.read_last_line(conversation)
    if newest is None:
        return False
    gap = IndexGap(0, conversation, 0, newest[0] + 1)
    return _is_found(query, gap, *_read_whole(IndexReader(store), gap))


def count_unread(store: Store, query: IndexQuery) -> int:
    """Conversations that a query which sorts by attention leaves out, because the index lacks them."""
    return max(0, len(store.list_index_gaps()) - MAX_SCANNED) if query.by_attention else 0


# -- the hit -------------------------------------------------------------------------------------------

_CONTEXT = 80
"""Characters that are shown before the first word of a hit; twice as many follow its beginning."""


class SearchHit(Value, frozen=True, kw_only=True):
    """Where a conversation has the words of a search."""

    seq: int
    """Number of the record."""
    text: str
    """A part of what is searched of it: plain text on one line."""
    marks: tuple[tuple[int, int], ...]
    """Where the words stand in the text: begin and end, in characters."""


def read_hit(store: Store, conversation: str, terms: Sequence[SearchTerm]) -> SearchHit | None:
    """The first record of a conversation that has all words of a search, else the first after the heading
    with one of them, else the heading; None where only its id has them.

    Raises:
        LogDamaged: a record cannot be read.
    """
    newest = store.read_last_line(conversation)
    if newest is None:
        return None
    outline = store.read_outlines([conversation]).get(conversation)
    known = outline[1] if outline is not None else None
    if known is not None:
        seq = _find_hit(_iterate_words(store, conversation, known, newest[0] + 1), terms)
    else:
        known, texts = _read_whole(IndexReader(store), IndexGap(0, conversation, 0, newest[0] + 1))
        seq = _find_hit(texts, terms)
    line = next(iter(store.read_lines(conversation, seq)), None) if seq is not None else None
    if seq is None or line is None:
        return None
    text = describe_record(seq, _read_event(line), known)
    return _cut_hit(seq, unicodedata.normalize("NFC", text), terms)


def _iterate_words(store: Store, conversation: str, known: Outline, end: int) -> Iterator[tuple[int, str]]:
    """The words of the records of a conversation: those of the index, then of the records that it lacks."""
    last = -1
    for last, words in store.read_words(conversation):
        yield last, words
    for entry in IndexReader(store).build_entries(IndexGap(0, conversation, last + 1, end), known):
        yield from entry.texts


def _find_hit(texts: Iterable[tuple[int, str]], terms: Sequence[SearchTerm]) -> int | None:
    """The record that `read_hit` shows."""
    first, heading = None, None
    for seq, words in texts:
        found = [has_term(words, term) for term in terms]
        if all(found):
            return seq
        if any(found):
            if not seq:
                heading = seq
            elif first is None:
                first = seq
    return heading if first is None else first


def _cut_hit(seq: int, text: str, terms: Sequence[SearchTerm]) -> SearchHit | None:
    """The part of a text around the first of some words; None where it has none of them."""
    text = re.sub(r"\s", " ", text)
    recent: deque[tuple[int, int, str]] = deque(maxlen=max(len(term.words) for term in terms))
    ranges: list[tuple[int, int]] = []
    for place in _find_words(text):
        recent.append(place)
        if ranges and place[0] > ranges[0][0] + 2 * _CONTEXT:
            break
        for term in terms:
            run = list(recent)[-len(term.words) :]
            if len(run) == len(term.words) and _fits([word for _, _, word in run], term):
                ranges.append((run[0][0], run[-1][1]))
    if not ranges:
        return None
    ranges = _join_ranges(ranges)
    start = max(0, ranges[0][0] - _CONTEXT)
    end = min(len(text), max(ranges[0][1], ranges[0][0] + 2 * _CONTEXT))
    head, tail = ("…" if start else ""), ("…" if end < len(text) else "")
    shift = len(head) - start
    return SearchHit(
        seq=seq,
        text=head + text[start:end] + tail,
        marks=tuple((first + shift, last + shift) for first, last in ranges if last <= end),
    )


def _fits(words: Sequence[str], term: SearchTerm) -> bool:
    if term.is_prefix:
        return tuple(words[:-1]) == term.words[:-1] and words[-1].startswith(term.words[-1])
    return tuple(words) == term.words


def _join_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


# -- what one can choose from --------------------------------------------------------------------------

Order = Literal["newest", "attention"]

ORDERS: tuple[Order, ...] = ("newest", "attention")


class Choices(Value, frozen=True, kw_only=True):
    """What the conversations of a log have, for a list to choose from; of each the first hundred."""

    statuses: tuple[str, ...]
    states: tuple[str, ...]
    owners: tuple[str, ...]
    agents: tuple[str, ...]
    models: tuple[str, ...]
    tags: Mapping[str, tuple[str, ...]]
    """By name: the values."""
    redacted: bool
    """Whether there are conversations of which no message is searched, because they are redacted."""


def read_choices(store: Store) -> Choices:
    """What one can choose from in the newest conversations; a store without an index reads its newest
    `MAX_SCANNED` conversations for it."""
    if CATCH_UP_S:
        catch_up(store, seconds=CATCH_UP_S)
    outlines = list(store.list_choices())
    reader = IndexReader(store)
    for gap in store.list_index_gaps()[:MAX_SCANNED]:
        outlines.append(_read_whole(reader, gap)[0])
    tags: dict[str, set[str]] = {}
    for outline in outlines:
        for name, value in outline.tags.items():
            tags.setdefault(name, set()).add(value)
    statuses = {outline.status for outline in outlines}
    return Choices(
        statuses=tuple(status for status in STATUSES if status in statuses),
        states=_cut(outline.state for outline in outlines if not outline.is_child),
        owners=_cut(outline.owner for outline in outlines),
        agents=_cut(outline.agent for outline in outlines),
        models=_cut(model for outline in outlines for model in outline.models),
        tags={name: _cut(tags[name]) for name in sorted(tags)[:MAX_CHOICES]},
        redacted=any(outline.is_redacted for outline in outlines),
    )


def _cut(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value})[:MAX_CHOICES])
