"""Calls that need a person wait in the answer of the host, until somebody decides."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_line import START
from enforced_programs import (
    Program,
    Watch,
    describe_tool,
    enforce,
    make_client,
    make_reply,
    make_spec,
    name_host,
)
from foreign_loops import ENCODERS, Loop, make_exchange
from msgspec.structs import replace
from served import make_site, open_client

from toolchart import Engine
from toolchart.app.watch import enforced_passage
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.mining.replaying import Replayer
from toolchart.engine.reading.waiting import PendingApproval, read_waiting
from toolchart.engine.turns.items import Item, encode_item
from toolchart.engine.watching.enforcing import Enforcer
from toolchart.engine.watching.exchanges import Exchange
from toolchart.engine.watching.recorder import Recorder
from toolchart.specs.loader import load_spec
from toolchart.states.events import Decided
from toolchart.states.messages import Message, Reply, ToolCall
from toolchart.states.ports import Store
from toolchart.testing.emulators import emulate_host
from toolchart.tools.signing_keys import create_key_file

NAMES = ("look_up", "pay")
SPEC = make_spec(describe_tool("look_up"), describe_tool("pay", requires_approval=True))
DONE = Reply(content="Done.", finish_reason="stop")

WAIT_S = 30


class Scene:
    """A program under a watch whose log is a file, and what people do beside it."""

    def __init__(self, folder: Path, spec: dict[str, Any] = SPEC) -> None:
        self.folder, self.spec = folder, spec
        self.log = str(folder / "seen.db")
        (folder / "agent.yaml").write_text(json.dumps(spec), "utf-8")  # YAML has JSON in it
        self.store: Store = open_store(self.log)
        self.program: Program | None = None
        self.said: list[str] = []
        """What the watch has said meanwhile."""

    async def run(self, wire: str, is_streamed: bool, script: list[Reply], *people: Any) -> str:
        """One turn of a program, while people do something; its last text."""
        host_name = name_host(wire)
        model = "gpt-4.1" if host_name == "openai" else None
        with emulate_host(host_name, model=model, script=script) as host:
            address = host.base_url if host_name == "openai" else f"http://127.0.0.1:{host.port}"
            rules = Replayer(load_spec(self.spec))
            async with (
                enforce(self.store, rules, {host_name: address}, self.said.append) as watch,
                make_client() as client,
            ):
                self.watch: Watch = watch
                self.program = Program(wire, watch.url, host.model, is_streamed, NAMES)
                async with asyncio.TaskGroup() as group:
                    turn = group.create_task(self.program.say("Pay the bill", client))
                    for person in people:
                        group.create_task(person)
            assert [each.message for each in host.refusals] == []
        return turn.result()

    async def wait_for_question(self, count: int = 1) -> list[PendingApproval]:
        """What people are asked."""
        async with asyncio.timeout(WAIT_S):
            while True:
                waiting = [
                    call for name in self.store.list_conversations() for call in self.read_waiting(name)
                ]
                if len(waiting) >= count:
                    return waiting
                await asyncio.sleep(0.05)

    async def wait_for_another(self, call_id: str) -> PendingApproval:
        """What people are asked about after a call."""
        async with asyncio.timeout(WAIT_S):
            while (call := (await self.wait_for_question())[0]).id == call_id:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return call

    def read_waiting(self, name: str) -> tuple[PendingApproval, ...]:
        """What a conversation asks people."""
        return read_waiting(self.store, name).approvals

    async def command(self, *words: str) -> tuple[int, str]:
        """Exit code and output of a command in a process of its own."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, *words, "--log", self.log),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            stdin=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    async def decide(self, *options: str) -> None:
        """Decide about the one call that waits, on the command line."""
        (call,) = await self.wait_for_question()
        assert self.program is not None
        assert all(name != "pay" for name, _ in self.program.ran[-1])
        words = ("approve", call.conversation, call.id, "--spec", "agent.yaml", *options)
        code, output = await self.command(*words)
        assert (code, "another worker works on the conversation" in output) == (0, True), output
        assert "waiting for approval" not in output

    @property
    def ran(self) -> list[tuple[str, Any]]:
        """The calls that reached the program."""
        assert self.program is not None
        return self.program.ran[-1]

    def check(self) -> list[str]:
        """The conversations of the log, which verify and are held by nobody."""
        for verified in verify_store(self.store):
            assert isinstance(verified, VerifiedConversation), verified
        assert self.store.list_leases() == []
        return list(self.store.list_conversations())


