"""Runs of AG-UI over loopback: requests and events are those of the official SDK's types."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import RunAgentInput, Tool, UserMessage
from ag_ui.core.events import Event
from agents import make_engine, reply_with_calls
from pydantic import TypeAdapter
from served import bearer, make_site, make_value, serve

from toolchart import Engine, load_spec

QUESTION = "What is 17 * (23 + 4)?"

EVENT: Any = TypeAdapter(Event)


def serve_agent(spec: str) -> Any:
    """A served agent that ships."""
    return serve(make_site(Engine(load_spec(spec), log="memory")))


@pytest.fixture(scope="module")
def quickstart() -> Iterator[str]:
    """The address of a server of `quickstart`."""
    with serve_agent("quickstart") as address:
        yield address


def post(address: str, name: str = "owner", path: str = "/ag-ui", **fields: Any) -> httpx.Response:
    """Send a run as the SDK's type writes it."""
    run = RunAgentInput(**{"thread_id": "thread-1", "run_id": "run-1", "messages": [], **fields})
    body = run.model_dump_json(by_alias=True)
    headers = {**bearer(name), "Content-Type": "application/json"}
    return httpx.post(f"{address}{path}", content=body, headers=headers, timeout=120)


def run_thread(address: str, **fields: Any) -> list[Any]:
    """The events of a run, as the SDK's types read them; none has a key that the type does not know."""
    response = post(address, **fields)
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    events = [EVENT.validate_json(line[6:]) for line in lines]
    for line, event in zip(lines, events, strict=True):
        assert not event.model_extra, f"{line} has keys that the protocol does not have"
    check_order(events)
    return events


