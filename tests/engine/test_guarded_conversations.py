"""Whose conversation it is, in Python: what an owner does through a handle touches nothing of anybody else.

The table of members is that of `conversation_members.py`, which has every public one of a handle.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from agents import make_engine, make_spec, reply_with_calls
from conversation_members import BEGINNING, DECISION, EXISTING, USES, exhaust, use_member, wait_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolchart import Agent, Conversation, Engine, NotFound, OpenAgent, SpecError, ToolchartError, ToolContext
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.log.family import read_heading
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import Store
from toolchart.testing import ScriptedModel, call_tool

WORDS = {"anna": "lighthouse", "ben": "harbour"}
"""What each of them talks about, and nobody else."""


def answer_request(request: Request) -> Reply:
    """Ask for an echo where the user says `ask`, and repeat any other message."""
    last = request.messages[-1]
    if last.role == "user" and "ask" in (last.content or ""):
        call = ToolCall(id="c", name="echo", arguments={"text": last.content})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")
    return Reply(content=f"heard: {last.content}", finish_reason="stop")


def make_desk(store: Store) -> Engine:
    """An engine whose model asks for an approval where its user wants that."""
    spec = make_spec(chart="approval", approval={"default": "ask"}, name="desk")
    provider = ScriptedProvider([answer_request] * 1000)
    return Engine(spec, log=store, providers={"model": provider})


@pytest.fixture(params=["memory", "sqlite"])
def open_log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Opens a new store of this kind."""

    def open_one() -> Store:
        folder: Path = tmp_path_factory.mktemp("log")
        return open_store("memory" if request.param == "memory" else folder / "log.db", durable=False)

    return open_one


def read_all(store: Store) -> dict[str, list[bytes]]:
    """Every record, by conversation."""
    return {name: list(store.read_lines(name)) for name in store.list_conversations()}


def find_owners(store: Store) -> dict[str, str]:
    """Whose each conversation is; empty for nobody's."""
    headings = {name: read_heading(store, name) for name in store.list_conversations()}
    return {name: heading.owner for name, heading in headings.items() if heading is not None}


# -- every member ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_desk() -> Iterator[Engine]:
    """Anna has a conversation at rest and one that waits; one is nobody's."""
    with make_desk(MemoryStore()) as engine:
        engine.run("lighthouse", conversation="annas-first", owner="anna")
        engine.run("ask lighthouse", conversation="annas-open", owner="anna")
        engine.run("lighthouse", conversation="nobodys")
        yield engine


@pytest.mark.parametrize("conversation", ["annas-first", "annas-open", "nobodys"])
@pytest.mark.parametrize("member", USES)
def test_what_is_not_theirs_does_not_exist(shared_desk: Engine, member: str, conversation: str) -> None:
    """Each member of a handle raises `NotFound` for a conversation of somebody else or of nobody, and says of
    it what is said of an id that nobody has; nothing is written."""
    before = read_all(shared_desk.store)
    with pytest.raises(NotFound) as caught:
        use_member(member, shared_desk.conversation(conversation, owner="ben"))
    assert str(caught.value).startswith(f"there is no conversation {conversation!r} in this log")
    assert "anna" not in str(caught.value).replace(repr(conversation), "")
    assert read_all(shared_desk.store) == before


@pytest.mark.parametrize("member", USES)
def test_a_free_id_may_begin(member: str) -> None:
    """For an id that nobody has, what needs a conversation is not found, and what does not works as without
    an owner. Who begins it owns it."""
    with make_desk(MemoryStore()) as engine:
        handle = engine.conversation("new", owner="ben")
        if member in EXISTING:
            with pytest.raises(NotFound, match="there is no conversation 'new' in this log"):
                use_member(member, handle)
        else:
            use_member(member, handle)
        begun = {"new": "ben"} if member in ("asend", "send", "stream", "stream_blocking") else {}
        assert find_owners(engine.store) == begun


