"""What a token may change of recorded turns: with the role chat a fork or a rerun can only narrow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_function_tool, make_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from served import make_site, open_client

from toolchart.app.server.conversations.copies import FORK_RIGHTS, RERUN_RIGHTS
from toolchart.app.server.conversations.forms import ForkForm, RerunForm
from toolchart.engine import Engine
from toolchart.engine.log.fork import SETTABLE_NAMES
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.turn_bounds import LIMIT_RULES, OPTION_RULES, SETTING_RULES, TurnBounds
from toolchart.states.events import Limits, Replied, Settings, TurnStarted
from toolchart.states.messages import MODEL_OPTIONS, Reply, Request, ToolCall

TOOLS = ("look", "count", "wipe")

HANDLERS: dict[str, dict[str, Any]] = {
    "small": {
        "tools": {"enabled": True, "allowed_tools": ["look"], "max_iterations": 2},
        "max_tokens": 100,
        "reasoning_effort": "low",
    },
    "middle": {"tools": {"enabled": True, "allowed_tools": ["look", "count"], "max_iterations": 3}},
    "none": {"tools": {"enabled": False}},
}
"""The operator's handlers. `wipe` is in none of them."""


class Greedy:
    """An agent whose model asks for every tool in every iteration, and which notes what has run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.store = MemoryStore()
        self.tools = [self._make_tool(name) for name in TOOLS]

    def _make_tool(self, name: str) -> Any:
        def run(arguments: Mapping[str, Any]) -> str:
            self.ran.append(name)
            return name

        tool = make_function_tool(name, {"type": "object", "properties": {}}, run)
        return msgspec.structs.replace(tool, idempotent=True)

    def open_engine(self, handlers: Mapping[str, Mapping[str, Any]]) -> Engine:
        """An engine on the one log, with these handlers."""
        responses = [{"llm": "model", "prompt": "p", "name": name, **row} for name, row in handlers.items()]
        spec = make_spec(responses=responses, tools={"enabled": True})
        providers = {"model": ScriptedProvider([ask_for_everything] * 200)}
        return Engine(spec, log=self.store, functions=self.tools, providers=providers)

    async def plant(self, handler: str) -> None:
        """A log that says that this handler has every tool, and far higher limits."""
        wide = {"tools": {"enabled": True, "max_iterations": 9}, "extra_body": {"x": 1}}
        async with self.open_engine({handler: wide}) as engine:
            await engine.arun("hi", conversation="planted", handler=handler)
        self.ran.clear()


def ask_for_everything(request: Request) -> Reply:
    """A reply with a call of each tool, whether it was offered or not."""
    calls = tuple(ToolCall(id=f"c{number}", name=name, arguments={}) for number, name in enumerate(TOOLS))
    return Reply(content=None, tool_calls=calls, finish_reason="tool_calls")


def test_every_field_has_a_right() -> None:
    """Each field of the forms, of the settings, of the limits, and each option of a model has a row that says
    what it gives; so a new one is refused until it has."""
    assert set(FORK_RIGHTS) == set(ForkForm.__struct_fields__)
    assert set(RERUN_RIGHTS) == set(RerunForm.__struct_fields__)
    assert set(SETTING_RULES) == set(Settings.__struct_fields__)
    assert set(LIMIT_RULES) == set(Limits.__struct_fields__)
    assert set(OPTION_RULES) == set(MODEL_OPTIONS)


LIKELY = ("tools", "tools.allowed_tools", "max_iterations", "limits.max_iterations", "reasoning_effort")
names = st.sampled_from(LIKELY) | st.sampled_from([*SETTABLE_NAMES, "nothing"])
values = st.one_of(
    st.lists(st.sampled_from(TOOLS), max_size=3),
    st.none(),
    st.booleans(),
    st.integers(-2, 2000),
    st.floats(0, 9, allow_nan=False),
    st.sampled_from([*TOOLS, "model", "low", "high", {"x": 1}, []]),
)
changes = st.dictionaries(names, values, max_size=3)
handlers = st.sampled_from(sorted(HANDLERS))


def check_fork(store: MemoryStore, bounds: TurnBounds, handler: str) -> None:
    """Every turn of the fork asked models as often as the handler allows, under settings within its own."""
    replies, iterations = 0, HANDLERS[handler]["tools"].get("max_iterations", 5)
    for step in replay_conversation(store, "fork"):
        event, turn = step.record.decode_event(), step.step.snapshot.settings
        replies = 0 if isinstance(event, TurnStarted) else replies + isinstance(event, Replied)
        assert replies <= iterations + 1
        if turn is not None and step.step.snapshot.open_effects:
            assert bounds.narrow(turn, handler) == turn


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    handler=handlers,
    changed=changes,
    at=st.sampled_from([None, 0, 1, 2, 3, 4, 7]),
    system=st.sampled_from([None, None, None, "Obey."]),
    flags=st.fixed_dictionaries({"run_tools": st.booleans(), "from_log": st.booleans()}),
)
def test_a_fork_by_a_chat_token_only_narrows(
    handler: str, changed: dict[str, Any], at: int | None, system: str | None, flags: dict[str, bool]
) -> None:
    """Issue 25: whatever a form asks for, and whatever the log says that a handler had, no tool runs that the
    operator's handler does not give, no limit or setting is above its own, and a refusal names the field."""
    form = {"settings": changed, "system": system, "at": at, "conversation": "fork", **flags}
    greedy = Greedy()

    async def run() -> None:
        await greedy.plant(handler)
        engine = greedy.open_engine(HANDLERS)
        bounds = TurnBounds(engine.spec, engine.tools.names(), engine.tools.aliases)
        async with open_client(make_site(engine), "talker") as client:
            answer = await client.post("/api/conversations/planted/fork", json=form)
            assert answer.status_code in (200, 400, 403, 500 if flags["from_log"] else 403)
            if answer.status_code == 403:
                assert answer.json()["field"] in ("system", *(f"settings.{name}" for name in changed))
                assert answer.json()["field"] in answer.json()["error"]
            if answer.status_code == 200:
                assert system is None
                check_fork(greedy.store, bounds, handler)
            else:
                assert greedy.store.read_last_line("fork") is None
            message = {"message": "on", "handler": handler}
            resumed = await client.post("/api/conversations/fork/resume")
            assert resumed.status_code in (200, 400, 404)
            if greedy.store.read_last_line("fork") is not None:
                await client.post("/api/conversations/fork/messages", json=message)
            check_fork(greedy.store, bounds, handler)

    asyncio.run(run())
    section = HANDLERS[handler]["tools"]
    assert set(greedy.ran) <= set(section.get("allowed_tools", ()))


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    handler=handlers, changed=changes, offline=st.booleans(), system=st.sampled_from([None, None, "Obey."])
)
def test_a_rerun_by_a_chat_token_only_narrows(
    handler: str, changed: dict[str, Any], offline: bool, system: str | None
) -> None:
    """Issue 25: as for forks; the models are asked with no tool and no option beyond the handler's."""
    greedy = Greedy()

    async def run() -> list[Request]:
        await greedy.plant(handler)
        engine = greedy.open_engine(HANDLERS)
        form = {"settings": changed, "system": system, "offline": offline}
        async with open_client(make_site(engine), "talker") as client:
            answer = await client.post("/api/conversations/planted/rerun", json=form)
        assert answer.status_code in (200, 400, 403)
        if answer.status_code == 403:
            assert answer.json()["field"] in ("system", *(f"settings.{name}" for name in changed))
        provider: Any = engine.hosts.providers["model"]
        return list(provider.requests)

    requests = asyncio.run(run())
    assert greedy.ran == []
    section = HANDLERS[handler]["tools"]
    for request in requests:
        assert {tool.name for tool in request.tools} <= set(section.get("allowed_tools", ()))
        assert request.options.get("reasoning_effort") == HANDLERS[handler].get("reasoning_effort")
        assert "extra_body" not in request.options
    assert len(requests) <= section.get("max_iterations", 5) + 1


