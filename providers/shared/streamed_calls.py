"""Join the pieces of streamed calls: one accumulator for every wire format.

A host sends a call in pieces, and says of each which call it belongs to: by an index, by an id, by both, or
by neither; some say it wrongly. The rule, in this order:

1. **A piece without a name continues a call**: the call of its index, where that has its id or its id is not
   known; else the call of its id; else the newest call whose arguments are not whole; else the newest. So new
   ids and new indexes without a name are noise, and calls with ids alone may come in turns. Only where there
   is no call yet does it begin one, which stays without a name: such a call never runs, and the model reads
   that it was refused.
2. **A piece with a name begins a call**, unless it repeats or continues the head of the call that it belongs
   to (found by id, or by index; where it has neither, the newest call). A name of blanks is none:
   - that call has no name yet: the piece names it;
   - it has another name: the piece begins another call. Before the arguments have begun, on one index, it
     continues the name (it is the name so far, or the next piece of it) where that call has an id and the
     piece has the same or none. Without an id nobody can tell, so the call without arguments is refused. A
     piece with neither index nor id is the next piece of the name, unless it begins with all of that name;
   - it has the same name and the same id: the piece continues it. With an index of its own, after arguments
     that are whole, what it brings (or what follows on that index) is another call's if it says other things;
   - its arguments are whole: another call, unless one of the two lacks the id that the other has and the
     arguments are the same;
   - its arguments have begun: the piece continues it, unless it has another id and begins an object itself;
   - its arguments have not begun: the piece continues it if it brings arguments, or has no other id.
3. **What the arguments are is decided when the stream has ended** (`choose_arguments`):
   - the joined pieces, if they are an object; a first or last piece that means none (`{}`, `null`) is left
     out;
   - the last piece, if it is an object and what came before is the beginning of it, or says the same: hosts
     send the whole again at the end, or the text so far with each piece;
   - otherwise the joined pieces, which `decode_call` refuses with the problem. Two different objects are
     never run.
4. **What is said twice** (pieces, then whole forms: the end of the arguments, of the item, of the response):
   a later whole form replaces pieces that cannot be read. One that is missing, null or empty replaces
   nothing. Where two that can be read differ, they are joined, which is refused as above.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchart.providers.shared.replies import join_text
from toolchart.states.call_arguments import Unreadable, parse_arguments
from toolchart.states.messages import CallArguments, CallStarted, Delta

_MAX_OPEN_CALLS = 64
"""How many of the newest calls are looked at for one that is not whole."""

_STRUCTURE = re.compile(r'["\\{}]')


class StreamedCall:
    """One call as it grows."""

    __slots__ = (
        *("_depth", "_in_text", "_scanned", "_skips"),
        *("id", "index", "is_unclear", "name", "pieces", "stray", "whole_forms"),
    )

    def __init__(self, index: int) -> None:
        self.index = index
        """Number of the call in the reply, from 0."""
        self.id = self.name = ""
        self.pieces: list[str] = []
        self.whole_forms: list[Any] = []
        """What events said of the whole arguments, in their order: text, or a value of JSON."""
        self._scanned = self._depth = 0
        self._in_text = self._skips = False
        self.is_unclear = False
        """Whether its name may be the beginning of one: another came in the place of its arguments."""
        self.stray: Unreadable | None = None
        """What stands in its object and may be its arguments; it counts where none came."""

    def add_arguments(self, arguments: Any) -> str:
        """Add a piece of text, or a whole value; what a reader is shown of it."""
        if isinstance(arguments, str):
            if arguments:
                self.pieces.append(arguments)
            return arguments
        if arguments is None:
            return ""
        self.whole_forms.append(arguments)
        return json.dumps(arguments, ensure_ascii=False)

    def add_whole(self, arguments: Any) -> None:
        """Add a whole form of the arguments; one that says nothing is left out."""
        if isinstance(arguments, Unreadable):
            self.stray = arguments
        elif arguments is not None and arguments != "":
            self.whole_forms.append(arguments)

    def is_whole(self) -> bool:
        """Whether the pieces so far are closed: an object, or nothing in words. Each is looked at once."""
        if self.whole_forms:
            return True
        for piece in self.pieces[self._scanned :]:
            self._scan(piece)
        self._scanned = len(self.pieces)
        if not self.pieces or self._in_text or self._depth > 0:
            return False
        return self.pieces[-1].rstrip()[-1:] in ("}", '"') or "".join(self.pieces).strip() == "null"

    def _scan(self, piece: str) -> None:
        """Follow braces and texts."""
        skipped = 0 if self._skips else -1
        self._skips = False
        for match in _STRUCTURE.finditer(piece):
            mark, place = match[0], match.start()
            if place == skipped:
                continue
            if mark == "\\":
                skipped = place + 1
                self._skips = self._in_text and skipped == len(piece)
                skipped = skipped if self._in_text else -1
            elif mark == '"':
                self._in_text = not self._in_text
            elif not self._in_text:
                self._depth += 1 if mark == "{" else -1

    def build_text(self) -> Any:
        """The input of a whole call that takes free text: its pieces, or a value that came as such."""
        return join_text(self.pieces) or (self.whole_forms[-1] if self.whole_forms else self.stray or "")

    def build_arguments(self) -> Any:
        """The arguments of the whole call: text, or a value that came as such."""
        if self.is_unclear and not self.has_begun():
            return Unreadable(["another name came before any arguments"])
        if self.stray and not self.has_begun():
            return self.stray
        return choose_arguments(self.pieces, self.whole_forms)

    def has_begun(self) -> bool:
        """Whether anything of the arguments came."""
        return bool(self.pieces or self.whole_forms)

    def add_name(self, name: str) -> bool:
        """Add a piece of the name, or the name so far; whether it changed."""
        if not name or name == self.name:
            return False
        self.name = name if name.startswith(self.name) else self.name + name
        return True


class StreamedCalls:
    """The calls of one streamed reply, in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[StreamedCall] = []
        self._by_index: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}
        self._own_indexes: set[int] = set()
        """Indexes that came with the head of a call that has another one."""

    def add_piece(
        self,
        *,
        index: int | None = None,
        call_id: str = "",
        name: str = "",
        arguments: Any = None,
        is_start: bool = False,
    ) -> tuple[StreamedCall, Iterator[Delta]]:
        """The call that a piece belongs to, with the piece added, and the deltas of it.

        Args:
            index: what the host numbers the call with; None: nothing.
            arguments: a piece of their text; any other value is the whole; None: nothing of them.
            is_start: whether the wire itself says that a call begins: only one of the same id and name has
                begun before, at the same index or with arguments that say the same.
        """
        if name and name.isspace():
            name = ""
        stray = arguments if isinstance(arguments, Unreadable) else None
        arguments = None if stray else arguments
        if is_start:
            call = self._find_begun(index, call_id, name, arguments)
        else:
            call = self._find_call(index, call_id, name, arguments)
            if call is not None and index is not None:
                if name and call_id and index not in self._by_index:
                    self._own_indexes.add(index)
                # An index that came with the head of a known call: after arguments that are whole, what
                # says other things there is another call's.
                if arguments and index in self._own_indexes and call.is_whole() and _differs(call, arguments):
                    self._own_indexes.discard(index)
                    call_id, name, call = call.id, call.name, None
        if call is None:
            call = StreamedCall(len(self.calls))
            self.calls.append(call)
        is_named = call.add_name(name)
        call.id = call.id or call_id
        call.stray = stray or call.stray
        if index is not None:
            self._by_index[index] = call
        if call_id:
            self._by_id[call_id] = call
        return call, _iterate_deltas(call, is_named, call.add_arguments(arguments))

    def _find_begun(self, index: int | None, call_id: str, name: str, arguments: Any) -> StreamedCall | None:
        """The call that begins again; None where another one begins."""
        call = self._by_id.get(call_id) if call_id else None
        if call is None or (index is not None and self._by_index.get(index) is not call):
            return None
        if call.name != name:
            return call if index is not None and _continues_name(call, call_id) else None
        return None if index is None and _differs(call, arguments) else call

    def _find_call(self, index: int | None, call_id: str, name: str, arguments: Any) -> StreamedCall | None:
        """The call that a piece belongs to; None where it begins one."""
        of_index = self._by_index.get(index) if index is not None else None
        of_id = self._by_id.get(call_id) if call_id else None
        # Rule 1: the call of its index, where that has its id or its id is not known; else that of its id;
        # else the newest.
        if of_index is not None and (of_id is None or of_index.id == call_id):
            call: StreamedCall | None = of_index
        elif of_id is not None:
            call = of_id
        elif name and (index is not None or call_id):
            call = None
        else:
            call = self._find_newest(is_open=not name)
        if call is None or not name or _continues(call, index, call_id, name, arguments):
            return call
        # The same name, and it does not continue that call; or another name on another index: another call.
        if call.name == name or (index is not None and call is not of_index):
            return None
        if _continues_name(call, call_id):
            return call
        is_bare = index is None and not call_id and not call.has_begun()
        # With neither index nor id it is the next piece of the name, unless it begins with all of that
        # name.
        if is_bare and not name.startswith(call.name):
            return call
        # Nobody can tell whether the name goes on or another call begins: the one without arguments is
        # refused.
        if is_bare or (call is of_index and not call.id):
            call.is_unclear = True
        return None

    def _find_newest(self, *, is_open: bool) -> StreamedCall | None:
        """The newest call, of those whose arguments are not whole where that matters and there are such."""
        newest = self.calls[: -_MAX_OPEN_CALLS - 1 : -1] if is_open else []
        open_calls = (call for call in newest if not call.is_whole())
        return next(open_calls, self.calls[-1] if self.calls else None)


