"""Erasing reaches everything that holds the words: forks, agents, contexts, checkpoints, inboxes, memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import child_agents
import pytest
from agents import make_spec
from child_agents import FunctionModel
from effort import choose_count
from postgres_database import create_database
from store_bytes import find_places

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.secrecy.erasing import (
    ErasedConversation,
    ErasureChoice,
    erase_content,
    find_content_elsewhere,
)
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.conversations import Conversations
from toolchart.engine.runtime.open_turns import OpenTurns
from toolchart.states.errors import LeaseHeld, LogUnavailable, SpecError
from toolchart.states.messages import Reply, Request, ToolCall, Usage
from toolchart.states.ports import Store

WORD, AT = "Zaunkoenig", "2026-01-01T00:00:00.000Z"


class Log(NamedTuple):
    """A store, and where it keeps its bytes."""

    store: Store
    folder: Path
    address: str

    def find(self, words: str = WORD) -> list[str]:
        """Where the log has words."""
        return find_places(self.store, self.folder, words.encode(), self.address)


KINDS = ("memory", "sqlite", "postgres")


@pytest.fixture(params=KINDS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """An empty log of each kind."""
    kind = request.param
    if kind == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    else:
        address = "memory" if kind == "memory" else f"{tmp_path}/log/log.db"
    opened = open_store(address)
    yield Log(opened, tmp_path / "log", address)
    opened.close()


def erase(store: Store, conversation: str = "c", **choice: Any) -> list[ErasedConversation]:
    """Erase what is chosen."""
    return erase_content(store, conversation, ErasureChoice(**choice), at=AT, by="anna", reason="asked for")


def answer(said: str, request: Request) -> str | Reply:
    """Repeat what was said; call a tool with it where it says so, and name its result."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"The tool says {last.content}"
    if said.startswith("Echo"):
        call = ToolCall(id=f"call_{len(request.messages)}", name="echo", arguments={"text": said})
        usage = Usage(input=6, output=4, total=10)
        return Reply(content=None, finish_reason="tool_calls", tool_calls=(call,), usage=usage)
    return f"You said: {said}"


def make_engine(store: Store, **changes: Any) -> tuple[Engine, FunctionModel]:
    """An engine with a model that repeats what it hears; and the model, which keeps all requests."""
    model = FunctionModel(answer)
    return Engine(make_spec(**changes), log=store, providers={"model": model}), model


def find_in_requests(model: FunctionModel, words: str = WORD) -> list[int]:
    """The numbers of the requests that have words."""
    return [
        number
        for number, sent in enumerate(model.requests)
        if words in repr(list(sent.messages)) + repr(sent)
    ]


def list_outcomes(store: Store) -> set[type]:
    """The kinds of results of verifying a store."""
    return {type(outcome) for outcome in verify_store(store)}


def count_steps(store: Store, conversation: str) -> int:
    """Replay a conversation; the number of its steps."""
    return sum(1 for _ in replay_conversation(store, conversation))


def test_forks_forget_with_their_parent(log: Log) -> None:
    """After `fork c` and `erase c` no fork, no fork of a fork and no checkpoint has the words, and none of
    them sends them again, in an engine that had them in memory; replay of each holds."""
    engine, model = make_engine(log.store)
    engine.run(f"Echo {WORD}!", conversation="c")
    engine.run("And now?", conversation="c")
    engine.fork("c", name="f")
    engine.run(f"Again {WORD}", conversation="f")
    engine.fork("f", name="g")
    engine.run("Quiet", conversation="g")
    engine.fork("c", name="h")
    names = ["c", "f", "g", "h"]
    assert log.find()
    erased = erase(log.store, everything=True)
    assert {result.conversation for result in erased} == set(names)
    assert log.find() == []
    assert list_outcomes(log.store) == {VerifiedConversation}
    assert all(count_steps(log.store, name) for name in names)
    model.requests.clear()
    for name in names:
        assert engine.run("Go on", conversation=name).content == "You said: Go on"
    assert (len(model.requests), find_in_requests(model)) == (4, [])
    assert all(count_steps(log.store, name) for name in names)
    assert (list_outcomes(log.store), log.find()) == ({VerifiedConversation}, [])
    before = {name: list(log.store.read_lines(name)) for name in names}
    assert erase(log.store, texts=(WORD,)) == []
    assert {name: list(log.store.read_lines(name)) for name in names} == before
    engine.close()


