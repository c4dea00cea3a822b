"""The store: the primitive of `StoreBase` over one stream.

**What makes a change one step.** A conversation and its children are a *family*, since one lease covers them.
Everything whose order counts in a family stands under one prefix of subjects: records, replaced lines, small
values. A change is published with the number of the newest message under that prefix that this process knows.
The server refuses it where there is a newer one; then what was read is read anew, and the change decided
anew. So what a change checks cannot change between the look and the write. Several messages of one change are
an atomic batch: all or none.

What a process knows of a family may be old. It serves to decide without asking: a refusal that rests on it is
decided again on what the stream has now, and an approval that rests on it is refused by the server.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolchart import LogBusy, LogConflict, LogDamaged, LogUnavailable
from toolchart.engine.log.stores.base import (
    DERIVED_KINDS,
    Change,
    SmallValue,
    StoreBase,
    ValueCheck,
    ValueWrite,
    build_conflict,
    build_value_conflict,
)
from toolchart_nats.connection import (
    Guard,
    NatsAddress,
    Outrun,
    Publication,
    StoredMessage,
    Stream,
    parse_address,
)
from toolchart_nats.messages import (
    BORN,
    COUNT,
    ID,
    SEQ,
    Append,
    Subjects,
    ValueContent,
    decode_key,
    decode_token,
    encode_content,
    get_pieces_id,
    read_append,
    read_appends,
    read_replaced,
    read_value_content,
    store_content,
)
from toolchart_nats.opening import check_stream, create_stream, find_damage

_MAX_KNOWN = 4096
"""Families that are kept in memory."""

_MAX_TRIES = 200
"""How often others may be faster before a writer gives up."""

_MAX_TOGETHER = 900
"""Messages that are published together at most; the server's own limit is 1,000."""

_SAMPLE_SIZE = 3

_ROLLUP = {"Nats-Rollup": "sub"}
"""The header of a message that takes the place of all earlier ones of its subject."""


