"""A typed agent in Python: it compiles to a spec, runs on the engine, and is checked before it begins."""

from __future__ import annotations

import asyncio
import gc
import json
import pkgutil
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import yaml
from pydantic import BaseModel, field_validator
from typing_extensions import TypedDict

from toolchart import (
    Agent,
    AgentOptions,
    Decided,
    Engine,
    IllegalEvent,
    NotFound,
    OpenAgent,
    PartialOutput,
    PromptContext,
    SpecError,
    StepTaken,
    TextDelta,
    ToolchartError,
    ToolContext,
    Turn,
    TurnChanged,
    effect,
    load_spec,
    open_store,
    tool,
)
from toolchart.engine.agent_options import KEY_PLACES, OWN_OPTIONS, McpServer, RagServiceOptions
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.log.replay import replay_conversation
from toolchart.specs.charts import list_shipped_charts
from toolchart.specs.models import AgentSpec, Handler, HandlerTools, LLMConfig, ToolsConfig
from toolchart.specs.sections.base import Section
from toolchart.specs.sections.context import RagService
from toolchart.states.ports import Store
from toolchart.testing import ScriptedModel, TurnableClock, call_tool
from toolchart.tools.sources.mcp import McpSettings

MCP_SERVER = str(Path(__file__).resolve().parents[2] / "support" / "mcp_test_server.py")

AGENTS_PAGE = Path(__file__).resolve().parents[3] / "docs" / "agents.md"

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {"/pets": {"get": {"operationId": "list_pets", "responses": {"200": {"description": "Pets"}}}}},
}

PARIS = '{"name": "Paris", "country": "France"}'


class City(BaseModel):
    """A city."""

    name: str
    country: str

    @field_validator("name")
    @classmethod
    def refuse_atlantis(cls, name: str) -> str:
        """What no JSON Schema says."""
        if name == "Atlantis":
            raise ValueError("no such city")
        return name


@dataclass
class Atlas:
    """What the tools use."""

    places: dict[str, str]


class BigAtlas(Atlas):
    """A special one."""


class Row(TypedDict):
    """One row."""

    a: int


@tool(risk="low")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_geographer(*replies: Any, **options: Any) -> Agent[Atlas, City]:
    """An agent with a tool that reads the dependencies."""
    agent = Agent(ScriptedModel(*replies), output_type=City, dependencies=Atlas, **options)

    @agent.tool
    def look_up(context: ToolContext[Atlas], place: str) -> str:
        """In which city a place is."""
        return context.dependencies.places[place]

    return agent


ATLAS = Atlas({"Louvre": "Paris"})


@pytest.fixture
def _timeless_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a tool took stands in its result, which the model gets: no two runs have it alike."""
    monkeypatch.setattr("toolchart.tools.execution.executor.time.perf_counter", lambda: 0.0)


DRAWN = ("hash", "prev", "head", "salt")
"""What is drawn by chance, or follows from it."""


def list_records(store: Store) -> dict[str, list[Any]]:
    """Every record of a log, without what is drawn by chance."""
    return {
        name: [leave_out_drawn(json.loads(line)) for line in store.read_lines(name)]
        for name in sorted(store.list_conversations())
    }


def leave_out_drawn(value: Any) -> Any:
    """A value without the keys of `DRAWN`, at any depth."""
    if isinstance(value, dict):
        return {key: leave_out_drawn(item) for key, item in value.items() if key not in DRAWN}
    return [leave_out_drawn(item) for item in value] if isinstance(value, list) else value


# -- one engine ----------------------------------------------------------------------------------


def make_plain() -> Agent[None, str]:
    """An agent with a function."""
    model = ScriptedModel(call_tool("add", a=2, b=3), "5")
    return Agent(model, tools=[add], prompt="Be brief.", temperature=0.5, max_iterations=3)


def make_typed() -> Agent[None, City]:
    """An agent whose first answer breaks its type, on a chart that asks again."""
    return Agent(ScriptedModel("Paris", PARIS), output_type=City, limits={"max_tool_calls": 5})


def make_handing_over() -> Agent[None, City]:
    """An agent that hands over to another one, which has a tool and a chart of its own."""
    model = ScriptedModel(call_tool("add", a=2, b=3), PARIS)
    other = Agent(model, output_type=City, name="counter", description="sums", tools=[add], chart="tool_loop")
    return Agent(ScriptedModel('{"agent": "counter"}'), output_type=City, handoffs=[other], name="front")


RUNNING_OTHER: dict[str, Any] = {
    "name": "handing",
    "states": {
        "handing": {
            "initial": True,
            "enter": "hand_over",
            "transitions": [
                {"event": "agent_finished", "target": "finished"},
                {"event": "agent_failed cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A chart that hands over by the effect `hand_over`."""

HAND_OVER: dict[str, Any] = {"hand_over": {"run_agent": {"handler": "other", "history": "all"}}}


def make_charted() -> Agent[None, str]:
    """An agent with a chart of its own, and a handoff before it, which is not chosen."""
    other = Agent(ScriptedModel(), name="other", description="all")
    model = ScriptedModel('{"agent": "front"}', "done")
    limits = {"max_iterations": 3, "max_tokens": 10_000}
    return Agent(model, name="front", handoffs=[other], chart="resilient", limits=limits)


def make_handing_over_itself() -> Agent[None, str]:
    """An agent whose chart says itself when it hands over."""
    other = Agent(ScriptedModel("done"), name="other", description="all")
    return Agent(ScriptedModel(), name="front", handoffs=[other], chart=RUNNING_OTHER, effects=HAND_OVER)


def make_calling() -> Agent[None, str]:
    """An agent that calls another one as a tool, beside a function; that one has a typed answer."""
    geographer = Agent(ScriptedModel(PARIS), output_type=City, name="geographer", description="Finds cities.")
    model = ScriptedModel(call_tool("geographer", message="Where?"), call_tool("add", a=1, b=2), "done")
    return Agent(model, name="front", tools=[add], agents=[geographer])


def make_prompted() -> Agent[None, str]:
    """An agent that hands over to another one; functions write the prompts of both."""

    async def write_late(context: PromptContext[None]) -> str:
        return f"You got: {context.message}"

    other = Agent(ScriptedModel("done"), name="other", description="all", prompt=write_late)
    choosing = ScriptedModel('{"agent": "other"}')
    return Agent(choosing, name="front", handoffs=[other], prompt=lambda context: f"{context.message}?")


@pytest.mark.usefixtures("_timeless_tools")
@pytest.mark.parametrize(
    "make",
    [
        make_plain,
        make_typed,
        make_handing_over,
        make_prompted,
        make_charted,
        make_handing_over_itself,
        make_calling,
    ],
)
def test_an_agent_in_python_and_its_yaml_write_the_same_log(
    make: Callable[[], Agent[None, Any]], tmp_path: Path
) -> None:
    """Issue 30: the spec that the agent compiles to, written as YAML and loaded from its file, gives equal
    records; both logs replay."""
    store = open_store("memory")
    make().run("go", log=store, conversation="c", clock=TurnableClock(skips=True))
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(make().to_document(), sort_keys=False), "utf-8")
    agent = make()
    other = open_store("memory")
    providers, functions = agent._list_providers(None), agent.list_functions()
    clock, prompts = TurnableClock(skips=True), agent._list_prompt_variables()
    settings: dict[str, Any] = {"providers": providers, "functions": functions, "prompt_variables": prompts}
    with Engine(path, log=other, clock=clock, **settings) as engine:
        result = engine.run("go", conversation="c")
    assert result.ok
    assert list_records(store) == list_records(other)
    assert all(list(replay_conversation(store, name)) for name in store.list_conversations())