def test_a_fork_whose_lines_do_not_change_is_told(log: Log) -> None:
    """A fork that repeats nothing gets a record `erased`, keeps no checkpoint, and its engine reads anew."""
    engine, _ = make_engine(log.store)
    engine.run(f"Hear {WORD}", conversation="c")
    engine.fork("c", name="f")
    other, other_model = make_engine(log.store)
    assert len(other.run("One", conversation="f").content or "") == 13
    erased = erase(log.store, turns=(1,))
    assert [(result.conversation, result.content) for result in erased] == [("c", (1, 2)), ("f", ())]
    newest = json.loads(list(log.store.read_lines("f"))[-1])["event"]
    assert (newest["type"], newest["by"], newest["reason"]) == ("erased", "anna", "asked for")
    assert log.find() == []
    other_model.requests.clear()
    other.run("Two", conversation="f")
    assert ([len(sent.messages) for sent in other_model.requests], find_in_requests(other_model)) == ([6], [])
    assert count_steps(log.store, "f") > 4
    assert erase(log.store, turns=(1,)) == []
    engine.close()
    other.close()


def test_what_a_fork_took_over_goes_with_its_original(log: Log) -> None:
    """A fork from before a call has the recorded result of its own: it repeats an erased text, and goes. What
    the fork says of its own stays, and an equal text in a kept record keeps it."""
    engine, _ = make_engine(log.store)
    engine.run(f"Echo {WORD} in the garden", conversation="c")
    engine.run("A word of two", conversation="c")
    changes = ForkChanges(settings={"temperature": 0.5})
    engine.fork("c", 1, changes, name="f")
    engine.run("A word of its own", conversation="f")
    assert WORD.encode() in b"".join(log.store.read_lines("f"))
    erased = erase(log.store, turns=(1,))
    assert [result.conversation for result in erased] == ["c", "f"]
    assert log.find() == []
    assert "A word of its own" in b"".join(log.store.read_lines("f")).decode()
    assert list_outcomes(log.store) == {VerifiedConversation}
    assert all(count_steps(log.store, name) for name in ("c", "f"))
    engine.close()


def test_erasing_in_a_fork_names_the_owner() -> None:
    """What a fork shares belongs to its parent: it stays, and the place is named; so with forks of forks, and
    with an agent whose parent has its answer."""
    store = MemoryStore()
    engine, _ = make_engine(store)
    engine.run(f"Hear {WORD}", conversation="c")
    engine.fork("c", name="f")
    engine.fork("f", name="g")
    before = list(store.read_lines("c"))
    (place,) = find_content_elsewhere(store, "g", ErasureChoice(turns=(1,)))
    assert (place.conversation, place.records, place.turns, place.relation) == ("c", (1, 2), (1,), "fork")
    assert find_content_elsewhere(store, "g", ErasureChoice(texts=("nobody",))) == []
    assert erase(store, "g", turns=(1,)) == []
    assert list(store.read_lines("c")) == before
    erase(store, "c", texts=(WORD,))
    assert find_content_elsewhere(store, "g", ErasureChoice(everything=True)) == []
    engine.close()


def run_family(store: Store) -> tuple[Engine, FunctionModel]:
    """A conversation whose first turn runs an agent on the word, and the second on something else."""
    model = FunctionModel(child_agents.repeat_words)
    work = {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}}
    effects = {"work": work, "publish": {"answer": "{{outcome}}"}}
    spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
    engine = child_agents.make_engine(spec, model, log=store)
    engine.run(f"{WORD} and b", conversation="c")
    engine.run("Nothing", conversation="c")
    return engine, model


def test_agents_and_their_forks(log: Log) -> None:
    """The agent that a chosen turn ran goes whole, and so does what a fork of the conversation took over of
    it; the agent of another turn stays. Who erases in the agent is told where its answer stands."""
    engine, model = run_family(log.store)
    engine.fork("c", 0, name="early")
    engine.run(f"{WORD} and b", conversation="early")
    engine.fork("c", name="f")
    engine.run("Something", conversation="f")
    child, other = [name for name in log.store.list_conversations() if name.startswith("c.")]
    (place,) = find_content_elsewhere(log.store, child, ErasureChoice(everything=True))
    assert (place.conversation, place.turns, place.relation) == ("c", (1,), "child")
    kept = list(log.store.read_lines(other))
    erased = {result.conversation: result for result in erase(log.store, turns=(1,))}
    assert {"c", child, "f", "early"} <= erased.keys()
    assert list(log.store.read_lines(other)) == kept
    assert (log.find(), log.find(WORD.upper())) == ([], [])
    assert list_outcomes(log.store) == {VerifiedConversation}
    for name in list(log.store.list_conversations()):
        assert count_steps(log.store, name)
    model.requests.clear()
    for name in ("c", "f", "early"):
        engine.run("More", conversation=name)
    assert (find_in_requests(model), find_in_requests(model, WORD.upper())) == ([], [])
    engine.close()


