"""What each limit of the server bounds, seen at the door: one row per limit, and none without.

A row has values of its limit, each with what is seen under it. Where the limit is a time, a server that keeps
it is waited for; that a longer one has not passed yet is seen after a moment, or after the default.
`test_limits.py` has the table of all limits.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from served import bearer, make_site, make_value, open_client, serve
from site_server import run_server

from toolchart.app.server.access.tokens import ROLES, Access
from toolchart.app.server.application import build_application
from toolchart.app.server.charts.workbench import find_workbench
from toolchart.app.server.serving import Address, SiteServer
from toolchart.app.server.site import Limits, Site, SiteSettings
from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.charts import read_shipped_chart
from toolchart.states.messages import Reply, Usage

See = Callable[[Limits, Path], Awaitable[Any]]
"""What is seen under limits; with an empty folder."""


class Effect(NamedTuple):
    """What changed values of a limit do."""

    values: dict[float, Any]
    """What is seen, by value of the limit."""
    others: dict[str, float]
    """Values of other limits, the same for all."""
    see: See


EFFECTS: dict[str, Effect] = {}
"""By name of the limit."""

_MOMENT_S = 0.3


def effect(name: str, values: dict[float, Any], **others: float) -> Callable[[See], See]:
    """A decorator: the function sees these under these values of a limit."""

    def add(see: See) -> See:
        EFFECTS[name] = Effect(values, others, see)
        return see

    return add


FIELDS = [field.name for field in msgspec.structs.fields(Limits)]


@pytest.mark.parametrize("name", FIELDS)
async def test_each_limit_has_an_effect(name: str, tmp_path: Path) -> None:
    """Two values of each limit are told apart by what a client, or whoever runs the server, sees."""
    row = EFFECTS[name]
    seen = {}
    for value in row.values:
        folder = tmp_path / str(value)
        folder.mkdir()
        seen[value] = await row.see(Limits(**row.others, **{name: value}), folder)  # type: ignore[arg-type]
    assert seen == row.values
    assert len({str(observation) for observation in seen.values()}) > 1, "it tells nothing"


def test_no_row_is_left_over() -> None:
    """There is a row for no other name."""
    assert EFFECTS.keys() <= set(FIELDS)


# -- requests ----------------------------------------------------------------------------------------

HI = {"message": "hi"}
HEAD = f"Host: 127.0.0.1\r\nAuthorization: {bearer()['Authorization']}\r\nContent-Type: application/json\r\n"


async def post_hi(limits: Limits, body: dict[str, Any]) -> int:
    """The status of a message."""
    async with open_client(make_site(limits=limits)) as client:
        return (await client.post("/api/conversations", json=body)).status_code


def see_end(address: tuple[str, int], sent: str, *, ends: bool) -> str:
    """How a connection ends after these bytes; `open` where it does not within a moment.

    Args:
        ends: whether it should; then it is waited for, shorter than the defaults of all limits.
    """
    with socket.create_connection(address, timeout=15 if ends else _MOMENT_S) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent.encode())
        try:
            return connection.recv(1000).decode().partition("\r\n")[0] or "closed"
        except ConnectionResetError:
            return "closed"
        except TimeoutError:
            return "open"


@effect("headers_s", {0.05: "closed", 60.0: "open"})
async def see_headers(limits: Limits, folder: Path) -> Any:
    """How a connection ends whose headers do not."""

    def see() -> str:
        with run_server(make_site(limits=limits)) as (_, listener):
            return see_end(
                listener.getsockname(), "GET /livez HTTP/1.1\r\nHost: 127", ends=limits.headers_s < 1
            )

    return await asyncio.to_thread(see)


@effect("body_bytes", {10: 413, 1000: 200})
async def see_size(limits: Limits, folder: Path) -> Any:
    """The status of a body of sixteen bytes."""
    return await post_hi(limits, HI)


@effect("body_s", {0.05: "HTTP/1.1 408 Request Timeout", 60.0: "open"})
async def see_slow_body(limits: Limits, folder: Path) -> Any:
    """What a request hears whose body does not come."""

    def see() -> str:
        with serve(make_site(limits=limits)) as address:
            where = urlsplit(address)
            sent = f"POST /api/conversations HTTP/1.1\r\n{HEAD}Content-Length: 100\r\n\r\n"
            return see_end((str(where.hostname), where.port or 0), sent, ends=limits.body_s < 1)

    return await asyncio.to_thread(see)


@effect("json_values", {4: 413, 1000: 200})
async def see_values(limits: Limits, folder: Path) -> Any:
    """The status of a body of more than four values."""
    return await post_hi(limits, {**HI, "variables": {"a": 1, "b": 2}})


@effect("json_depth", {2: 400, 3: 200})
async def see_depth(limits: Limits, folder: Path) -> Any:
    """The status of a body of three levels."""
    return await post_hi(limits, {**HI, "variables": {"a": {"b": 1}}})


@effect("requests_per_s", {1e-6: [200, 429], 1e9: [200, 200]}, burst=1)
@effect("burst", {1: [200, 429], 2: [200, 200]}, requests_per_s=1e-6)
async def see_rate(limits: Limits, folder: Path) -> Any:
    """The statuses of two requests."""
    async with open_client(make_site(limits=limits)) as client:
        return [(await client.get("/health")).status_code for _ in range(2)]


@effect("clients", {1: [200, 200, 200], 2: [200, 200, 429]}, burst=1, requests_per_s=1e-6)
async def see_forgotten_clients(limits: Limits, folder: Path) -> Any:
    """The statuses of a client, of another one, and of the first again."""
    async with open_client(make_site(limits=limits)) as client:
        return [
            (await client.get("/api/conversations", headers=bearer(name))).status_code
            for name in ("owner", "viewer", "owner")
        ]


@effect("connections", {1: 503, 9: 200})
async def see_connections(limits: Limits, folder: Path) -> Any:
    """The status of a request on the first connection, which counts itself."""

    def see() -> int:
        with run_server(make_site(limits=limits)) as (_, listener):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/livez"
            return httpx.get(url, timeout=120, trust_env=False).status_code

    return await asyncio.to_thread(see)


@effect("reading_s", {0.05: "cut off", 60.0: "held"})
async def see_stuck_reader(limits: Limits, folder: Path) -> Any:
    """Whether a stream that nobody reads is held."""
    engine = make_engine(["x" * 8_000_000])
    await engine.arun("hi", conversation="c")
    site = make_site(engine, limits=limits)

    def see() -> str:
        with run_server(site) as (_, listener), socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(listener.getsockname())
            connection.sendall(f"GET /api/conversations/c/events HTTP/1.1\r\n{HEAD}\r\n".encode())
            wait_until(lambda: site.readers.in_use == 1, 60)
            is_cut = wait_until(lambda: not site.readers.in_use, 25 if limits.reading_s < 1 else _MOMENT_S)
            return "cut off" if is_cut else "held"

    return await asyncio.to_thread(see)


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Whether something becomes so within a time."""
    end_s = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