@pytest.mark.usefixtures("_timeless_tools")
def test_every_form_gives_the_same_typed_turn() -> None:
    """Issue 30: `run`, `arun`, `stream` and `stream_blocking` give one answer, of the class, and write equal
    records."""

    async def read_stream(agent: Agent[Atlas, City], log: Store) -> Turn[City]:
        options: dict[str, Any] = {"log": log, "conversation": "c", "clock": TurnableClock()}
        pieces = [piece async for piece in agent.stream("go", dependencies=ATLAS, **options)]
        assert any(isinstance(piece, StepTaken) for piece in pieces)
        last = pieces[-1]
        assert isinstance(last, Turn)
        return last

    def read_blocking(agent: Agent[Atlas, City], log: Store) -> Turn[City]:
        options: dict[str, Any] = {"log": log, "conversation": "c", "clock": TurnableClock()}
        *pieces, last = agent.stream_blocking("go", dependencies=ATLAS, **options)
        assert any(isinstance(piece, TextDelta) for piece in pieces)
        assert isinstance(last, Turn)
        return last

    def run(agent: Agent[Atlas, City], log: Store) -> Turn[City]:
        return agent.run("go", dependencies=ATLAS, log=log, conversation="c", clock=TurnableClock())

    def arun(agent: Agent[Atlas, City], log: Store) -> Turn[City]:
        clock = TurnableClock()
        return asyncio.run(agent.arun("go", dependencies=ATLAS, log=log, conversation="c", clock=clock))

    logs = []
    for form in (run, arun, lambda *args: asyncio.run(read_stream(*args)), read_blocking):
        store = open_store("memory")
        turn = form(make_geographer(call_tool("look_up", place="Louvre"), PARIS), store)
        assert (turn.output, turn.tool_calls[0].value) == (City(name="Paris", country="France"), "Paris")
        logs.append(list_records(store))
    assert logs[1:] == logs[:-1]


def test_a_stream_that_is_closed_early_cancels_its_turn() -> None:
    """Issue 30: a loop that is left ends the thread of the turn, whose model would speak for hours. The log
    says that the turn was cancelled."""
    store, slow = open_store("memory"), {"stream": {"pieces": ["one", " two"], "pause_s": 3600}}
    agent = Agent(ScriptedModel(slow))
    with closing(agent.stream_blocking("go", log=store, conversation="c")) as pieces:
        for piece in pieces:
            if isinstance(piece, TextDelta):
                break
    assert not [thread for thread in threading.enumerate() if thread.name == "toolchart-stream"]
    with agent.open(log=store) as opened:
        error = opened.engine.conversation("c").read_turn().error
    assert error is not None
    assert error.kind == "cancelled"


def test_a_blocking_stream_is_refused_where_an_event_loop_runs() -> None:
    """Issue 30: it would stop the loop; the error names the way out."""

    async def use() -> None:
        with make_plain().open(log="memory") as agent:
            list(agent.stream_blocking("go"))

    with pytest.raises(ToolchartError, match="event loop"):
        asyncio.run(use())


def test_an_error_of_a_blocking_stream_is_raised_to_its_reader() -> None:
    """Issue 30: nothing is swallowed in the thread of the turn."""
    agent = Agent(ScriptedModel("x"), prompt="p")
    with agent.open(log="memory") as opened, pytest.raises(SpecError, match="nowhere"):
        list(opened.engine.stream_blocking("go", handler="nowhere"))


# -- the answer ----------------------------------------------------------------------------------


def test_a_partial_answer_grows_while_it_streams() -> None:
    """Issue 30: each partial value extends the one before, and a new attempt begins anew."""
    pieces = ['{"name": ', '"Par', 'is", ', '"country": "Fr', 'ance"}']
    broken = {"stream": {"pieces": ['{"name"', ": 3}"]}}
    agent = Agent(ScriptedModel(broken, {"stream": {"pieces": pieces}}), output_type=City)
    items = list(agent.stream_blocking("go", log="memory"))
    values = [item.value for item in items if isinstance(item, PartialOutput)]
    assert values[-4:] == [
        {"name": "Par"},
        {"name": "Paris"},
        {"name": "Paris", "country": "Fr"},
        {"name": "Paris", "country": "France"},
    ]
    assert {"name": 3} in values


@pytest.mark.parametrize(
    ("output_type", "reply", "value"),
    [
        (int, '{"value": 5}', 5),
        (list[str], '{"value": ["a", "b"]}', ["a", "b"]),
        (str, "words", "words"),
        (Row, '{"a": 1}', {"a": 1}),
        (
            City | int,
            '{"value": {"name": "Paris", "country": "France"}}',
            City(name="Paris", country="France"),
        ),
        (City | int, '{"value": 5}', 5),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
    ],
)
def test_an_answer_may_be_of_any_type(output_type: Any, reply: str, value: Any) -> None:
    """Issue 30: plain types, lists, typed dictionaries and unions, not only classes."""
    assert Agent(ScriptedModel(reply), output_type=output_type).run("go", log="memory").output == value


def test_what_the_class_refuses_is_asked_for_again() -> None:
    """Issue 30: a validator of the class counts as its schema does, and the model hears why."""
    model = ScriptedModel('{"name": "Atlantis", "country": "Greece"}', PARIS)
    agent = Agent(model, output_type=City)
    assert agent.run("go", log="memory").output.name == "Paris"
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("output_type", "bare"),
    [(City | int, '{"name": "Paris", "country": "France"}'), (list[int], "[1]"), (int, "1")],
)
def test_an_answer_that_is_no_object_stands_in_one_and_the_model_hears_so(
    output_type: Any, bare: str
) -> None:
    """Hosts give objects only. A model or a script that answers without one reads where the answer goes."""
    model = ScriptedModel(bare, f'{{"value": {bare}}}')
    turn = Agent(model, output_type=output_type).run("go", log="memory")
    assert turn.ok
    assert 'the answer stands in an object: {"value": ...}' in str(model.requests[1].messages[-1].content)


def test_a_turn_without_an_answer_says_so() -> None:
    """Issue 30: `output` of a failed turn is an error that names the failure; `data` is None."""
    turn = Agent(ScriptedModel("no", "no", "no"), output_type=City).run("go", log="memory")
    assert (turn.ok, turn.data) == (False, None)
    with pytest.raises(ToolchartError, match="bad_output"):
        print(turn.output)


def test_a_turn_that_waits_has_no_answer_yet_and_goes_on_typed() -> None:
    """Issue 30: an approval in between; the error of `output` names the call, and `resume` has the type."""
    replies = call_tool("look_up", place="Louvre"), PARIS
    agent = make_geographer(*replies, approval=[{"tools": "look_up", "decision": "ask"}])
    with agent.open(dependencies=ATLAS, log="memory") as opened:
        turn = opened.run("go", conversation="c")
        with pytest.raises(ToolchartError, match=r"waits in .* approval of 'look_up'"):
            print(turn.output)
        (pending,) = turn.pending_approvals
        assert opened.resume("c", Decided(call_id=pending.id, approved=True)).output.name == "Paris"


# -- what each turn brings ------------------------------------------------------------------------


async def stream_to_end(pieces: Any) -> Any:
    """The last piece of a stream."""
    return [piece async for piece in pieces][-1]


def read_to_end(pieces: Any) -> Any:
    """The last piece of a blocking stream."""
    return list(pieces)[-1]


FORMS: dict[str, Callable[[OpenAgent[Atlas, City], str, Atlas], Turn[City]]] = {
    "run": lambda agent, name, atlas: agent.run("go", conversation=name, dependencies=atlas),
    "arun": lambda agent, name, atlas: asyncio.run(agent.arun("go", conversation=name, dependencies=atlas)),
    "stream": lambda agent, name, atlas: asyncio.run(
        stream_to_end(agent.stream("go", conversation=name, dependencies=atlas))
    ),
    "stream_blocking": lambda agent, name, atlas: cast(
        "Turn[City]", list(agent.stream_blocking("go", conversation=name, dependencies=atlas))[-1]
    ),
    "run_once": lambda agent, name, atlas: agent.run_once("go", conversation=name, dependencies=atlas),
    "arun_once": lambda agent, name, atlas: asyncio.run(
        agent.arun_once("go", conversation=name, dependencies=atlas)
    ),
}
"""Every form that begins a turn of an open agent."""

GOING_ON: dict[str, Callable[[OpenAgent[Atlas, City], str, Decided, Atlas], Turn[City]]] = {
    "resume": lambda agent, name, decision, atlas: agent.resume(name, decision, dependencies=atlas),
    "aresume": lambda agent, name, decision, atlas: asyncio.run(
        agent.aresume(name, decision, dependencies=atlas)
    ),
    "stream_resume": lambda agent, name, decision, atlas: asyncio.run(
        stream_to_end(agent.stream_resume(name, decision, dependencies=atlas))
    ),
    "approve": lambda agent, name, decision, atlas: agent.approve(name, by="ada", dependencies=atlas),
    "aapprove": lambda agent, name, decision, atlas: asyncio.run(
        agent.aapprove(name, decision.call_id, by="ada", dependencies=atlas)
    ),
    "stream_approval": lambda agent, name, decision, atlas: asyncio.run(
        stream_to_end(agent.stream_approval(name, by="ada", dependencies=atlas))
    ),
    "stream_resume_blocking": lambda agent, name, decision, atlas: read_to_end(
        agent.stream_resume_blocking(name, decision, dependencies=atlas)
    ),
    "stream_approval_blocking": lambda agent, name, decision, atlas: read_to_end(
        agent.stream_approval_blocking(name, by="ada", dependencies=atlas)
    ),
}
"""Every form that goes on with a turn of an open agent."""


