"""The MCP server, driven by the official client: in process, over HTTP, and over standard streams."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from agents import make_engine, make_function_tool, reply_with_calls
from command_line import START
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim, advertise
from mcp.shared.exceptions import MCPError
from noisy_agent import write_noisy_agent
from served import make_site, make_value, serve

from toolchart import Decided, Engine, load_spec
from toolchart.app.server.access.tokens import ROLES, Access
from toolchart.app.server.mcp_server.running_turns import TASKS
from toolchart.app.server.mcp_server.server import build_mcp_server
from toolchart.app.server.site import Limits

QUESTION = "What is 17 * (23 + 4)?"
OWNER = Access(name="anna", roles=frozenset(ROLES))


@asynccontextmanager
async def connect(engine: Engine, access: Access = OWNER, task_after_s: float = 60.0, **options: Any) -> Any:
    """A client in the process of the server, by the newest protocol."""
    site = make_site(engine, limits=Limits(task_after_s=task_after_s))
    server, turns = build_mcp_server(site, lambda _: access)
    try:
        async with Client(server, **options) as client:
            yield client
    finally:
        await turns.stop()
        await engine.aclose()


def open_agent(spec: str) -> Engine:
    """An engine of an agent that ships."""
    return Engine(load_spec(spec), log="memory")


async def answer_directly(spec: str, message: str) -> str:
    """What `toolchart run` answers."""
    async with open_agent(spec) as engine:
        return (await engine.arun(message)).content


class Person:
    """The user of a client: answers forms, and keeps what was asked."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self._answers = list(answers)
        self.questions: list[str] = []

    async def answer(self, context: Any, params: Any) -> types.ElicitResult:
        """The next answer."""
        self.questions.append(params.message)
        return self._answers.pop(0)


def accept(**content: Any) -> types.ElicitResult:
    """A form that is filled in."""
    return types.ElicitResult(action="accept", content=content)


async def test_each_handler_is_a_tool_and_answers_as_run() -> None:
    """The agent and its handlers are tools; a call gives the content of `toolchart run` and the id of the
    conversation, which goes on where it is named."""
    wanted = await answer_directly("quickstart", QUESTION)
    async with connect(open_agent("quickstart")) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["quickstart", "rehearsal"]
        result = await client.call_tool("rehearsal", {"message": QUESTION})
        assert (result.content[0].text, result.is_error) == (wanted, False)
        data = result.structured_content
        assert (data["content"], data["state"], data["is_over"]) == (wanted, "finished", True)
        again = await client.call_tool(
            "rehearsal", {"message": "echo hi", "conversation": data["conversation"]}
        )
        assert again.structured_content["conversation"] == data["conversation"]
        assert again.content[0].text == "hi"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (accept(approved=True), "Done: deleted (only rehearsed)"),
        (accept(approved=False, reason="no"), "I did not do it: not executed: no"),
        (types.ElicitResult(action="decline"), "I did not do it: not executed: declined"),
    ],
)
async def test_approval_is_a_request_for_input(answer: types.ElicitResult, wanted: str) -> None:
    """A call that needs approval is asked about by a form; the answer decides, and the turn ends as in
    `toolchart run`. The log names who has decided."""
    person, engine = Person(answer), open_agent("careful")
    async with connect(engine, elicitation_callback=person.answer) as client:
        result = await client.call_tool("careful", {"message": "delete report.txt"})
        assert result.content[0].text == wanted
        runs = "It runs: fixed answer: deleted (only rehearsed)"
        assert person.questions == [f'May delete_file run with {{"path":"report.txt"}}?\n{runs}']
        records = await client.read_resource(result.structured_content["records"])
        assert '"by":"anna"' in records.contents[0].text.replace(" ", "")


async def test_approvals_of_several_rounds_are_asked_one_after_the_other() -> None:
    """Where a turn asks again after an answer, the user is asked again; the call ends with the turn."""
    calls = [reply_with_calls(("echo", {"text": text})) for text in ("first", "second")]
    engine = make_engine([*calls, "both are done"], chart="approval", approval={"default": "ask"})
    person = Person(accept(approved=True), accept(approved=False, reason="enough"))
    async with connect(engine, elicitation_callback=person.answer) as client:
        result = await client.call_tool("agent", {"message": "go"})
        records = await client.read_resource(result.structured_content["records"])
    assert result.content[0].text == "both are done"
    assert [question.split("with")[1] for question in person.questions] == [
        ' {"text":"first"}?\nIt runs: handler: echo',
        ' {"text":"second"}?\nIt runs: handler: echo',
    ]
    assert records.contents[0].text.count('"type":"decided"') == 2