@pytest.mark.parametrize("member", USES)
@pytest.mark.parametrize("message", ["lighthouse", "ask lighthouse"])
def test_what_is_theirs_is_as_without_an_owner(member: str, message: str) -> None:
    """For its owner each member gives what that of a handle without an owner gives."""
    outcomes = []
    for owner in ("anna", None):
        with make_desk(MemoryStore()) as engine:
            engine.run(message, conversation="c", owner="anna")
            handle = engine.conversation("c", owner=owner)
            try:
                use_member(member, handle)
                outcome = ""
            except NotFound:
                raise
            except ToolchartError as error:
                outcome = str(error)
            outcomes.append(
                (outcome, len(list(engine.store.read_lines("c"))), sorted(find_owners(engine.store).values()))
            )
    assert outcomes[0] == outcomes[1]


ACTS = st.tuples(
    st.sampled_from(sorted(WORDS)), st.sampled_from(["a", "b", "nobodys"]), st.sampled_from(["begin", *USES])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(acts=st.lists(ACTS, min_size=1, max_size=8))
def test_nobody_sees_or_moves_what_is_not_theirs(
    open_log: Callable[[], Store], acts: list[tuple[str, str, str]]
) -> None:
    """Whatever two owners do in whatever order, by any member: each reads the own word only, finds the own
    conversations only, and changes no record of anybody else; what they begin is theirs."""
    store = open_log()
    with make_desk(store) as engine:
        engine.run("secret", conversation="nobodys")
        for who, name, member in acts:
            check_act(engine, who, name, member)
    store.close()


def check_act(engine: Engine, who: str, name: str, member: str) -> None:
    """Do one act, and compare with what it may do."""
    store = engine.store
    before, owners = read_all(store), find_owners(store)
    handle = engine.conversation(name, owner=who)
    is_foreign = owners.get(name, who) != who
    is_missing = name not in owners and member in EXISTING
    value, error = None, None
    try:
        value = handle.send(f"ask {WORDS[who]}") if member == "begin" else use_member(member, handle)
    except ToolchartError as problem:
        error = problem
    assert isinstance(error, NotFound) == (is_foreign or is_missing), error
    seen = [repr(value), str(error)]
    after, new_owners = read_all(store), find_owners(store)
    assert {key: after[key] for key in owners if owners[key] != who} == {
        key: lines for key, lines in before.items() if owners[key] != who
    }
    assert {new_owners[key] for key in new_owners.keys() - owners.keys()} <= {who}
    if is_foreign or is_missing:
        assert after == before
    others = [word for person, word in WORDS.items() if person != who] + ["secret"]
    for page in (
        engine.conversations(owner=who, with_children=True, limit=1000),
        engine.conversations(owner=who, with_children=True, waiting=True),
    ):
        assert {row.conversation for row in page.conversations} <= {
            key for key, owner in new_owners.items() if owner == who
        }
        seen.append(repr(page))
    rows = engine.conversations(owner=who, with_children=True, limit=1000).conversations
    assert len(rows) == list(new_owners.values()).count(who)
    for word in others:
        assert word not in "".join(seen)
        assert engine.conversations(owner=who, text=word).conversations == ()


# -- other ways in ------------------------------------------------------------------------------------------


def read_blocking(pieces: Iterable[Any]) -> None:
    """Read a stream to its end, where no event loop runs."""
    for _ in pieces:
        pass


MESSAGES: dict[str, Callable[[Any, str], Any]] = {
    "arun": lambda door, name: asyncio.run(door.arun("hi", conversation=name, owner="ben")),
    "run": lambda door, name: door.run("hi", conversation=name, owner="ben"),
    "stream": lambda door, name: asyncio.run(exhaust(door.stream("hi", conversation=name, owner="ben"))),
    "stream_blocking": lambda door, name: read_blocking(
        door.stream_blocking("hi", conversation=name, owner="ben")
    ),
    "arun_once": lambda door, name: asyncio.run(door.arun_once("hi", conversation=name, owner="ben")),
    "run_once": lambda door, name: door.run_once("hi", conversation=name, owner="ben"),
}
"""The methods of an engine, and of an open agent, that send a message, for Ben."""

RESUMING: dict[str, Callable[[Any, str], Any]] = {
    "aresume": lambda door, name: asyncio.run(door.aresume(name, DECISION, owner="ben")),
    "resume": lambda door, name: door.resume(name, owner="ben"),
    "conversation": lambda door, name: door.conversation(name, owner="ben").read(),
}

ENGINE: dict[str, Callable[[Any, str], Any]] = {
    **MESSAGES,
    **RESUMING,
    "adecide": lambda door, name: asyncio.run(door.adecide(name, DECISION, owner="ben")),
    "check_submitted": lambda door, name: door.check_submitted(name, "hi", {"owner": "ben"}),
    "arun_submitted": lambda door, name: asyncio.run(door.arun_submitted(name, "k", "hi", {"owner": "ben"})),
}

AGENT: dict[str, Callable[[Any, str], Any]] = {
    **MESSAGES,
    **RESUMING,
    "stream_resume": lambda door, name: asyncio.run(exhaust(door.stream_resume(name, owner="ben"))),
    "aapprove": lambda door, name: asyncio.run(door.aapprove(name, "c", owner="ben")),
    "approve": lambda door, name: door.approve(name, owner="ben"),
    "stream_approval": lambda door, name: asyncio.run(exhaust(door.stream_approval(name, "c", owner="ben"))),
    "stream_resume_blocking": lambda door, name: list(door.stream_resume_blocking(name, owner="ben")),
    "stream_approval_blocking": lambda door, name: list(
        door.stream_approval_blocking(name, "c", owner="ben")
    ),
}


def list_doors(kind: type) -> set[str]:
    """The public methods of a class that take the id of a conversation, or the options of a turn."""
    methods = {
        name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)
    }
    return {
        name
        for name, method in methods.items()
        if {"conversation", "options"} & inspect.signature(method).parameters.keys()
    }


