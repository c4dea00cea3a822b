"""Records conversations with the real engine that between them use all that a request can contain.

One speaks with each adapter over loopback; three use scripted models for what a host cannot be made to do.
"""

from __future__ import annotations

from typing import Any

from agents import make_function_tool
from killed_calls import EARLY_CHART
from web import serve_web
from wire_answers import ScriptedHost
from wire_requests import CITY, ENTRIES, SCHEMA_FORMAT

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.stores import open_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.events import Decided
from toolchart.states.messages import Message, Reply, ToolCall
from toolchart.states.ports import Store

HOSTS = (
    *("openai", "openai compatible", "openai responses"),
    *("ollama", "ollama hermes", "ollama bracket", "gemini", "anthropic"),
)
"""The `llms` entries that speak with the loopback server, each in a conversation of the same name."""

REGISTRY = [
    {
        "name": "look_up",
        "description": "Look up a city.",
        "parameters": CITY,
        "max_result_size": 300,
        "implementation": {"type": "mock", "mock_response": {"sky": "blue", "days": ["warm"] * 80}},
    },
    {
        "name": "count",
        "description": "Count the cities.",
        "implementation": {"type": "mock", "mock_response": 2},
    },
    {"name": "delete", "requires_approval": True, "implementation": {"type": "mock", "mock_response": "no"}},
]
OPTIONS = {"max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["#"]}
ALLOWED = {"allowed": ["count", "look_up"], "mode": "auto"}
HISTORY_CALL = ToolCall(id="h1", name="count", arguments={"all": True}, native_id="n0")
HISTORY = (
    Message(role="user", content="How many cities are there?"),
    Message(role="assistant", tool_calls=(HISTORY_CALL,)),
    Message(role="tool", tool_call_id="h1", name="count", content='{"success": true, "result": 2}'),
    Message(role="assistant", content="Two."),
)
"""Earlier messages from elsewhere: no host has own data in them."""


def make_spec(llms: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An agent with three tools and two handlers: one with options and tools, one with a reply format."""
    name = next(iter(llms))
    prompt = "You know the weather."
    options = {**OPTIONS, "tool_choice": ALLOWED, "parallel_tool_calls": False}
    return {
        "chart": "full",
        "llms": llms,
        "retry": {"first_wait_s": 0.001, "max_wait_s": 0.001},
        "log_answers": True,
        "tools": {"max_iterations": 2, "registry": REGISTRY},
        "responses": [
            {"name": "main", "llm": name, "prompt": prompt, "tools": {"enabled": True}, **options},
            {"name": "strict", "llm": name, "tools": {"enabled": True}, "tool_choice": "required"},
            {"name": "shaped", "llm": name, "prompt": "Be brief.", "response_format": SCHEMA_FORMAT},
        ],
        **changes,
    }


def record_conversations() -> Store:
    """A store with all conversations."""
    store = open_store("memory")
    host = ScriptedHost()
    with serve_web(host.make_answer) as server:
        for name in HOSTS:
            entry = dict(ENTRIES[name])
            entry["base_url"] = server.url + entry.get("base_url", "")
            record_host_conversation(store, name, {**entry, "model": "m", "api_key": "none"}, host)
    record_exceptions(store)
    record_text_fallback(store)
    record_early_leave(store)
    return store


def record_host_conversation(store: Store, name: str, entry: dict[str, Any], host: ScriptedHost) -> None:
    """Four turns and a fork with one host: calls, a retry, a forced answer, a failure, a format."""
    writes_text = "tool_format" in entry
    first = {
        "text": "Let me see.",
        "calls": [("look_up", {"city": "Oslo"}), ("count", {}), ("look_up", {"city": 5})],
    }
    second = {"calls": [("count", {"again": True})]}
    if writes_text:
        calls = '<tool_call>{"name": "look_up", "arguments": {"city": "Oslo"}}</tool_call>'
        first, second = {"text": calls}, {"text": calls.replace("Oslo", "Rome")}
        if entry["tool_format"] == "bracket":
            first, second = {"text": "Let me see."}, {"text": "No."}
    host.answers.extend([first, 500, second, {"text": "It is warm."}])
    approval = {"approval": [{"tools": "*", "decision": "always"}]} if writes_text else {}
    with Engine(make_spec({"model": entry}, **approval), log=store) as engine:
        engine.run("Is it warm in Oslo?", conversation=name, history=HISTORY)
        host.answers.clear()
        host.answers.extend([400, 400])
        engine.run("And in Rome?", conversation=name, on_delta=lambda *_: None)
        host.answers.clear()
        host.answers.append({"text": '{"city": "Rome"}'})
        engine.run("As JSON, please.", conversation=name, handler="shaped")
        host.answers.append({"text": "You are welcome."})
        engine.run("Thank you.", conversation=name, handler="strict")
        host.answers.append({"text": "Forked."})
        changes = ForkChanges(settings={"model": "m3"}, system="You know nothing.")
        engine.conversation(name).fork(changes=changes, name=f"{name}, forked")
    host.answers.clear()


async def approve(call: ToolCall) -> Decided:
    """Deny every call."""
    return Decided(call_id=call.id, approved=False, reason="rather not")


def record_exceptions(store: Store) -> None:
    """A scripted model: history, a denied call, a message during a turn, cut replies and streams."""
    name = "scripted"

    async def nudge(arguments: Any) -> str:
        await engine.conversation(name).asay("And hurry, please.")
        return "nudged"

    calls = (ToolCall(id="same", name="nudge", arguments={}), ToolCall(id="c2", name="delete", arguments={}))
    data = {"provider": "scripted", "sign": "c2ln"}
    half_word = {"pieces": ["It ", "is"]}
    cut = {"cut": True, "stream": half_word, "content": "It is"}
    replies = [
        Reply(content="Well.", tool_calls=calls, finish_reason="tool_calls", provider_data=data),
        {"tool_calls": [{"name": "count", "arguments": "{broken"}]},
        "It is done.",
        *(cut, cut, cut),
        Reply(content="Let", tool_calls=(ToolCall(id="same", name="count"),), finish_reason="length"),
        "At last.",
    ]
    engine = Engine(
        make_spec({"model": {"provider": "scripted", "model": "m", "replies": ["unused"]}}),
        log=store,
        functions=[make_function_tool("nudge", {"type": "object", "properties": {}}, nudge)],
        providers={"model": ScriptedProvider(replies)},
        approver=approve,
    )
    with engine:
        engine.run("  Delete it. ", conversation=name, history=HISTORY)
        engine.run("Stream it.", conversation=name, on_delta=lambda *_: None)
        engine.run("Count again.", conversation=name)
        engine.run("And now?", conversation=name, model="m2")


def record_text_fallback(store: Store) -> None:
    """A scripted model that refuses native calls in its first turn, so that tools are described in text."""
    refusal = {"fail": {"kind": "tools_unsupported"}}
    calls = {"tool_calls": [{"name": "count"}, {"name": "count"}]}
    providers = {"model": ScriptedProvider([refusal, calls, calls, calls, "Enough.", "Again."])}
    llms = {"model": {"provider": "scripted", "model": "m", "replies": ["unused"]}}
    spec = make_spec(llms, chart="resilient", tools={"max_iterations": 1, "registry": REGISTRY})
    with Engine(spec, log=store, providers=providers) as engine:
        engine.run("Count.", conversation="text fallback")
        engine.run("Once more.", conversation="text fallback")


def record_early_leave(store: Store) -> None:
    """A chart that leaves `executing` early: the call that was running ends as interrupted."""
    llms = {"model": {"provider": "scripted", "model": "m", "replies": ["unused"]}}
    calls = {"tool_calls": [{"name": "count", "arguments": {"n": index}} for index in range(3)]}
    tools = {"parallel": 1, "registry": REGISTRY}
    spec = make_spec(llms, chart=EARLY_CHART, tools=tools, retry={})
    with Engine(spec, log=store, providers={"model": ScriptedProvider([calls, "Enough."])}) as engine:
        engine.run("Count.", conversation="early leave")
