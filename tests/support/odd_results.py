"""What functions of tools return beside text, numbers, lists and dicts, and what becomes of it."""

from __future__ import annotations

import asyncio
import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import re
import sqlite3
import threading
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic

from toolchart.states.content import FilePart, ImagePart

PICTURE = base64.b64encode(b"\x89PNG\r\n").decode()


class Colour(enum.Enum):
    """An enumeration of texts."""

    RED = "red"


class City(pydantic.BaseModel):
    """A pydantic model."""

    name: str


@dataclasses.dataclass
class Town:
    """A dataclass."""

    name: str
    since: datetime.date = datetime.date(1900, 1, 2)


@attrs.define
class Village:
    """A class of attrs."""

    name: str


class Hamlet(msgspec.Struct):
    """A struct of msgspec."""

    name: str


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: int


class Plain:
    """A class that says nothing of its objects."""

    def __init__(self) -> None:
        self.name = "brno"


class Rows:
    """An iterable that is no iterator."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class Later:
    """An awaitable of its own kind."""

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return "later"


class Element:
    """A class that means a text in angle brackets."""

    def __str__(self) -> str:
        return "<p>hello</p>"


class Broken:
    """A class whose text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no")


async def wait(value: Any = "later") -> Any:
    """Return a value, later."""
    await asyncio.sleep(0)
    return value


def count(end: int = 3) -> Iterator[int]:
    """Yield numbers."""
    yield from range(end)


def count_and_return() -> Any:
    """Yield, and return a value."""
    yield 1
    return "two"


def only_return() -> Any:
    """Return a value from a generator that yields nothing."""
    yield from ()
    return "all"


async def count_later(end: int = 3) -> AsyncIterator[int]:
    """Yield numbers, later."""
    for number in range(end):
        await asyncio.sleep(0)
        yield number


def break_off() -> Iterator[int]:
    """Yield one number and fail."""
    yield 1
    raise ValueError("the source is gone")


async def break_off_later() -> AsyncIterator[int]:
    """Yield one number and fail."""
    yield 1
    raise ValueError("the source is gone")


async def count_without_end() -> AsyncIterator[int]:
    """Yield numbers for ever and never wait."""
    for number in itertools.count():
        yield number


def select_rows() -> sqlite3.Cursor:
    """The cursor of a query."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    return connection.execute("select 1 as id, 'x' as name union select 2, 'y'")


def start_job() -> Any:
    """A future of a pool of threads."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: "from a thread")


ROW = ["a"]
LONG = [1] * 110_000
DAY = datetime.date(2026, 1, 2)


class Big(int):
    """A class of integers."""


@dataclasses.dataclass
class Node:
    """A tree whose parts know where they hang."""

    name: str
    parent: Node | None = None
    children: list[Node] = dataclasses.field(default_factory=list)


def make_tree() -> Node:
    """A root with three children."""
    root = Node("root")
    root.children = [Node(str(number), root) for number in range(3)]
    return root


def tie_list() -> list[Any]:
    """A list that contains itself twice."""
    items: list[Any] = []
    items += [items, items]
    return items


def tie_object() -> dict[str, Any]:
    """A dict with a part that refers back to it."""
    data: dict[str, Any] = {"inner": {}}
    data["inner"]["self"] = data
    return data


def double_often(value: Any) -> Any:
    """A value that sixty lists have twice, one around the other."""
    for _ in range(60):
        value = [value, value]
    return value