FORK = "/api/conversations/planted/fork"
RERUN = "/api/conversations/planted/rerun"


async def open_planted(handler: str = "small") -> tuple[Greedy, Engine]:
    """The operator's engine on a log that a wider one has written."""
    greedy = Greedy()
    await greedy.plant(handler)
    return greedy, greedy.open_engine(HANDLERS)


async def test_a_fork_of_a_planted_log_has_what_the_handler_gives() -> None:
    """Without a change the fork runs under the operator's handler: one tool and two iterations, where the log
    says three tools and nine."""
    greedy, engine = await open_planted()
    async with open_client(make_site(engine), "talker") as client:
        answer = await client.post(FORK, json={"at": 1, "run_tools": True})
    assert (answer.status_code, answer.json()["result"]["limit_reached"]) == (200, "max_iterations")
    assert greedy.ran == ["look", "look"]


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"settings": {"tools": ["wipe"]}}, "settings.tools"),
        ({"settings": {"tools.allowed_tools": "wipe"}}, "settings.tools.allowed_tools"),
        ({"settings": {"max_iterations": 3}}, "settings.max_iterations"),
        (
            {"settings": {"limits.max_tokens": None, "limits.max_iterations": 9}},
            "settings.limits.max_iterations",
        ),
        ({"settings": {"max_tokens": 101}}, "settings.max_tokens"),
        ({"settings": {"max_tokens": None}}, "settings.max_tokens"),
        ({"settings": {"reasoning_effort": "high"}}, "settings.reasoning_effort"),
        ({"settings": {"host_tools": [{"type": "web_search"}]}}, "settings.host_tools"),
        ({"system": ""}, "system"),
        ({"results": {"c": "words"}}, "results"),
    ],
)
async def test_what_widens_names_its_field_and_the_role(form: dict[str, Any], field: str) -> None:
    """A chat token gets 403 with the field and the role, for a fork and a rerun, and nothing is written; one
    with the role debug is not refused."""
    _, engine = await open_planted()
    async with open_client(make_site(engine), "talker") as client:
        answers = [await client.post(FORK, json={**form, "conversation": "fork"})]
        if "results" not in form:
            answers.append(await client.post(RERUN, json=form))
        for answer in answers:
            assert (answer.status_code, answer.json()["field"]) == (403, field)
            assert answer.json()["error"].startswith(f"{field}: ")
            assert "'debug'" in answer.json()["error"]
        assert engine.store.read_last_line("fork") is None
        client.headers["Authorization"] = "Bearer token-of-owner-for-tests-only"
        assert (await client.post(FORK, json=form)).status_code != 403


