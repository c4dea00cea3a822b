"""Everything of one owner is exported and deleted, and nothing of anybody else; who is first owns an id."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import child_agents
import pytest
from agents import make_engine, reply_with_calls
from postgres_database import create_database
from worker_names import ALIVE

from toolchart.engine.log.family import name_context
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import RecordFile
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import NotFound, SpecError
from toolchart.states.messages import ToolCall
from toolchart.states.ports import Lease, Store

WORD, OTHER = "Zaunkoenig", "Rotkehlchen"

ASKING: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}


@pytest.fixture(params=("memory", "sqlite", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind; the files of it are in a folder `log`."""
    if request.param == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    else:
        address = "memory" if request.param == "memory" else f"{tmp_path}/log/log.db"
    opened = open_store(address)
    yield opened
    opened.close()


def fill_log(store: Store) -> None:
    """Two owners with a conversation, a large result and a fork each, and a conversation of nobody."""
    for owner, word in (("anna", WORD), ("bert", OTHER)):
        replies = [reply_with_calls(("echo", {"text": f"{word} " * 400})), f"{word}!", "More."]
        with make_engine(replies, log=store) as engine:
            engine.run(f"{word}?", conversation=f"of-{owner}", owner=owner, tags={"about": word})
            engine.conversation(f"of-{owner}").fork(
                changes=ForkChanges(system=f"Speak of {word}."), name=f"fork-{owner}"
            )
    with make_engine(["Hello."], log=store) as engine:
        engine.run("Hi", conversation="of-nobody")


def read_all(store: Store) -> dict[str, list[bytes]]:
    """The lines of every conversation."""
    return {name: list(store.read_lines(name)) for name in store.list_conversations()}


def test_everything_of_an_owner_goes_and_nothing_else(store: Store, tmp_path: Path) -> None:
    """After the export the file has each conversation of the owner. After the deletion no line and no file of
    the log has their word; what others said is byte for byte as it was, and verifies."""
    fill_log(store)
    before = read_all(store)
    with make_engine(["Once more."], log=store) as engine:
        exported = engine.export_owner("anna", str(tmp_path / "anna.jsonl"))
        assert len(exported) == 2
        assert read_all(RecordFile(tmp_path / "anna.jsonl")) == {name: before[name] for name in exported}
        assert engine.delete_owner("anna") == exported
        assert read_all(store) == {name: lines for name, lines in before.items() if name not in exported}
        assert {type(outcome) for outcome in verify_store(store)} == {VerifiedConversation}
        gc.collect()
        for path in (tmp_path / "log").rglob("*"):
            assert path.is_dir() or WORD.encode() not in path.read_bytes(), path.name
        assert engine.delete_owner("anna") == []
        assert engine.run("Hi", conversation="of-anna").content == "Once more.", "a conversation of its own"


def test_nothing_goes_while_something_is_in_use(store: Store) -> None:
    """While a worker has a conversation of the owner, and while somebody else has a fork of one, nothing is
    deleted; the error says which it is."""
    fill_log(store)
    before = read_all(store)
    with make_engine([], log=store) as engine:
        lease = store.acquire_lease("of-anna", ALIVE, 60.0)
        with pytest.raises(SpecError, match="'of-anna' cannot be deleted now: a worker has it"):
            engine.delete_owner("anna")
        store.release_lease(lease, is_open=False)
        assert read_all(store) == before


def test_an_open_turn_is_not_deleted(store: Store) -> None:
    """A turn that waits for an approval keeps what its owner has; after it is cancelled all goes."""
    approval = {"default": "ask"}
    with make_engine([reply_with_calls(("echo", {"text": WORD}))], log=store, approval=approval) as engine:
        engine.run("go", conversation="c", owner="anna")
        with pytest.raises(SpecError, match="'c' cannot be deleted now"):
            engine.delete_owner("anna")
        engine.conversation("c").cancel()
        assert engine.delete_owner("anna") == ["c"]
    assert read_all(store) == {}


def test_an_owner_has_a_name() -> None:
    """An empty owner is refused: it would mean what belongs to nobody."""
    with make_engine([], log=MemoryStore()) as engine, pytest.raises(SpecError, match="an owner has a name"):
        engine.delete_owner("")