@pytest.mark.parametrize("form", FORMS)
def test_each_turn_of_an_open_agent_has_its_own_dependencies(form: str) -> None:
    """Issue 52: the tools of a turn get what it was given, and not what the agent was opened with; the next
    turn of the conversation without any has those of the agent again. No form takes what is not of the class,
    or nothing where the agent was opened without."""
    calls = [call_tool("look_up", place="Louvre"), PARIS]
    agent, run = make_geographer(*calls, *calls, *calls), FORMS[form]
    with agent.open(dependencies=ATLAS, log="memory") as opened:
        turn = run(opened, "c", Atlas({"Louvre": "Lens"}))
        assert (turn.tool_calls[0].value, turn.output.name) == ("Lens", "Paris")
        assert opened.run("go", conversation="c").tool_calls[0].value == "Paris"
    with agent.open(log="memory") as opened:
        for wrong, says in (({"Louvre": "x"}, "of the class Atlas, not dict"), (None, "needs dependencies")):
            with pytest.raises(SpecError, match=says):
                run(opened, "d", cast("Atlas", wrong))
        assert list(opened.engine.store.list_conversations()) == []
        assert run(opened, "d", Atlas({"Louvre": "Abu Dhabi"})).tool_calls[0].value == "Abu Dhabi"


@pytest.mark.parametrize("form", GOING_ON)
def test_whoever_goes_on_with_a_turn_gives_its_dependencies(form: str) -> None:
    """Issue 52: a call that is approved later gets what its approval brings, and the turn keeps its type. Who
    decided stands in the log."""
    agent = make_geographer(
        call_tool("look_up", place="Louvre"), PARIS, approval=[{"tools": "look_up", "decision": "ask"}]
    )
    with agent.open(log="memory") as opened:
        begun = opened.run("go", conversation="c", dependencies=Atlas({}))
        decision = Decided(call_id=begun.pending_approvals[0].id, approved=True, by="ada")
        turn = GOING_ON[form](opened, "c", decision, Atlas({"Louvre": "Lens"}))
        assert (turn.tool_calls[0].value, turn.output.country) == ("Lens", "France")
        events = [record.event for record in opened.engine.conversation("c").steps]
    assert [event["by"] for event in events if event["type"] == "decided"] == ["ada"]


def test_turns_at_once_keep_their_dependencies_apart() -> None:
    """Issue 52: two turns of one open agent that wait in the same tool at the same time get each its own, and
    so does a tool of an agent that one of them was handed over to."""

    async def run_both() -> list[Any]:
        both = asyncio.Barrier(2)
        model = ScriptedModel(*[call_tool("meet")] * 2, *["done"] * 2)
        other = Agent(model, name="other", description="all", dependencies=Atlas)

        @other.tool
        async def meet(context: ToolContext[Atlas]) -> str:
            """Wait for the other turn."""
            before = context.dependencies.places["me"]
            await both.wait()
            return before + context.dependencies.places["me"]

        choosing = ScriptedModel(*['{"agent": "other"}'] * 2)
        front = Agent(choosing, name="front", dependencies=Atlas, handoffs=[other])
        async with front.open(log="memory") as opened:
            names = ("ada", "bob")
            turns = [opened.arun("go", conversation=me, dependencies=Atlas({"me": me})) for me in names]
            assert all(turn.ok for turn in await asyncio.gather(*turns))
            children = [opened.engine.conversation(me).children[0] for me in names]
        return [child.read_turn().tool_calls[0].value for child in children]

    assert asyncio.run(run_both()) == ["adaada", "bobbob"]


def test_a_shared_result_is_of_one_user_alone() -> None:
    """Issue 52: a tool whose results are kept for a time answers a turn with other dependencies anew; with
    the same ones it gets what was kept, and so does every turn where the tool does not read them."""
    runs: list[str] = []

    @tool(cacheable=True, cache_ttl_s=3600, idempotent=True)
    def whoami(context: ToolContext[Atlas]) -> str:
        """Who asks."""
        runs.append("whoami")
        return context.dependencies.places["me"]

    @tool(cacheable=True, cache_ttl_s=3600, idempotent=True)
    def now() -> str:
        """The time."""
        runs.append("now")
        return "noon"

    model = ScriptedModel(*[call_tool("whoami"), call_tool("now"), "done"] * 3)
    agent = Agent(model, dependencies=Atlas, tools=[whoami, now])
    ada, bob = Atlas({"me": "ada"}), Atlas({"me": "bob"})
    with agent.open(log="memory") as opened:
        turns = [opened.run("go", dependencies=who) for who in (ada, bob, ada)]
    assert [turn.tool_calls[0].value for turn in turns] == ["ada", "bob", "ada"]
    assert runs == ["whoami", "now", "whoami"]


def test_a_turn_names_its_owner_and_its_author() -> None:
    """Issue 52: an open agent and one that is run at once record whose the conversation is, its tags, and who
    wrote; another owner is refused."""
    store = open_store("memory")
    Agent(ScriptedModel("x")).run(
        "go", log=store, conversation="a", owner="ada", tags={"k": "v"}, author="eve"
    )
    with Agent(ScriptedModel("x", "y")).open(log=store) as opened:
        opened.run("go", conversation="b", owner="ada", tags={"k": "v"}, author="eve")
        with pytest.raises(NotFound, match="begun for this owner"):
            opened.run("go", conversation="b", owner="bob")
        page = opened.engine.conversations(owner="ada", tags={"k": "v"}).to_dict()
        assert sorted(row["conversation"] for row in page["conversations"]) == ["a", "b"]
        for name in ("a", "b"):
            steps = opened.engine.conversation(name).steps
            assert [step.event.get("author") for step in steps if step.event["type"] == "turn_started"] == [
                "eve"
            ]