def test_every_door_of_an_engine_and_of_an_agent_is_in_a_table() -> None:
    """A new method that takes the id of a conversation needs an owner, and a row here."""
    assert list_doors(Engine) == ENGINE.keys()
    assert list_doors(OpenAgent) == AGENT.keys()


@pytest.mark.parametrize("conversation", ["annas-first", "annas-open", "nobodys"])
@pytest.mark.parametrize(
    ("kind", "door"), [*(("engine", name) for name in ENGINE), *(("agent", name) for name in AGENT)]
)
def test_no_door_leads_to_somebody_else(shared_desk: Engine, kind: str, door: str, conversation: str) -> None:
    """Each method of an engine and of an open agent that takes an id refuses what is not the owner's, and
    writes nothing."""
    store = shared_desk.store
    before = read_all(store)
    with Agent(ScriptedModel(), chart="approval").open(log=store) as agent:
        target: Any = shared_desk if kind == "engine" else agent
        with pytest.raises(NotFound):
            (ENGINE if kind == "engine" else AGENT)[door](target, conversation)
    assert read_all(store) == before


def test_the_handle_of_an_agent_has_its_type_and_its_dependencies() -> None:
    """Turns through it give what those of the agent give, and its tools get what the handle was given; so do
    turns that go on after an approval, and those that are read."""

    async def greet(context: ToolContext[str]) -> str:
        """Greet."""
        return f"hello {context.dependencies}"

    numbers = '{"value": [1, 2]}'
    model = ScriptedModel(call_tool("greet"), numbers, numbers)
    agent = Agent(
        model,
        dependencies=str,
        tools=[greet],
        output_type=list[int],
        approval=[{"tools": "greet", "decision": "ask"}],
    )
    with agent.open(log="memory") as opened:
        handle = opened.conversation("c", owner="anna", dependencies="anna")
        assert not handle.send("hi").is_over
        turn = handle.approve()
        assert (turn.output, turn.tool_calls[0].value) == ([1, 2], "hello anna")
        assert handle.read_turn().output == [1, 2]
        assert handle.send("again").output == [1, 2]
        with pytest.raises(SpecError, match="needs dependencies"):
            cast("Any", opened).conversation("c", owner="anna")


def test_the_owner_decides() -> None:
    """With the owner's name a call is decided, and the turn goes on."""
    with make_desk(MemoryStore()) as engine:
        engine.run("ask lighthouse", conversation="c", owner="anna")
        turn = engine.resume("c", DECISION, owner="anna")
        assert (turn.is_over, turn.ok) == (True, True)


def test_children_of_an_own_conversation_are_their_owners(shared_desk: Engine) -> None:
    """The handles that a handle gives are of the same owner."""
    handle = shared_desk.conversation("annas-open", owner="anna")
    assert handle.owner == "anna"
    assert all(child.owner == "anna" for child in handle.children)