READ_RESULTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "coroutine": (wait, "later"),
    "coroutine of a coroutine": (lambda: wait(wait()), "later"),
    "coroutine of a generator": (lambda: wait(count()), [0, 1, 2]),
    "awaitable": (Later, "later"),
    "future of a thread": (start_job, "from a thread"),
    "generator": (count, [0, 1, 2]),
    "generator of texts": (lambda: (text for text in ("Hel", "lo")), ["Hel", "lo"]),
    "empty generator": (lambda: count(0), []),
    "generator with a value": (count_and_return, {"items": [1], "returned": "two"}),
    "value of a generator": (only_return, "all"),
    "async generator": (count_later, [0, 1, 2]),
    "map": (lambda: map(str, [1, 2]), ["1", "2"]),
    "zip": (lambda: zip([1], "a", strict=True), [[1, "a"]]),
    "reversed": (lambda: reversed([1, 2]), [2, 1]),
    "range": (lambda: range(3), [0, 1, 2]),
    "keys": ({"a": 1}.keys, ["a"]),
    "values": ({"a": 1}.values, [1]),
    "items": ({"a": 1}.items, [["a", 1]]),
    "deque": (lambda: collections.deque([1]), [1]),
    "counter": (lambda: collections.Counter("aab"), {"a": 2, "b": 1}),
    "generator in a dict": (lambda: {"rows": count()}, {"rows": [0, 1, 2]}),
    "generator of generators": (lambda: (count(end) for end in (1, 2)), [[0], [0, 1]]),
    "iterable": (Rows, [1, 2]),
    "rows of a database": (select_rows, [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]),
    "set": (lambda: {"b", "a"}, ["a", "b"]),
    "bytes": (lambda: b"\xff\x00", "/wA="),
    "dataclass": (lambda: Town("brno"), {"name": "brno", "since": "1900-01-02"}),
    "model": (lambda: City(name="brno"), {"name": "brno"}),
    "attrs": (lambda: Village("brno"), {"name": "brno"}),
    "struct": (lambda: Hamlet("brno"), {"name": "brno"}),
    "generator of models": (lambda: (City(name=name) for name in "ab"), [{"name": "a"}, {"name": "b"}]),
    "named tuple": (lambda: Pair(1, 2), {"a": 1, "b": 2}),
    "one part twice": (lambda: [ROW, ROW, {"row": ROW}], [["a"], ["a"], {"row": ["a"]}]),
    "many nested items": (lambda: {"rows": [(), *LONG]}, {"rows": [[], *LONG]}),
    "enumeration": (lambda: [Colour.RED], ["red"]),
    "decimal": (lambda: decimal.Decimal("1.10"), "1.10"),
    "path": (lambda: [Path("a/b")], ["a/b"]),
    "date": (lambda: datetime.date(2026, 1, 2), "2026-01-02"),
    "keys that are numbers": (lambda: {1: "a"}, {"1": "a"}),
    "exceptions among others": (lambda: ["a", ValueError("b")], ["a", "ValueError: b"]),
    "text in brackets": (Element, "<p>hello</p>"),
    "text with an address": (lambda: "see <x at 0x7f001234>", "see <x at 0x7f001234>"),
}
"""By kind: what gives the result, and the data that it becomes."""