def _continues(call: StreamedCall, index: int | None, call_id: str, name: str, arguments: Any) -> bool:
    """Whether a piece with a name repeats the head of a call, as rule 2 says."""
    if not call.name:
        return True
    if call.name != name:
        return False
    if call_id and call_id == call.id:
        return True
    has_other_id = bool(call_id and call.id)
    if call.is_whole():
        # After whole arguments: only the same call once more, whose id one of the two lacks.
        return bool(call_id) != bool(call.id) and is_same(arguments, call.build_arguments())
    if call.pieces:
        # Within its arguments: unless it has another id and begins an object itself.
        begins = not isinstance(arguments, str) or arguments.lstrip().startswith("{")
        return not (has_other_id and begins)
    # Before its arguments: where it brings them, or has no other id.
    return (index is not None or bool(call_id)) and (bool(arguments) or not has_other_id)


def _continues_name(call: StreamedCall, call_id: str) -> bool:
    """Whether a piece with another name continues the name of a call, as rule 2 says."""
    return bool(call.id) and call_id in ("", call.id) and not call.has_begun()


def _differs(call: StreamedCall, arguments: Any) -> bool:
    """Whether a call has arguments, and a piece with others begins."""
    known = call.build_arguments()
    return not (_is_empty(known) or _is_empty(arguments) or known == arguments or is_same(arguments, known))