@pytest.mark.parametrize("is_over", [False, True])
def test_a_decision_about_an_unknown_call_names_those_that_wait(is_over: bool) -> None:
    """Every door of Python says of a call that does not wait what the command line says: that it does not,
    and which do. Nothing is written."""

    @tool(requires_approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        return f"{cents} paid"

    agent = Agent(ScriptedModel(call_tool("pay", cents=3), "Done."), tools=[pay])
    with agent.open(log="memory") as opened:
        opened.run("Pay.", conversation="c")
        if is_over:
            opened.approve("c")
        before = list(opened.engine.store.read_lines("c"))
        hint = "no call waits in this conversation" if is_over else "known: call_1_0_0"
        for decide in (
            opened.conversation("c").approve,
            lambda call: opened.approve("c", call),
            lambda call: opened.resume("c", Decided(call_id=call, approved=True)),
        ):
            with pytest.raises(IllegalEvent) as caught:
                decide("nobody")
            assert str(caught.value).startswith(
                f"no call 'nobody' waits for a decision in conversation 'c'\n  {hint}"
            )
        assert list(opened.engine.store.read_lines("c")) == before


def test_a_turn_that_nobody_gave_dependencies_says_so() -> None:
    """Issue 52: where a worker goes on with a turn of an agent that was opened without dependencies, its tool
    fails with the way out, and never works on None."""
    agent = make_geographer(
        call_tool("look_up", place="Louvre"), PARIS, approval=[{"tools": "look_up", "decision": "ask"}]
    )
    with agent.open(log="memory") as opened:
        begun = opened.run("go", conversation="c", dependencies=ATLAS)
        decision = Decided(call_id=begun.pending_approvals[0].id, approved=True)
        (call,) = opened.engine.resume("c", decision).tool_calls
    assert "goes on without dependencies" in str(call.error)


def test_a_message_to_a_running_turn_changes_no_dependencies() -> None:
    """Issue 52: the turn goes on with its own, and a warning says so; with the same ones there is none."""

    async def send(atlas: Atlas) -> tuple[str, ...]:
        begun, ends = asyncio.Event(), asyncio.Event()
        agent = Agent(ScriptedModel(call_tool("wait"), "done"), dependencies=Atlas)

        @agent.tool
        async def wait(context: ToolContext[Atlas]) -> str:
            """Wait."""
            begun.set()
            await ends.wait()
            return context.dependencies.places["Louvre"]

        async with agent.open(log="memory") as opened:
            running = asyncio.create_task(opened.arun("go", conversation="c", dependencies=ATLAS))
            await begun.wait()
            said = await opened.arun("more", conversation="c", dependencies=atlas)
            ends.set()
            assert (await running).tool_calls[0].value == "Paris"
        return said.warnings

    assert any("dependencies of this message" in text for text in asyncio.run(send(Atlas({}))))
    assert not any("dependencies" in text for text in asyncio.run(send(ATLAS)))


class _Reached(Exception):
    """A worker was asked, or the log was written."""


class _NoWorkers:
    """A host of workers that nobody may reach."""

    def __getattr__(self, name: str) -> Any:
        raise _Reached(name)


def test_a_turn_for_workers_takes_no_dependencies() -> None:
    """Issue 52: objects of this process reach no worker: each form refuses them, says where they belong, and
    nothing is written or handed over."""
    decision = Decided(call_id="1", approved=True)
    doors: dict[str, Callable[[FleetEngine], Any]] = {
        "arun": lambda fleet: fleet.arun("go", dependencies=ATLAS),
        "stream": lambda fleet: stream_to_end(fleet.stream("go", dependencies=ATLAS)),
        "asend": lambda fleet: fleet.conversation("c").asend("go", dependencies=ATLAS),
        "aresume": lambda fleet: fleet.conversation("c").aresume(decision, dependencies=ATLAS),
        "aapprove": lambda fleet: fleet.conversation("c").aapprove("1", dependencies=ATLAS),
        "aanswer": lambda fleet: fleet.conversation("c").aanswer({}, dependencies=ATLAS),
    }

    async def use(door: str) -> None:
        store = open_store("memory")
        async with FleetEngine(
            make_plain().spec(), cast("Any", _NoWorkers()), log=store, functions=[add]
        ) as fleet:
            with pytest.raises(SpecError, match="give them to the engine of each worker"):
                await doors[door](fleet)
        assert list(store.list_conversations()) == []

    for door in doors:
        asyncio.run(use(door))


def test_nothing_keeps_the_dependencies_of_a_turn() -> None:
    """Issue 52: an open agent keeps a conversation for its next turn, but not the objects of a user."""
    with make_geographer(call_tool("look_up", place="Louvre"), PARIS).open(log="memory") as opened:
        atlas = Atlas({"Louvre": "Paris"})
        kept = weakref.ref(atlas)
        assert opened.run("go", conversation="c", dependencies=atlas).ok
        del atlas
        ends_at = time.monotonic() + 30
        while kept() is not None and time.monotonic() < ends_at:  # the tool's worker lets go after the answer
            gc.collect()
            time.sleep(0.001)
        assert kept() is None


# -- agents as tools ------------------------------------------------------------------------------


def test_an_agent_is_a_tool_of_another_one() -> None:
    """Issue 52: what it answers is the result of the call, as data of its type; its tools get the
    dependencies of the turn, and it has its own model, chart and handoffs."""
    store, replies = open_store("memory"), (call_tool("look_up", place="Louvre"), PARIS)
    geographer = make_geographer(*replies, name="geographer", chart="tool_loop")
    other = Agent(ScriptedModel("theirs"), name="other")
    helper = Agent(ScriptedModel('{"agent": "other"}'), name="helper", handoffs=[other])
    calls = [call_tool("geographer", message="Where?"), call_tool("helper", message="Help!")]
    model = ScriptedModel(*calls, "done")
    front = Agent(model, name="front", dependencies=Atlas, agents=[geographer, helper])
    with front.open(log=store) as opened:
        turn = opened.run("go", conversation="c", dependencies=ATLAS)
        assert turn.output == "done"
        assert [call.value for call in turn.tool_calls] == [json.loads(PARIS), "theirs"]
        first, second = opened.engine.conversation("c").children
        assert first.read_turn().tool_calls[0].value == "Paris"
        assert [child.id for child in second.children] == [f"{second.id}.2"]
    assert all(list(replay_conversation(store, name)) for name in store.list_conversations())


def test_an_agent_may_be_called_by_several() -> None:
    """Issue 52: one agent of two others is one handler and one tool; another one of its name is refused."""
    shared = Agent(ScriptedModel("a", "b"), name="shared")
    middle = Agent(ScriptedModel(call_tool("shared", message="x"), "mid"), name="middle", agents=[shared])
    calls = [call_tool("middle", message="x"), call_tool("shared", message="y")]
    front = Agent(ScriptedModel(*calls, "done"), name="front", agents=[middle, shared])
    assert [call.value for call in front.run("go", log="memory").tool_calls] == ["mid", "b"]
    assert [entry["name"] for entry in front.to_document()["tools"]["registry"]] == ["shared", "middle"]
    with pytest.raises(SpecError, match="two agents have the name 'shared'"):
        Agent("openai:m", agents=[middle, Agent("openai:m", name="shared")])


# -- a prompt that a function writes ---------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_function_writes_the_prompt_of_each_turn(form: str) -> None:
    """Issue 52: from the dependencies of the turn and its message; the model and the log get its text.
    Whoever replays or forks the log needs no function."""
    model = ScriptedModel(PARIS, PARIS)
    agent = Agent(model, output_type=City, dependencies=Atlas, prompt=write_for_atlas)
    with agent.open(log="memory") as opened:
        turn = FORMS[form](opened, "c", Atlas({"Lens": "", "Louvre": ""}))
        assert turn.output.name == "Paris"
        store = opened.engine.store
        requests = len(model.requests)
        assert {request.messages[0].content for request in model.requests} == {"Places: Lens, Louvre"}
        assert '"system":"Places: Lens, Louvre"' in "".join(map(str, store.read_lines("c")))
        assert list(replay_conversation(store, "c"))
        document = {**agent.to_document(), "llms": {"agent": {"provider": "scripted", "model": "scripted"}}}
        with Engine(document, log=store, providers={"agent": model}) as engine:
            result = engine.conversation("c").fork(at=1).result
        assert result is not None
        assert result.ok
    assert [request.messages[0].content for request in model.requests[requests:]] == ["Places: Lens, Louvre"]


def test_a_turn_that_is_run_once_has_one_prompt() -> None:
    """Issue 52: the same text is the same turn, and the model is not asked again; another text is refused."""
    model = ScriptedModel("done")
    agent = Agent(model, dependencies=Atlas, prompt=write_for_atlas)
    with agent.open(log="memory") as opened:
        for _ in range(2):
            assert opened.run_once("go", conversation="c", dependencies=Atlas({"Lens": ""})).output == "done"
        with pytest.raises(TurnChanged, match="another prompt"):
            opened.run_once("go", conversation="c", dependencies=Atlas({"Paris": ""}))
    assert len(model.requests) == 1


def write_nothing(context: PromptContext[Atlas]) -> Any:
    """No text."""
    return None


def fail_to_write(context: PromptContext[Atlas]) -> str:
    """Fail."""
    return context.dependencies.places["nowhere"]


async def fail_late(context: PromptContext[Atlas]) -> str:
    """Fail."""
    raise ToolchartError("the database sleeps")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (write_nothing, "gives NoneType, and not a text"),
        (fail_to_write, "so the turn does not begin: KeyError: 'nowhere'"),
        (fail_late, "so the turn does not begin: the database sleeps"),
    ],
)
def test_a_prompt_that_cannot_be_written_begins_nothing(form: str, function: Any, says: str) -> None:
    """Issue 52: every form raises what went wrong; the log stays empty and no model is asked."""
    model = ScriptedModel("done")
    agent = Agent(model, output_type=City, dependencies=Atlas, prompt=function)
    with agent.open(log="memory") as opened:
        with pytest.raises(SpecError, match=f"(?s){function.__name__}.*{re.escape(says)}"):
            FORMS[form](opened, "c", ATLAS)
        assert list(opened.engine.store.list_conversations()) == []
    assert model.requests == []


def test_a_prompt_of_an_agent_further_down_gets_the_dependencies_of_the_turn() -> None:
    """Issue 52: a function of a handoff is called when that agent is chosen, with what the turn was given;
    where it fails, the turn ends with its error."""
    for function, says in ((write_for_atlas, ""), (fail_to_write, "KeyError: 'nowhere'")):
        model = ScriptedModel("done")
        other = Agent(model, name="other", dependencies=Atlas, prompt=function)
        front = Agent(ScriptedModel('{"agent": "other"}'), name="front", dependencies=Atlas, handoffs=[other])
        turn = front.run("go", dependencies=Atlas({"Lens": ""}), log="memory")
        assert turn.ok == (not says)
        assert [request.messages[0].content for request in model.requests] == ["Places: Lens"] * turn.ok
        assert says in str(turn.error)