REFUSED_RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "endless generator": (itertools.count, "100000 items"),
    "endless texts": (lambda: itertools.repeat("x" * 1_000_000), "16000000 characters"),
    "endless rows": (lambda: ({"text": "x" * 1_000_000} for _ in itertools.count()), "16000000 characters"),
    "endless generator inside": (lambda: {"rows": itertools.count()}, "100000 items"),
    "endless async generator": (count_without_end, "100000 items"),
    "endless range": (lambda: range(10**12), "100000 items"),
    "generator that fails": (break_off, "ValueError: the source is gone"),
    "generator inside that fails": (lambda: [break_off()], "ValueError: the source is gone"),
    "async generator that fails": (break_off_later, "ValueError: the source is gone"),
    "exception": (lambda: ValueError("no such city"), "ValueError: no such city"),
    "later exception": (lambda: wait(ValueError("no such city")), "ValueError: no such city"),
    "function": (lambda: wait, "type function"),
    "lambda": (lambda: lambda: 1, "type function"),
    "partial": (lambda: functools.partial(wait, 1), "type partial"),
    "method": (lambda: [].append, "type builtin_function_or_method"),
    "module": (lambda: re, "type module"),
    "class": (lambda: City, "the class City"),
    "object": (Plain, "type Plain"),
    "object inside": (lambda: {"rows": [1, Plain()]}, "'rows[1]'"),
    "object as a key": (lambda: {Plain(): 1}, "type Plain"),
    "coroutine inside": (lambda: [Later()], "type Later"),
    "open file": (lambda: open(__file__, encoding="utf-8"), "type TextIOWrapper"),  # noqa: SIM115
    "lock": (threading.Lock, "type lock"),
    "match": (lambda: re.match("a", "a"), "type Match"),
    "picture inside": (lambda: {"x": ImagePart(data=PICTURE)}, "a part stands alone"),
    "ellipsis": (lambda: ..., "type ellipsis"),
    "namespace with an object": (lambda: types.SimpleNamespace(a=Plain()), "type SimpleNamespace"),
    "text that fails": (Broken, "type Broken"),
    "list in itself": (lambda: tie_list(), "'[0]' in the result refers to itself"),
    "object in itself": (lambda: tie_object(), "'inner.self' in the result refers to itself"),
    "tree with ways back": (lambda: make_tree(), "'children[0].parent' in the result refers to itself"),
    "generator of such trees": (
        lambda: (make_tree() for _ in "ab"),
        "'[0].children[0].parent' in the result",
    ),
    "doubled lists": (lambda: double_often(ROW), "100000 items"),
    "doubled dates": (lambda: double_often([DAY]), "100000 items"),
    "doubled dataclasses": (lambda: double_often([Town("brno")]), "100000 items"),
    "integer without a text": (lambda: 10**5000, "integer of 16610 bits"),
    "integer inside without a text": (lambda: {"n": [Big(10**5000)]}, "'n[0]' in the result is an integer"),
    "keys with one text": (lambda: {1: "a", "1": "b"}, "two keys"),
}
"""By kind: what gives the result, and a part of the error."""


def yield_picture() -> Any:
    """Yield a text and a picture."""
    yield "see"
    yield ImagePart(data=PICTURE, media_type="image/png")


async def yield_picture_later() -> Any:
    """Yield a text and a picture, later."""
    yield "see"
    yield ImagePart(data=PICTURE, media_type="image/png")


PART_RESULTS: dict[str, tuple[Callable[[], Any], int]] = {
    "picture": (lambda: ImagePart(data=PICTURE), 1),
    "pictures in a list": (lambda: ["see", ImagePart(data=PICTURE), FilePart(data=PICTURE)], 2),
    "later picture": (lambda: wait(ImagePart(data=PICTURE)), 1),
    "generator of pictures": (yield_picture, 1),
    "async generator of pictures": (yield_picture_later, 1),
    "picture at an address": (lambda: ImagePart(url="https://host.example/a.png"), 1),
}
"""By kind: what gives pictures and files, and how many."""

BAD_PARTS: dict[str, Callable[[], Any]] = {
    "picture of bytes": lambda: ImagePart(data=b"\x89PNG"),  # type: ignore[arg-type]
    "picture of no base64": lambda: [ImagePart(data="not base64!")],
    "picture of other letters": lambda: ImagePart(data="ž"),
}
"""Parts whose bytes no host could read."""

_KINDS = {
    **READ_RESULTS,
    **REFUSED_RESULTS,
    **PART_RESULTS,
    **{kind: (function, "not base64") for kind, function in BAD_PARTS.items()},
}


def give(kind: str) -> Any:
    """Return the result of a kind."""
    return _KINDS[kind][0]()


async def give_later(kind: str) -> Any:
    """Return the result of a kind, from an async function."""
    return _KINDS[kind][0]()


class Giver:
    """Objects that can be called, and a method."""

    def __call__(self, kind: str) -> Any:
        """Return the result of a kind."""
        return give(kind)

    def give(self, kind: str) -> Any:
        """Return the result of a kind."""
        return give(kind)

    def give_awaitable(self, kind: str) -> Awaitable[Any]:
        """Return the coroutine of an async function."""
        return give_later(kind)
