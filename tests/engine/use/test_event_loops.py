"""One engine over several event loops: each model call arrives once, and closing survives dead loops."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import make_function_tool, make_spec, reply_with_calls
from counting_host import TEXT, CountingHost, serve_counting_host

from toolchart import Engine, ToolchartError, Turn, arerun
from toolchart.engine.event_loops import Signal
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider

LOOPS = 6

ASYNC_CALLS: dict[str, Callable[[Engine], Any]] = {
    "arun": lambda engine: engine.arun("hi", conversation="new"),
    "arun_once": lambda engine: engine.arun_once("hi", conversation="new"),
    "stream": lambda engine: anext(engine.stream("hi", conversation="new")),
    "aapprove": lambda engine: engine.conversation("open").aapprove(),
    "acancel": lambda engine: engine.conversation("open").acancel(),
    "asay": lambda engine: engine.conversation("open").asay("hi"),
    "arecover": lambda engine: engine.arecover(),
    "awatch_unfinished": lambda engine: engine.awatch_unfinished(print),
    "aclose": lambda engine: engine.aclose(),
}


@pytest.mark.parametrize("call", ASYNC_CALLS)
def test_what_another_library_runs_is_refused(call: str) -> None:
    """A coroutine of an engine that asyncio does not run, as under trio, ends with an error that names the
    way out. Nothing is written and no lease is left: the same call goes on in asyncio."""
    spec = make_spec(chart="approval", approval={"default": "ask"})
    add = make_function_tool("add", {"type": "object"}, lambda _: 1)
    replies: list[Any] = [reply_with_calls(("add", {})), "x"]
    providers = {"model": ScriptedProvider(replies)}
    with Engine(spec, log="memory", functions=[add], providers=providers) as engine:
        engine.run("go", conversation="open")
        before = {name: list(engine.store.read_lines(name)) for name in engine.store.list_conversations()}
        with pytest.raises(ToolchartError, match="not run by asyncio") as caught:
            ASYNC_CALLS[call](engine).__await__().send(None)
        assert "trio.to_thread.run_sync" in str(caught.value)
        now = {name: list(engine.store.read_lines(name)) for name in engine.store.list_conversations()}
        assert now == before
        assert not list(engine.store.list_leases())


ENTRIES: dict[str, dict[str, Any]] = {
    "chat": {"provider": "openai", "base_url": "%s/v1"},
    "responses": {"provider": "openai", "base_url": "%s/v1", "api": "responses"},
    "anthropic": {"provider": "anthropic", "base_url": "%s"},
    "gemini": {"provider": "gemini", "base_url": "%s"},
    "ollama": {"provider": "ollama", "base_url": "%s"},
    "limited": {"provider": "openai", "base_url": "%s/v1", "concurrent": 1, "requests_per_minute": 1000},
}
"""An `llms` entry of each kind of client."""


@pytest.fixture
def host() -> Iterator[CountingHost]:
    """A host that counts."""
    with serve_counting_host() as counting_host:
        yield counting_host


def open_engine(host: CountingHost, kind: str = "chat", log: Any = "memory", **changes: Any) -> Engine:
    """An engine whose model is on the host."""
    entry = {**ENTRIES[kind], "model": "m", "api_key": "k" * 8}
    entry["base_url"] %= host.address
    return Engine(make_spec(llms={"model": entry}, **changes), log=log)


def expect_answer(result: Turn) -> None:
    """The turn has the host's answer."""
    assert (result.ok, result.content) == (True, TEXT), result.failure


@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize("chart", ["tool_loop", None])
def test_each_turn_asks_once_however_many_loops_there_are(
    host: CountingHost, kind: str, chart: str | None
) -> None:
    """Row 38: `asyncio.run` per job, in one conversation and in new ones, by every kind of client; each
    connection ends with its loop."""
    engine = open_engine(host, kind, chart=chart)
    for number in range(LOOPS):
        expect_answer(asyncio.run(engine.arun("go", conversation="c" if number % 2 else None)))
        host.wait_until_closed()
    assert host.requests == LOOPS
    assert list(replay_conversation(engine.store, "c"))
    engine.close()