def test_agents_and_contexts_go_with_the_conversation() -> None:
    """The agents that a conversation runs and the context of its turns have its owner, and go with it; those
    of another owner stay."""
    store, model = MemoryStore(), child_agents.FunctionModel(child_agents.repeat_words)
    work = {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}}
    effects = {"work": work, "publish": {"answer": "{{outcome}}"}}
    spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
    with (
        child_agents.make_engine(spec, model, log=store) as engine,
        make_engine(["x"] * 2, log=store) as other,
    ):
        for owner, word in (("anna", WORD), ("bert", OTHER)):
            engine.run(word, conversation=f"of-{owner}", owner=owner)
            other.run(word, conversation=name_context(f"of-{owner}"))
        before = read_all(store)
        deleted = engine.delete_owner("anna")
    own = {name for name in before if name == "of-anna" or name.startswith("of-anna.")}
    assert name_context("of-anna") in own
    assert set(deleted) == own
    assert len(own) > 2
    assert read_all(store) == {name: lines for name, lines in before.items() if name not in own}
    assert WORD.encode() not in b"".join(line for lines in read_all(store).values() for line in lines)


# -- two who begin one id --------------------------------------------------------------------------------


async def test_of_two_who_begin_an_id_at_once_one_owns_it(store: Store) -> None:
    """Messages of two owners to an id that nobody has, at the same time through one engine: one of them
    begins it, whose words alone are in it; for the other it does not exist, while that turn runs."""
    second_ended = asyncio.Event()

    async def wait_for_second(call: ToolCall) -> bool:
        await second_ended.wait()
        return True

    replies = [reply_with_calls(("echo", {"text": WORD})), "a"]
    async with make_engine(replies, log=store, approver=wait_for_second, **ASKING) as engine:
        first = asyncio.ensure_future(engine.arun(WORD, conversation="x", owner="anna"))
        second = asyncio.ensure_future(engine.arun(OTHER, conversation="x", owner="bert"))
        second.add_done_callback(lambda _: second_ended.set())
        with pytest.raises(NotFound):
            await second
        assert (await first).content == "a"
    assert OTHER.encode() not in b"".join(store.read_lines("x"))


class InterruptedStore(MemoryStore):
    """A store in which something happens before a lease is taken."""

    interrupt: Callable[[], None] | None = None

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """As that of a store in memory."""
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            thread = threading.Thread(target=interrupt)  # where no event loop runs
            thread.start()
            thread.join()
        return super().acquire_lease(conversation, worker, seconds, wait=wait)


@pytest.mark.parametrize("is_held", [False, True])
def test_who_comes_a_moment_later_is_not_let_in(is_held: bool) -> None:
    """Where somebody else begins an id after it was found free, and where a worker has that conversation
    then: the message is not found a place, and is left in no inbox."""
    store = InterruptedStore()

    def begin_first() -> None:
        with make_engine([reply_with_calls(("echo", {"text": WORD}))], log=store, **ASKING) as other:
            other.run(WORD, conversation="x", owner="anna")
        if is_held:
            store.acquire_lease("x", ALIVE, 60.0)

    with make_engine(["mine"], log=store, **ASKING) as engine:
        store.interrupt = begin_first
        with pytest.raises(NotFound):
            engine.run(OTHER, conversation="x", owner="bert")
    assert OTHER.encode() not in b"".join(store.read_lines("x"))
    assert list(store.read_inbox(["x"])) == []


def test_a_turn_that_is_run_once_reads_no_attempt_of_somebody_else() -> None:
    """An id that the next attempt of a turn would have, and that is somebody else's, is not read for it."""
    with make_engine(["a", "b"], log=MemoryStore()) as engine:
        engine.run_once(OTHER, conversation="x", owner="bert")
        engine.run(OTHER, conversation="x~2", owner="anna")
        before = read_all(engine.store)
        with pytest.raises(NotFound, match="'x~2'"):
            engine.run_once(OTHER, conversation="x", owner="bert")
        assert read_all(engine.store) == before