def _iterate_deltas(call: StreamedCall, is_named: bool, text: str) -> Iterator[Delta]:
    if is_named:
        yield CallStarted(index=call.index, name=call.name)
    if text:
        yield CallArguments(index=call.index, text=text)


# -- arguments -------------------------------------------------------------------------------------


def choose_arguments(pieces: Sequence[str], whole_forms: Sequence[Any] = ()) -> Any:
    """The arguments that pieces and whole forms mean: text, or a value that came as such.

    >>> choose_arguments(['{"a":', "1}"])
    '{"a":1}'
    >>> choose_arguments(["{", '{"a": 1}']), choose_arguments(['{"a"', '{"a":1}'])
    ('{"a": 1}', '{"a":1}')
    >>> choose_arguments(["null", '{"a":', "1}"]), choose_arguments(['{"a":', "1}", "null"])
    ('{"a":1}', '{"a":1}')
    >>> choose_arguments(['{"a":1}', '{"a":2}']), choose_arguments(['{"a":1}'], ["", '{"a":2}'])
    ('{"a":1}{"a":2}', '{"a":1}{"a":2}')
    >>> choose_arguments(['{"a":', '1,}'], ['{"a":1,}', '{"a":1,}'])
    '{"a":1,}'
    """
    chosen: Any = _join_pieces(pieces)
    for form in whole_forms:
        if _is_empty(form):
            chosen = chosen if chosen or form is None else form
        elif _is_empty(chosen) or form == chosen or is_same(form, chosen):
            chosen = form
        elif _read(form) is None or _read(chosen) is not None:
            # Two objects that differ: joined they are none, so neither is run.
            return _write(chosen) + _write(form)
        else:
            chosen = form
    return chosen


ARGUMENT_KEYS = frozenset(("arguments", "input", "args", "parameters", "params", "kwargs", "tool_input"))
"""The keys under which hosts and gateways write the arguments of a call, whatever their API says."""

