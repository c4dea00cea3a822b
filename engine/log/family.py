"""The family of a conversation: its parent, its children, and the hashes that link them both ways.

Record 0 of a child holds the hash of the parent's record that asked for it. Each answer in the parent holds
the hash of the child's newest record at that time. So neither log can be changed alone.

More conversations hold words of another one, and are found by `read_relations`: its forks, and the one in
which the context of its turns is found (`name_context`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import msgspec

from toolchart.engine.log.read_records import LineReader, ReadRecord, parse_line
from toolchart.engine.log.record import compute_line_hash
from toolchart.states.errors import LogDamaged, NotFound, SpecError
from toolchart.states.events import Configured, Forked
from toolchart.states.ports import Store

ANSWERS = ("agent_finished", "agent_failed", "agent_rested", "tool_finished")
"""The events of a parent that may name a child."""


_CONTEXT = ".context"


def name_context(conversation: str) -> str:
    """The conversation in which topic, documents and intent of another one's turns are found.

    It has no link to that one but its id; the lease of that one covers it.
    """
    return f"{conversation}{_CONTEXT}"


def find_asking_record(
    store: Store, conversation: str, effect: int, end: int | None = None
) -> ReadRecord | None:
    """The record that asked for an effect; None where the log has none. Hashes are not checked.

    Args:
        end: only records before this number count.

    Raises:
        LogDamaged: a record that is looked at cannot be read.
    """
    mark = b'"id":%d,' % effect
    lines = list(store.read_lines(conversation))[:end]
    # From the newest one back: what is open was asked for lately. A fork asks anew in its first record for
    # what was open there; whatever was closed before that is among the records of its parent.
    for seq in reversed(range(len(lines))):
        if seq and mark not in lines[seq]:
            continue
        record = parse_line(lines[seq], seq, conversation)
        if any(ask.id == effect for ask in record.asks):
            return record
        if record.event_type == Forked.TYPE:
            return find_asking_record(store, record.event["parent"], effect, record.event["seq"] + 1)
    return None


def find_asking_hash(store: Store, conversation: str, effect: int) -> str:
    """The hash of the record that asked for an effect, which links and signatures bind.

    Raises:
        LogDamaged: no record did, or one cannot be read.
    """
    record = find_asking_record(store, conversation, effect)
    if record is None:
        raise LogDamaged(f"no record asks for effect {effect}", conversation=conversation)
    return record.hash


def read_parent(store: Store, conversation: str) -> Mapping[str, Any] | None:
    """The link of a child to its parent, as JSON data; None for any other conversation.

    Raises:
        LogDamaged: its record 0 cannot be read.
    """
    return _read_parent(store.read_lines, conversation)


def _read_parent(read_lines: LineReader, conversation: str) -> Mapping[str, Any] | None:
    line = next(iter(read_lines(conversation)), None)
    return find_parent(parse_line(line, 0, conversation)) if line is not None else None


def find_parent(record: ReadRecord) -> Mapping[str, Any] | None:
    """The link to the parent in record 0 of a child; None in any other record."""
    link = record.event.get("parent") if record.event_type == "configured" and not record.seq else None
    return link if isinstance(link, dict) else None


# -- owners ----------------------------------------------------------------------------------------

MAX_OWNER_LENGTH = 200
"""Characters of the name of an owner. So it stands in the first record itself, which listings read, and never
in a large part beside it."""


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """Whose conversation one is, and what was attached to it when it began."""

    owner: str = ""
    """Empty for nobody's."""
    tags: Mapping[str, str] = {}


NO_HEADING = Heading()


def read_heading(store: Store, conversation: str) -> Heading | None:
    """Owner and tags of a conversation; None where there is no such conversation.

    A child has those of its parent, and so has a fork that names no others.

    Raises:
        LogDamaged: a first record cannot be read.
    """
    heading, seen = None, set[str]()
    name: str | None = conversation
    while name is not None and name not in seen:
        seen.add(name)
        line = next(iter(store.read_lines(name)), None)
        if line is None:
            break
        event, base_heading = parse_line(line, 0, name).event, heading or NO_HEADING
        heading = Heading(
            owner=base_heading.owner or str(event.get("owner") or ""),
            tags=base_heading.tags or event.get("tags") or {},
        )
        name = find_origin(name, event.get("parent"))
    return heading


def find_origin(conversation: str, parent: Any) -> str | None:
    """The conversation whose owner this one has: the one that runs it, that it was forked from, or for whose
    turns it finds the context; None where it is one of its own."""
    if parent:
        return str(parent["conversation"] if isinstance(parent, dict) else parent)
    subject = conversation.removesuffix(_CONTEXT)
    return subject if subject != conversation else None


