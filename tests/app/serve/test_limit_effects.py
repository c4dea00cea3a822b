"""What a limit of the server bounds, seen at the door; `test_limits.py` has the table of them all."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import bearer, make_site, make_value, open_client

from toolchart.app.server.site import Limits


@pytest.mark.parametrize(("most", "count"), [(2, 2), (4, 3)])
@pytest.mark.parametrize("query", [{}, {"limit": "100"}])
async def test_a_page_holds_no_more_than_its_limit(most: int, count: int, query: dict[str, str]) -> None:
    """`page` and `record_page` bound what one answer lists, whatever its request asks for or leaves out."""
    engine = make_engine(["hello"] * 3)
    for name in ("c1", "c2", "c3"):
        await engine.arun("hi", conversation=name)
    async with open_client(make_site(engine, limits=Limits(page=most, record_page=most))) as client:
        listed = (await client.get("/api/conversations", params=query)).json()
        records = (await client.get("/api/conversations/c1/records", params=query)).json()
    assert (len(listed["conversations"]), len(records["records"])) == (count, count)


async def test_a_key_has_its_limit() -> None:
    """`key_characters` bounds an `Idempotency-Key`: one of that length is taken, a longer one is refused."""
    statuses = []
    async with open_client(make_site(limits=Limits(key_characters=5))) as client:
        for key in ("12345", "123456"):
            headers = {"Idempotency-Key": key}
            answer = await client.post("/api/conversations", json={"message": "hi"}, headers=headers)
            statuses.append((answer.is_success, "at most 5 characters" in answer.text))
    assert statuses == [(True, False), (False, True)]


@pytest.mark.parametrize(("most", "status"), [(1, 303), (2, 200)])
async def test_a_further_browser_ends_the_oldest_session(most: int, status: int) -> None:
    """`sessions` bounds the browsers that are signed in, and `session_s` says how long each one is."""
    site = make_site(limits=Limits(sessions=most, session_s=7.0))
    async with open_client(site, None) as client:
        first = await client.post("/sign-in", data={"token": make_value("owner")})
        client.cookies.clear()
        await client.post("/sign-in", data={"token": make_value("owner")})
        client.cookies.clear()
        cookie = first.headers["set-cookie"]
        answer = await client.get("/conversations", headers={"Cookie": cookie.partition(";")[0]})
    assert "Max-Age=7;" in cookie
    assert answer.status_code == status


@pytest.mark.parametrize(("clients", "status"), [(1, 200), (2, 429)])
async def test_rates_of_so_many_clients_are_remembered(clients: int, status: int) -> None:
    """`clients` bounds whose rates are remembered: a further client makes the oldest one forgotten."""
    limits = Limits(burst=1, requests_per_s=1e-6, clients=clients)
    async with open_client(make_site(limits=limits)) as client:
        first = await client.get("/api/conversations")
        other = await client.get("/api/conversations", headers=bearer("viewer"))
        again = await client.get("/api/conversations")
    assert (first.status_code, other.status_code, again.status_code) == (200, 200, status)
