"""An effect that looks at the stock, the event that answers it, and two facts about what was found."""

from __future__ import annotations

from typing import ClassVar

from toolchart.states.effects import EffectDescriptor, Perform
from toolchart.states.events import Answering, EventDescriptor
from toolchart.states.snapshot import SnapshotBuilder, SnapshotFields
from toolchart.states.starts import list_no_starts
from toolchart.states.vocabulary import Fact


class StockFound(Answering, frozen=True, kw_only=True, tag="stock_found"):
    """Somebody looked at the stock."""

    TYPE: ClassVar[str] = "stock_found"
    item: str
    count: int = 0
    """Pieces in stock."""


def build_look(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Perform:
    """What to look for: the last word of the question."""
    question = builder.messages[-1].content or ""
    return Perform(id=id_, name=name, state=state, arguments={"item": question.split()[-1].strip("?")})


async def look_at_stock(effect: Perform) -> StockFound:
    """Look at the stock. An item that the shop does not know raises, and the chart receives `failed`."""
    stock = {"tea": 3, "coffee": 0}
    item = effect.arguments["item"]
    return StockFound(item=item, count=stock[item])


def reduce_stock(builder: SnapshotBuilder, event: StockFound) -> None:
    """Keep what was found."""
    looks = count_looks(builder) + 1
    builder.keep_data("shop", {"item": event.item, "count": event.count, "looks": looks})


def is_in_stock(snapshot: SnapshotFields) -> bool:
    """Whether the latest look found something."""
    return bool(snapshot.added_data.get("shop", {}).get("count", 0))


def count_looks(snapshot: SnapshotFields) -> int:
    """How often the stock was looked at in this turn."""
    return int(snapshot.added_data.get("shop", {}).get("looks", 0))


LOOK = EffectDescriptor(
    name="look_at_stock",
    meaning="look how many pieces of the item are in stock",
    build=build_look,
    closing=("stock_found", "failed"),
    perform="toolchart_shop.stock:look_at_stock",
    list_starts=list_no_starts,
)

FOUND = EventDescriptor(
    name="stock_found", meaning="somebody looked at the stock", type=StockFound, reduce=reduce_stock
)

IN_STOCK = Fact(
    name="in_stock",
    type="boolean",
    meaning="whether the item is in stock",
    changes="with every look at the stock",
    read=is_in_stock,
)

LOOKS = Fact(
    name="stock_looks",
    type="integer",
    meaning="looks at the stock in this turn",
    changes="grows by one with every look at the stock",
    read=count_looks,
    moved_by=("stock_found",),
    limit="max_attempts",
)