def require_heading(store: Store, conversation: str, heading: Heading) -> None:
    """Refuse a message to a conversation that has another owner, or other tags, than the message says.

    Raises:
        NotFound: it has another owner, or none; for this one it does not exist. Nothing was written.
        SpecError: it has other tags; nothing was written.
    """
    stored_heading = read_heading(store, conversation)
    if stored_heading is None:
        return
    if heading.owner and heading.owner != stored_heading.owner:
        # That it exists is not said, nor whose it is: who asks may be anybody.
        hint = "an owner has the conversations that were begun for this owner; begin another one"
        raise NotFound(conversation, hint=hint)
    if heading.tags and heading.tags != stored_heading.tags:
        raise SpecError(
            f"conversation {conversation!r} was begun with other tags",
            path="tags",
            hint="tags are recorded when a conversation begins; leave them out, or repeat the same ones",
        )


def find_root(store: Store, conversation: str) -> str:
    """The conversation that a child works for in the end; any other conversation itself."""
    seen = set()
    while conversation not in seen:
        seen.add(conversation)
        link = read_parent(store, conversation)
        if link is None:
            break
        conversation = str(link["conversation"])
    return conversation


class ChildLink(msgspec.Struct, frozen=True, order=True):
    """What of its parent a child works for."""

    effect: int
    """Id of the effect that asked for it."""
    item: int
    """Its place in the list that the effect works on."""
    conversation: str
    """The id of the child."""


def list_children(store: Store, conversation: str, *, skip_unreadable: bool = False) -> list[str]:
    """The ids of the children of a conversation; see `list_child_links`."""
    return [
        link.conversation for link in list_child_links(store, conversation, skip_unreadable=skip_unreadable)
    ]


def list_child_links(store: Store, conversation: str, *, skip_unreadable: bool = False) -> list[ChildLink]:
    """The children of a conversation, in the order in which they were asked for.

    A fork has those of its own log, not those of the records that it shares.

    Args:
        skip_unreadable: leave out what cannot be read, for those who only show them: any conversation whose
            id begins as that of a child may be damaged.

    Raises:
        LogDamaged: one of them cannot be read.
    """
    links = []
    for name in store.find_names(f"{conversation}."):
        try:
            links.append((name, read_parent(store, name)))
        except LogDamaged:
            if not skip_unreadable:
                raise
    return sorted(
        ChildLink(int(link.get("effect", 0)), int(link.get("item", 0)), name)
        for name, link in links
        if link is not None and link.get("conversation") == conversation
    )


def iterate_family(store: Store, conversation: str, depth: int = 0) -> Iterator[tuple[int, str]]:
    """A conversation and all that it runs, each with its depth; parents before children."""
    yield depth, conversation
    for child in list_children(store, conversation):
        yield from iterate_family(store, child, depth + 1)


def list_relatives(store: Store, conversation: str) -> list[str]:
    """A conversation with all that its records refer to; parents come first.

    That is what it was forked from and what runs it, the agents that it runs and the context of its turns,
    and so on from each of these. What belongs to another owner is left out.
    """
    names: list[str] = []
    seen: set[str] = set()
    owner = (read_heading(store, conversation) or NO_HEADING).owner

    def add(name: str) -> None:
        line = next(iter(store.read_lines(name)), None)
        if line is None or name in seen or (read_heading(store, name) or NO_HEADING).owner != owner:
            return
        seen.add(name)
        parent = parse_line(line, 0, name).event.get("parent")
        if parent:
            add(str(parent["conversation"] if isinstance(parent, dict) else parent))
        names.append(name)
        for relative in (*list_children(store, name), name_context(name)):
            add(relative)

    add(conversation)
    return names


# -- forks -----------------------------------------------------------------------------------------


class _HeaderEvent(msgspec.Struct):
    type: str = ""
    parent: Any = None


class _Header(msgspec.Struct):
    """What tells forks from other conversations, in record 0."""

    event: _HeaderEvent


_decode_header = msgspec.json.Decoder(_Header).decode


def read_forks(store: Store) -> Mapping[str, list[str]]:
    """The forks of each conversation of a log that has some; what cannot be read is left out."""
    forks: dict[str, list[str]] = {}
    for name, first, _, _ in store.read_ends():
        try:
            event = _decode_header(first).event  # large parts of the line are left out
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue  # damage, which `verify` reports
        if event.type == Forked.TYPE:
            forks.setdefault(str(event.parent), []).append(name)
    return forks


MAX_KNOWN = 100_000
"""Conversations of which one `KnownForks` remembers whether they are forks; it begins anew beyond that."""

_MOST_SINGLE = 100
"""New conversations that are looked at one by one; of more, all of the log are read in one go."""