def test_what_waits_is_refused_before_anything_changes(log: Log) -> None:
    """An open turn of a fork, an entry in an inbox and a held fork are refused by name; nothing changes."""
    engine, _ = make_engine(log.store, approval={"default": "ask"})
    engine.run(f"Hear {WORD}", conversation="c")
    engine.fork("c", name="f")
    engine.run(f"Echo {WORD}", conversation="f")
    before = list(log.store.read_lines("c"))
    with pytest.raises(SpecError, match="a turn of conversation 'f' is open") as refusal:
        erase(log.store, everything=True)
    assert "toolchart cancel f" in str(refusal.value)
    engine.cancel("f")
    log.store.post("f", "k", f"{WORD} waits".encode())
    with pytest.raises(SpecError, match="something waits in the inbox of conversation 'f'"):
        erase(log.store, everything=True)
    (entry,) = log.store.read_inbox(["f"])
    log.store.drop_entries("f", [entry.key])
    lease = log.store.acquire_lease("f", "elsewhere:1", 60)
    with pytest.raises(LeaseHeld, match="conversation 'f' is worked on"):
        erase(log.store, everything=True)
    assert list(log.store.read_lines("c")) == before
    log.store.release_lease(lease, is_open=False)
    with pytest.raises(SpecError, match="repeats the text"):
        erase_content(log.store, "c", ErasureChoice(texts=(WORD,)), at=AT, by=None, reason=WORD.lower())
    assert erase(log.store, everything=True)
    assert log.find() == []
    assert [lease.conversation for lease in log.store.list_leases()] == []
    engine.close()