def test_a_value_of_the_turn_goes_before_a_function() -> None:
    """Issue 52: `Engine` takes functions for the variables of any spec. One is called where a prompt names it
    and the turn has no value of it; what is no function of one argument is refused."""
    calls: list[str] = []

    def write_day(context: PromptContext[Any]) -> str:
        calls.append(context.message)
        return f"Monday, {context.variables['who']}"

    model = ScriptedModel("a", "b")
    spec = {
        "llms": {"m": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "m", "prompt": "It is {{day}}."}],
    }
    settings: dict[str, Any] = {"log": "memory", "providers": {"m": model}}
    with Engine(spec, prompt_variables={"day": write_day, "other": write_day}, **settings) as engine:
        engine.run("one", variables={"who": "Ada"})
        engine.run("two", variables={"day": "Friday"})
    assert [request.messages[0].content for request in model.requests] == [
        "It is Monday, Ada.",
        "It is Friday.",
    ]
    assert calls == ["one"]
    for wrong, says in (
        (3, "written by a function, not by int"),
        (lambda: "x", "does not take one argument"),
    ):
        with pytest.raises(SpecError, match=says):
            Engine(spec, prompt_variables=cast("Any", {"day": wrong}), **settings)


# -- mistakes ------------------------------------------------------------------------------------


def needs_atlas(context: ToolContext[Atlas], place: str) -> str:
    """Look up."""
    return context.dependencies.places[place]


def write_for_atlas(context: PromptContext[Atlas]) -> str:
    """A prompt."""
    return f"Places: {', '.join(context.dependencies.places)}"


def build_misspelt(**options: Any) -> Agent[None, str]:
    """An agent with options that no type checker would let pass."""
    return Agent("openai:m", **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"promt": "x"}, "unexpected keyword argument 'promt'"),
        ({"temperature": "hot"}, "temperature"),
        ({"prompt": 3}, "the `prompt` of an agent is a text or a function, not 3"),
        ({"prompt": b"x"}, "is a text or a function, not b'x'"),
        ({"tools": add}, r"(?s)`tools` is a list of functions.*, not add.*write tools=\[add\]"),
        ({"tools": {"name": "calculator"}}, r"`tools` is a list of .*, not \{'name': 'calculator'\}"),
        ({"tools": "add"}, r"(?s)`tools` is a list of .*, not 'add'"),
        ({"tools": 3}, "`tools` is a list of functions, ready tools and mappings, not 3"),
        ({"tools": ["add"]}, "(?s)a tool is made of a function, not of 'add'.*itself, not its name"),
        ({"tools": [[add]]}, "a tool is made of a function, not of "),
        ({"tools": Agent("openai:m", name="b")}, r"(?s)the agent 'b' is no function.*agents=\[b, \.\.\.\]"),
        ({"handoffs": ["clerk"]}, "(?s)`handoffs` are agents, and 'clerk' is none.*itself, not its name"),
        ({"handoffs": Agent("openai:m", name="b")}, r"(?s)`handoffs` is a list of agents.*handoffs=\[b\]"),
        ({"handoffs": "clerk"}, "`handoffs` is a list of agents, not 'clerk'"),
        ({"agents": ["clerk"]}, "`agents` are agents, and 'clerk' is none"),
        ({"agents": Agent("openai:m", name="b")}, r"(?s)`agents` is a list of agents.*agents=\[b\]"),
        ({"agents": {"b": Agent("openai:m", name="b")}}, "`agents` is a list of agents, not "),
        ({"dependencies": 3}, "(?s)`dependencies` is the class of .*, not 3.*dependencies=int"),
        ({"dependencies": "Atlas"}, "(?s)`dependencies` is the class of .*, not 'Atlas'.*dependencies=Atlas"),
        ({"dependencies": ATLAS}, r"(?s)`dependencies` is the class of .*dependencies=Atlas.*run\(\.\.\., "),
        ({"name": 5}, "the `name` of an agent is a text, not 5"),
        ({"name": ""}, "the `name` of an agent is a text, not ''"),
        ({"description": 5}, "the `description` of an agent is a text, not 5"),
        ({"agents": [Agent("openai:m", name="b", limits={"max_cost": 1})]}, "`limits` of the agent 'b'"),
        ({"tools": [Agent("openai:m", name="b")]}, r"(?s)the agent 'b' is no function.*agents=\[b, \.\.\.\]"),
        ({"handoffs": [Agent("openai:m", name="agent")]}, "two agents have the name 'agent'"),
        ({"chart": "ful"}, "no chart 'ful'"),
        (
            {"handoffs": [Agent("openai:m", name="b")], "effects": {"say": {"answer": "x"}}},
            r"(?s)`effects` of the agent 'agent' do not reach its chart.*run_agent: {handler: b}",
        ),
        ({"handoffs": [Agent("openai:m", name="b")], "chart": "tool_lop"}, "did you mean 'tool_loop'"),
        ({"limits": {"max_iteratons": 3}}, "did you mean 'max_iterations'"),
        ({"timeout_s": "soon"}, "llms.agent.timeout_s"),
        ({"mcp": ["files"]}, "tools.mcp"),
        ({"mcp": {"files": {"comand": "x"}}}, r"(?s)tools.mcp.files.comand.*did you mean 'command'"),
        ({"mcp": {"files": {}}}, "a server has either a command or a url"),
        ({"openapi": ["x"]}, "tools.openapi"),
        ({"tools": [{"nam": "calculator"}]}, "tools.registry"),
        ({"rag_services": {"docs": {"ulr": "x"}}}, "rag_services.docs: the key 'url' is missing"),
        ({"host_tools": "web_search"}, "host_tools"),
        ({"output_type": City(name="a", country="b")}, "(?s)`output_type` is a type, not .*output_type=City"),
        ({"output_type": "Reply"}, "(?s)`output_type` is a type, not 'Reply'.*output_type=Reply, the class"),
        ({"output_type": list["Reply"]}, r"(?s)`output_type` has the name 'Reply' in place of a type"),  # type: ignore[name-defined]  # noqa: F821
        ({"output_type": 5}, "(?s)`output_type` is a type, not 5.*output_type=int"),
        ({"output_type": {}}, "(?s)`output_type` is a type, not {}.*output_type=dict"),
        ({"output_type": [City, str]}, r"(?s)`output_type` is a type, not .*list\[City\].*City \| str"),
        ({"output_type": add}, "`output_type` is a type, not add"),
        ({"output_type": City | None}, "(?s)the output type .* may be None.*a field of a class"),
        ({"prompt": lambda: "x"}, "<lambda>', which writes .*'prompt_of_agent', does not take one argument"),
        ({"prompt": write_for_atlas}, "the prompt 'write_for_atlas' wants the dependencies Atlas"),
        ({"prompt": write_for_atlas, "dependencies": dict}, "has dict"),
        ({"tools": [needs_atlas]}, "wants the dependencies Atlas, and the agent 'agent' has None"),
        ({"tools": [needs_atlas], "dependencies": dict}, "has dict"),
    ],
)
def test_a_wrong_option_is_refused_when_the_agent_is_made(options: dict[str, Any], says: str) -> None:
    """Issue 30: the error names the option; no message has come yet."""
    with pytest.raises((SpecError, TypeError), match=says):
        build_misspelt(**options)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("promt", "prompt"),
        ("output_tpye", "output_type"),
        ("handofs", "handoffs"),
        ("agent", "agents"),
        ("dependences", "dependencies"),
        ("tool", "tools"),
        ("modle", "model"),
        ("temprature", "temperature"),
    ],
)
def test_an_unknown_option_names_the_nearest_of_all_that_an_agent_takes(misspelt: str, meant: str) -> None:
    """Its own parameters and the keys of a spec are one list, and the best match of it is named."""
    with pytest.raises(SpecError, match=f"(?s)no option '{misspelt}'.*did you mean '{meant}'"):
        build_misspelt(**{misspelt: "x"})


TURN_FORMS = ("run", "arun", "stream", "stream_blocking")


@pytest.mark.parametrize(
    ("form", "arguments", "misspelt", "meant"),
    [
        ("open", (), "logg", "log"),
        *((form, ("go",), "conversaton", "conversation") for form in TURN_FORMS),
        *((form, ("go",), "dependency", "dependencies") for form in TURN_FORMS),
        *((form, ("go",), "telemtry", "telemetry") for form in TURN_FORMS),
    ],
)
def test_an_unknown_option_of_a_run_names_the_nearest_that_a_run_takes(
    form: str, arguments: tuple[str, ...], misspelt: str, meant: str
) -> None:
    """By every form that runs an agent: the error is about what was called, and nothing begins."""
    store, method = open_store("memory"), getattr(Agent(ScriptedModel("hello")), form)
    log = {} if misspelt == "logg" else {"log": store}
    with pytest.raises(SpecError, match=f"(?s)has no option '{misspelt}'.*did you mean '{meant}'"):
        run_to_end(method(*arguments, **log, **{misspelt: "x"}))
    assert list(store.list_conversations()) == []