class KnownForks:
    """Which conversations of a log are forks, and of which one, so that a look at them reads only new ones.

    An id may be deleted and begun again. So what is known only leaves conversations out: whoever shows a fork
    reads its first record. The one error left is that a list lacks a fork that another process began under an
    id which was deleted while this one remembers it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parents: dict[str, str] = {}
        """By conversation: what it was forked from; empty where it is no fork, or cannot be read."""

    def list_newer(self, root: str) -> list[tuple[str, str]]:
        """The forks that are newer than a conversation, each with its parent; the oldest first.

        A fork is newer than its parent, which has to be there when it begins, and is not deleted before it.
        """
        if len(self._parents) >= MAX_KNOWN:
            self._parents.clear()
        newer = list(takewhile(lambda name: name != root, self._store.iterate_newest_first()))
        unknown = [name for name in newer if name not in self._parents]
        if len(unknown) > _MOST_SINGLE:
            found = {fork: parent for parent, forks in read_forks(self._store).items() for fork in forks}
            self._parents.update((name, found.get(name, "")) for name in unknown)
        else:
            self._parents.update((name, read_fork_parent(self._store, name)) for name in unknown)
        known = [(name, self._parents.get(name)) for name in reversed(newer)]
        return [(name, parent) for name, parent in known if parent]

    def forget(self, conversation: str) -> None:
        """Look again: a conversation may begin under this id."""
        self._parents.pop(conversation, None)


def read_fork_parent(store: Store, conversation: str) -> str:
    """What a conversation was forked from; empty where it is no fork, does not exist, or cannot be read."""
    line = next(iter(store.read_lines(conversation)), b"")
    try:
        event = _decode_header(line).event
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    return str(event.parent) if event.type == Forked.TYPE else ""


# -- verification ----------------------------------------------------------------------------------


def check_family_links(read_lines: LineReader, conversation: str, record: ReadRecord) -> None:
    """Check the links of a record to the parent of its conversation and to a child.

    Args:
        read_lines: reads their records.

    Raises:
        LogDamaged: the parent or child is missing, was changed, or belongs to another conversation.
    """
    link = find_parent(record)
    if link is not None:
        _check_parent(read_lines, conversation, link)
    if record.event_type in ANSWERS and record.event.get("head"):
        _check_child(read_lines, conversation, record)


def _check_parent(read_lines: LineReader, conversation: str, link: Mapping[str, Any]) -> None:
    parent, effect = str(link.get("conversation")), link.get("effect")
    for seq, line in enumerate(read_lines(parent)):
        if compute_line_hash(line) == link.get("head"):
            if effect in [ask.id for ask in parse_line(line, seq, parent).asks]:
                return
            break
    raise LogDamaged(
        f"the record of conversation {parent!r} that asked for it is missing or changed",
        conversation=conversation,
        seq=0,
    )


def _list_forked_conversations(read_lines: LineReader, conversation: str) -> list[str]:
    """The conversations that a fork branched off, the nearest first."""
    line = next(iter(read_lines(conversation)), None)
    event = parse_line(line, 0, conversation).event if line is not None else {}
    if event.get("type") != "forked":
        return []
    parent = str(event.get("parent"))
    return [parent, *_list_forked_conversations(read_lines, parent)]


def _check_child(read_lines: LineReader, conversation: str, record: ReadRecord) -> None:
    """Check that the child of an answer is the one that this conversation asked for."""
    child, event = str(record.event.get("conversation")), record.event
    link = _read_parent(read_lines, child) or {}
    parent_link = (link.get("conversation"), link.get("effect"), link.get("item", 0))
    expected_link = (conversation, event.get("effect"), event.get("item", 0))
    # A fork takes recorded answers of the children of the conversation that it forked.
    if parent_link != expected_link and parent_link[0] not in _list_forked_conversations(
        read_lines, conversation
    ):
        problem = "belongs to another conversation" if link else "is missing"
        raise LogDamaged(f"its child {child!r} {problem}", conversation=conversation, seq=record.seq)
    if event["head"] not in map(compute_line_hash, read_lines(child)):
        raise LogDamaged(f"its child {child!r} was changed", conversation=conversation, seq=record.seq)


def refuse_child(configured: Configured, name: str) -> None:
    """Refuse to act on a child conversation: only its parent may.

    Raises:
        SpecError: it is one.
    """
    if configured.parent is not None and configured.conversation == name:
        parent = configured.parent.conversation
        raise SpecError(
            f"conversation {name!r} is a child of {parent!r}",
            hint=f"act on its parent, which hands on what concerns it: {parent}",
        )


WATCHED = "watched"
"""Name of the agent of a conversation that another program has and a watch records."""

WATCH_TAG = "watch"
"""Name of the tag that such a conversation has."""


def is_watched(configured: Configured) -> bool:
    """Whether another program runs the turns of a conversation, which nobody here can go on with."""
    return configured.spec.get("name") == WATCHED and WATCH_TAG in configured.tags


def refuse_watched(configured: Configured, name: str) -> None:
    """Refuse to go on with an open turn that another program runs: only its watch takes decisions.

    Raises:
        SpecError: it is one. A fork of it is none.
    """
    if is_watched(configured) and configured.conversation == name:
        raise SpecError(
            f"the turn of conversation {name!r} runs in another program, and no watch holds it any more",
            hint=f"end it: toolchart cancel {name}",
        )