def test_an_interrupted_call_is_finished_by_the_next(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that dies between two conversations leaves the words where the next call looks for them."""
    engine, model = make_engine(log.store)
    engine.run(f"Echo {WORD} in the garden", conversation="c")
    engine.fork("c", 1, ForkChanges(settings={"temperature": 0.5}), name="f")
    engine.fork("c", name="g")
    for kept in (1, 2):
        rewrite, calls = log.store.rewrite_lines, []  # type: ignore[attr-defined]

        def fail(*words: Any, kept: int = kept, rewrite: Any = rewrite, calls: list[Any] = calls) -> None:
            """Die after so many conversations."""
            calls.append(words)
            if len(calls) > kept:
                raise LogUnavailable("the machine stops")
            rewrite(*words)

        with monkeypatch.context() as patch:
            patch.setattr(log.store, "rewrite_lines", fail)
            with pytest.raises(LogUnavailable):
                erase(log.store, turns=(1,))
        assert log.find()
        assert list_outcomes(log.store) == {VerifiedConversation}
    assert erase(log.store, turns=(1,))
    assert log.find() == []
    model.requests.clear()
    for name in ("c", "f", "g"):
        engine.run("Go on", conversation=name)
        assert count_steps(log.store, name)
    assert find_in_requests(model) == []
    assert erase(log.store, turns=(1,)) == []
    engine.close()


def test_a_fork_that_erasing_overtakes_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork that was planned before and begun after the words were erased is given up, and sends nothing."""
    store = MemoryStore()
    engine, model = make_engine(store)
    engine.run(f"Hear {WORD}", conversation="c")
    engine.run("Two", conversation="c")
    build = Conversations.fork_driver

    def erase_first(self: Conversations, *words: Any) -> Any:
        """Erase between the plan of the fork and its first record."""
        erase(store, turns=(1,))
        return build(self, *words)

    monkeypatch.setattr(Conversations, "fork_driver", erase_first)
    model.requests.clear()
    with pytest.raises(SpecError, match="was erased while it was forked"):
        engine.fork("c", changes=ForkChanges(system="Other."), name="f")
    assert (list(store.list_conversations()), model.requests) == (["c"], [])
    assert engine.run("Three", conversation="c").content
    engine.close()


def test_answers_that_a_fork_would_take_over_are_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has read the recorded results of its parent; where one is erased then, the fork is given up."""
    store = MemoryStore()
    engine, model = make_engine(store)
    engine.run("Echo it", conversation="c")
    adapt = OpenTurns.adapt_fork

    def erase_next(self: OpenTurns, *words: Any, **options: Any) -> None:
        """Erase the tool's result, which the fork does not share, after the fork has read it."""
        adapt(self, *words, **options)
        assert erase(store, records=(4,))

    monkeypatch.setattr(OpenTurns, "adapt_fork", erase_next)
    model.requests.clear()
    with pytest.raises(SpecError, match="was erased while it was forked"):
        engine.fork("c", 1, ForkChanges(settings={"temperature": 0.5}), name="f")
    assert (list(store.list_conversations()), model.requests) == (["c"], [])
    engine.close()


def test_a_fork_that_is_begun_meanwhile_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork whose first record comes while others are rewritten is erased by the same call, or named."""
    store = MemoryStore()
    engine, model = make_engine(store)
    engine.run(f"Hear {WORD}", conversation="c")
    rewrite = store.rewrite_lines

    def fork_first(*words: Any) -> None:
        """Fork before the lines are replaced."""
        if "f" not in store.list_conversations():
            engine.fork("c", name="f")
            engine.run("In between", conversation="f")
        rewrite(*words)

    monkeypatch.setattr(store, "rewrite_lines", fork_first)
    assert [result.conversation for result in erase(store, everything=True)] == ["c", "f"]
    assert find_places(store, Path("/nonexistent"), WORD.encode()) == []
    model.requests.clear()
    engine.run("Go on", conversation="f")
    assert (find_in_requests(model), count_steps(store, "f") > 0) == ([], True)
    engine.close()


def answer_with_topic(said: str, request: Request) -> str | Reply:
    """As `answer`; where the topic is asked for, name one that repeats nothing."""
    return (
        '{"topic_status": "continuation", "topic_summary": "birds"}'
        if "topic_status" in said
        else answer(said, request)
    )


def make_preparing_engine(store: Store) -> tuple[Engine, FunctionModel]:
    """An engine that finds the topic of each message before it answers."""
    model = FunctionModel(answer_with_topic)
    spec = make_spec(topic={"provider": {"llm": "model"}})
    return Engine(spec, log=store, providers={"model": model}), model


def test_the_context_of_a_turn_goes_with_it(log: Log) -> None:
    """What `c.context` has of an erased turn goes, of short messages too, and in the contexts of forks; the
    next turn of another engine that has the conversation in memory asks for no topic with erased words."""
    engine, model = make_preparing_engine(log.store)
    other, other_model = make_preparing_engine(log.store)
    engine.run(f"Hear {WORD}", conversation="c")
    other.run("Jay?", conversation="c")
    engine.fork("c", name="f")
    engine.run("In the fork", conversation="f")
    names = set(log.store.list_conversations())
    assert names == {"c", "c.context", "f", "f.context"}
    assert {result.conversation for result in erase(log.store, turns=(1, 2))} == names
    assert (log.find(), log.find("Jay?")) == ([], [])
    assert "In the fork" in b"".join(log.store.read_lines("f")).decode()
    for used, sent in ((other, other_model), (engine, model)):
        sent.requests.clear()
        used.run("Go on", conversation="c")
        used.run("Go on", conversation="f")
        assert (len(sent.requests), find_in_requests(sent), find_in_requests(sent, "Jay?")) == (4, [], [])
    assert all(count_steps(log.store, name) for name in names)
    assert list_outcomes(log.store) == {VerifiedConversation}
    engine.close()
    other.close()


def test_what_inboxes_had_goes(log: Log, tmp_path: Path) -> None:
    """What was dropped from an inbox is in no byte of the log, and what was taken goes with its record."""
    engine, _ = make_engine(log.store)
    engine.run(f"Hear {WORD}", conversation="c")
    log.store.post("c", "k", b"A dropped Kleiber" * 300)
    (entry,) = log.store.read_inbox(["c"])
    log.store.drop_entries("c", [entry.key])
    erase(log.store, everything=True)
    assert (log.find(), log.find("Kleiber")) == ([], [])
    assert log.store.post("c", "k", b"again") is False, "its key stays known"
    engine.close()


# -- random families -------------------------------------------------------------------------------


class World:
    """Random conversations of three agents on one log, their forks, and which word was said where."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.random = random.Random(seed)
        self.said: dict[str, dict[int, str]] = {}
        """By conversation and turn of its own: the word."""
        self.parents: dict[str, tuple[str, int]] = {}
        """By fork: its parent, and the newest shared record."""
        plain, plain_model = make_engine(log.store)
        preparing, preparing_model = make_preparing_engine(log.store)
        family_model = FunctionModel(child_agents.repeat_words)
        work = {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}}
        effects = {"work": work, "publish": {"answer": "{{outcome}}"}}
        spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
        family = child_agents.make_engine(spec, family_model, log=log.store)
        self.engines = {"plain": plain, "preparing": preparing, "family": family}
        self.models = [plain_model, preparing_model, family_model]

    def find_engine(self, name: str) -> Engine:
        """The engine of a conversation."""
        return self.engines[name.split("-")[0]]

    def say(self, name: str) -> None:
        """Say a new word, and let a tool repeat it now and then."""
        word = f"Vogel{self.random.randrange(10**9)}x"
        turn = self.find_engine(name).run(f"{self.random.choice(['Echo', 'Hear'])} {word}", conversation=name)
        assert turn.error is None
        newest = list(self.log.store.read_lines(name))[-1]
        self.said.setdefault(name, {})[json.loads(newest)["turn"]] = word

    def fork(self, name: str) -> None:
        """Fork a conversation at any record, also within a turn, which is run to its end then."""
        newest, _ = self.log.store.read_last_line(name) or (0, b"")
        fork, at = f"{name.split('-')[0]}-{len(self.said)}", self.random.randrange(newest + 1)
        try:
            self.find_engine(name).fork(name, at, name=fork)
        except SpecError:  # somebody talks to a child there
            return
        self.parents[fork] = (name, at)
        self.said[fork] = {}

    def live(self) -> None:
        """Do a few things at random."""
        for kind in self.engines:
            self.said[f"{kind}-"] = {}
            self.say(f"{kind}-")
        for _ in range(self.random.randrange(3, 8)):
            name = self.random.choice(list(self.said))
            if self.random.random() < 0.5:
                self.fork(name)
            else:
                self.say(name)

    def choose(self) -> tuple[str, dict[str, Any], set[str]]:
        """A conversation, what is erased of it, and the words that must be gone then."""
        name = self.random.choice([name for name, words in self.said.items() if words])
        turn, word = self.random.choice(list(self.said[name].items()))
        kind = self.random.choice(["everything", "texts", "turns", "records"])
        if kind == "texts":
            return name, {"texts": (word.upper(),)}, {word}
        if kind == "turns":
            return name, {"turns": (turn,)}, {word}
        if kind == "records":
            newest, _ = self.log.store.read_last_line(name) or (0, b"")
            return name, {"records": (self.random.randrange(newest + 1),)}, set()
        return name, {"everything": True}, self.collect_words(name)

    def collect_words(self, name: str) -> set[str]:
        """The words of a conversation, and of its forks that share any of them."""
        words = set(self.said[name].values())
        for fork, (parent, at) in self.parents.items():
            if parent == name and (at > 0 or name in self.parents):
                words |= self.collect_words(fork)
        return words

    def close(self) -> None:
        """Close the engines."""
        for engine in self.engines.values():
            engine.close()