@pytest.mark.parametrize(
    ("form", "arguments", "misspelt", "meant"),
    [
        *((form, ("go",), "conversaton", "conversation") for form in TURN_FORMS),
        *((form, ("go",), "dependency", "dependencies") for form in TURN_FORMS),
        *((form, ("go",), "agian", "again") for form in ("run_once", "arun_once")),
        ("run_once", ("go",), "cancel", "cancel_on"),
        *(
            (form, ("c",), *names)
            for form in ("approve", "aapprove", "stream_approval", "stream_approval_blocking")
            for names in (("aproved", "approved"), ("onwer", "owner"), ("dependency", "dependencies"))
        ),
    ],
)
def test_an_unknown_option_of_an_open_agent_names_the_nearest(
    form: str, arguments: tuple[str, ...], misspelt: str, meant: str
) -> None:
    """Of a turn and of an approval, by every form."""
    with (
        Agent(ScriptedModel("hello")).open(log="memory") as opened,
        pytest.raises(SpecError, match=f"(?s)has no option '{misspelt}'.*did you mean '{meant}'"),
    ):
        run_to_end(getattr(opened, form)(*arguments, **{misspelt: "x"}))


def test_the_type_of_an_answer_is_no_option_of_a_turn() -> None:
    """It belongs to the agent: one that a turn is given is refused, not passed over."""
    with (
        Agent(ScriptedModel("hello")).open(log="memory") as opened,
        pytest.raises(SpecError, match="a turn has no option 'output_type'"),
    ):
        cast("Any", opened).run("go", output_type=City)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt-5.1", "PROVIDER:MODEL"),
        ("opnai:gpt", "did you mean 'openai'"),
        ({"provdier": "openai", "model": "m"}, "did you mean 'provider'"),
        (5, "a model is PROVIDER:MODEL, an `llms` entry or a provider, not 5"),
        (None, "a model is .*, not None"),
        (ScriptedModel, r"(?s)a model is .*, not .*ScriptedModel.*write ScriptedModel\(\.\.\.\)"),
        (Agent("openai:m", name="b"), r"a model is .*, not Agent\('b'\)"),
    ],
)
def test_a_wrong_model_is_refused_when_the_agent_is_made(model: Any, says: str) -> None:
    """Issue 30: by name, by its form, or by the nearest key; one that takes its place for a while too."""
    with pytest.raises(SpecError, match=says):
        Agent(model)
    agent = Agent("openai:m")
    with pytest.raises(SpecError, match=says), agent.override(model=model):
        agent.spec()


def test_an_option_that_is_none_counts_as_not_given() -> None:
    """Of every option, as programs that pass their own settings on need it."""
    every = [*AgentOptions.__optional_keys__, "prompt", "handoffs", "agents", "dependencies", "output_type"]
    given = cast("Any", dict.fromkeys(every))
    agent = cast("Any", Agent)(ScriptedModel("hello"), **given)
    assert agent.to_document() == Agent(ScriptedModel("hello")).to_document()
    assert agent.run("go", log="memory").output == "hello"


def test_dependencies_may_be_of_one_class_or_another() -> None:
    """A union is a type: each of its classes is taken, and no other."""
    agent = cast("Any", Agent)(ScriptedModel("a", "b"), dependencies=Atlas | dict[str, int])
    assert agent.run("go", dependencies=ATLAS, log="memory").ok
    assert agent.run("go", dependencies={"a": 1}, log="memory").ok
    with pytest.raises(SpecError, match="not list"):
        agent.run("go", dependencies=[], log="memory")


@pytest.mark.parametrize("value", ["add", 5])
def test_what_is_no_function_is_no_tool_of_an_agent(value: Any) -> None:
    """By the decorator, with options and without."""
    agent = cast("Any", Agent("openai:m"))
    for add_tool in (agent.tool, agent.tool(risk="low")):
        with pytest.raises(SpecError, match="a tool is made of a function, not of "):
            add_tool(value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs dependencies of the class Atlas"),
        ({"dependencies": {"places": {}}}, "of the class Atlas, not dict"),
        ({"dependencies": None}, "not NoneType"),
        ({"dependencies": Atlas}, r"give an instance of it: dependencies=Atlas\(\.\.\.\)"),
        ({"dependencies": ATLAS, "conversaton": "c"}, "unexpected keyword argument 'conversaton'"),
    ],
)
def test_wrong_dependencies_are_refused_before_anything_is_recorded(given: Any, says: str) -> None:
    """Issue 30: by every form; the log stays empty."""
    store, agent = open_store("memory"), make_geographer(PARIS)
    for form in (agent.run, agent.stream_blocking, agent.stream, agent.arun):
        with pytest.raises((SpecError, TypeError), match=says):
            run_to_end(form("go", log=store, **given))
    assert list(store.list_conversations()) == []


def run_to_end(running: Any) -> None:
    """Take whatever a form gives."""

    async def read() -> None:
        if hasattr(running, "__aiter__"):
            async for _ in running:
                pass
        else:
            await running

    if hasattr(running, "__next__"):
        list(running)
    else:
        asyncio.run(read())


def test_a_special_kind_of_the_dependencies_is_taken() -> None:
    """Issue 30: a subclass fits, in the context of a tool and in a run."""
    assert make_geographer(PARIS).run("go", dependencies=BigAtlas({}), log="memory").ok
    Agent("openai:m", dependencies=BigAtlas, tools=[needs_atlas])


def test_a_tool_of_an_agent_has_its_context_first() -> None:
    """Issue 30: `Agent.tool` refuses a function without one, and says where it belongs."""
    agent = Agent("openai:m", dependencies=Atlas)
    with pytest.raises(SpecError, match=r"ToolContext\[Atlas\].*tools=\[...\]"):
        agent.tool(add)  # type: ignore[arg-type]


def test_what_an_agent_compiles_to_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 52: a turn on a log of its own loads no spec and makes no tool again; a tool that is added, and a
    model that is put in, count from then on."""
    made: list[str] = []

    def count(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made.append(name)
            return original(*args, **options)

        return call

    for module, name in (("engine.agents", "load_spec"), ("tools.manager", "make_tool")):
        path = f"toolchart.{module}.{name}"
        monkeypatch.setattr(path, count(name, pkgutil.resolve_name(path.replace(f".{name}", f":{name}"))))
    agent = Agent(ScriptedModel(*["x"] * 5), dependencies=Atlas, tools=[add])
    assert (made.count("load_spec"), made.count("make_tool")) == (1, 1)
    for _ in range(2):
        agent.run("go", dependencies=ATLAS, log="memory")
    assert (made.count("load_spec"), made.count("make_tool")) == (1, 1)
    agent.tool(needs_atlas)
    assert agent.run("go", dependencies=ATLAS, log="memory").ok
    assert (
        agent.spec().responses[0].tools
        == Handler.model_validate(
            {"llm": "agent", "tools": {"enabled": True, "allowed_tools": ["add", "needs_atlas"]}}
        ).tools
    )
    with agent.override(model="ollama:qwen3:8b"):
        assert agent.spec().llms["agent"].provider == "ollama"
    assert agent.spec().llms["agent"].provider == "scripted"


def test_a_tool_of_an_agent_ends_in_the_time_of_any_tool() -> None:
    """Issue 52: a function has the default time of a spec, or its own, whether an agent or an engine makes
    the tool of it."""

    @tool(timeout_s=7)
    def slow() -> str:
        """Take time."""
        return "done"

    with Agent(ScriptedModel(), tools=[add, slow]).open(log="memory") as opened:
        times = {each.name: each.timeout_s for each in opened.engine.tools.registry}
        with Engine(opened.engine.spec, log="memory", functions=[add, slow]) as engine:
            assert times == {each.name: each.timeout_s for each in engine.tools.registry}
    assert times["slow"] == 7


def test_agents_that_hand_over_may_share_a_function() -> None:
    """Issue 52: one function of two agents is one tool; no name is taken twice."""
    other = Agent(
        ScriptedModel(call_tool("add", a=1, b=2), "3"), name="other", description="all", tools=[add]
    )
    front = Agent(ScriptedModel('{"agent": "other"}'), name="front", tools=[add], handoffs=[other])
    assert front.run("go", log="memory").output == "3"


# -- models in tests -----------------------------------------------------------------------------


def test_a_model_can_be_replaced_for_a_while() -> None:
    """Issue 30: inside the block the double answers for the agent and its handoffs. The spec in the log stays
    the agent's own; a model that is named replaces that of the spec, inside the block only."""
    other = Agent("openai:m", name="other", description="all")
    agent = Agent("openai:m", handoffs=[other])
    model, store = ScriptedModel('{"agent": "other"}', "done"), open_store("memory")
    with agent.override(model=model):
        assert agent.run("go", log=store, conversation="c").output == "done"
        assert agent.to_document()["llms"]["agent"] == {"provider": "openai", "model": "m"}
    assert len(model.requests) == 2
    with agent.override(model="ollama:qwen3:8b"):
        entries = agent.to_document()["llms"]
    assert entries["other"] == entries["agent"] == {"provider": "ollama", "model": "qwen3:8b"}
    assert agent.to_document()["llms"]["agent"]["provider"] == "openai"


