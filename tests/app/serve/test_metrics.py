"""`/metrics`: what it counts over every protocol, how things stand, and what it never says."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from served import SiteMaker, bearer, make_site, open_client, serve

from toolchart.app.server.figures import LAG_EVERY_S, ServerFigures
from toolchart.app.server.metrics import write_metrics
from toolchart.app.server.site import Limits, Site
from toolchart.app.server.testing_api.side_engines import open_side_engine
from toolchart.engine import Engine
from toolchart.engine.durable.fleet.metrics import QueueFigures
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.turn_totals import add_usages
from toolchart.engine.reading.approvals import RowCache
from toolchart.engine.reading.figures import read_figures
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.states.errors import LogUnavailable
from toolchart.states.messages import Reply, Usage

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""By name and labels."""

USAGE = Usage(input=100, output=7, cached=60, total=107, cost=0.25)
REPLY = Reply(content="a secret answer", finish_reason="stop", usage=USAGE)
CALL = reply_with_calls(("echo", {"text": "a"}))
ASKING: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}


def read_samples(text: str) -> Samples:
    """The samples of a page, as Prometheus' own parser reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scrape(client: httpx.AsyncClient) -> Samples:
    """The samples of the page now."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return read_samples(answer.text)


def pick(samples: Samples, name: str) -> dict[str, float]:
    """The samples of a name without `toolchart_`, by the values of their labels."""
    return {
        " ".join(value for _, value in labels): count
        for (own_name, labels), count in samples.items()
        if own_name == f"toolchart_{name}"
    }


def make_named_site(replies: list[Any], **changes: Any) -> Site:
    """A site of an agent that protocols call `agent`, whose model gives these replies."""
    providers = {"model": ScriptedProvider(replies)}
    return make_site(Engine(make_spec(name="agent", **changes), log="memory", providers=providers))


# -- what is counted ---------------------------------------------------------------------------------

SAID = "a secret word"
DOORS: dict[str, dict[str, Any]] = {
    "/api/conversations": {"message": SAID, "owner": "somebody", "tags": {"who": "secret"}},
    "/v1/chat/completions": {"model": "agent", "messages": [{"role": "user", "content": SAID}]},
    "/v1/responses": {"model": "agent", "input": SAID},
    "/ag-ui/{model}": {"runId": "r", "messages": [{"role": "user", "content": SAID, "id": "1"}]},
    "/chat/api": {"prompt": SAID},
}
"""Bodies that begin a conversation, by route."""

STREAMED = [
    *DOORS.items(),
    *((route, {**DOORS[route], "stream": True}) for route in ("/v1/chat/completions", "/v1/responses")),
]


async def test_it_counts_what_comes_through_every_door() -> None:
    """Turns through each protocol, also streamed, count with their requests, tokens and cost as often as they
    were begun, as the log says too; and no id, owner or text stands in the page."""
    turns = 2 * len(STREAMED)
    site = make_named_site([REPLY] * turns)
    async with open_client(site) as client:
        for number in range(2):
            for route, body in STREAMED:
                thread = {"threadId": f"thread-{number}"} if route.startswith("/ag-ui") else {}
                answer = await client.post(route.format(model="agent"), json={**body, **thread})
                assert answer.status_code == 200, answer.text
        page = (await client.get("/metrics")).text
        names = list(site.engine.store.list_conversations())
        logged = add_usages(read_figures(site.engine.store, name).usage for name in names)
    samples = read_samples(page)
    assert pick(samples, "turns_total") == {"finished": turns}
    assert (logged.input, logged.cached, logged.output) == (100 * turns, 60 * turns, 7 * turns)
    assert pick(samples, "input_tokens_total") == {"m": logged.input}
    assert pick(samples, "cached_tokens_total") == {"m": logged.cached}
    assert pick(samples, "output_tokens_total") == {"m": logged.output}
    assert pick(samples, "cost_total") == {"m": logged.cost}
    sent = [route for route, _ in STREAMED] * 2
    assert pick(samples, "requests_total") == {f"POST {route} 2xx": sent.count(route) for route in DOORS}
    assert "thread-0" in names
    for word in (*names, "secret", "somebody", "owner", "who", "thread"):
        assert word not in page, word