def test_blocking_and_awaited_turns_of_one_conversation_mix(host: CountingHost) -> None:
    """Row 38: the loop of the blocking calls is one more loop; closing ends it from another loop too."""
    engine = open_engine(host)
    for _ in range(3):
        expect_answer(engine.run("go", conversation="c"))
        expect_answer(asyncio.run(engine.arun("go", conversation="c")))
    assert host.requests == 6
    asyncio.run(engine.aclose())
    host.wait_until_closed()


@pytest.mark.parametrize("log", ["memory", "log.db"])
def test_threads_with_a_loop_each_share_an_engine(host: CountingHost, tmp_path: Path, log: str) -> None:
    """Row 38: turns of several threads run at the same time, each on its own loop; none asks twice, waits for
    another one's loop or loses a record."""
    engine = open_engine(host, log=log if log == "memory" else tmp_path / log)

    def work(number: int) -> list[Turn]:
        return [asyncio.run(engine.arun("go", conversation=f"c{number}")) for _ in range(4)]

    with ThreadPoolExecutor(6) as threads:
        for results in threads.map(work, range(6)):
            for result in results:
                expect_answer(result)
    assert host.requests == 24
    for number in range(6):
        assert list(replay_conversation(engine.store, f"c{number}"))
    engine.close()
    host.wait_until_closed()


def close_in_a_new_loop(engine: Engine) -> None:
    """As an application does that ends in `asyncio.run`."""
    asyncio.run(engine.aclose())


def close_in_a_thread(engine: Engine) -> None:
    """As a server does that ends in a thread of its own."""
    thread = threading.Thread(target=engine.close)
    thread.start()
    thread.join()


@pytest.mark.parametrize("close", [Engine.close, close_in_a_new_loop, close_in_a_thread])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_closing_survives_a_loop_that_died(
    host: CountingHost, tmp_path: Path, close: Callable[[Engine], None]
) -> None:
    """Row 38: a loop that was closed without shutting its generators down leaves connections that nobody can
    close; the engine lets them go, closes tools and log all the same, and may be closed twice."""
    engine = open_engine(host, log=tmp_path / "log.db")
    for _ in range(3):
        loop = asyncio.new_event_loop()
        expect_answer(loop.run_until_complete(engine.arun("go")))
        loop.close()
    closed = []
    engine.tools._connections.callback(lambda: closed.append("tools"))
    close(engine)
    close(engine)
    assert closed == ["tools"]
    gc.collect()
    host.wait_until_closed()
    assert host.requests == 3


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_of_dead_loops_do_not_pile_up(host: CountingHost) -> None:
    """Row 38: while the engine lives on, it keeps nothing of loops that died in any way."""
    engine = open_engine(host)
    for _ in range(LOOPS):
        loop = asyncio.new_event_loop()
        expect_answer(loop.run_until_complete(engine.arun("go")))
        loop.close()
    expect_answer(asyncio.run(engine.arun("go")))
    gc.collect()
    host.wait_until_closed()
    engine.close()


def test_a_loop_that_rests_closes_its_connections_when_it_runs_again(host: CountingHost) -> None:
    """Row 38: connections of a loop that lives, but does not run, are closed by that loop."""
    engine, loop = open_engine(host), asyncio.new_event_loop()
    expect_answer(loop.run_until_complete(engine.arun("go")))
    engine.close()
    assert host.open_connections == 1
    loop.run_until_complete(asyncio.sleep(0.05))
    host.wait_until_closed()
    loop.close()


def test_closing_warns_of_nothing(host: CountingHost) -> None:
    """Row 38: no socket and no coroutine is left behind, whether a loop ended before or closes the engine."""

    async def use(engine: Engine) -> None:
        async with engine:
            expect_answer(await engine.arun("go"))

    gc.collect()  # what other tests left behind is not this one's
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = open_engine(host)
        expect_answer(asyncio.run(engine.arun("go")))
        asyncio.run(use(engine))
        del engine
        gc.collect()
    host.wait_until_closed()


def test_a_rerun_does_not_close_the_connections_of_its_engine(host: CountingHost) -> None:
    """Row 38: a rerun beside an engine, as the server makes it, leaves the engine its hosts."""

    async def use(engine: Engine) -> None:
        expect_answer(await engine.arun("go", conversation="c"))
        providers = engine.hosts.providers
        report = await arerun(engine.store, engine.spec, conversations=["c"], providers=providers)
        assert [result.status for result in report.results] == ["same"]
        expect_answer(await engine.arun("go", conversation="c"))

    with open_engine(host, chart="tool_loop") as engine:
        asyncio.run(use(engine))
    assert host.requests == 3