def test_an_override_holds_in_its_own_task_only() -> None:
    """Issue 30: two tests that run at once do not meet each other's models."""
    agent = Agent("openai:m")

    async def ask(answer: str) -> str:
        with agent.override(model=ScriptedModel(answer)):
            await asyncio.sleep(0)
            return (await agent.arun("go", log="memory")).output

    async def ask_twice() -> list[str]:
        return await asyncio.gather(ask("one"), ask("two"))

    assert asyncio.run(ask_twice()) == ["one", "two"]


# -- the spec ------------------------------------------------------------------------------------


def test_an_agent_is_checked_and_drawn_as_its_spec_is() -> None:
    """Issue 30: `check` and `draw` see the chart that runs; handoffs are rows of it, which end and are
    bounded."""
    agent = make_handing_over()
    report = agent.check()
    assert (report.findings, report.worst is None) == ((), False)
    drawing = str(agent.draw())
    assert "with_counter" in drawing
    assert agent.chart().name == "front_handoffs"


@pytest.mark.parametrize("chart", list_shipped_charts())
def test_handoffs_stand_before_any_chart(chart: str) -> None:
    """Issue 52: an agent with a chart and handoffs: its model chooses who answers, and its own answer takes
    the way of its chart. What is proved of the flow has no findings."""
    other = Agent(ScriptedModel("theirs"), name="other", description="all")
    for choice, answer in (("front", "mine"), ("other", "theirs")):
        model = ScriptedModel(f'{{"agent": "{choice}"}}', "mine")
        front = Agent(model, name="front", handoffs=[other], chart=chart)
        store = open_store("memory")
        assert front.run("go", log=store, conversation="c").output == answer
        assert front.check().findings == ()
        (child,) = (name for name in store.list_conversations() if name != "c")
        begun = json.loads(next(iter(store.read_lines(child))))["event"]
        assert yaml.safe_load(begun["chart"])["name"] == (chart if choice == "front" else "full")


def test_a_chart_that_runs_a_handoff_is_the_chart_of_the_agent() -> None:
    """Issue 52: no model chooses before it, whether the chart declares the effect or the agent does."""
    inline = {**RUNNING_OTHER, "effects": HAND_OVER}
    ways: list[Any] = [{"chart": inline}, {"chart": RUNNING_OTHER, "effects": HAND_OVER}]
    for options in ways:
        other = Agent(ScriptedModel("theirs"), name="other")
        front = Agent(ScriptedModel(), name="front", handoffs=[other], **options)
        assert front.chart().name == "handing"
        assert front.run("go", log="memory").output == "theirs"


def test_limits_hold_for_agents_that_hand_over() -> None:
    """Issue 52: a budget ends the turn before another agent is run, and what is left of it is that agent's;
    limits of iterations count where the chart of one of the agents reads them."""
    other = Agent(
        ScriptedModel(call_tool("add", a=1, b=2), *["done"] * 2), name="other", tools=[add], max_iterations=1
    )
    for budget, limit in ((50, "max_tokens"), (5000, None)):
        choice = {"content": '{"agent": "other"}', "usage": {"input": 90, "output": 10}}
        front = Agent(ScriptedModel(choice), name="front", handoffs=[other], limits={"max_tokens": budget})
        turn = front.run("go", log="memory")
        assert turn.limit_reached == limit
        assert (turn.content == "done") == (limit is None)
    with pytest.raises(SpecError, match="reads the limit 'long_result_size'"):
        Agent("openai:m", handoffs=[other], limits={"long_result_size": 5})