async def test_turns_of_an_mcp_client_count() -> None:
    """A call of an agent over MCP is a turn like any other."""
    mcp = pytest.importorskip("mcp", reason="the server needs the extra `mcp`")
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    with serve(make_named_site([REPLY])) as address:
        async with httpx2.AsyncClient(headers=bearer(), timeout=120) as http:
            transport = streamable_http_client(f"{address}/mcp", http_client=http)
            async with mcp.Client(transport) as asking:
                await asking.call_tool("agent", {"message": SAID})
        async with httpx.AsyncClient(headers=bearer(), base_url=address) as client:
            samples = await scrape(client)
    assert pick(samples, "turns_total") == {"finished": 1}
    assert pick(samples, "output_tokens_total") == {"m": 7}
    assert pick(samples, "requests_total")["POST /mcp 2xx"] > 0


@pytest.mark.parametrize(
    ("replies", "changes", "end"),
    [
        (["done"], {}, "finished"),
        ([{"content": "x", "cut": True}], {}, "failed"),
        ([CALL], {"responses": [{"llm": "model", "prompt": "p", "tools": {"max_iterations": 1}}]}, "limit"),
        ([CALL], ASKING, "waiting"),
    ],
)
async def test_turns_count_by_how_they_end(replies: list[Any], changes: dict[str, Any], end: str) -> None:
    """An answer, a failure, a limit, and a rest that waits for a person are told apart."""
    tools = {"tools": {**make_spec()["tools"], "enabled": True}}
    async with open_client(make_named_site(replies, **tools, **changes)) as client:
        await client.post("/api/conversations", json={"message": "hi"})
        assert pick(await scrape(client), "turns_total") == {end: 1}


async def test_what_waits_is_read_from_the_log() -> None:
    """A call that waits is there also in a new process on the same log, whose counters begin at 0. Decided or
    cancelled, its turn counts by its end, and nothing waits any more."""
    store = MemoryStore()
    async with open_client(make_site(make_engine([CALL, CALL], log=store, **ASKING))) as client:
        for name in ("c1", "c2"):
            await client.post("/api/conversations", json={"message": "hi", "conversation": name})
        assert pick(await scrape(client), "turns_total") == {"waiting": 2}
    async with open_client(make_site(make_engine([REPLY], log=store, **ASKING))) as client:
        samples = await scrape(client)
        assert (pick(samples, "turns_total"), pick(samples, "waiting_approvals")) == ({}, {"": 2})
        rows = (await client.get("/api/approvals")).json()["waiting"]
        (call,) = next(row["calls"] for row in rows if row["conversation"] == "c1")
        await client.post("/api/conversations/c1/decisions", json={"call_id": call["id"], "approved": True})
        await client.post("/api/conversations/c2/cancel", json={})
        samples = await scrape(client)
    assert pick(samples, "turns_total") == {"cancelled": 1, "finished": 1}
    assert pick(samples, "output_tokens_total") == {"m": 7}
    assert pick(samples, "waiting_approvals") == pick(samples, "waiting_questions") == {"": 0}


async def test_a_question_of_the_chart_waits_too() -> None:
    """Questions to people are counted apart from calls."""
    chart = {
        "name": "asking",
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask_person",
                "transitions": [{"event": name, "target": "done"} for name in ("answered", "cancelled")],
            },
            "done": {"final": True, "enter": "answer"},
        },
    }
    effects = {"ask_person": {"ask_person": {"question": "A secret?", "form": {"type": "object"}}}}
    site = make_named_site([], chart={**chart, "effects": effects})
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi"})
        samples = await scrape(client)
    assert (pick(samples, "waiting_questions"), pick(samples, "waiting_approvals")) == ({"": 1}, {"": 0})


async def test_the_engines_of_tests_count_too() -> None:
    """Tokens that a test of the testing API uses are paid for like any others."""
    site = make_named_site([REPLY])
    spec = load_spec(make_spec(name="other"))
    async with open_client(site) as client, open_side_engine(site, spec, ["model"], functions=()) as engine:
        await engine.arun("hi")
        assert pick(await scrape(client), "input_tokens_total") == {"m": 100}


