"""No call that the agent forbids reaches a program, over all wires, streamed and whole."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from enforced_programs import Program, describe_tool, enforce, make_client, make_reply, make_spec, name_host
from foreign_loops import ENCODERS

from toolchart.app.watch.rules import load_rules
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply
from toolchart.testing.emulators import emulate_host

NAMES = ("look_up", "book", "refund", "close", "shout")
SPEC = make_spec(
    describe_tool("look_up"),
    describe_tool("book", needs=["look_up"]),
    describe_tool("refund", max_calls=1),
    describe_tool("close", needs=["book"], needs_in="conversation"),
)
"""What is allowed; `shout` is a tool that the agent does not have."""

STREAMS = pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
ALL_WIRES = pytest.mark.parametrize("wire", ENCODERS)


def find_forbidden(turns: list[list[tuple[str, Any]]]) -> list[str]:
    """What the rules forbid of the calls that reached the tools, told by itself.

    Calls of one reply run beside each other: what a call needs must have run before its reply, so it is
    enough here that it has run before at all.
    """
    faults, booked = [], False
    for turn in turns:
        ran: list[str] = []
        for name, _ in turn:
            if name not in NAMES[:4]:
                faults.append(f"{name} is none of the agent")
            if name == "book" and "look_up" not in ran:
                faults.append("book before look_up")
            if name == "refund" and "refund" in ran:
                faults.append("a second refund")
            if name == "close" and not booked:
                faults.append("close before book")
            ran.append(name)
            booked = booked or name == "book"
    return faults


@ALL_WIRES
@STREAMS
@pytest.mark.parametrize("seed", range(6))
async def test_no_forbidden_call_reaches_a_tool(wire: str, is_streamed: bool, seed: int) -> None:
    """A model that asks for anything, in any order, with and without words: the tools of the program see
    allowed calls only, each turn ends, the host refuses no request, and the log verifies."""
    await check_program(wire, is_streamed, seed)


@STREAMS
@pytest.mark.parametrize("seed", range(6))
async def test_a_program_that_names_responses_is_held_too(is_streamed: bool, seed: int) -> None:
    """The host keeps calls that were refused, and the program does not know them."""
    await check_program("responses", is_streamed, 100 + seed, is_stateful=True)


UNJUDGED: dict[str, tuple[str, dict[str, Any], str]] = {
    "several answers": ("chat", {"n": 2}, "several answers at once"),
    "functions": ("chat", {"functions": [{"name": "book"}]}, "`functions`"),
    "function_call": ("chat", {"function_call": "auto"}, "`functions`"),
    "custom tools": ("chat", {"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "'custom'"),
    "background": ("responses", {"background": True}, "`background`"),
    "conversation": ("responses", {"conversation": "c"}, "`conversation`"),
    "prompt": ("responses", {"prompt": {"id": "p"}}, "`prompt`"),
    "own search": ("responses", {"tools": [{"type": "web_search"}]}, "'web_search'"),
    "server tools": ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "'bash'"),
    "servers": ("messages", {"mcp_servers": [{"url": "http://127.0.0.1"}]}, "'mcp_servers'"),
    "candidates": ("gemini", {"generationConfig": {"candidateCount": 2}}, "several answers at once"),
    "own google": ("gemini", {"tools": [{"googleSearch": {}}]}, "'googleSearch'"),
}


@pytest.mark.parametrize("name", UNJUDGED)
async def test_what_nobody_could_judge_is_not_asked(name: str) -> None:
    """The program reads why, and the host hears nothing."""
    wire, more, words = UNJUDGED[name]
    with emulate_host(name_host(wire)) as host:
        address = host.base_url if name_host(wire) == "openai" else f"http://127.0.0.1:{host.port}"
        async with (
            enforce(open_store("memory"), SPEC, {name_host(wire): address}) as watch,
            make_client() as client,
        ):
            program = Program(wire, watch.url, host.model, False, NAMES, more=more)
            with pytest.raises(ProviderError, match="toolchart watch") as problem:
                await program.say("go", client)
        assert words in problem.value.message
        assert problem.value.status == 403
        assert host.bodies == []


async def test_a_chart_alone_holds_a_program_to_its_limit() -> None:
    """It knows no tools: each call passes until the chart ends the turn, and then none does."""
    script = [make_reply("anything") for _ in range(40)]
    rules = load_rules("tool_loop")
    with emulate_host("anthropic", script=script) as host:
        hosts = {"anthropic": f"http://127.0.0.1:{host.port}"}
        async with enforce(open_store("memory"), rules, hosts) as watch, make_client() as client:
            program = Program("messages", watch.url, host.model, True, ("anything",))
            text = await program.say("go", client, most=40)
    assert "No call was made." in text
    assert 1 < len(program.ran[0]) < 40


async def test_a_host_that_fails_is_asked_again_in_the_same_conversation() -> None:
    """A refusal of the host reaches the program, and is no end of the turn."""
    busy = ProviderError(kind="overloaded", message="busy", status=503, retryable=True)
    script = [busy, make_reply("look_up"), busy, Reply(content="Done.", finish_reason="stop")]
    store = open_store("memory")
    with emulate_host("anthropic", script=script) as host:
        hosts = {"anthropic": f"http://127.0.0.1:{host.port}"}
        async with enforce(store, SPEC, hosts) as watch, make_client() as client:
            program = Program("messages", watch.url, host.model, True, NAMES)
            with pytest.raises(ProviderError, match="busy"):
                await program.say("go", client)
            program.messages.pop()
            with pytest.raises(ProviderError, match="busy"):
                await program.say("go", client)
            reply = await program.ask(client)
        figures = watch.recorder.figures
    assert reply.content == "Done."
    assert (len(figures.conversations), figures.retries, figures.failed) == (1, 2, 2)
    assert b'"cancelled"' not in b"".join(store.read_lines(figures.conversations[0]))


async def check_program(wire: str, is_streamed: bool, seed: int, *, is_stateful: bool = False) -> None:
    """Three turns of a program over a wire."""
    rng = Random(f"{wire} {seed}")
    script = []
    for _ in range(60):
        words = rng.choice([None, "One moment.", "So be it. "])
        names = rng.choices(NAMES, weights=(4, 3, 2, 2, 1), k=rng.choice([0, 1, 1, 2, 3]))
        script.append(
            make_reply(*names, content=words) if names else Reply(content="Done.", finish_reason="stop")
        )
    wanted = sum(len(reply.tool_calls) for reply in script)
    store = open_store("memory")
    model = "gpt-4.1" if name_host(wire) == "openai" else None
    with emulate_host(name_host(wire), model=model, script=script) as host:
        address = host.base_url if name_host(wire) == "openai" else f"http://127.0.0.1:{host.port}"
        async with enforce(store, SPEC, {name_host(wire): address}) as watch, make_client() as client:
            program = Program(wire, watch.url, host.model, is_streamed, NAMES, is_stateful)
            texts = [await program.say(f"turn {number}", client) for number in range(3)]
        figures = watch.recorder.figures
        assert [each.message for each in host.refusals] == []
        wanted -= sum(len(reply.tool_calls) for reply in host.script if isinstance(reply, Reply))
    assert all(texts), texts
    assert find_forbidden(program.ran) == []
    ran = sum(map(len, program.ran))
    assert ran + figures.refused.total() == wanted
    assert (len(figures.conversations), figures.uncertain, figures.problems) == (1, 0, {})
    for verified in verify_store(store):
        assert isinstance(verified, VerifiedConversation), verified
    for conversation in store.list_conversations():
        assert list(replay_conversation(store, conversation))