async def test_each_step_is_progress() -> None:
    """A client that wants to know of progress hears of each step, with the state that it leads to."""
    steps: list[tuple[float, str | None]] = []

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message))

    async with connect(open_agent("quickstart")) as client:
        await client.call_tool("quickstart", {"message": QUESTION}, progress_callback=note_progress)
    assert [number for number, _ in steps] == list(range(1, len(steps) + 1))
    assert {"executing", "finished"} <= {state for _, state in steps}


async def test_a_client_hears_of_resources_that_change() -> None:
    """Whoever listens for the records of a conversation is told when they change, and of no other one; the
    place of a reader is free again afterwards."""
    engine = make_engine(["one", "two", "three"])
    site = make_site(engine)
    server, turns = build_mcp_server(site, lambda _: OWNER)
    uri = "toolchart://conversations/watched/records"
    async with Client(server) as client, client.listen(resource_subscriptions=[uri]) as changes:
        assert site.readers.free == site.limits.readers - 1
        await client.call_tool("agent", {"message": "hi", "conversation": "other"})
        await client.call_tool("agent", {"message": "hi", "conversation": "watched"})
        first = await anext(changes)
        assert first.uri == uri
        await client.call_tool("agent", {"message": "again", "conversation": "watched"})
        assert (await anext(changes)).uri == uri
        text = (await client.read_resource(uri)).contents[0].text
    await turns.stop()
    await engine.aclose()
    assert text.count("turn_started") == 2
    assert site.readers.free == site.limits.readers


async def test_listening_ends_with_the_server() -> None:
    """A server that stops ends the streams of those who listen, so that nobody holds it up."""
    engine = make_engine(["one"])
    site = make_site(engine)
    server, turns = build_mcp_server(site, lambda _: OWNER)
    async with (
        Client(server) as client,
        client.listen(resource_subscriptions=["toolchart://chart"]) as changes,
    ):
        site.closing.set()
        assert [change async for change in changes] == []
    await turns.stop()
    await engine.aclose()


async def test_what_is_put_off_stays_open() -> None:
    """A form that is put away decides nothing: the result says what the turn waits for, and it can be decided
    later by another way."""
    person, engine = Person(types.ElicitResult(action="cancel")), open_agent("careful")
    async with connect(engine, elicitation_callback=person.answer) as client:
        result = await client.call_tool("careful", {"message": "delete report.txt"})
        data = result.structured_content
        assert (data["is_over"], data["waiting"][0]["tool"]) == (False, "delete_file")
        waiting = engine.conversation(data["conversation"]).read_turn()
        assert [call.tool for call in waiting.pending_approvals] == ["delete_file"]


async def test_without_the_role_nobody_is_asked() -> None:
    """A token that may not approve is not asked, cannot decide by hand, and cannot start a turn without the
    role for that."""
    person = Person(accept(approved=True))
    talker = Access(name="tom", roles=frozenset({"read", "chat"}))
    async with connect(open_agent("careful"), talker, elicitation_callback=person.answer) as client:
        result = await client.call_tool("careful", {"message": "delete report.txt"})
        assert not result.structured_content["is_over"]
        assert person.questions == []
    viewer = Access(name="vera", roles=frozenset({"read"}))
    async with connect(open_agent("careful"), viewer) as client:
        with pytest.raises(MCPError, match="lacks the role 'chat'"):
            await client.call_tool("careful", {"message": "hello"})


async def test_a_message_while_a_call_waits_is_kept() -> None:
    """S5.5: a call that names a conversation whose turn waits is no failure: its result says what the turn
    and the message wait for, and the next request of the turn has the message."""
    replies = [reply_with_calls(("echo", {"text": "a"})), "both"]
    engine = make_engine(replies, chart="approval", approval={"default": "ask"})
    async with connect(engine) as client:
        first = await client.call_tool("agent", {"message": "go"})
        name = first.structured_content["conversation"]
        kept = await client.call_tool("agent", {"message": "and hurry", "conversation": name})
        assert not kept.is_error
        assert "waits for ask_approval" in kept.content[0].text
        assert kept.structured_content["waiting_messages"] == ["and hurry"]
        (pending,) = engine.conversation(name).read_turn().pending_approvals
        await engine.conversation(name).aresume(Decided(call_id=pending.id, approved=True))
    model: Any = engine.hosts.providers["model"]
    assert model.requests[-1].messages[-1].content == "and hurry"