class Family:
    """One conversation and its children, as far as this process knows them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = asyncio.Lock()
        self.newest: int | None = None
        """Number of the newest message; None where it must be read."""
        self.values: dict[tuple[str, str, str], bytes | None] = {}
        """Small values by conversation, kind and key; None where there is none."""
        self.ends: dict[str, int] = {}
        """Number of the next record, by conversation."""

    def forget(self) -> None:
        """Read everything anew when it is needed."""
        self.newest = None
        self.values.clear()
        self.ends.clear()


class JetStreamStore(StoreBase):
    """Keeps a log in one stream; reconnects after a broken connection.

    Args:
        create: whether the stream is created where it is missing.
        read_only: whether every method that writes is refused.

    Raises:
        LogUnavailable: the servers cannot be reached, or there is no log.
    """

    def __init__(self, address: NatsAddress, *, create: bool = True, read_only: bool = False) -> None:
        self._address = address
        self._is_read_only = read_only
        self._subjects = Subjects(address.name)
        self._stream = Stream(address, on_connect=self._forget_all)
        self._names: dict[str, str] = {}
        """The family of each conversation that is known to have begun."""
        self._known: dict[str, Family] = {}
        try:
            self._stream.run(lambda _: self._open(create=create))
        except BaseException:
            self._stream.close()
            raise

    async def _forget_all(self) -> None:
        """What a new connection begins with: nothing that was read on the one before is trusted."""
        self._names.clear()
        self._known.clear()  # their locks may belong to an event loop that a fork has ended

    async def _open(self, *, create: bool) -> None:
        answer: Mapping[str, Any] = await self._stream.ask(f"STREAM.INFO.{self._address.name}")
        if "error" in answer and create:
            answer = await create_stream(self._stream, self._address, self._subjects)
        check_stream(answer, self._address, self._subjects)

    def read_time(self) -> float:
        """The time of the server, which all workers share."""
        return time.time() + self._stream.clock_offset_s

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._stream.close()

    # -- families ----------------------------------------------------------------------------------

    async def _find_family(self, conversation: str) -> Family:
        """The family of a conversation: its own, unless it began as a child."""
        name = self._names.get(conversation)
        if name is None:
            link = await self._stream.get_message(last_by_subj=self._subjects.build_link(conversation))
            name = conversation if link is None else link.data.decode("utf-8", "surrogatepass")
            if link is not None:
                self._names[conversation] = name
        family = self._known.pop(name, None) or Family(name)
        self._known[name] = family
        if len(self._known) > _MAX_KNOWN:
            idle = [known for known in self._known.values() if not known.lock.locked()]
            for old in idle[: _MAX_KNOWN // 4]:
                del self._known[old.name]
        if len(self._names) > 16 * _MAX_KNOWN:
            self._names.clear()
        return family

    async def _find_family_to_write(self, change: Change) -> Family:
        """The family that a change belongs to; a child that begins is linked to that of its root."""
        conversation, check = change.conversation, change.check
        begins = bool(change.lines) and change.first_seq == 0
        if begins:
            self._names.pop(conversation, None)
        family = await self._find_family(conversation)
        if not begins or check is None or check.conversation == conversation or family.name != conversation:
            return family
        root = await self._find_family(check.conversation)
        if root.name != conversation and not await self._read_end(family, conversation):
            data = root.name.encode("utf-8", "surrogatepass")
            link = Publication(subject=self._subjects.build_link(conversation), data=data, headers=_ROLLUP)
            await self._stream.publish(link)
            self._names[conversation] = root.name
            return root
        return family

    async def _refresh(self, family: Family) -> None:
        """Read the number of the newest message; everything that is read later is at least as new."""
        family.forget()
        newest = await self._stream.get_message(last_by_subj=self._subjects.build_family(family.name))
        family.newest = newest.sequence if newest is not None else 0

    async def _read_newest_append(self, family: Family, conversation: str) -> StoredMessage | None:
        for kind in ("r", "b"):
            subject = self._subjects.build_of_conversation(family.name, conversation, kind)
            message = await self._stream.get_message(last_by_subj=subject)
            if message is not None:
                return message
        return None

    async def _read_end(self, family: Family, conversation: str) -> int:
        """The number of the next record of a conversation."""
        end = family.ends.get(conversation)
        if end is None:
            message = await self._read_newest_append(family, conversation)
            end = 0 if message is None else (await self._read_append(conversation, message)).end
            if family.newest is not None:
                family.ends[conversation] = end
        return end

    async def _read_append(self, conversation: str, message: StoredMessage) -> Append:
        return await read_append(self._stream, self._subjects, conversation, message)

    async def _find_value(
        self, family: Family, conversation: str, kind: str, key: str
    ) -> StoredMessage | None:
        """The message of a small value, as the stream has it now."""
        subject = self._subjects.build_value(family.name, conversation, kind, "*", key)
        return await self._stream.get_message(last_by_subj=subject)

    async def _read_content(self, conversation: str, message: StoredMessage) -> ValueContent:
        return await read_value_content(self._stream, self._subjects, conversation, message)

    async def _load_value(self, family: Family, conversation: str, kind: str, key: str) -> bytes | None:
        message = await self._find_value(family, conversation, kind, key)
        return None if message is None else (await self._read_content(conversation, message)).data

    # -- changes -----------------------------------------------------------------------------------

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes, each completely or not at all; stored on return, as the server stores.

        Those of different families go side by side.
        """
        if self._is_read_only:
            raise LogUnavailable(f"{self._address.place} is open for reading")
        id_ = uuid.uuid4().hex
        return self._stream.run(lambda is_retry: self._commit(changes, id_, is_retry=is_retry))

    async def _commit(
        self, changes: Sequence[Change], id_: str, *, is_retry: bool
    ) -> list[LogConflict | None]:
        groups: dict[str, list[int]] = {}
        for number, change in enumerate(changes):
            root = change.conversation if change.check is None else change.check.conversation
            groups.setdefault(root, []).append(number)
        conflicts: list[LogConflict | None] = [None] * len(changes)

        async def make_group(numbers: Sequence[int]) -> None:
            for number in numbers:
                conflicts[number] = await self._make_change(
                    changes[number], f"{id_}.{number}", is_retry=is_retry
                )

        await asyncio.gather(*(make_group(numbers) for numbers in groups.values()))
        return conflicts

    async def _make_change(self, change: Change, id_: str, *, is_retry: bool) -> LogConflict | None:
        family = await self._find_family_to_write(change)
        async with family.lock:
            is_stale = family.newest is None
            for _ in range(_MAX_TRIES):
                if is_stale:
                    await self._refresh(family)
                conflict = await self._find_conflict(family, change)
                if conflict is not None and is_stale:
                    return None if is_retry and await self._was_made(family, change, id_) else conflict
                if conflict is None and await self._publish(family, change, id_):
                    await self._clean_up(family, change)
                    return None
                is_stale = True  # what was known is old, or another writer was faster
        raise LogBusy(f"other writers of conversation {family.name!r} were faster each time")

    async def _find_conflict(self, family: Family, change: Change) -> LogConflict | None:
        """Why a change must not be made, as far as this process knows."""
        check = change.check
        if check is not None and not await self._holds(family, check):
            return build_value_conflict(check)
        if change.lines:
            end = await self._read_end(family, change.conversation)
            if end != change.first_seq:
                return build_conflict(change.conversation, change.first_seq, end)
        return None

    async def _holds(self, family: Family, check: ValueCheck) -> bool:
        holder = await self._find_family(check.conversation)
        place = (check.conversation, check.kind, check.key)
        if holder is family and place in family.values:
            data = family.values[place]
        else:
            data = await self._load_value(holder, *place)
            if holder is family and family.newest is not None:
                family.values[place] = data
        return check.fits(data)

    async def _was_made(self, family: Family, change: Change, id_: str) -> bool:
        """Whether an earlier try, whose answer was lost, has made this change."""
        if change.lines:
            message = await self._read_newest_append(family, change.conversation)
        elif change.values:
            value = change.values[-1]
            holder = await self._find_family(value.conversation)
            message = await self._find_value(holder, value.conversation, value.kind, value.key)
        else:
            return False
        return message is not None and message.headers.get(ID) == id_

    async def _publish(self, family: Family, change: Change, id_: str) -> bool:
        """Publish a change; false where another message of its family was faster."""
        assert family.newest is not None
        guard = Guard(self._subjects.build_family(family.name), family.newest)
        publications = [publication async for publication in self._build_messages(family, change, id_)]
        if not publications:
            return True
        publications[0] = replace(publications[0], guard=guard)
        is_alone = True
        if change.check is not None:
            holder = await self._find_family(change.check.conversation)
            if holder is not family:
                is_alone = False
                again = await self._repeat_checked(holder, change.check)
                if again is None:
                    return False
                publications.insert(1, again)
        if len(publications) > _MAX_TOGETHER:
            raise LogUnavailable(
                f"conversation {change.conversation}: {len(publications)} messages are too many at once"
            )
        try:
            if len(publications) == 1:
                sequence = await self._stream.publish(publications[0])
            else:
                sequence = await self._stream.publish_together(publications)
        except BaseException as error:
            family.forget()
            if isinstance(error, Outrun):
                return False
            raise
        self._note_change(family, change, sequence if is_alone else None)
        return True

    def _note_change(self, family: Family, change: Change, sequence: int | None) -> None:
        """Keep what is known after a change; None as its number: nothing is."""
        if change.lines:
            self._names[change.conversation] = family.name
        if sequence is None or change.is_deletion or change.replaced is not None:
            family.forget()
            return
        family.newest = sequence
        if change.lines:
            family.ends[change.conversation] = change.first_seq + len(change.lines)
        for value in change.values:
            if value.kind not in DERIVED_KINDS:
                family.values[value.conversation, value.kind, value.key] = value.data

    async def _repeat_checked(self, holder: Family, check: ValueCheck) -> Publication | None:
        """The message of a value of another family, published once more: so the server checks both families
        at once. None where the value is another one by now."""
        await self._refresh(holder)
        message = await self._find_value(holder, check.conversation, check.kind, check.key)
        assert holder.newest is not None
        guard = Guard(self._subjects.build_family(holder.name), holder.newest)
        holder.forget()
        if message is None or check.beginning is None:
            return None
        content = await self._read_content(check.conversation, message)
        if not content.data.startswith(check.beginning):
            return None
        return Publication(subject=message.subject, data=message.data, headers=_ROLLUP, guard=guard)

    async def _build_messages(self, family: Family, change: Change, id_: str) -> AsyncIterator[Publication]:
        """The messages of a change; the first one belongs to the family."""
        conversation = change.conversation
        if change.is_deletion:
            subject = self._subjects.build_of_conversation(family.name, conversation, "d")
            yield Publication(subject=subject, headers={**_ROLLUP, ID: id_})
            return
        if change.lines:
            headers = {SEQ: str(change.first_seq), COUNT: str(len(change.lines)), ID: id_}
            kind = "r" if change.first_seq else "b"
            yield await self._build_message(family, conversation, kind, b"\n".join(change.lines), headers)
        if change.replaced is not None:
            for publication in await self._build_replacing(family, conversation, dict(change.replaced)):
                yield publication
        for value in change.values:
            yield await self._build_value_message(value, id_)

    async def _build_message(
        self, family: Family, conversation: str, kind: str, data: bytes, headers: Mapping[str, str]
    ) -> Publication:
        data, headers = await store_content(self._stream, self._subjects, conversation, data, headers)
        subject = self._subjects.build_of_conversation(family.name, conversation, kind)
        return Publication(subject=subject, data=data, headers=headers)

    async def _build_value_message(self, value: ValueWrite, id_: str) -> Publication:
        family = await self._find_family(value.conversation)
        state = "open" if value.is_listed else "done"
        subject = self._subjects.build_value(family.name, value.conversation, value.kind, state, value.key)
        content = encode_content(ValueContent(value.key, value.data))
        data, headers = await store_content(
            self._stream, self._subjects, value.conversation, content, {**_ROLLUP, ID: id_}
        )
        return Publication(subject=subject, data=data, headers=headers)

    async def _clean_up(self, family: Family, change: Change) -> None:
        """Remove what a change has made void. Where a process dies before, readers pass over it."""
        if change.is_deletion:
            await self._purge(family, change.conversation)
            return
        for value in change.values:
            if not value.is_listed and value.kind not in DERIVED_KINDS:  # those are never listed
                holder = await self._find_family(value.conversation)
                subject = self._subjects.build_value(
                    holder.name, value.conversation, value.kind, "open", value.key
                )
                await self._erase(value.conversation, await self._stream.get_all(subject))
        if change.replaced is not None:
            await self._erase_replaced(family, change)

    async def _purge(self, family: Family, conversation: str) -> None:
        """Delete what a conversation has up to the message that says that it is deleted.

        That message stays as long as its family has others. Without it a worker that has been away since
        before the newest of the deleted messages could name the newest message that is left, by chance, and
        append to what is gone.
        """
        subject = self._subjects.build_of_conversation(family.name, conversation, "d")
        deleted = await self._stream.get_message(last_by_subj=subject)
        if deleted is not None:
            for part in (
                self._subjects.build_of_conversation(family.name, conversation, ">"),
                self._subjects.build_pieces(conversation, "*"),
                self._subjects.build_link(conversation),
            ):
                await self._stream.purge(part, before=deleted.sequence)
            left = await self._stream.count_subjects(self._subjects.build_family(family.name))
            if all(subject.endswith(".d") for subject in left):
                await self._stream.purge(
                    self._subjects.build_family(family.name), before=deleted.sequence + 1
                )
        self._names.pop(conversation, None)

    async def _erase(self, conversation: str, messages: Sequence[StoredMessage]) -> None:
        """Delete messages with their pieces; the server overwrites their bytes."""
        for message in messages:
            pieces = get_pieces_id(message)
            if pieces is not None:
                await self._stream.erase(self._subjects.build_pieces(conversation, pieces))
            await self._stream.delete_message(message.sequence)

    # -- replaced lines ----------------------------------------------------------------------------

    async def _load_appends(
        self, family: Family, conversation: str
    ) -> tuple[list[Append], list[StoredMessage], list[tuple[StoredMessage, dict[int, bytes]]]]:
        """The appends of a conversation, first ones that are void, and the messages with lines in place of
        others, the latest of which counts, with those lines."""
        found = {}
        for kind in ("b", "r", "e"):
            subject = self._subjects.build_of_conversation(family.name, conversation, kind)
            found[kind] = await self._stream.get_all(subject)
        appends = await read_appends(
            self._stream, self._subjects, conversation, [*found["b"][-1:], *found["r"]]
        )
        lines = await read_replaced(self._stream, self._subjects, conversation, found["e"])
        return appends, found["b"][:-1], list(zip(found["e"], lines, strict=True))

    async def _build_replacing(
        self, family: Family, conversation: str, lines: dict[int, bytes]
    ) -> list[Publication]:
        """The messages with new lines. All lines of a message that has a line to be replaced are new."""
        appends, _, replacing = await self._load_appends(family, conversation)
        new_lines = {seq: line for _, earlier in replacing for seq, line in earlier.items()} | lines
        old = [append for append in appends if any(seq in new_lines for seq in append.numbers)]
        for append in old:
            for seq, line in enumerate(append.lines, append.first):
                new_lines.setdefault(seq, line)
        publications = []
        first = next((append for append in old if append.first == 0), None)
        if first is not None:
            data = b"\n".join(new_lines.pop(seq) for seq in first.numbers)
            headers = {SEQ: "0", COUNT: str(len(first.lines)), BORN: str(first.born or first.sequence)}
            publications.append(await self._build_message(family, conversation, "b", data, headers))
        for part in _split_lines(new_lines, self._stream.max_message_bytes):
            publications.append(
                await self._build_message(family, conversation, "e", encode_content(part), {})
            )
        return publications

    async def _erase_replaced(self, family: Family, change: Change) -> None:
        """Delete the messages whose lines all stand elsewhere too, in a message that counts; checkpoints; and
        values that were written over."""
        conversation = change.conversation
        appends, void, replacing = await self._load_appends(family, conversation)
        seen: set[int] = set()
        for message, lines in reversed(replacing):
            if seen.issuperset(lines):
                void.append(message)
            seen.update(lines)
        later = [append for append in appends if append.first and seen.issuperset(append.numbers)]
        await self._erase(conversation, void)
        for append in later:
            known = await self._stream.get_message(seq=append.sequence)
            await self._erase(conversation, [known] if known is not None else [])
        roots = {conversation, change.check.conversation if change.check is not None else conversation}
        for name in roots:
            holder = await self._find_family(name)
            subject = self._subjects.build_of_conversation(holder.name, name, "v.>")
            messages = await self._stream.consume_headers(subject)
            newest = {_get_place(self._subjects, message): message.sequence for message in messages}
            old = [
                message
                for message in messages
                if newest[_get_place(self._subjects, message)] != message.sequence
                or (name == conversation and _get_place(self._subjects, message)[0] in DERIVED_KINDS)
            ]
            await self._erase(name, old)

    # -- reading -----------------------------------------------------------------------------------

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        beginning = self._stream.run(lambda _: self._read_beginning(conversation))
        if beginning is None:
            return
        family, first, replaced = beginning
        number = start
        for append in self._iterate_appends(conversation, family, first, start):
            for seq, line in enumerate(append.lines, append.first):
                while number < seq:
                    if number not in replaced:
                        raise LogDamaged("it is missing", conversation=conversation, seq=number)
                    yield replaced[number]
                    number += 1
                if seq == number:
                    yield replaced.get(seq, line)
                    number += 1

    async def _read_beginning(self, conversation: str) -> tuple[Family, Append, dict[int, bytes]] | None:
        """The family, the first append, and the replaced lines; None for an unknown conversation."""
        for _ in range(2):  # it may have begun in another family since that was looked up
            family = await self._find_family(conversation)
            build = partial(self._subjects.build_of_conversation, family.name, conversation)
            first, messages = await asyncio.gather(
                self._stream.get_message(last_by_subj=build("b")), self._stream.get_all(build("e"))
            )
            if first is not None:
                replaced: dict[int, bytes] = {}
                for lines in await read_replaced(self._stream, self._subjects, conversation, messages):
                    replaced |= lines
                return family, await self._read_append(conversation, first), replaced
            self._names.pop(conversation, None)
        return None

    def _iterate_appends(
        self, conversation: str, family: Family, first: Append, start: int
    ) -> Iterator[Append]:
        subject = self._subjects.build_of_conversation(family.name, conversation, "r")
        if start < first.end:
            yield first
            place = 1
        else:
            place = self._stream.run(lambda _: self._find_place(conversation, subject, start))

        async def read_page(place: int, _: bool) -> list[Append]:
            messages = await self._stream.get_page(subject, place)
            return await read_appends(self._stream, self._subjects, conversation, messages)

        while page := self._stream.run(partial(read_page, place)):
            yield from page
            place = page[-1].sequence + 1

    async def _find_place(self, conversation: str, subject: str, start: int) -> int:
        """The number in the stream from which on appends hold the record `start` and later ones."""
        last = await self._stream.get_message(last_by_subj=subject)
        low, high = 1, last.sequence if last is not None else 1
        while low < high:
            middle = (low + high) // 2
            message = await self._stream.get_message(seq=middle, next_by_subj=subject)
            if message is None:
                high = middle
                continue
            append = await self._read_append(conversation, message)
            if append.end > start:
                high = middle
            else:
                low = append.sequence + 1
        return low

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        return self._stream.run(lambda _: self._read_last_line(conversation))

    async def _read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        for _ in range(2):
            family = await self._find_family(conversation)
            message = await self._read_newest_append(family, conversation)
            if message is not None:
                newest = await self._read_append(conversation, message)
                return newest.end - 1, newest.lines[-1]
            self._names.pop(conversation, None)
        return None

    def read_value(self, conversation: str, kind: str, key: str = "") -> bytes | None:
        """The data of a small value."""

        async def read(_: bool) -> bytes | None:
            return await self._load_value(await self._find_family(conversation), conversation, kind, key)

        return self._stream.run(read)

    def read_values(
        self, conversation: str, kind: str, before: str | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Key and data of each value of a kind, the greatest key first; data is read when it is asked for."""
        places = self._stream.run(lambda _: self._list_places(conversation, kind))
        for key, sequence in sorted(places.items(), reverse=True):
            if before is None or key < before:
                content = self._stream.run(partial(self._load_numbered, conversation, sequence))
                if content is not None:
                    yield key, content.data

    async def _list_places(self, conversation: str, kind: str) -> dict[str, int]:
        """By the key of each value of a kind, the number of its message."""
        family = await self._find_family(conversation)
        subject = self._subjects.build_of_conversation(family.name, conversation, f"v.{kind}.*.*")
        places: dict[str, int] = {}
        for message in await self._stream.consume_headers(subject):
            key = decode_key(message.subject.rpartition(".")[2])
            if key is None:
                content = await self._load_numbered(conversation, message.sequence)
                key = content.key if content is not None else None
            if key is not None:
                places[key] = message.sequence
        return places

    async def _load_numbered(
        self, conversation: str, sequence: int, is_retry: bool = False
    ) -> ValueContent | None:
        message = await self._stream.get_message(seq=sequence)
        return None if message is None else await self._read_content(conversation, message)

    def list_values(self, kind: str, conversations: Sequence[str] | None = None) -> Iterable[SmallValue]:
        """The listed values of a kind, in the order in which they were written."""
        return self._stream.run(lambda _: self._list_values(kind, conversations))

    async def _list_values(self, kind: str, conversations: Sequence[str] | None) -> list[SmallValue]:
        subjects = [self._subjects.build_of_all(f"v.{kind}.open.*")]
        if conversations is not None:
            families = [await self._find_family(name) for name in conversations]
            subjects = [
                self._subjects.build_of_conversation(family.name, name, f"v.{kind}.open.*")
                for family, name in zip(families, conversations, strict=True)
            ]
        pages = await asyncio.gather(*map(self._stream.get_all, subjects))
        messages = sorted((m for page in pages for m in page), key=lambda message: message.sequence)
        values = await asyncio.gather(*(self._read_listed(kind, message) for message in messages))
        return [value for value in values if value is not None]

    async def _read_listed(self, kind: str, message: StoredMessage) -> SmallValue | None:
        """A listed value; None where a later message says that it is listed no more."""
        head, _, key = message.subject.rpartition(".")
        newest = await self._stream.get_message(last_by_subj=f"{head.rpartition('.')[0]}.*.{key}")
        if newest is None or newest.sequence != message.sequence:
            return None
        conversation = self._get_conversation(message)
        content = await self._read_content(conversation, message)
        return SmallValue(conversation, kind, content.key, content.data, message.sequence)

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        messages = self._stream.run(lambda _: self._stream.consume_headers(self._subjects.build_of_all("b")))
        places = {
            self._get_conversation(message): int(message.headers.get(BORN, message.sequence))
            for message in messages
        }
        return sorted(places, key=places.__getitem__)

    def _get_conversation(self, message: StoredMessage) -> str:
        return decode_token(self._subjects.split(message.subject)[2])

    def list_without(self, kind: str) -> Iterable[str]:
        """The conversations that have records and no value of a kind with an empty key."""

        async def list_named(kind: str) -> dict[str, int]:
            return await self._stream.count_subjects(self._subjects.build_of_all(kind))

        begun = self._stream.run(lambda _: list_named("b"))
        with_value = self._stream.run(lambda _: list_named(f"v.{kind}.*.="))
        names = {self._subjects.split(subject)[2] for subject in with_value}
        tokens = dict.fromkeys(self._subjects.split(subject)[2] for subject in begun)
        return [decode_token(token) for token in tokens if token not in names]

    def list_sample(self) -> Sequence[str]:
        """The ids of the conversation that was begun last, of two others of late, and of the oldest one."""
        return self._stream.run(lambda _: self._list_sample())

    async def _list_sample(self) -> list[str]:
        """See `list_sample`.

        The server finds the next message of a subject, and not the one before. So it is asked for the next
        beginning after places that lie further and further back, each four times as far.
        """
        subject = self._subjects.build_of_all("b")
        newest = await self._stream.get_message(last_by_subj=subject)
        if newest is None:
            return []
        found, distance = {newest.subject: newest}, 1
        while len(found) < _SAMPLE_SIZE and distance < newest.sequence:
            message = await self._stream.get_message(seq=newest.sequence - distance, next_by_subj=subject)
            found |= {message.subject: message} if message is not None else {}
            distance *= 4
        oldest = await self._stream.get_message(seq=1, next_by_subj=subject)
        messages = [*found.values(), oldest]
        return list(dict.fromkeys(self._get_conversation(m) for m in messages if m is not None))

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the stream that is not as a store leaves it."""
        return iter(self._stream.run(lambda _: find_damage(self._stream, self._subjects)))


def _get_place(subjects: Subjects, message: StoredMessage) -> tuple[str, str]:
    """Kind and key of the value that a message holds, as they stand in its subject."""
    tokens = subjects.split(message.subject)
    return tokens[4], tokens[6]


def _split_lines(lines: Mapping[int, bytes], limit: int) -> list[dict[int, bytes]]:
    """Lines by number, in parts that one message holds each."""
    parts: list[dict[int, bytes]] = [{}]
    size = 0
    for seq, line in sorted(lines.items()):
        if size + len(line) + 16 > limit and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][seq] = line
        size += len(line) + 16
    return [part for part in parts if part]


def open_jetstream_store(address: str, *, create: bool = True, durable: bool = True) -> JetStreamStore:
    """The store of a stream, which is created where it is missing.

    What is durable is decided by the settings of the server (`sync_interval`, `replicas`), not here.

    Raises:
        LogUnavailable: see `JetStreamStore`.
    """
    return JetStreamStore(parse_address(address), create=create)


def open_jetstream_for_reading(address: str) -> JetStreamStore:
    """The store of a stream, for reading; nothing is created.

    Raises:
        LogUnavailable: see `JetStreamStore`.
    """
    return JetStreamStore(parse_address(address), create=False, read_only=True)
