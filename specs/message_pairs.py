"""Calls and their results in a list of messages from outside: each result behind its call, and one for each.

A host takes a list only if the results of a message stand right behind it, one for each of its calls, and no
others. Lists of other programs break this in many ways: a turn was interrupted, a window cut the list, a user
spoke while a tool ran, results came in another order, two turns used one id.

The rule for all of them: what can be put right without losing or inventing anything is put right, and said
(`Mends`). A result of no call, or a second result with other words, is refused: one of the two would be lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec
from msgspec.structs import replace

from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ToolCall

NO_RESULT = (
    "No result of this call is known: the record of it ends here. It may or may not have taken effect. "
    "Check before doing it again."
)
"""What the model reads in place of a result that a list from outside does not have."""


class PlacedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and where it stands in what came in."""

    message: Message
    place: str


# -- what is put right -----------------------------------------------------------------------------

NO_RESULTS = "no result is known of these calls, and the model is told so"
MOVED = "these results were moved behind their calls, in the order of the calls"
DOUBLED = "these results were there twice with the same words, and count once"
NAMELESS = "these results name no call; each counts for the next call of its tool"
OTHER_TOOL = "these results name another tool than their call, whose tool counts"
NEW_ID = "these calls have no id, or one that an earlier call has, and got one of their own"
SILENT = "these messages say nothing, and were left out"
SYSTEM = "a system message is not sent, because the prompt comes from the agent's spec"
UNREADABLE = "the arguments of these calls are no JSON object, and count as a call that was refused"
OTHER_KEYS = "what these messages hold beside text, calls and results is not sent"
JSON_RESULT = "these results are no text, and are sent as JSON"

_MAX_PLACES = 5


class Mends:
    """What was put right in a list, and where."""

    def __init__(self) -> None:
        self._places: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, sentence: str, place: str, call: ToolCall | None = None) -> None:
        """Note that something was put right at a place.

        Args:
            sentence: one of this module.
            call: the call that it is about.
        """
        self._places[sentence].append(f"{place} ({_describe_call(call)})" if call is not None else place)

    def list_warnings(self, source: str | None) -> tuple[str, ...]:
        """One sentence for each kind, with the first places.

        Args:
            source: file of the list; None for what a program or a client sends.
        """
        prefix = f"{source}: " if source else ""
        return tuple(
            f"{prefix}{sentence}: {_join_places(places)}" for sentence, places in self._places.items()
        )


def _describe_call(call: ToolCall) -> str:
    call_id = call.native_id or call.id
    return f"call {call_id[:64]!r} of {call.name[:64]!r}"


def _join_places(places: list[str]) -> str:
    count = len(places) - _MAX_PLACES
    return ", ".join(places[:_MAX_PLACES]) + (f" and {count} more" if count > 0 else "")


# -- pairs -----------------------------------------------------------------------------------------


class _Slot(msgspec.Struct, eq=False):
    """A call of the list, which waits for its result."""

    call: ToolCall
    position: tuple[int, int]
    """Number of its message among those that are no results, and its own in the message."""
    result: PlacedMessage | None = None