async def see_kept_answer(limits: Limits, folder: Path) -> Any:
    """Whether a request that comes again after another one gets its first answer: a fork under a name of its
    own, which the log alone would refuse a second time."""
    site = make_site(make_engine([f"reply {number} ".ljust(400, "x") for number in range(9)]), limits=limits)
    async with open_client(site) as client:
        await client.post("/api/conversations", json={**HI, "conversation": "c"})

        async def fork(name: str) -> httpx.Response:
            headers, body = {"Idempotency-Key": name}, {"conversation": name}
            return await client.post("/api/conversations/c/fork", json=body, headers=headers)

        first, second, again = [await fork(name) for name in ("a", "b", "a")]
        assert (first.status_code, second.status_code) == (200, 200), first.text
        assert again.content == first.content or "there is a conversation 'a' already" in again.text
        return again.is_success


effect("kept_answers", {1: False, 2: True})(see_kept_answer)
effect("kept_answer_bytes", {1000: False, 100_000: True})(see_kept_answer)


@effect("key_characters", {5: [True, False], 6: [True, True]})
async def see_keys(limits: Limits, folder: Path) -> Any:
    """Whether a key of five and one of six characters is taken."""
    async with open_client(make_site(make_engine(["a", "b"]), limits=limits)) as client:
        return [
            (await client.post("/api/conversations", json=HI, headers={"Idempotency-Key": key})).is_success
            for key in ("12345", "123456")
        ]


# -- turns and streams -------------------------------------------------------------------------------

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("one", "two")
]
SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}


async def complete(client: httpx.AsyncClient, **more: Any) -> httpx.Response:
    """A request for a chat completion."""
    body = {"model": "agent", "messages": [{"role": "user", "content": "hi"}], **more}
    return await client.post("/v1/chat/completions", json=body)