async def test_a_turn_that_runs_is_nobody_elses() -> None:
    """While a turn runs in this engine, nobody else reads it, speaks to it, decides in it or stops it."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def wait_inside(call: ToolCall) -> bool:
        entered.set()
        await go_on.wait()
        return True

    replies = [reply_with_calls(("echo", {"text": "lighthouse"})), "over"]
    approval = {"chart": "approval", "approval": {"default": "ask"}}
    async with make_engine(replies, approver=wait_inside, **approval) as engine:
        running = asyncio.ensure_future(engine.arun("lighthouse", conversation="x", owner="anna"))
        async with asyncio.timeout(30):
            await entered.wait()
        before = read_all(engine.store)
        for member in USES:
            if f"a{member}" not in USES and not member.endswith("_blocking"):  # the async form is here too
                with pytest.raises(NotFound):
                    await use_in_loop(member, engine.conversation("x", owner="ben"))
        assert read_all(engine.store) == before
        go_on.set()
        assert (await running).content == "over"


async def use_in_loop(member: str, handle: Conversation) -> None:
    """Use a member that does not block to its end."""
    value = USES[member](handle)
    await (exhaust(value) if isinstance(value, AsyncGenerator) else wait_for(value))


@pytest.mark.parametrize("member", USES)
def test_workers_get_nothing_for_somebody_else(shared_desk: Engine, member: str) -> None:
    """A handle whose turns workers run refuses what is not theirs before a worker hears of it."""
    spec, store = make_spec(chart="approval", approval={"default": "ask"}, name="desk"), shared_desk.store
    nobody: Any = object()  # a host of workers that can do nothing
    before = read_all(store)
    with FleetEngine(spec, nobody, log=store) as engine:
        for conversation in ("annas-first", "annas-open", "nobodys"):
            with pytest.raises(NotFound):
                use_member(member, engine.conversation(conversation, owner="ben"))
    assert read_all(store) == before


def test_a_handle_is_of_one_owner(shared_desk: Engine) -> None:
    """A message through it that names another owner is refused, and so is an owner without a name."""
    handle = shared_desk.conversation("x", owner="anna")
    with pytest.raises(SpecError, match="this is a handle of the owner 'anna', not of 'ben'"):
        handle.send("hi", owner="ben")
    for owner in ("", " ", "x" * 201):
        for use in (shared_desk.conversation, lambda _, owner: shared_desk.conversations(owner=owner)):
            with pytest.raises(SpecError, match="owner"):
                use("x", owner=owner)
    assert read_all(shared_desk.store).keys() == {"annas-first", "annas-open", "nobodys"}


def test_the_owner_may_be_repeated() -> None:
    """A message may name the owner of its handle; one through a handle without an owner may name any."""
    with make_desk(MemoryStore()) as engine:
        engine.conversation("a", owner="anna").send("hi", owner="anna")
        engine.conversation("b").send("hi", owner="anna")
        assert find_owners(engine.store) == {"a": "anna", "b": "anna"}
        with pytest.raises(NotFound):
            engine.conversation("b").send("hi", owner="ben")


def test_every_beginning_member_is_known() -> None:
    """The members that begin something are told from those that need a conversation."""
    assert BEGINNING.keys() | EXISTING.keys() == USES.keys()


# -- lists -------------------------------------------------------------------------------------------------


def test_a_list_finds_what_was_deleted_and_begun_anew() -> None:
    """Who begins a conversation under an id that somebody else had finds it in the list at once, and the one
    who had it does not, through an engine with further tools too."""
    with make_desk(MemoryStore()) as engine:
        more = engine.with_tools([])
        assert more.owners is engine.owners
        for who, other in (("anna", "ben"), ("ben", "anna")):
            engine.run("hi", conversation="x", owner=who)
            assert [row.conversation for row in engine.conversations(owner=who).conversations] == ["x"]
            assert engine.conversations(owner=other).conversations == ()
            engine.delete_owner(who)


def test_a_place_in_a_list_of_somebody_else_is_none(shared_desk: Engine) -> None:
    """`before` with somebody else's id gives an empty page, as one that nobody has."""
    shared = shared_desk.conversations(owner="anna", before="nobodys").conversations
    assert shared == shared_desk.conversations(owner="anna", before="none").conversations == ()
    assert shared_desk.conversations(before="nobodys").conversations != ()