async def test_client_without_forms_reads_what_the_turn_waits_for() -> None:
    """A client that cannot ask its user gets a result that says what the turn waits for."""
    async with connect(open_agent("careful")) as client:
        result = await client.call_tool("careful", {"message": "delete report.txt"})
    assert "waits for ask_approval" in result.content[0].text
    assert not result.is_error


async def test_structured_output_comes_as_data() -> None:
    """The answer of a handler with a form is data too; a flow gives the content of `toolchart run`."""
    form = {"type": "json_schema", "json_schema": {"name": "v", "schema": {"type": "object"}}}
    handler = {"llm": "model", "prompt": "p", "name": "judge", "response_format": form}
    async with connect(make_engine(['{"score": 9}'], responses=[handler])) as client:
        result = await client.call_tool("judge", {"message": "judge this"})
        assert result.structured_content["data"] == {"score": 9}
    wanted = await answer_directly("reflection", "Write about rain.")
    async with connect(open_agent("reflection")) as client:
        result = await client.call_tool("reflection", {"message": "Write about rain."})
        assert result.content[0].text == wanted


async def test_errors_are_results_that_a_model_can_read() -> None:
    """A wrong argument and a turn that fails are results with an error; an unknown tool or resource is an
    error of the protocol."""
    failure = {"fail": {"kind": "auth", "message": "the key is wrong"}}
    async with connect(make_engine([failure])) as client:
        wrong = await client.call_tool("agent", {"message": ""})
        assert (wrong.is_error, "message" in wrong.content[0].text) == (True, True)
        failed = await client.call_tool("agent", {"message": "hello"})
        assert failed.is_error
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("nothing", {"message": "hello"})
        for uri in ("toolchart://conversations/none/records", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="no resource"):
                await client.read_resource(uri)