def test_a_running_turn_hears_of_an_event_from_another_loop(host: CountingHost) -> None:
    """Row 38: a message to a turn that runs on the loop of another thread reaches it there, and the caller
    knows when it is recorded."""
    begun, goes_on = threading.Event(), threading.Event()
    recorded = dict[str, int]()

    def wait_for_me() -> str:
        """Wait."""
        begun.set()
        assert goes_on.wait(30)
        return "done"

    replies = [{"tool_calls": [{"name": "wait_for_me", "arguments": {}}]}, "answer"]
    model = ScriptedProvider(replies)
    engine = Engine(make_spec(), log="memory", providers={"model": model}, functions=[wait_for_me])
    with ThreadPoolExecutor(1) as threads:

        def note(event: Any, step: Any) -> None:
            recorded[event.TYPE] = threading.get_ident()

        turn = threads.submit(lambda: asyncio.run(engine.arun("go", conversation="c", observer=note)))
        assert begun.wait(30)
        asyncio.run(engine.conversation("c").asay("and hurry"))
        assert recorded["user_said"] == recorded["turn_started"] != threading.get_ident()
        goes_on.set()
        assert turn.result(30).content == "answer"
    assert "and hurry" in [message.content for message in model.requests[-1].messages]
    engine.close()


def test_a_signal_is_awaited_on_any_number_of_loops() -> None:
    """Row 38: what an engine waits for (its end, another task's work) is not bound to the first loop."""
    signal, begun = Signal(), threading.Semaphore(0)

    async def wait() -> bool:
        begun.release()
        await signal.wait()
        return signal.is_set

    with ThreadPoolExecutor(3) as threads:
        waits = [threads.submit(asyncio.run, wait()) for _ in range(3)]
        for _ in waits:
            assert begun.acquire(timeout=30)
        signal.set()
        assert all(wait.result(30) for wait in waits)
    assert asyncio.run(wait())


def test_watching_goes_on_in_a_second_loop(tmp_path: Path) -> None:
    """Row 38: `awatch_unfinished` of one engine is cancelled on one loop and runs again on the next."""
    engine = Engine(make_spec(), log=tmp_path / "log.db")

    async def watch() -> None:
        task = asyncio.create_task(engine.awatch_unfinished(lambda _: None, every_s=0.01))
        await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for _ in range(3):
        asyncio.run(watch())
    engine.close()


def test_leases_are_prolonged_on_each_loop(tmp_path: Path) -> None:
    """Row 38: a turn keeps its lease while shorter turns come and go on loops of other threads."""
    begun, goes_on = threading.Event(), threading.Event()

    def wait_for_me() -> str:
        """Wait."""
        begun.set()
        assert goes_on.wait(30)
        return "done"

    replies = [{"tool_calls": [{"name": "wait_for_me", "arguments": {}}]}, "short", "short", "answer"]
    engine = Engine(
        make_spec(),
        log=tmp_path / "log.db",
        providers={"model": ScriptedProvider(replies)},
        functions=[wait_for_me],
        lease_s=1.0,
    )
    with ThreadPoolExecutor(1) as threads:
        turn = threads.submit(lambda: asyncio.run(engine.arun("go", conversation="long")))
        assert begun.wait(30)
        for _ in range(2):
            assert asyncio.run(engine.arun("go")).content == "short"
        held = engine._log.leases.find("long")
        assert held is not None
        first = held.safe_until_s
        while held.safe_until_s == first:  # a lease that nobody prolongs would end this in `is_lost`
            assert not held.is_lost
            threading.Event().wait(0.02)
        goes_on.set()
        assert turn.result(30).content == "answer"
    engine.close()


def test_a_blocking_call_does_not_render_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """`signal` renders the old handler of Ctrl-C, which names the task of the call; so a result of a megabyte
    must not be what that task returns."""
    renderings: list[Turn] = []
    monkeypatch.setattr(Turn, "__repr__", lambda result: renderings.append(result) or "a result")
    with Engine(make_spec(), log="memory") as engine:
        assert engine.run("go").content == "unused"
    assert renderings == []