async def test_what_narrows_is_free() -> None:
    """Fewer tools, lower limits and other sampling are a chat token's own choice."""
    greedy, engine = await open_planted("middle")
    chosen = {
        "tools": ["count"],
        "limits.max_iterations": 1,
        "temperature": 0.5,
        "model": "other",
        "llm": "model",
    }
    async with open_client(make_site(engine), "talker") as client:
        answer = await client.post(FORK, json={"settings": chosen, "run_tools": True, "conversation": "fork"})
    assert (answer.status_code, answer.json()["result"]["model"]) == (200, "other")
    assert greedy.ran == ["count"]
    start = next(iter(replay_conversation(greedy.store, "fork"))).step.snapshot.settings
    assert start is not None
    assert start.options == {"temperature": 0.5}


async def test_the_role_debug_widens() -> None:
    """With the role a fork runs any tool of the agent under any limit, and lets the host do what the form
    names; what only the log names stays refused."""
    greedy, engine = await open_planted()
    settings = {"tools": ["wipe"], "limits.max_iterations": 3}
    async with open_client(make_site(engine)) as client:
        refused = await client.post(FORK, json={"settings": settings, "run_tools": True})
        form = {"settings": {**settings, "extra_body": {"x": 1}}, "run_tools": True}
        answer = await client.post(FORK, json=form)
    assert (refused.status_code, "extra_body" in refused.text) == (409, True)
    assert answer.status_code == 200
    assert greedy.ran == ["wipe"] * 3


async def test_the_turn_of_an_unknown_handler_is_not_forked() -> None:
    """A log that names a handler which the operator's agent does not have gives nothing."""
    greedy, engine = await open_planted("elsewhere")
    async with open_client(make_site(engine), "talker") as client:
        answer = await client.post(FORK, json={"at": 1})
    assert (answer.status_code, "'elsewhere'" in answer.json()["error"]) == (400, True)
    assert greedy.ran == []


async def test_tools_alone_need_the_role() -> None:
    """To run a tool alone, and to test a model with all tools, needs the role debug."""
    greedy, engine = await open_planted()
    async with open_client(make_site(engine), "talker") as client:
        alone = await client.post("/api/tools/wipe/run", json={"arguments": {}})
        test = await client.post("/api/tools/test", json={"llm": "model", "model": "m", "query": "q"})
    assert (alone.status_code, test.status_code, greedy.ran) == (403, 403, [])
    assert "'debug'" in alone.json()["error"]


async def test_a_history_names_no_address() -> None:
    """Earlier messages in a request may hold pictures as data, and no address that a host would fetch."""
    picture = {"type": "image_url", "image_url": {"url": "https://192.0.2.1/x.png"}}
    history = [{"role": "user", "content": [picture]}, {"role": "assistant", "content": "a"}]
    _, engine = await open_planted()
    async with open_client(make_site(engine), "talker") as client:
        answer = await client.post("/api/conversations", json={"message": "hi", "history": history})
    assert (answer.status_code, "not as an address" in answer.json()["error"]) == (400, True)


async def test_pages_offer_what_a_token_may_change() -> None:
    """Without the role debug the page of a run shows prompt and results as they are, and says why; the page
    of tools runs none alone."""
    _, engine = await open_planted()
    async with open_client(make_site(engine), "talker") as client:
        run = (await client.get("/conversations/planted")).text
        tools = (await client.get("/tools")).text
        client.headers["Authorization"] = "Bearer token-of-owner-for-tests-only"
        own_run = (await client.get("/conversations/planted")).text
        own_tools = (await client.get("/tools")).text
    assert ("lacks the role debug" in run, run.count(" readonly>")) == (True, 2)
    assert ("lacks the role debug" in own_run, own_run.count(" readonly>")) == (False, 0)
    assert ("Run it alone" in tools, "Run it alone" in own_tools) == (False, True)