def make_named_site(limits: Limits, *replies: Any, **changes: Any) -> Site:
    """A site of an agent that protocols call `agent`."""
    providers = {"model": ScriptedProvider(replies or ["hello"] * 3)}
    return make_site(
        Engine(make_spec(name="agent", **changes), log="memory", providers=providers), limits=limits
    )


@effect("turns", {1: 429, 2: 200})
async def see_second_turn(limits: Limits, folder: Path) -> Any:
    """The status of a message while one turn runs."""
    site = make_site(limits=limits)
    async with open_client(site) as client:
        with site.turns.hold():
            return (await client.post("/api/conversations", json=HI)).status_code


@effect("readers", {1: 429, 2: 200})
async def see_second_reader(limits: Limits, folder: Path) -> Any:
    """The status of a stream while another one is open."""
    site = make_site(limits=limits)
    async with open_client(site) as client:
        await client.post("/api/conversations", json={**HI, "conversation": "c"})
        site.closing.set()  # so that the stream ends
        with site.readers.hold():
            return (await client.get("/api/conversations/c/events")).status_code


@effect("reader_queue", {2: "left behind", 9: "all"})
async def see_slow_reader(limits: Limits, folder: Path) -> Any:
    """Whether a reader gets five events that came before it took one."""
    site = make_site(limits=limits)
    async with open_client(site):
        await site.engine.arun("hi", conversation="c")
        events = site.feeds.follow("c", 0)
        await anext(events)
        for _ in range(5):
            site.feeds.publish_fault("c", "x")
        faults = 0
        async for event in events:
            faults += event.event == "fault"
            if faults == 5:
                break
        await events.aclose()
        return "all" if faults == 5 else "left behind"


@effect("heartbeat_s", {0.02: True, 60.0: False})
async def see_sign_of_life(limits: Limits, folder: Path) -> Any:
    """Whether a stream on which nothing happens says something."""
    site = make_site(limits=limits)
    await site.engine.arun("hi", conversation="c")
    with serve(site) as address:
        seconds = 120 if limits.heartbeat_s < 1 else _MOMENT_S
        timeout = httpx.Timeout(120, read=seconds)
        async with httpx.AsyncClient(base_url=address, headers=bearer(), timeout=timeout) as client:
            try:
                async with client.stream("GET", "/api/conversations/c/events?start=99") as response:
                    return any([line == ": still here" async for line in take_lines(response)])
            except httpx.ReadTimeout:
                return False


async def take_lines(response: httpx.Response) -> AsyncIterator[str]:
    """The lines of a stream up to its first comment."""
    async for line in response.aiter_lines():
        yield line
        if line.startswith(":"):
            return


@effect("poll_s", {0.01: True, 1000.0: False})
async def see_other_process(limits: Limits, folder: Path) -> Any:
    """Whether a stream shows a record that another engine has written, after more than the default."""
    store = MemoryStore()
    site = make_site(make_engine(["one"], log=store), limits=limits)
    async with open_client(site):
        await site.engine.arun("hi", conversation="c")
        newest, _ = store.read_last_line("c") or (0, b"")
        events = site.feeds.follow("c", newest + 1)
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        async with make_engine(["two"], log=store) as other:
            await other.arun("hi", conversation="c")
        seconds = 120 if limits.poll_s < 1 else Limits().poll_s * 1.2
        done, _ = await asyncio.wait((following,), timeout=seconds)
        following.cancel()
        await asyncio.wait((following,))
        await events.aclose()
        return bool(done)


class CountingStore(MemoryStore):
    """Counts looks for turns that nobody goes on with."""

    looks = 0

    def list_unfinished(self) -> Any:
        """As that of a memory store."""
        self.looks += 1
        return super().list_unfinished()


@effect("recovery_s", {0.01: "again", 1000.0: "once"})
async def see_recovery(limits: Limits, folder: Path) -> Any:
    """Whether open turns are looked for again within less than the default."""
    store = CountingStore()
    site = make_site(make_engine([], log=store), limits=limits)
    async with open_client(site):
        seconds = 4 if limits.recovery_s < 1 else _MOMENT_S
        is_again = await asyncio.to_thread(wait_until, lambda: store.looks > 1, seconds)
        return "again" if is_again else "once"