_OTHER_KEYS = frozenset(
    (
        *("id", "name", "type", "index", "status", "function", "custom", "caller", "metadata", "annotations"),
        *("extra_content", "extra_body", "provider_specific_fields", "cache_control"),
    )
)
"""Keys of a call that hold no arguments, whatever stands there."""


def find_arguments(*objects: Mapping[str, Any]) -> Any:
    """The arguments of a call: those in its object, or in the one around it, under whichever key they stand.

    What says nothing gives way to what says something. Two that differ are joined, which is refused. Where
    there are none, and an object or its text stands under an unknown key, nobody can tell what they are.

    >>> find_arguments({"name": "a", "parameters": {"b": 1}}), find_arguments({"args": {}}, {"input": "{"})
    ({'b': 1}, '{')
    >>> find_arguments({"name": "a", "payload": {"b": 1}})[1:], find_arguments({"name": "a"})
    ([{'payload': {'b': 1}}], None)
    """
    forms = [item[key] for item in objects for key in item if key in ARGUMENT_KEYS]
    if len(forms) > 1:
        return choose_arguments((), forms)
    if forms:
        return forms[0]
    for item in objects:
        for key, value in item.items():
            if _is_stray(key, value):
                problem = f"the call has no `arguments`, and it has {key!r}, which is not known"
                return Unreadable([problem, {key: value}])
    return None


def _is_stray(key: str, value: Any) -> bool:
    """Whether arguments may stand under a key that nobody knows."""
    is_object = isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{"))
    return bool(value) and is_object and key not in _OTHER_KEYS


def drop_other_arguments(wire: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object of a call without arguments under another key than this one."""
    if ARGUMENT_KEYS.isdisjoint(wire):
        return {name: value for name, value in wire.items() if not _is_stray(name, value)}
    return {name: value for name, value in wire.items() if name == key or name not in ARGUMENT_KEYS}


def read_start(arguments: Any) -> Any:
    """The arguments with which a call begins: `{}` keeps the place for the pieces that follow."""
    return None if isinstance(arguments, Mapping) and not arguments else arguments


def build_input(arguments: Any) -> Any:
    """The object of the arguments, for a wire whose calls have one. What cannot be read stays as it came,
    and `decode_call` describes it."""
    values = parse_arguments(arguments)[0] if isinstance(arguments, str) else None
    return arguments if values is None else values


_NOTHING = ("{}", "null", '"null"', '"{}"', '""')
"""Pieces that mean no arguments, where the others are whole without them."""


def _join_pieces(pieces: Sequence[str]) -> str:
    """The text of the pieces, or of the last one where it says what they say."""
    if len(pieces) > 1 and pieces[0].strip() in _NOTHING:  # it keeps the place for what follows
        pieces = pieces[1:]
    if len(pieces) > 1 and pieces[-1].strip() in _NOTHING and _read(join_text(pieces[:-1])) is not None:
        pieces = pieces[:-1]
    text = join_text(pieces)
    if len(pieces) < 2:
        return text
    last, before = pieces[-1], len(pieces) - 1
    values = _read(last) if last.lstrip()[:1] in ("{", '"') else None
    is_repeated = all(map(str.startswith, pieces[1:], pieces[:-1]))
    # The usual pieces end here, unread: `decode_call` reads the text.
    if (values is None and not is_repeated) or _read(text) is not None:
        return text
    if values is not None and not is_repeated:
        while before and _is_equal(_read(pieces[before - 1]), values):
            before -= 1
        earlier = join_text(pieces[:before])
        is_repeated = last.startswith(earlier) or _is_equal(_read(earlier), values)
    return last if is_repeated else text


def _read(form: Any) -> dict[str, Any] | None:
    """The arguments of a form; None where it cannot be read."""
    if isinstance(form, Mapping):
        return dict(form)
    return parse_arguments(form)[0] if isinstance(form, str) else None


def _write(form: Any) -> str:
    return form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)


def _is_empty(form: Any) -> bool:
    """Whether a form says nothing: no text, no value, no key."""
    return form is None or _read(form) == {}


def is_same(form: Any, other: Any) -> bool:
    """Whether two forms of arguments can be read and say the same."""
    values = _read(form)
    return values is not None and _is_equal(values, _read(other))


def _is_equal(value: Any, other: Any) -> bool:
    """Whether two values of JSON are equal; `true` is not 1."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_is_equal(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_equal, value, other))
    return bool(value == other)