async def test_records_and_diagrams_are_resources() -> None:
    """The chart, the records of a conversation and its path can be read."""
    async with connect(open_agent("quickstart")) as client:
        assert [row.uri for row in (await client.list_resources()).resources] == ["toolchart://chart"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [row.name for row in templates] == ["records", "diagram"]
        result = await client.call_tool("quickstart", {"message": QUESTION})
        name = result.structured_content["conversation"]
        chart = await client.read_resource("toolchart://chart")
        path = await client.read_resource(f"toolchart://conversations/{name}/diagram")
        records = await client.read_resource(f"toolchart://conversations/{name}/records")
    assert chart.contents[0].text.startswith("stateDiagram")
    assert path.contents[0].text != chart.contents[0].text
    assert len(records.contents[0].text.splitlines()) > 5


# -- tasks -----------------------------------------------------------------------------------------


class TaskHandle(types.Result):
    """A handle of a task, as a client reads it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int
    created_at: str


class TaskState(types.Result):
    """The answer to a request about a task."""

    result_type: str
    status: str = ""
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class TaskRequest(types.Request[dict[str, Any], str]):
    """A request about a task."""

    method: str
    params: dict[str, Any]


class Tasks(ClientExtension):
    """A client that knows tasks: it keeps handles, and asks for them by hand."""

    identifier = TASKS

    def __init__(self) -> None:
        self.handles: list[TaskHandle] = []

    def claims(self) -> Any:
        """The shape of a handle."""
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._keep)]

    async def _keep(self, handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
        self.handles.append(handle)
        empty = {"conversation": handle.task_id, "state": "", "is_over": False, "content": "", "records": ""}
        return types.CallToolResult(content=[], structured_content=empty)


async def ask(client: Client, method: str, handle: TaskHandle, **params: Any) -> TaskState:
    """Send a request about a task."""
    request = TaskRequest(method=method, params={"taskId": handle.task_id, **params})
    return await client.session.send_request(request, TaskState)


async def wait_for_status(client: Client, handle: TaskHandle, *wanted: str) -> TaskState:
    """The state of a task once it has one of these."""
    async with asyncio.timeout(180):
        while (state := await ask(client, "tasks/get", handle)).status not in wanted:
            assert state.status == "working"
            await asyncio.sleep(0.01)  # a client polls: there is nothing to wait on
    return state


async def test_long_turn_is_a_task() -> None:
    """A turn that takes longer goes on as a task; its state and its result can be asked for, also later."""
    go_on = asyncio.Event()

    async def run(arguments: Any) -> str:
        await go_on.wait()
        return "rested"

    slow = make_function_tool("slow", {"type": "object", "properties": {}}, run)
    engine, tasks = make_engine([reply_with_calls(("slow", {})), "Done."], functions=[slow]), Tasks()
    async with connect(engine, task_after_s=0.0, extensions=[tasks]) as client:
        await client.call_tool("agent", {"message": "go"})
        (handle,) = tasks.handles
        assert (handle.status, handle.ttl_ms) == ("working", None)
        assert (await ask(client, "tasks/get", handle)).status == "working"
        go_on.set()
        state = await wait_for_status(client, handle, "completed")
        assert state.result is not None
        assert state.result["content"][0]["text"] == "Done."
        assert types.CallToolResult.model_validate(state.result).structured_content["is_over"]


async def test_task_asks_for_input_and_goes_on() -> None:
    """A task that waits for an approval says so, takes the answer, and is complete then."""
    tasks = Tasks()
    async with connect(open_agent("careful"), task_after_s=0.0, extensions=[tasks]) as client:
        await client.call_tool("careful", {"message": "delete report.txt"})
        (handle,) = tasks.handles
        state = await wait_for_status(client, handle, "input_required")
        ((key, request),) = (state.input_requests or {}).items()
        assert request["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"approved": True}}
        await ask(client, "tasks/update", handle, inputResponses={key: answer})
        state = await wait_for_status(client, handle, "completed")
        assert state.result is not None
        assert state.result["content"][0]["text"] == "Done: deleted (only rehearsed)"
        with pytest.raises(MCPError, match="waits"):
            await ask(client, "tasks/update", handle, inputResponses={key: answer})


async def test_task_can_be_cancelled() -> None:
    """A task that waits can be cancelled; one that does not exist is an error."""
    tasks = Tasks()
    async with connect(open_agent("careful"), task_after_s=0.0, extensions=[tasks]) as client:
        await client.call_tool("careful", {"message": "delete report.txt"})
        (handle,) = tasks.handles
        await wait_for_status(client, handle, "input_required")
        await ask(client, "tasks/cancel", handle)
        assert (await ask(client, "tasks/get", handle)).status == "cancelled"
        unknown = handle.model_copy(update={"task_id": "none"})
        with pytest.raises(MCPError, match="no conversation"):
            await ask(client, "tasks/get", unknown)


async def test_quick_turns_are_no_tasks() -> None:
    """A client that knows tasks gets the result at once where the turn is quick."""
    async with connect(open_agent("quickstart"), extensions=[advertise(TASKS)]) as client:
        result = await client.call_tool("quickstart", {"message": "echo hi"})
    assert result.content[0].text == "hi"


# -- over the wire ---------------------------------------------------------------------------------


async def test_over_http_with_a_token() -> None:
    """Over HTTP the token of each request counts: without one nothing is answered, and its roles hold."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    person = Person(accept(approved=True))
    with serve(make_site(open_agent("careful"))) as address:
        for name, is_over in (("owner", True), ("talker", False)):
            headers = {"Authorization": f"Bearer {make_value(name)}"}
            async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
                transport = streamable_http_client(f"{address}/mcp", http_client=http)
                async with Client(transport, elicitation_callback=person.answer) as client:
                    result = await client.call_tool("careful", {"message": "delete report.txt"})
                    assert result.structured_content["is_over"] is is_over
        async with httpx2.AsyncClient(timeout=120) as http:
            assert (await http.post(f"{address}/mcp", json={})).status_code == 401


async def test_listening_over_http() -> None:
    """Over HTTP the stream of changes is the answer to the request to listen."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    uri = "toolchart://conversations/watched/diagram"
    headers = {"Authorization": f"Bearer {make_value('owner')}"}
    with serve(make_site(make_engine(["one"]))) as address:
        async with httpx2.AsyncClient(headers=headers, timeout=120) as http:
            transport = streamable_http_client(f"{address}/mcp", http_client=http)
            async with Client(transport) as client, client.listen(resource_subscriptions=[uri]) as changes:
                await client.call_tool("agent", {"message": "hi", "conversation": "watched"})
                assert (await anext(changes)).uri == uri


async def test_over_standard_input_and_output(tmp_path: Path) -> None:
    """`toolchart mcp` serves the client that starts it, and ends with it. What its tools and modules print
    is no part of the protocol. `--limit` changes its limits."""
    write_noisy_agent(tmp_path)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-c", START, "mcp", "agent.yaml", "--log", "memory", "--limit", "records_bytes=10"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    faults: list[Any] = []

    async def note_fault(message: Any) -> None:
        if isinstance(message, Exception):
            faults.append(message)

    async with asyncio.timeout(180), Client(parameters, message_handler=note_fault) as client:
        result = await client.call_tool("noisy", {"message": "hi"})
        records = await client.read_resource(result.structured_content["records"])
    assert result.content[0].text == "done"
    assert records.contents[0].text.startswith('{"cut":')
    assert not faults