@effect("cancel_s", {0.001: False, 60.0: True})
async def see_cancellation(limits: Limits, folder: Path) -> Any:
    """Whether the answer to a cancellation comes when the turn has stopped, which takes a moment."""
    asking: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}
    site = make_named_site(limits, reply_with_calls(("echo", {"text": "a"})), **asking)
    async with open_client(site) as client:
        id_ = (await client.post("/v1/responses", json={"model": "agent", "input": "hi"})).json()["id"]
        stopping = asyncio.ensure_future(asyncio.sleep(_MOMENT_S))
        site.running["responses"] = {id_: stopping}
        answer = await client.post(f"/v1/responses/{id_}/cancel")
        assert answer.status_code == 200, answer.text
        return stopping.done()


@effect("task_after_s", {0.001: "task", 60.0: "result"})
async def see_task(limits: Limits, folder: Path) -> Any:
    """What a client that knows tasks gets of a turn that takes a moment."""
    pytest.importorskip("mcp", reason="the server needs the extra `mcp`")
    from toolchart.app.server.mcp_server.running_turns import RunningTurns

    site = make_site(limits=limits)
    turns = RunningTurns(site)
    async with open_client(site):
        turn = await site.engine.arun("hi", conversation="c")

        async def take_a_moment() -> Any:
            await asyncio.sleep(_MOMENT_S)
            return turn

        answer = await turns.wait_for("c", take_a_moment(), may_be_task=True)
        await turns.stop()
    return answer["resultType"] if isinstance(answer, dict) else "result"


@effect("tools", {1: 400, 2: 200})
async def see_tools(limits: Limits, folder: Path) -> Any:
    """The status of a request with two tools."""
    async with open_client(make_named_site(limits)) as client:
        return (await complete(client, tools=TOOLS)).status_code


@effect("tool_sets", {1: 1, 2: 2})
async def see_tool_sets(limits: Limits, folder: Path) -> Any:
    """How many sets are ready after requests with two of them."""
    site = make_named_site(limits)
    async with open_client(site) as client:
        for tool in TOOLS:
            await complete(client, tools=[tool])
        return len(site.client_tools.list_engines())


@effect("schema_nodes", {5: 400, 50: 200})
async def see_schema(limits: Limits, folder: Path) -> Any:
    """The status of a request with a schema of ten nodes."""
    form = {"type": "json_schema", "json_schema": {"name": "score", "schema": SCHEMA}}
    async with open_client(make_named_site(limits, '{"score": 9}')) as client:
        return (await complete(client, response_format=form)).status_code


# -- reading -----------------------------------------------------------------------------------------


async def make_logged_site(limits: Limits, **changes: Any) -> Site:
    """A site whose log has the conversations `c1`, `c2` and `c3`."""
    engine = make_engine(["hello"] * 3, **changes)
    for name in ("c1", "c2", "c3"):
        await engine.arun(f"hi {name}", conversation=name)
    return make_site(engine, limits=limits)


@effect("page", {2: [2, 2], 4: [3, 3]})
async def see_page(limits: Limits, folder: Path) -> Any:
    """How many conversations are listed, whatever a request asks for or leaves out."""
    async with open_client(await make_logged_site(limits)) as client:
        pages = [await client.get("/api/conversations", params=query) for query in ({}, {"limit": "100"})]
        return [len(page.json()["conversations"]) for page in pages]


@effect("record_page", {2: [2, 2], 100: [3, 3]})
async def see_record_page(limits: Limits, folder: Path) -> Any:
    """How many records are in an answer, whatever a request asks for or leaves out."""
    async with open_client(await make_logged_site(limits)) as client:
        path = "/api/conversations/c1/records"
        pages = [await client.get(path, params=query) for query in ({}, {"limit": "100"})]
        return [len(page.json()["records"]) for page in pages]


@effect("records_bytes", {10: True, 1_000_000: False})
async def see_records(limits: Limits, folder: Path) -> Any:
    """Whether the records that an MCP client reads are cut."""
    pytest.importorskip("mcp", reason="the server needs the extra `mcp`")
    from toolchart.app.server.mcp_server.server import read_resource

    site = await make_logged_site(limits)
    async with open_client(site):
        access = Access(name="owner", roles=frozenset(ROLES))
        (content,) = read_resource(site, access, "toolchart://conversations/c1/records").contents
        return '{"cut":' in content.text  # type: ignore[union-attr]