def check_order(events: list[Any]) -> None:
    """What the protocol demands: the run is the frame, and messages, calls and steps begin and end in it."""
    kinds = [event.type.value for event in events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR")
    open_things: set[tuple[str, str]] = set()
    for event, kind in zip(events, kinds, strict=True):
        name = getattr(event, "message_id", None) or getattr(event, "tool_call_id", None) or ""
        name = getattr(event, "step_name", None) or name
        group = kind.rsplit("_", 1)[0]
        if kind.endswith("_START") or kind == "STEP_STARTED":
            assert (group, name) not in open_things
            open_things.add((group, name))
        if kind.endswith("_END") or kind == "STEP_FINISHED":
            open_things.remove((group, name))
        if kind.endswith(("_CONTENT", "_ARGS")):
            assert (group, name) in open_things
    assert open_things == set()


def say(text: str) -> Any:
    """A message of the user."""
    return UserMessage(id="u1", content=text)


def read_text(events: list[Any]) -> str:
    """The text of all messages of a run."""
    return "".join(event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT")


def find(events: list[Any], kind: str) -> list[Any]:
    """The events of a kind."""
    return [event for event in events if event.type.value == kind]


def apply_deltas(events: list[Any]) -> Any:
    """The state after all deltas."""
    state = find(events, "STATE_SNAPSHOT")[0].snapshot
    for event in find(events, "STATE_DELTA"):
        for operation in event.delta:
            *parents, name = operation.path.split("/")[1:]
            place = state
            for parent in parents:
                place = place[parent]
            if operation.op == "remove":
                del place[name]
            else:
                place[name] = operation.value
    return state


def test_run_has_the_content_of_toolchart_run(quickstart: str) -> None:
    """A run gives the text of `toolchart run`, the call that ran inside with its result, the steps of the
    chart, and the state by snapshot and deltas."""
    with Engine(load_spec("quickstart"), log="memory") as engine:
        wanted = engine.run(QUESTION).content
    events = run_thread(quickstart, messages=[say(QUESTION)])
    assert read_text(events) == wanted
    (call,) = find(events, "TOOL_CALL_START")
    (arguments,) = find(events, "TOOL_CALL_ARGS")
    (result,) = find(events, "TOOL_CALL_RESULT")
    assert (call.tool_call_name, json.loads(arguments.delta)) == (
        "calculator",
        {"expression": "17 * (23 + 4)"},
    )
    assert (result.tool_call_id, result.content) == (call.tool_call_id, "459")
    steps = [event.step_name for event in find(events, "STEP_STARTED")]
    assert steps == ["prompting", "awaiting_tools", "executing", "prompting", "finished"]
    end = events[-1]
    assert (end.outcome.type, end.result["content"]) == ("success", wanted)
    state = apply_deltas(events)
    assert (state["configuration"], state["is_over"]) == (["finished"], True)
    assert state["facts"]["iteration"] == 1


def test_thread_goes_on_and_a_new_one_takes_its_history() -> None:
    """A thread is a conversation of the log: its next run adds only the newest message. The first run of a
    thread takes the earlier messages along."""
    engine = make_engine(["two", "four"])
    with serve(make_site(engine)) as address:
        history: list[Any] = [
            {"id": "1", "role": "user", "content": "zero"},
            {"id": "2", "role": "assistant", "content": "one"},
        ]
        run_thread(address, messages=[*history, say("begin")])
        events = run_thread(address, run_id="run-2", messages=[*history, say("begin"), say("go on")])
        assert find(events, "STATE_SNAPSHOT")[0].snapshot["configuration"] == ["finished"]
    requests: Any = engine.hosts.providers["model"].requests  # type: ignore[attr-defined]
    assert [message.content for message in requests[1].messages] == [
        "Be brief.",
        "zero",
        "one",
        "begin",
        "two",
        "go on",
    ]


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"status": "resolved", "payload": {"approved": True}}, "Done: deleted (only rehearsed)"),
        ({"status": "resolved", "payload": True}, "Done: deleted (only rehearsed)"),
        ({"status": "cancelled"}, "I did not do it: not executed: cancelled"),
    ],
)
def test_approval_is_an_interrupt(entry: dict[str, Any], wanted: str) -> None:
    """A call that waits for approval ends the run with an interrupt that names the call and the form of the
    answer; resuming it ends the turn as `toolchart run` does, for a token with the role only."""
    with serve_agent("careful") as address:
        first = run_thread(address, messages=[say("delete report.txt")])
        outcome = first[-1].outcome
        assert outcome.type == "interrupt"
        (interrupt,) = outcome.interrupts
        assert interrupt.reason == "ask_approval"
        assert interrupt.tool_call_id == find(first, "TOOL_CALL_START")[0].tool_call_id
        assert interrupt.response_schema["required"] == ["approved"]
        resume: Any = [{"interrupt_id": interrupt.id, **entry}]
        refused = post(address, "talker", run_id="run-2", resume=resume)
        assert (refused.status_code, "'approve'" in refused.text) == (403, True)
        events = run_thread(address, run_id="run-2", resume=resume)
        assert read_text(events) == wanted
        assert events[-1].outcome.type == "success"
        assert post(address, run_id="run-3", resume=resume).status_code == 409


def test_a_message_while_a_call_waits_ends_with_the_same_interrupt() -> None:
    """S5.5: a run with a message in a thread that waits for an approval is no error. It ends with the same
    interrupt; after the approval the model reads the message."""
    tools = {"registry": [{"name": "echo", "requires_approval": True}]}
    replies = [reply_with_calls(("echo", {"text": "a"})), "both"]
    engine = make_engine(replies, chart="approval", tools=tools)
    with serve(make_site(engine)) as address:
        first = run_thread(address, messages=[say("go")])
        second = run_thread(address, run_id="run-2", messages=[say("go"), say("and hurry")])
        assert second[-1].outcome.type == "interrupt"
        assert second[-1].outcome.interrupts == first[-1].outcome.interrupts
        (interrupt,) = first[-1].outcome.interrupts
        resume: Any = [{"interrupt_id": interrupt.id, "status": "resolved", "payload": True}]
        last = run_thread(address, run_id="run-3", resume=resume)
        assert read_text(last) == "both"
    model: Any = engine.hosts.providers["model"]
    assert model.requests[-1].messages[-1].content == "and hurry"