class _ResultPairing:
    """Takes the messages of a list in their order, and gives them back with each result behind its call."""

    def __init__(self, source: str | None, mends: Mends) -> None:
        self._source = source
        self._mends = mends
        self._others: list[tuple[PlacedMessage, list[_Slot]]] = []
        """The messages that are no results, with their calls."""
        self._slots: defaultdict[str, list[_Slot]] = defaultdict(list)
        """All calls so far, by each id that a result may name."""
        self._open: defaultdict[str, list[_Slot]] = defaultdict(list)
        """Those without a result."""
        self._newest_open: list[_Slot] = []
        """Those of the newest message that is no result."""
        self._results: dict[tuple[str, str], PlacedMessage] = {}
        """By the id of the call and the text."""
        self._run_start = 0
        """Number of the first of the assistant's messages that stand right before the newest results."""
        self._newest: tuple[int, int] | None = None
        """Position of the call that the newest of the results in a row answers."""
        self._strays: list[tuple[PlacedMessage, int]] = []
        """Results without an open call, and how many other messages stood before each."""

    def add_message(self, placed: PlacedMessage) -> None:
        """Take the next message.

        Raises:
            SpecError: it is a result, and several calls of its id have none.
        """
        if placed.message.role == "tool":
            slot = self._find_slot(placed)
            if slot is None:
                self._strays.append((placed, len(self._others)))
                return
            is_behind = slot.position[0] == len(self._others) - 1
            self._answer(slot, placed, is_moved=not is_behind or slot.position < (self._newest or (0, 0)))
            self._newest = slot.position
            return
        number = len(self._others)
        before = self._others[-1][0].message.role if self._others else ""
        if not (placed.message.role == before == "assistant" and self._newest is None):
            self._run_start = number
        self._newest = None
        slots = [_Slot(call, (number, index)) for index, call in enumerate(placed.message.tool_calls)]
        for slot in slots:
            for call_id in {slot.call.id, slot.call.native_id or slot.call.id}:
                self._slots[call_id].append(slot)
                self._open[call_id].append(slot)
        self._newest_open = list(slots)
        self._others.append((placed, slots))

    def _find_slot(self, placed: PlacedMessage) -> _Slot | None:
        """The open call that a result answers: by its id, or without one the next of its tool."""
        wanted = placed.message.tool_call_id
        if not wanted:
            name, slot = placed.message.name, next(iter(self._newest_open), None)
            if name:
                slot = next((slot for slot in self._newest_open if slot.call.name == name), slot)
            if slot is not None:
                self._mends.add(NAMELESS, placed.place, slot.call)
            return slot
        slots = self._open.get(wanted)
        if not slots or slots[0].position[0] == slots[-1].position[0]:
            return slots[0] if slots else None
        # An earlier turn was cut off, and a later one used the id again: the call right before it counts.
        near = list(takewhile(lambda slot: slot.position[0] >= self._run_start, reversed(slots)))
        if not near or near[0].position[0] != near[-1].position[0]:
            raise self._refuse(placed, f"several calls {wanted[:64]!r} before it have no result")
        return near[-1]

    def _answer(self, slot: _Slot, placed: PlacedMessage, *, is_moved: bool) -> None:
        slot.result = placed
        for call_id in {slot.call.id, slot.call.native_id or slot.call.id}:
            self._open[call_id].remove(slot)
            self._results.setdefault((call_id, placed.message.content or ""), placed)
        if slot in self._newest_open:
            self._newest_open.remove(slot)
        if is_moved:
            self._mends.add(MOVED, placed.place, slot.call)
        if placed.message.name and placed.message.name != slot.call.name:
            self._mends.add(OTHER_TOOL, placed.place, slot.call)

    def list_messages(self, *, tells_missing: bool) -> Iterator[Message]:
        """The messages in their order, each result behind its call.

        Args:
            tells_missing: whether a call without a result gets `NO_RESULT`.

        Raises:
            SpecError: a result answers no call, or says something else than the one before it.
        """
        for stray, count in self._strays:
            self._place_stray(stray, count)
        for placed, slots in self._others:
            yield placed.message
            for slot in slots:
                message = slot.result.message if slot.result is not None else None
                if message is None:
                    self._mends.add(NO_RESULTS, placed.place, slot.call)
                    message = Message(role="tool", content=NO_RESULT) if tells_missing else None
                if message is not None:
                    yield replace(message, tool_call_id=slot.call.id, name=slot.call.name)

    def _place_stray(self, placed: PlacedMessage, count: int) -> None:
        """Find the call of a result that stood before it, or leave out a result that is there already.

        Args:
            count: how many messages that are no results stood before it.
        """
        wanted = placed.message.tool_call_id or ""
        slots, open_slots = self._slots.get(wanted, []), self._open.get(wanted, [])
        if not slots:
            of_call = f"the call {wanted[:64]!r}, which does not exist" if wanted else "no call before it"
            similar = next((id_ for id_ in self._slots if wanted and id_.lower() == wanted.lower()), None)
            note = f"; there is a call {similar[:64]!r}" if similar else ""
            raise self._refuse(placed, f"a result that answers {of_call}{note}")
        if slots[0].position[0] >= count and len(open_slots) == 1:
            self._answer(open_slots[0], placed, is_moved=True)
            return
        same = self._results.get((wanted, placed.message.content or ""))
        if same is None or same.message.parts != placed.message.parts:
            first = next((slot.result for slot in slots if slot.result is not None), None)
            other = f", and says something else than {first.place}" if first is not None else ""
            raise self._refuse(placed, f"a second result that answers the call {wanted[:64]!r}{other}")
        self._mends.add(DOUBLED, placed.place, slots[0].call)

    def _refuse(self, placed: PlacedMessage, problem: str) -> SpecError:
        return SpecError(
            problem,
            file=self._source,
            path=placed.place,
            hint="each call has one result, which names its id: leave this message out, or send its call too",
        )


def pair_results(
    messages: Sequence[PlacedMessage], source: str | None, mends: Mends, *, tells_missing: bool
) -> list[Message]:
    """The messages with each result right behind its call, in the order of the calls.

    Args:
        tells_missing: whether a call without a result gets `NO_RESULT`.

    Raises:
        SpecError: a result answers no call, or says something else than one before it.
    """
    pairing = _ResultPairing(source, mends)
    for placed in messages:
        pairing.add_message(placed)
    return list(pairing.list_messages(tells_missing=tells_missing))