async def test_requests_count_by_route_and_status() -> None:
    """A request counts under the path with names in place of values, also where it is refused; what has no
    route, and a method that a client made up, are `other`."""
    async with open_client(make_site()) as client:
        await client.get("/api/conversations/c1")
        await client.get("/livez", headers={"Host": "elsewhere"})
        await client.get("/made-up")
        await client.request("MADEUP", "/livez")
        await client.get("/livez")
        counts = pick(await scrape(client), "requests_total")
    assert counts == {
        "GET /api/conversations/{conversation} 4xx": 1,
        "GET other 4xx": 2,
        "other other 4xx": 1,
        "GET /livez 2xx": 1,
    }


def test_a_client_that_goes_away_is_no_failure_of_the_server() -> None:
    """A request whose client went before its body was complete has the status `none`, and no 5xx."""
    site = make_site()
    with serve(site) as address:
        where = httpx.URL(address)
        with socket.create_connection((where.host, where.port or 80), timeout=120) as connection:
            head = f"POST /api/conversations HTTP/1.1\r\nHost: {where.host}\r\nContent-Length: 90\r\n"
            head += f"Content-Type: application/json\r\nAuthorization: {bearer()['Authorization']}\r\n\r\n{{"
            connection.sendall(head.encode())
        until_s = time.monotonic() + 120
        while not site.figures.requests and time.monotonic() < until_s:
            time.sleep(0.01)
    assert dict(site.figures.requests) == {("POST", "/api/conversations", "none"): 1}


ROUTES, STATUSES = st.sampled_from(["/livez", None]), st.sampled_from([200, 404, None])