ASKING: Any = {
    "chart": {
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask_size",
                "transitions": [
                    {"event": "answered", "target": "done"},
                    {"event": "cancelled", "target": "stopped"},
                ],
            },
            "done": {"final": True, "enter": "tell"},
            "stopped": {"final": True, "enter": "answer_with_error"},
        }
    },
    "effects": {
        "ask_size": {
            "ask_person": {
                "question": "Which size?",
                "as": "size",
                "form": {
                    "type": "object",
                    "properties": {"cm": {"type": "integer", "minimum": 0, "maximum": 300}},
                    "required": ["cm"],
                },
            }
        },
        "tell": {"answer": "{{size.cm}} cm"},
    },
}


def test_question_is_an_interrupt_with_its_form() -> None:
    """A question of the chart is an interrupt with its form; the answer goes on with the turn, and giving it
    up ends the run as cancelled."""
    with serve(make_site(make_engine([], **ASKING))) as address:
        for thread, entry in (
            ("a", {"status": "resolved", "payload": {"cm": 42}}),
            ("b", {"status": "cancelled"}),
        ):
            first = run_thread(address, thread_id=thread, messages=[say("go")])
            (interrupt,) = first[-1].outcome.interrupts
            assert (interrupt.reason, interrupt.message) == ("ask_person", "Which size?")
            assert list(interrupt.response_schema["properties"]) == ["cm"]
            resume: Any = [{"interrupt_id": interrupt.id, **entry}]
            events = run_thread(address, thread_id=thread, run_id="run-2", resume=resume)
            if entry["status"] == "resolved":
                assert events[-1].result["content"] == "42 cm"
            else:
                assert events[-1].outcome.type == "cancelled"


def test_tool_of_the_front_end_runs_there() -> None:
    """A call of a front end's tool is left pending; the next run brings its result to the same turn."""
    tool = Tool(
        name="ask_browser",
        description="Asks the page.",
        parameters={"type": "object", "properties": {"question": {"type": "string"}}},
    )
    calls = [("ask_browser", {"question": "where?"}), ("echo", {"text": "hello"})]
    with serve(make_site(make_engine([reply_with_calls(*calls), "You are in Brno."]))) as address:
        first = run_thread(address, messages=[say("Where am I?")], tools=[tool])
        own, inside = find(first, "TOOL_CALL_START")
        assert (own.tool_call_name, inside.tool_call_name) == ("ask_browser", "echo")
        assert [event.tool_call_id for event in find(first, "TOOL_CALL_RESULT")] == [inside.tool_call_id]
        assert first[-1].outcome.pending_tool_call_ids == [own.tool_call_id]
        result: Any = {"id": "t1", "role": "tool", "tool_call_id": own.tool_call_id, "content": "Brno"}
        second = run_thread(address, run_id="run-2", messages=[say("Where am I?"), result], tools=[tool])
    assert read_text(second) == "You are in Brno."


def test_flow_with_structured_results() -> None:
    """A flow whose models answer by schemas gives the content of `toolchart run`, and no drafts."""
    with Engine(load_spec("reflection"), log="memory") as engine:
        wanted = engine.run("Write about rain.").content
    with serve_agent("reflection") as address:
        events = run_thread(address, messages=[say("Write about rain.")])
    assert (read_text(events), events[-1].result["content"]) == (wanted, wanted)


def test_a_role_that_the_protocol_does_not_have_is_refused(quickstart: str) -> None:
    """Messages for the screen have no effect; one of an unknown role is refused with its place."""
    messages = [
        {"id": "1", "role": "activity", "activityType": "x", "content": {}},
        {"id": "2", "role": "assistent", "content": "hello"},
        {"id": "3", "role": "user", "content": "hi"},
    ]
    body = {"threadId": "t-roles", "runId": "r", "messages": messages}
    got = httpx.post(f"{quickstart}/ag-ui", json=body, headers=bearer(), timeout=120)
    assert (got.status_code, "messages[1].role: unknown role 'assistent'" in got.text) == (400, True)
    body["messages"] = [messages[0], messages[2]]
    assert httpx.post(f"{quickstart}/ag-ui", json=body, headers=bearer(), timeout=120).status_code == 200