def check_world(log: Log, seed: int) -> None:
    """Live, erase at random, look everywhere, go on, and erase again."""
    world, store = World(log, seed), log.store
    world.live()
    name, choice, words = world.choose()
    erased = erase(store, name, **choice)
    assert erased or not words
    gone = [*words, *(word.upper() for word in words)]
    assert [place for word in gone for place in log.find(word)] == [], (name, choice)
    for model in world.models:
        model.requests.clear()
    for other in list(world.said):
        assert world.find_engine(other).run("Go on quietly", conversation=other).error is None, other
    assert [model for model in world.models for word in gone if find_in_requests(model, word)] == []
    assert [place for word in gone for place in log.find(word)] == []
    assert list_outcomes(store) == {VerifiedConversation}
    for other in list(store.list_conversations()):
        assert count_steps(store, other), other
    before = {other: list(store.read_lines(other)) for other in store.list_conversations()}
    if not choice.get("everything"):  # which takes what was said since
        assert erase(store, name, **choice) == []
        assert {other: list(store.read_lines(other)) for other in before} == before
    world.close()


@pytest.mark.parametrize("seed", range(choose_count(short=6, long=1000)))
def test_random_families(seed: int, tmp_path: Path) -> None:
    """Whatever is erased in whatever family: no word is found afterwards, in no byte and no later request;
    all conversations go on, verify and replay, and erasing again changes nothing."""
    check_world(Log(MemoryStore(), tmp_path / "log", "memory"), seed)


@pytest.mark.parametrize("seed", range(choose_count(short=1, long=50)))
def test_random_families_in_each_log(log: Log, seed: int, tmp_path: Path) -> None:
    """The same in each kind of log."""
    check_world(log, 1000 + seed)