STREAMS = pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])


@pytest.mark.parametrize("wire", ENCODERS)
@STREAMS
async def test_an_approved_call_reaches_the_program(tmp_path: Path, wire: str, is_streamed: bool) -> None:
    """`toolchart approve` in another process lets the call through, as the model made it, once."""
    scene = Scene(tmp_path)
    script = [make_reply("look_up", "pay", content="One moment."), DONE]
    assert await scene.run(wire, is_streamed, script, scene.decide()) == "Done."
    assert scene.ran == [("look_up", {"text": "look_up"}), ("pay", {"text": "pay"})]
    assert len(scene.check()) == 1
    assert scene.watch.recorder.figures.held == 1


@pytest.mark.parametrize("wire", ENCODERS)
@STREAMS
async def test_a_denied_call_reaches_the_model_and_not_the_program(
    tmp_path: Path, wire: str, is_streamed: bool
) -> None:
    """The model reads who said no and why, and goes on; the tool never runs."""
    scene = Scene(tmp_path)
    script = [make_reply("pay"), DONE]
    decide = scene.decide("--deny", "--reason", "not on a Monday")
    assert await scene.run(wire, is_streamed, script, decide) == "Done."
    assert scene.ran == []
    (name,) = scene.check()
    lines = b"".join(scene.store.read_lines(name)).decode()
    assert "not on a Monday" in lines
    assert scene.watch.recorder.figures.refused == {"pay": 1}


async def test_each_of_several_held_calls_is_decided(tmp_path: Path) -> None:
    """Two calls of one reply wait; what is decided about the first is on record before the second is."""
    scene = Scene(tmp_path)

    async def decide() -> None:
        first, second = await scene.wait_for_question(2)
        words = ("approve", first.conversation, first.id, "--spec", "agent.yaml", "--deny")
        await scene.command(*words)
        async with asyncio.timeout(WAIT_S):
            while len(scene.read_waiting(first.conversation)) == 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert scene.ran == []
        assert scene.store.read_inbox([first.conversation]) == []
        await scene.command("approve", first.conversation, second.id, "--spec", "agent.yaml")

    script = [make_reply("pay", "pay"), DONE]
    assert await scene.run("messages", True, script, decide()) == "Done."
    assert scene.ran == [("pay", {"text": "pay"})]
    assert len(scene.check()) == 1


@STREAMS
async def test_a_call_runs_with_the_arguments_of_whoever_decides(tmp_path: Path, is_streamed: bool) -> None:
    """What a person writes in the place of the model's arguments is what the program gets."""
    scene = Scene(tmp_path)
    decide = scene.decide("--args", '{"text": "half of it"}')
    assert await scene.run("chat", is_streamed, [make_reply("pay"), DONE], decide) == "Done."
    assert scene.ran == [("pay", {"text": "half of it"})]
    assert len(scene.check()) == 1


async def test_a_person_can_end_the_turn(tmp_path: Path) -> None:
    """`toolchart cancel` at a call that waits: no call is made, and the program gets a text."""
    scene = Scene(tmp_path)

    async def cancel() -> None:
        (call,) = await scene.wait_for_question()
        code, output = await scene.command("cancel", call.conversation, "--reason", "enough")
        assert code == 0, output

    text = await scene.run("chat", True, [make_reply("pay", content="Now.")], cancel())
    assert text == "Now. No call was made: enough."
    assert scene.ran == []
    assert len(scene.check()) == 1