def test_a_chart_of_an_agent_may_call_its_functions() -> None:
    """Issue 30: `@effect` functions stand among the tools, and the model is not offered them."""

    @effect
    def shout(text: str) -> str:
        return text.upper()

    chart = {
        "states": {
            "shouting": {
                "initial": True,
                "enter": "shout_it",
                "transitions": [
                    {"event": "returned", "target": "done"},
                    {"event": "failed cancelled", "target": "error"},
                ],
            },
            "done": {"final": True, "enter": "say_it"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
        "effects": {
            "shout_it": {
                "call_function": {"function": "shout", "arguments": {"text": "hello"}, "as": "shouted"}
            },
            "say_it": {"answer": "{{shouted.content}}"},
        },
    }
    agent = Agent(ScriptedModel(), chart=chart, tools=[shout])
    assert agent.check().findings == ()
    assert "tools" not in agent.to_document()["responses"][0]


def build_with(option: str, value: Any) -> tuple[Agent[None, Any], dict[str, Any]]:
    """An agent with an option, and its spec as a person writes it, with the key at its place."""
    imported = {"mcp": ["test__*"], "openapi": ["*"]}.get(option, [])
    handler: dict[str, Any] = {"name": "agent", "llm": "agent"}
    spec: dict[str, Any] = {"name": "agent", "llms": {"agent": {"provider": "scripted", "model": "scripted"}}}
    spec |= {"tools": {"enabled": True, "registry": [{"name": "calculator"}]}, "responses": [handler]}
    handler["tools"] = {"enabled": True, "allowed_tools": ["add", "calculator", *imported]}
    (place,) = (place for place, options in KEY_PLACES.items() if option in options)
    sections = {
        "responses[]": handler,
        "responses[].tools": handler["tools"],
        "llms.*": spec["llms"]["agent"],
    }
    sections |= {"tools": spec["tools"], "tools.*": spec["tools"], "": spec}
    sections[place][option] = value
    replies = [call_tool("add", a=2, b=3), *["done"] * 4]
    return Agent(ScriptedModel(*replies), tools=[add, {"name": "calculator"}], **{option: value}), spec


OPTION_VALUES: dict[str, Any] = {
    "prompt": "Be brief, {{profile.name}}.",
    "temperature": 0.5,
    "max_tokens": 100,
    "top_p": 0.5,
    "top_k": 3,
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "stop": ["END"],
    "reasoning_effort": "low",
    "thinking_budget": 100,
    "verbosity": "low",
    "logprobs": 2,
    "service_tier": "flex",
    "cache_key": "k",
    "cache_ttl": "5m",
    "safety_settings": {"HARM": "LOW"},
    "strict_tools": True,
    "host_tools": [{"web_search": {"max_uses": 3}}],
    "metadata": {"team": "a"},
    "batch": False,
    "extra_body": {"x": 1},
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_iterations": 2,
    "timeout_s": 20.0,
    "idle_timeout_s": 5.0,
    "context_limit": 100_000,
    "default_timeout_ms": 5000,
    "parallel": 1,
    "max_tools": 1,
    "essential_tools": ["add"],
    "pins": {},
    "mcp": {"test": {"command": sys.executable, "args": [MCP_SERVER]}},
    "openapi": [{"document": OPENAPI, "base_url": "https://example.org"}],
    "chart": "tool_loop",
    "limits": {"max_seconds": 100, "max_tool_calls": 1},
    "approval": [{"tools": "add", "decision": "ask"}],
    "approvers": {},
    "effects": {},
    "rag_services": {"docs": {"url": "http://127.0.0.1:9", "retry": {"max_attempts": 1}}},
    "intent": {"detection": {"sums": "adding numbers"}},
    "topic": {"prompt": "What is it about? {{userMessage}}"},
    "profile": {"name": "Ada"},
    "retry": {"max_attempts": 2},
    "prices": {"currency": "EUR", "models": {"scripted": {"input": 1, "output": 2}}},
    "message_trust": "untrusted",
    "policy": "lenient",
    "durability": "normal",
    "lease_s": 20.0,
    "log_deltas": True,
    "log_answers": True,
    "debug": {},
    "redact": {"patterns": ["email"]},
    "seal_keys": [],
    "output": {"per_tool": 1000},
}
"""A value of each option that is a key of the spec."""


@pytest.mark.usefixtures("_timeless_tools")
@pytest.mark.parametrize("option", OPTION_VALUES)
def test_an_option_and_its_key_in_a_file_write_the_same_log(option: str, tmp_path: Path) -> None:
    """Issue 52: the agent with an option, and the file that a person writes with the key of the same name,
    run alike: equal records; the spec in them has the key."""
    agent, document = build_with(option, OPTION_VALUES[option])
    path, logs = tmp_path / "agent.yaml", [open_store("memory"), open_store("memory")]
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    clock = TurnableClock(skips=True)
    agent.run("go", log=logs[0], conversation="c", clock=clock)
    agent, _ = build_with(option, OPTION_VALUES[option])
    settings: dict[str, Any] = {"functions": [add], "providers": agent._list_providers(None)}
    with Engine(path, log=logs[1], clock=TurnableClock(skips=True), **settings) as engine:
        engine.run("go", conversation="c")
    records = [list_records(log) for log in logs]
    assert records[0] == records[1]
    assert (f'"{option}"' in json.dumps(records[0])) == (option != "approvers")  # which are never logged


def test_every_key_of_the_spec_is_an_option_of_an_agent() -> None:
    """Issue 52: nothing can be said only in a file. A key that is no option is one that an agent says by
    something else: its model, its types, its tools, its handoffs. The guide has a row for each place."""
    placed = {option for options in KEY_PLACES.values() for option in options}
    assert placed == OPTION_VALUES.keys()
    assert AgentOptions.__optional_keys__ | {"prompt"} == placed | {*OWN_OPTIONS}
    said_otherwise: dict[str, tuple[type[Section], set[str]]] = {
        "responses[]": (Handler, {"name", "match", "llm", "model", "response_format", "tools"}),
        "responses[].tools": (HandlerTools, {"enabled", "allowed_tools"}),
        "tools": (ToolsConfig, {"enabled", "apply_globally", "registry", "max_iterations", "mcp", "openapi"}),
        "": (AgentSpec, {"name", "llms", "tools", "responses", "embedding"}),
    }
    for place, (section, others) in said_otherwise.items():
        assert {*KEY_PLACES[place], *others, "comment"} == section.model_fields.keys()
    of_an_address = {"provider", "model", "base_url", "api_key", "proxy", "ca_file", "client_certificate"}
    of_all_calls = {"requests_per_minute", "tokens_per_minute", "concurrent", "max_connections"}
    of_the_host = {"description", "retries", "tool_format", "count_tokens", "batch_gather_s", "batch_poll_s"}
    said_before = {
        "temperature",
        "maxTokens",
        "max_tools",
        "essential_tools",
    }  # for a handler, or for the conversation
    in_a_mapping = of_an_address | of_all_calls | of_the_host | said_before
    assert LLMConfig.model_fields.keys() - {"comment"} == {*KEY_PLACES["llms.*"]} | in_a_mapping
    assert McpServer.__optional_keys__ == McpSettings.model_fields.keys()
    rows = {row.partition(" | ")[0] for row in AGENTS_PAGE.read_text("utf-8").splitlines() if row[:1] == "|"}
    assert {"| " + ", ".join(f"`{option}`" for option in KEY_PLACES[place]) for place in KEY_PLACES} <= rows
    assert RagServiceOptions.__optional_keys__ == RagService.model_fields.keys() - {"comment"}


def test_agents_beside_each_other_import_into_one_spec() -> None:
    """Issue 52: servers, documents and entries of all agents stand in the spec, and each agent is offered its
    own; what both mean by one name is the same thing, or refused."""
    own: Any = {"mcp": {"files": {"command": "files"}}, "tools": [{"name": "calculator"}]}
    other = Agent(
        "openai:m",
        name="other",
        mcp={"mail": {"url": "https://a.example", "prefix": "m_"}},
        **{
            "tools": [{"name": "calculator"}, {"name": "text"}],
            "openapi": [{"document": OPENAPI, "prefix": "o_"}],
        },
    )
    document = Agent("openai:m", handoffs=[other], **own).to_document()
    assert list(document["tools"]["mcp"]) == ["files", "mail"]
    assert [entry["name"] for entry in document["tools"]["registry"]] == ["calculator", "text"]
    assert [handler["tools"]["allowed_tools"] for handler in document["responses"]] == [
        ["calculator", "files__*"],
        ["calculator", "text", "m_*", "o_*"],
    ]
    conflicts: list[tuple[dict[str, Any], str]] = [
        ({"mcp": {"files": {"command": "other"}}}, "MCP server 'files' of the agent 'other' is another one"),
        ({"tools": [{"name": "calculator", "risk": "high"}]}, "tool 'calculator' of the agent 'other' is"),
        ({"openapi": [{"document": OPENAPI}]}, "OpenAPI documents and MCP servers a `prefix`"),
        ({"mcp": {"x": {"command": "x", "prefix": ""}}}, "the tools that the agent 'other' imports"),
        ({"limits": {"max_cost": 3}}, "`limits` of the agent 'other' does not hold where 'agent' runs it"),
        ({"approval": "ask"}, "give the same `approval` to 'agent'"),
        ({"default_timeout_ms": 5}, "`default_timeout_ms` of the agent 'other' does not hold"),
    ]
    for options, says in conflicts:
        with pytest.raises(SpecError, match=re.escape(says)):
            build_misspelt(handoffs=[build_misspelt(name="other", **options)], **own)


def test_the_time_of_a_tool_is_that_of_the_conversation() -> None:
    """Issue 52: `default_timeout_ms` of the first agent counts for the functions of a handoff too, except for
    one that has its own."""

    @tool(timeout_s=7)
    def slow() -> str:
        """Take time."""
        return "done"

    other = Agent(ScriptedModel(), name="other", tools=[add, slow])
    front = Agent(ScriptedModel(), name="front", handoffs=[other], default_timeout_ms=2000)
    with front.open(log="memory") as opened:
        assert {each.name: each.timeout_s for each in opened.engine.tools.registry} == {"add": 2, "slow": 7}


def test_a_model_and_its_agent_do_not_contradict_each_other() -> None:
    """Issue 52: a key of the model is given once; a model that stands for another one keeps its own."""
    entry = {"provider": "openai", "model": "m", "timeout_s": 5}
    with pytest.raises(SpecError, match=r"timeout_s=9.*its model 5"):
        Agent(entry, timeout_s=9)
    agent = Agent("openai:m", timeout_s=9)
    assert agent.to_document()["llms"]["agent"]["timeout_s"] == 9
    with agent.override(model=entry):
        assert agent.to_document()["llms"]["agent"]["timeout_s"] == 5


def test_a_marked_tool_keeps_its_options() -> None:
    """Issue 30: `@tool` below `@agent.tool` says what the tool is, as for any function."""
    agent = Agent(ScriptedModel(call_tool("pay", amount=3)), dependencies=Atlas)

    @agent.tool
    @tool(requires_approval=True)
    def pay(context: ToolContext[Atlas], amount: int) -> str:
        """Pay."""
        return context.idempotency_key

    turn = agent.run("go", dependencies=ATLAS, log="memory")
    assert [pending.tool for pending in turn.pending_approvals] == ["pay"]
    assert load_spec(agent.to_document()).responses[0].tools is not None


def test_a_tool_of_an_agent_takes_the_options_of_any_tool() -> None:
    """`@agent.tool(...)` takes what `@tool(...)` takes; an unknown option, and options in both places, are
    refused."""
    agent = Agent(ScriptedModel(call_tool("pay", amount=3)), dependencies=Atlas)

    @agent.tool(requires_approval=True)
    def pay(context: ToolContext[Atlas], amount: int) -> str:
        """Pay."""
        return context.idempotency_key

    @agent.tool()
    def look(context: ToolContext[Atlas]) -> str:
        """Look."""
        return ""

    turn = agent.run("go", dependencies=ATLAS, log="memory")
    assert [pending.tool for pending in turn.pending_approvals] == ["pay"]
    with pytest.raises(SpecError, match="did you mean 'requires_approval'"):
        cast(Any, agent).tool(require_approval=True)
    with pytest.raises(SpecError, match="write them in one place"):
        agent.tool(risk="low")(tool(idempotent=True)(look))