@effect("approvals_in", {1: [1, False, 1], 9: [2, True, 2]})
async def see_waiting(limits: Limits, folder: Path) -> Any:
    """How many conversations of two that wait are listed, whether these are all, and how many are counted."""
    call = reply_with_calls(("echo", {"text": "a"}))
    site = make_site(make_engine([call, call], chart="approval", approval={"default": "ask"}), limits=limits)
    async with open_client(site) as client:
        for _ in range(2):
            await client.post("/api/conversations", json=HI)
        listed = (await client.get("/api/approvals")).json()
        page = (await client.get("/metrics")).text
        counted = page.partition("\ntoolchart_waiting_approvals ")[2].partition("\n")[0]
        shown = (await client.get("/approvals")).text
        assert f"the newest {limits.approvals_in} conversations" in shown
        return [len(listed["waiting"]), listed["is_complete"], float(counted)]


@effect("hosts_in", {1: False, 9: True})
async def see_hosts(limits: Limits, folder: Path) -> Any:
    """Whether the page of models shows what a host has said in a conversation that is not the newest."""
    said = {"requests": {"limit": 4321.0, "remaining": 1234.0, "reset_s": 5.0}}
    engine = make_engine([Reply(content="one", finish_reason="stop", rate_limits=said), "two"])
    for name in ("old", "new"):
        await engine.arun("hi", conversation=name)
    settings = SiteSettings(results=str(folder / "models.json"))
    async with open_client(make_site(engine, limits=limits, settings=settings)) as client:
        return "4321" in (await client.get("/models")).text.replace(",", "")


@effect("compared_rows", {1: True, 500: False})
async def see_comparison(limits: Limits, folder: Path) -> Any:
    """Whether the page says that it shows the first of more rows."""
    async with open_client(await make_logged_site(limits)) as client:
        page = (await client.get("/conversations/c1/diff?with=c2")).text
        return "The first 1 of" in page


@effect("models", {1: {"m1", "other"}, 2: {"m1", "m2"}})
async def see_models(limits: Limits, folder: Path) -> Any:
    """The models that have figures after turns with two of them."""
    reply = Reply(content="x", finish_reason="stop", usage=Usage(output=7))
    site = make_site(make_engine([reply, reply]), limits=limits)
    async with open_client(site):
        for model in ("m1", "m2"):
            await site.engine.arun("hi", model=model)
        return set(site.figures.output_tokens)


class SlowStore(MemoryStore):
    """A store that answers after a moment."""

    def check_place(self) -> None:
        """Wait."""
        time.sleep(_MOMENT_S)


@effect("log_s", {0.01: 503, 60.0: 200})
async def see_readiness(limits: Limits, folder: Path) -> Any:
    """Whether a server is ready whose log answers after a moment."""
    async with open_client(make_site(make_engine([], log=SlowStore()), limits=limits)) as client:
        return (await client.get("/readyz")).status_code


# -- people ------------------------------------------------------------------------------------------


async def sign_in(client: httpx.AsyncClient) -> str:
    """The cookie of a browser that has signed in."""
    answer = await client.post("/sign-in", data={"token": make_value("owner")})
    client.cookies.clear()
    return answer.headers["set-cookie"]


@effect("sessions", {1: 303, 2: 200})
async def see_oldest_session(limits: Limits, folder: Path) -> Any:
    """What the browser gets that signed in before another one."""
    async with open_client(make_site(limits=limits), None) as client:
        cookie = await sign_in(client)
        await sign_in(client)
        headers = {"Cookie": cookie.partition(";")[0]}
        return (await client.get("/conversations", headers=headers)).status_code


@effect("session_s", {1e-9: [True, 303], 7.0: [False, 200]})
async def see_session(limits: Limits, folder: Path) -> Any:
    """Whether the cookie of a session ends within a second, and what its browser gets at once."""
    async with open_client(make_site(limits=limits), None) as client:
        cookie = await sign_in(client)
        headers = {"Cookie": cookie.partition(";")[0]}
        status = (await client.get("/conversations", headers=headers)).status_code
        return ["Max-Age=1;" in cookie, status]


@effect("code_s", {1e-9: 403, 60.0: 200})
async def see_code(limits: Limits, folder: Path) -> Any:
    """What a link to sign in gives."""
    site = make_site(limits=limits)
    async with open_client(site, None) as client:
        code = site.sessions.make_code(Access(name="owner", roles=frozenset(ROLES)))
        return (await client.get("/sign-in", params={"code": code})).status_code