async def test_a_program_that_leaves_takes_its_question_with_it(tmp_path: Path) -> None:
    """A program that waits no longer ends its turn: nobody can let the call through any more, and nothing
    holds the conversation."""
    scene = Scene(tmp_path)

    async def leave() -> None:
        (call,) = await scene.wait_for_question()
        assert len(scene.said) == 1
        command = f"toolchart approve {call.conversation} {call.id} --spec agent.yaml   (or with --deny)"
        assert scene.said[0].endswith(command)
        raise TimeoutError

    with pytest.raises(BaseExceptionGroup):
        await scene.run("chat", True, [make_reply("pay")], leave())
    (name,) = scene.check()
    assert scene.read_waiting(name) == ()
    assert b"ended the exchange while a call waited" in b"".join(scene.store.read_lines(name))
    code, output = await scene.command("approve", name, "--spec", "agent.yaml")
    assert (code, "waits for a decision" in output) == (2, True), output


async def test_a_program_that_waits_gets_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a person thinks, the stream has comments, so that no timeout of reading ends it."""
    monkeypatch.setattr(enforced_passage, "_KEEP_ALIVE_S", 0.05)
    scene = Scene(tmp_path)
    seen: list[bytes] = []
    keep_alive = enforced_passage.HeldStream.keep_alive

    def note(held: Any) -> bytes:
        seen.append(keep_alive(held))
        return seen[-1]

    monkeypatch.setattr(enforced_passage.HeldStream, "keep_alive", note)
    assert await scene.run("chat", True, [make_reply("pay"), DONE], scene.decide()) == "Done."
    assert len(seen) > 3
    assert scene.ran == [("pay", {"text": "pay"})]


async def test_only_a_signature_lets_a_call_through_where_one_is_required(tmp_path: Path) -> None:
    """An entry in the inbox that says yes without a signature is no approval: the model reads so."""
    key = create_key_file(tmp_path / "anna.pem")
    approval = {"require_signatures": True, "default": "ask"}
    scene = Scene(tmp_path, {**SPEC, "approval": approval, "approvers": {"anna": [{"key": key}]}})

    async def forge() -> None:
        (call,) = await scene.wait_for_question()
        event = Decided(call_id=call.id, approved=True, by="anna", definition=call.definition)
        item = Item(conversation=call.conversation, event=event)
        scene.store.post(call.conversation, "forged", encode_item(item))
        # Whoever has the key is asked anew, because the model insists.
        again = await scene.wait_for_another(call.id)
        words = ("approve", again.conversation, again.id, "--spec", "agent.yaml")
        code, output = await scene.command(*words)
        assert (code, "sign" in output) == (2, True), output
        code, output = await scene.command(*words, "--key", "anna.pem", "--as", "anna")
        assert code == 0 or "another worker" in output, output

    script = [make_reply("pay"), make_reply("pay"), DONE]
    assert await scene.run("messages", True, script, forge()) == "Done."
    assert scene.ran == [("pay", {"text": "pay"})]
    assert scene.watch.recorder.figures.refused == {"pay": 1}


@pytest.mark.parametrize("is_approved", [True, False], ids=["approved", "denied"])
async def test_the_approvals_page_decides_too(tmp_path: Path, is_approved: bool) -> None:
    """A server on the same log lists what is held, and its decision reaches the watch."""
    scene = Scene(tmp_path)

    async def decide() -> None:
        await scene.wait_for_question()
        engine = Engine(str(tmp_path / "agent.yaml"), log=scene.log)
        async with open_client(make_site(engine)) as client:
            (row,) = (await client.get("/api/approvals")).json()["waiting"]
            (call,) = row["calls"]
            assert (call["tool"], call["arguments"]) == ("pay", {"text": "pay"})
            body = {"call_id": call["id"], "approved": is_approved, "reason": "so be it"}
            answer = await client.post(f"/api/conversations/{row['conversation']}/decisions", json=body)
            assert answer.status_code < 300, answer.text

    assert await scene.run("responses", True, [make_reply("pay"), DONE], decide()) == "Done."
    assert scene.ran == ([("pay", {"text": "pay"})] if is_approved else [])
    assert len(scene.check()) == 1


@pytest.mark.parametrize("chart", ["tool_loop", "approval", "full"])
async def test_charts_ask_people_in_their_own_way(tmp_path: Path, chart: str) -> None:
    """A chart has a state for what people are asked, or waits where the calls are reviewed."""
    scene = Scene(tmp_path, {**SPEC, "chart": chart})
    script = [make_reply("pay", "look_up"), make_reply("look_up"), DONE]
    assert await scene.run("chat", True, script, scene.decide()) == "Done."
    assert [name for name, _ in scene.ran] == ["pay", "look_up", "look_up"]
    assert scene.watch.recorder.figures.departures == []


async def test_a_denial_that_ends_the_turn_gives_the_program_a_text(tmp_path: Path) -> None:
    """Where the agent asks its model no more, the program reads what was refused, and nothing is lost."""
    scene = Scene(tmp_path, {**SPEC, "chart": "tool_loop", "limits": {"max_iterations": 1}})
    text = await scene.run("chat", True, [make_reply("pay")], scene.decide("--deny", "--reason", "no"))
    assert text.startswith("No call was made. pay: ")
    assert scene.ran == []
    assert len(scene.check()) == 1


async def test_what_is_held_holds_up_nothing_else_of_its_family() -> None:
    """While a call of a child waits, its parent asks on without it, fails, and asks again: all is recorded,
    and the child's question ends with the child."""
    store = open_store("memory")
    spec = make_spec(describe_tool("ask"), describe_tool("pay", requires_approval=True))
    replayer = Replayer(load_spec(spec))
    said: list[str] = []
    recorder = Recorder(store, {}, say=said.append, replayer=replayer, is_enforced=True)
    enforcer = Enforcer(recorder, store, replayer)
    numbers = itertools.count(1)

    async def ask(words: str, reply: Reply | None, *more: Message) -> Exchange:
        number = next(numbers)
        loop = Loop(name=words, wire="chat", rng=Random(1), first="-", system=words)
        messages = [Message(role="user", content=words), *more]
        kind = "" if reply is not None else "429"
        exchange = make_exchange(loop, number, float(number), number + 0.5, messages, reply, kind=kind)
        await enforcer.ask(replace(exchange, status=0, answer=b""))
        return exchange

    def call(name: str, text: str) -> ToolCall:
        call_id = f"{name} {text}".replace(" ", "_")
        return ToolCall(id=call_id, name=name, arguments={"text": text}, native_id=call_id)

    questions = ("How far is it to Nice?", "How far is it to Bath?")
    calls = tuple(call("ask", question) for question in questions)
    parent = await ask("plan it", Reply(tool_calls=calls, finish_reason="tool_calls"))
    await enforcer.judge(parent, has_calls=True, unknown="")
    first = await ask(questions[0], Reply(tool_calls=(call("pay", "x"),), finish_reason="tool_calls"))
    judging = asyncio.ensure_future(enforcer.judge(first, has_calls=True, unknown=""))
    async with asyncio.timeout(WAIT_S):
        while not said:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    said_by = Message(role="assistant", tool_calls=calls)
    results = [Message(role="tool", content="?", tool_call_id=each.id, name=each.name) for each in calls]
    enforcer.note(await ask("plan it", None, said_by, *results))
    last = await ask("plan it", Reply(content="Far.", finish_reason="stop"), said_by, *results)
    assert (await enforcer.judge(last, has_calls=False, unknown="")).reply is not None
    judging.cancel()
    enforcer.note(replace(first, is_cut=True))
    figures = await asyncio.to_thread(recorder.close)
    assert (figures.children, figures.failed, figures.retries) == (1, 1, 1)
    assert store.list_leases() == []
    for verified in verify_store(store):
        assert isinstance(verified, VerifiedConversation), verified
    events = [json.loads(line)["event"]["type"] for line in store.read_lines(figures.conversations[0])]
    assert events[-2:] == ["failed", "replied"]