@given(st.lists(st.tuples(st.text(max_size=9), ROUTES, STATUSES)))
def test_clients_make_up_no_labels(requests: list[tuple[str, str | None, int | None]]) -> None:
    """Whatever methods clients send, the figures have eight of them, and every request counts once."""
    figures = ServerFigures(3)
    for method, route, status in requests:
        figures.note_request(method, route, status)
    assert figures.requests.total() == len(requests)
    methods = {method for method, _, _ in figures.requests}
    assert methods <= {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"}


async def test_models_that_clients_name_are_bounded() -> None:
    """A client may name any model of a host. So many have figures of their own, the rest is `other`, and no
    token is lost."""
    site = make_site(make_engine([REPLY] * 5), limits=Limits(models=2))
    for number in range(5):
        await site.engine.arun("hi", model=f"model {number}")
    assert dict(site.figures.output_tokens) == {"model 0": 7, "model 1": 7, "other": 21}
    assert site.figures.cost["other"] == 0.75
    await site.engine.aclose()


# -- how things stand --------------------------------------------------------------------------------


async def test_it_needs_the_role_of_operators() -> None:
    """Figures are of everybody: without a token 401, without the role `all` 403, with it and no other 200."""
    async with open_client(make_site(), None) as client:
        statuses = {
            name: (await client.get("/metrics", headers=bearer(name) if name else {})).status_code
            for name in ("", "anna", "viewer")
        }
    assert statuses == {"": 401, "anna": 403, "viewer": 200}


async def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Prometheus' client is missing the answer is 501 with the command that installs it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with open_client(make_site()) as client:
        answer = await client.get("/metrics")
    assert (answer.status_code, "prometheus-client>=" in answer.text) == (501, True)


async def test_what_is_open_now_is_shown() -> None:
    """Slots of turns and of event streams that are in use are gauges."""
    site = make_site()
    async with open_client(site) as client:
        with site.turns.hold(), site.readers.hold(), site.readers.hold():
            samples = await scrape(client)
        after = await scrape(client)
    assert (pick(samples, "running_turns"), pick(samples, "open_streams")) == ({"": 1}, {"": 2})
    assert (pick(after, "running_turns"), pick(after, "open_streams")) == ({"": 0}, {"": 0})


async def test_a_blocked_loop_is_seen() -> None:
    """Where something blocks the event loop, the lag of that time is in the histogram, in its bucket and all
    that are above; a free loop adds none of that size."""
    site, blocked_s = make_site(), 0.6
    async with open_client(site) as client:
        await asyncio.sleep(LAG_EVERY_S / 10)  # the first look is due later
        before = site.figures.lag_s
        asyncio.get_running_loop().call_soon(time.sleep, blocked_s + LAG_EVERY_S)
        await asyncio.sleep(LAG_EVERY_S * 1.1)
        samples = await scrape(client)
    assert site.figures.lag_s - before >= blocked_s - 0.01
    buckets = pick(samples, "loop_lag_seconds_bucket")
    assert buckets["0.5"] < buckets["+Inf"] == samples["toolchart_loop_lag_seconds_count", ()]
    assert samples["toolchart_loop_lag_seconds_sum", ()] >= blocked_s - 0.01


@given(st.lists(st.floats(0, 100)))
def test_lags_are_in_their_buckets(lags: list[float]) -> None:
    """A bucket has every lag up to its bound, as Prometheus reads histograms."""
    site = make_site()
    for seconds in lags:
        site.figures.note_lag(seconds)
    text = write_metrics(site, RowCache())[0].decode()
    for (name, labels), count in read_samples(text).items():
        if name == "toolchart_loop_lag_seconds_bucket":
            assert count == sum(seconds <= float(labels[0][1]) for seconds in lags)
    site.engine.close()


class AwayStore(MemoryStore):
    """A store that cannot be listed."""

    def iterate_newest_first(self, before: str | None = None) -> Any:
        """Say so."""
        raise LogUnavailable("the log /srv/secret/log.db cannot be read")


async def test_without_a_log_the_rest_is_there() -> None:
    """A log that cannot be read is a figure of its own; what is read from it is missing and not 0."""
    async with open_client(make_site(make_engine(["hello"], log=AwayStore()))) as client:
        samples = await scrape(client)
    assert pick(samples, "log_readable") == {"": 0}
    assert pick(samples, "waiting_approvals") == {}
    assert pick(samples, "build_info")


def read_queue() -> list[QueueFigures]:
    """A queue with entries."""
    return [
        QueueFigures(state="waiting", priority=0, version="v1", count=3, oldest_s=4.5),
        QueueFigures(state="running", priority=2, version="v1", count=1, oldest_s=9.0),
    ]


def fail_to_read() -> list[QueueFigures]:
    """A database that is away."""
    raise OSError("postgresql://bot:secret@db/bot is away")


@pytest.fixture
def sites(tmp_path: Any) -> Iterator[SiteMaker]:
    """Makes sites whose turns are run by workers."""
    maker = SiteMaker(tmp_path)
    yield maker
    maker.close()


async def test_a_server_before_workers_shows_their_queue(sites: SiteMaker) -> None:
    """Where workers run the turns, the page has the length of their queue, and no turns: these are figures of
    the workers. A queue that cannot be measured is missing, and the rest is there."""
    site = sites.make([REPLY])
    site.read_queue = read_queue
    async with open_client(site) as client:
        answer = await client.post("/api/conversations", json={"message": "hi"})
        assert answer.json()["is_over"]
        samples = await scrape(client)
        site.read_queue = fail_to_read
        without = await scrape(client)
    assert pick(samples, "turns_total") == {}
    assert pick(samples, "requests_total") == {"POST /api/conversations 2xx": 1}
    assert pick(samples, "queue_length") == {"0 waiting v1": 3, "2 running v1": 1}
    assert pick(samples, "queue_oldest_seconds") == {"": 4.5}
    assert pick(without, "queue_length") == {}
    assert pick(without, "running_turns") == {"": 0}


async def test_the_document_names_every_metric() -> None:
    """docs/serve.md has a row for each metric with its labels, and for nothing else."""
    site = make_named_site([REPLY])
    site.read_queue = read_queue
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi"})
        samples = await scrape(client)
    shown: dict[str, set[str]] = {}
    for name, labels in samples:
        name = re.sub("_(bucket|sum|count)$", "", name)
        shown.setdefault(name, set()).update(label for label, _ in labels if label != "le")
    section = (Path(__file__).parents[3] / "docs" / "serve.md").read_text().partition("### Metrics")[2]
    described: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`toolchart_.*)\|$", section.partition("\n## ")[0], re.M):
        names, _, _, labels = row.split("|")
        words = set(re.findall(r"`(\w+)`", labels))
        described |= dict.fromkeys(re.findall(r"`(toolchart_\w+)`", names), words)
    assert shown.keys() == described.keys()
    for name, labels in shown.items():
        assert labels <= described[name], name