@effect("form_bytes", {10: 413, 1000: 403})
async def see_form(limits: Limits, folder: Path) -> Any:
    """What a form with an unknown token gives."""
    async with open_client(make_site(limits=limits), None) as client:
        return (await client.post("/sign-in", data={"token": "x" * 100})).status_code


# -- charts and tests --------------------------------------------------------------------------------

CHART = read_shipped_chart("tool_loop")


@effect("checks", {1: 429, 2: 200})
async def see_second_check(limits: Limits, folder: Path) -> Any:
    """What a check gives while another one runs."""
    site = make_site(limits=limits)
    async with open_client(site) as client:
        with find_workbench(site)._slots.hold():
            return (await client.post("/api/charts/check", json={"yaml": CHART})).status_code


@effect("check_s", {0.001: True, 60.0: False})
async def see_slow_check(limits: Limits, folder: Path) -> Any:
    """Whether a check says that it was not ready in time."""
    async with open_client(make_site(limits=limits)) as client:
        answer = await client.post("/api/charts/check", json={"yaml": CHART})
        return "was not ready" in answer.text


@effect("chart_files", {1: [["a.yaml"], False, True], 2: [["a.yaml", "b.yaml"], True, False]})
async def see_files(limits: Limits, folder: Path) -> Any:
    """The charts of a folder of two, whether these are all, and whether the page says that there are more."""
    for name in ("a.yaml", "b.yaml"):
        (folder / name).write_text(CHART)
    site = make_site(limits=limits, settings=SiteSettings(edit_folder=str(folder)))
    async with open_client(site) as client:
        listed = (await client.get("/api/charts")).json()
        page = (await client.get("/charts")).text
        return [listed["files"], listed["is_complete"], "and more" in page]


@effect("test_tokens", {5: 5, 50: 50})
async def see_test(limits: Limits, folder: Path) -> Any:
    """The limit of tokens that the test of a model asks its host for."""
    model = ScriptedProvider(["hello"])
    engine = Engine(make_spec(), log="memory", providers={"model": model})
    settings = SiteSettings(results=str(folder / "models.json"))
    async with open_client(make_site(engine, limits=limits, settings=settings)) as client:
        answer = await client.post("/api/tools/test", json={"llm": "model", "model": "m", "query": "q"})
        assert answer.status_code == 200, answer.text
        return model.requests[0].options["max_tokens"]


@effect("test_messages", {1: True, 2: False})
async def see_topics(limits: Limits, folder: Path) -> Any:
    """Whether a test of topics refuses two messages of the user as too many."""
    async with open_client(make_named_site(limits, topic={"provider": {"llm": "model"}})) as client:
        entry = (await client.get("/api/config/export")).json()["llms"]["model"]
        messages = [{"type": "user", "text": text} for text in ("a", "b")]
        body = {"provider_config": entry, "model": "m", "messages": messages}
        answer = await client.post("/api/connections/topic/test", json=body)
        return "messages has 1 to" in answer.text


@effect("top_k", {1: True, 2: False})
async def see_search(limits: Limits, folder: Path) -> Any:
    """Whether a test of a search refuses two passages as too many; nothing listens at the service."""
    services = {"almanac": {"url": "http://127.0.0.1:9", "provider": "chromadb-wrapper"}}
    async with open_client(make_named_site(limits, rag_services=services)) as client:
        body = {"service": "almanac", "query": "q", "top_k": 2}
        answer = await client.post("/api/collections/c/test-query", json=body)
        return "top_k is a number" in answer.text


# -- stopping ----------------------------------------------------------------------------------------


@effect("errors_s", {0.01: "stopped", 1000.0: "waits"})
async def see_stop(limits: Limits, folder: Path) -> Any:
    """Whether a stop waits, longer than by default, for an answer that is still being sent."""
    site = make_site(limits=limits)
    async with open_client(site):
        with site.hold_answer():
            stopping = asyncio.ensure_future(site.stop(0.0))
            seconds = 120 if limits.errors_s < 1 else Limits().errors_s * 1.1
            done, _ = await asyncio.wait((stopping,), timeout=seconds)
        site.hurry()
        await stopping
        return "stopped" if done else "waits"


@effect("closing_s", {1: 1, 7: 7})
async def see_closing(limits: Limits, folder: Path) -> Any:
    """The seconds that uvicorn gives connections when it stops."""
    site = make_site(limits=limits)
    server = SiteServer(site, build_application(site), Address(port=0))
    await site.engine.aclose()
    return server.config.timeout_graceful_shutdown