def test_errors(quickstart: str) -> None:
    """A turn that fails ends with `RUN_ERROR`; a bad request is refused before the stream begins."""
    failure = {"fail": {"kind": "auth", "message": "the key is wrong"}}
    with serve(make_site(make_engine([failure]))) as address:
        end = run_thread(address, messages=[say("hello")])[-1]
    assert (end.type.value, end.message, end.code) == ("RUN_ERROR", "the key is wrong", "auth")
    picture: Any = {"type": "image", "source": {"type": "url", "value": "http://10.0.0.1/x"}}
    bad: list[dict[str, Any]] = [
        {},
        {"thread_id": "../x", "messages": [say("hello")]},
        {"messages": [UserMessage(id="u", content=[picture])]},
        {"resume": [{"interrupt_id": "x", "status": "resolved"}]},
        {"messages": [say("hello")], "tools": [Tool(name="calculator", description="mine")]},
    ]
    for fields in bad:
        assert post(quickstart, **fields).status_code == 400, fields
    assert post(quickstart, "viewer", messages=[say("hello")]).status_code == 403
    assert post(quickstart, path="/ag-ui/nothing", messages=[say("hello")]).status_code == 404


# -- the client from npm ---------------------------------------------------------------------------

CLIENT = Path(__file__).resolve().parents[1] / "support" / "ag_ui_client.mjs"

CLIENT_FOLDER = os.environ.get("TOOLCHART_AG_UI_CLIENT", "")
"""The folder in which `npm install @ag-ui/client` was run."""

without_client = pytest.mark.skipif(
    not CLIENT_FOLDER or shutil.which("node") is None,
    reason="needs Node.js, and TOOLCHART_AG_UI_CLIENT: a folder with the npm package @ag-ui/client",
)


def drive(address: str, message: str, payload: Any = None) -> dict[str, Any]:
    """What the client from npm saw."""
    words = [CLIENT_FOLDER, f"{address}/ag-ui", make_value("owner"), message, json.dumps(payload)]
    process = subprocess.run(["node", str(CLIENT), *words], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    seen: dict[str, Any] = json.loads(process.stdout)
    return seen


@without_client
def test_client_from_npm_accepts_a_run(quickstart: str) -> None:
    """The client of the protocol accepts the order of the events, and builds messages and state from them."""
    seen = drive(quickstart, QUESTION)
    assert seen["outcomes"] == ["success"]
    assert "459" in seen["text"]
    assert seen["roles"] == ["user", "assistant", "tool", "assistant"]
    assert seen["configuration"] == ["finished"]


@without_client
def test_client_from_npm_drops_a_text_that_is_no_part_of_the_answer() -> None:
    """What the host broke off and then said otherwise is removed from the messages of the client; what the
    model said before a call stays."""
    replies = [
        {**reply_with_calls(("echo", {"text": "a"})), "content": "I look. "},
        {"content": "Half a thought", "cut": True},
        "All is well.",
    ]
    engine = make_engine(replies, chart="full", retry={"base_wait_s": 0.001, "max_wait_s": 0.01})
    with serve(make_site(engine)) as address:
        seen = drive(address, "hi")
    assert seen["text"] == "I look. All is well."
    assert seen["roles"] == ["user", "assistant", "assistant", "tool", "assistant"]


@without_client
def test_client_from_npm_resumes_an_interrupt() -> None:
    """The client of the protocol resumes a run that waits for an approval."""
    with serve_agent("careful") as address:
        seen = drive(address, "delete report.txt", {"approved": True})
    assert seen["outcomes"] == ["interrupt", "success"]
    assert seen["text"] == "Done: deleted (only rehearsed)"
