"""Benchmark of lists and searches over a log with many conversations.

    python benchmarks/search.py [--conversations 5000] [--log FILE|postgresql://...] [--rounds 5] [--browser]

Each conversation has two turns with a tool call each and texts of some hundred words. Printed are the time
of the first catching up of the search index and its size, and then, as medians in milliseconds, what a page
of 50 rows takes: a plain list, one with figures, one by attention, and searches for a word that few
conversations have, one that all have, the beginning of a word, two words, and a status; last a search right
after one more turn. A log that has conversations already is measured as it is.

With `--browser` a server serves a log in a file, and headless Chromium opens the list and types into its
search. Printed are milliseconds until the list is shown, and from the last letter until what was found is
painted; beside them a page with next to nothing on it and an empty frame.

Goals at 5,000 conversations: a page in 500 ms, a search in 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import conftest  # noqa: F401  makes a checkout importable
from agents import make_engine, reply_with_calls
from browser import open_browser
from run_page import FRAME, run_server

from toolchart.app.server.conversations.reading import ListQuery, list_conversations
from toolchart.engine.log.stores import open_store
from toolchart.engine.reading import search
from toolchart.engine.reading.listing import ConversationFilter
from toolchart.states.ports import Store

WORDS = [f"{first}{second}" for first in ("ba", "ke", "li", "mo", "nu", "ra", "si", "to") for second in (
    "den", "fer", "gon", "hal", "kim", "lor", "mus", "nat", "pel", "rin", "sot", "tav", "vek", "wol", "zim"
)]  # fmt: skip


def write_log(store: Store, count: int) -> None:
    """Write conversations; each has words of a small dictionary and an order number of its own."""
    dice = Random(7)

    def say(number: int) -> str:
        return " ".join(dice.choices(WORDS, k=number))

    for number in range(count):
        replies: list[Any] = []
        for _ in range(2):
            replies += [reply_with_calls(("echo", {"text": f"order-{number} {say(60)}"})), say(120)]
        with make_engine(replies, log=store, durability="normal") as engine:
            for _ in range(2):
                engine.run(f"Where is order-{number}? {say(40)}", conversation=f"run-{number}", owner="anna")


def measure(work: Callable[[], Any], rounds: int) -> float:
    """The median of so many times, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return median(times)


def measure_log(store: Store, rounds: int) -> None:
    """Measure pages of a log whose index is complete."""
    count = len(list(store.list_conversations()))
    cases = {
        "plain list": ListQuery(where=ConversationFilter()),
        "with figures": ListQuery(where=ConversationFilter(), with_figures=True),
        "by attention": ListQuery(where=ConversationFilter(), order="attention"),
        "with choices": ListQuery(where=ConversationFilter(), with_choices=True),
        "a rare word": ListQuery(where=ConversationFilter(search=f"order-{count // 2} ")),
        "a word of all": ListQuery(where=ConversationFilter(search="where ")),
        "one letter": ListQuery(where=ConversationFilter(search="b")),
        "a beginning": ListQuery(where=ConversationFilter(search="order-1")),
        "two words": ListQuery(where=ConversationFilter(search="baden order-77")),
        "nothing": ListQuery(where=ConversationFilter(search="unheard")),
        "a status": ListQuery(where=ConversationFilter(status="waiting")),
    }
    for name, query in cases.items():
        rows = list_conversations(store, query)["conversations"]
        taken = measure(lambda query=query: list_conversations(store, query), rounds)
        print(f"{name:20} {taken:8.1f} ms  {len(rows)} rows", flush=True)

    def go_on_and_search() -> None:
        list_conversations(store, cases["a rare word"])

    times = []
    for number in range(rounds):
        with make_engine(["More."], log=store, durability="normal") as engine:
            engine.run("And now?", conversation=f"run-{number}", owner="anna")
        times.append(measure(go_on_and_search, 1))
    print(f"{'after one more turn':20} {median(times):8.1f} ms")


_SEARCH = """(words) => new Promise((resolve) => {
  const field = document.getElementById("search-words");
  const start = performance.now();
  new MutationObserver((changes, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
  }).observe(document.getElementById("list"), { childList: true });
  field.value = words;
  field.dispatchEvent(new Event("input", { bubbles: true }));
})"""
"""Milliseconds from the last letter of a search until another list is painted."""

_OPENED = "performance.getEntriesByType('navigation')[0].domComplete"


async def measure_in_browser(log: Path, count: int, rounds: int) -> None:
    """Open the list, search in it, and print the figures."""
    with run_server(log) as server:
        async with open_browser() as context:
            page = await context.new_page()
            await page.goto(f"{server.url}/sign-in")
            floor_ms = await page.evaluate(_OPENED)
            await page.fill("#token", server.token)
            await page.click("main button")
            await page.wait_for_url("**/conversations")
            opened = []
            for _ in range(rounds):
                await page.goto(f"{server.url}/conversations")
                opened.append(await page.evaluate(_OPENED))
            print(f"{'opened':20} {median(opened):8.1f} ms, the page for signing in {floor_ms:.1f}")
            searches = {
                "a rare word": f"order-{count // 2} ",
                "a word of all": "where ",
                "a beginning": "order-1",
                "two words": "baden order-77",
            }
            for name, words in searches.items():
                times = []
                for _ in range(rounds):
                    times.append(await page.evaluate(_SEARCH, words))
                    await page.evaluate(_SEARCH, "unheard")
                print(f"{name:20} {median(times):8.1f} ms in the browser", flush=True)
            frames = [await page.evaluate(FRAME) for _ in range(20)]
            print(f"{'an empty frame':20} {median(frames):8.1f} ms")


def main() -> None:
    """Write a log where there is none, and measure it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=5000)
    parser.add_argument("--log", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--browser", action="store_true", help="measure the page of a log in a file too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = options.log or f"{folder}/log.db"
        store = open_store(address, durable=False)
        if not list(store.list_conversations()):
            write_log(store, options.conversations)
        store.vacuum()
        before = Path(address).stat().st_size if Path(address).is_file() else 0
        start = time.perf_counter()
        left = search.catch_up(store)
        print(f"first catching up: {time.perf_counter() - start:.1f} s, {left} conversations left")
        store.vacuum()
        if before:
            size = Path(address).stat().st_size
            print(f"log {before / 2**20:.1f} MiB, index {(size - before) / 2**20:.1f} MiB")
        measure_log(store, options.rounds)
        count = len(list(store.list_conversations()))
        store.close()
        if options.browser:
            asyncio.run(measure_in_browser(Path(address).resolve(), count, options.rounds))


if __name__ == "__main__":
    main()
