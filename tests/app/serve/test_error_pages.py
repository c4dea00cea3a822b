"""Errors as pages: a browser gets HTML that says what happened and what to do, a program gets JSON."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import make_site, open_client

from toolchart.app.server import application
from toolchart.app.server.answers import Refusal
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.studio.errors import ERROR_VIEWS, find_view
from toolchart.states.errors import LogDamaged, LogUnavailable, NotFound

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

FAULTS: dict[str, Exception] = {
    "damage": LogDamaged("its hash differs", conversation="c1", seq=3),
    "no-log": LogUnavailable("the disk is full"),
    "gone": NotFound("c1"),
    "forbidden": Refusal(403, "the token 'owner' lacks the role 'x'"),
    "later": Refusal(429, "too many turns", headers={"Retry-After": "3"}),
    "conflict": Refusal(409, "<b>a turn</b> is running"),
    "bug": ValueError("a detail that strangers need not know"),
}


@pytest.fixture(autouse=True)
def _faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """One page for each fault."""

    faults = RouteGroup()

    def add_page(name: str, fault: Exception) -> None:
        @faults.page(f"/fault/{name}")
        async def fail(request: Any) -> Any:
            raise fault

    for name, fault in FAULTS.items():
        add_page(name, fault)
    groups = (*application.ROUTE_GROUPS, faults)
    monkeypatch.setattr(application.build_application, "__defaults__", (groups,))


@pytest.mark.parametrize(
    ("path", "status", "view", "parts"),
    [
        ("/nowhere", 404, "not found", ("Nothing answers GET /nowhere", "Look at the address")),
        ("/conversations/nope", 404, "no conversation", ("&#39;nope&#39;", 'href="/conversations"')),
        ("/chat/nope", 404, "no conversation", ("&#39;nope&#39;",)),
        ("/charts/nope", 404, "not found", ("tool_loop",)),
        ("/fault/damage", 500, "damage", ("record 3", "toolchart verify")),
        ("/fault/no-log", 503, "no log", ("disk is full",)),
        ("/fault/gone", 404, "no conversation", ("There is no conversation", "list shows every")),
        ("/fault/forbidden", 403, "not allowed", ("lacks the role", "Ask whoever runs the server")),
        ("/fault/later", 429, "too much", ("Too many turns", "Wait a few seconds")),
        ("/fault/conflict", 409, "refused", ("&lt;b&gt;a turn&lt;/b&gt;",)),
        ("/fault/bug", 500, "failure", ("Internal error", "number of the request")),
    ],
)
async def test_each_error_has_its_page(path: str, status: int, view: str, parts: tuple[str, ...]) -> None:
    """The page keeps status and headers, names the error escaped, says what to do next, and shows the number
    of the request; who is signed in still has the navigation."""
    async with open_client(make_site()) as client:
        answer = await client.get(path, headers=HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert f'data-view="{view}"' in answer.text
    for part in (*parts, answer.headers["x-request-id"], 'aria-label="Pages"'):
        assert part in answer.text
    assert "strangers" not in answer.text
    assert ("retry-after" in answer.headers) == (status == 429)


async def test_a_program_gets_json() -> None:
    """Without a word about HTML the same errors are JSON, also for pages."""
    async with open_client(make_site()) as client:
        for path in ("/nowhere", "/conversations/nope", "/fault/damage"):
            answer = await client.get(path)
            assert answer.headers["content-type"] == "application/json"
            assert set(answer.json()) == {"error", "message", "request_id"}


async def test_who_is_not_signed_in_is_led_to_the_form() -> None:
    """Without a token an API address that is opened in a browser leads to the form, and back afterwards; an
    unknown page shows no navigation."""
    async with open_client(make_site(), None) as client:
        answer = await client.get("/api/conversations?limit=3", headers=HTML)
        unknown = await client.get("/nowhere", headers=HTML)
    assert (answer.status_code, 'data-view="sign in"' in answer.text) == (401, True)
    assert "/sign-in?next=/api/conversations%3Flimit%3D3" in answer.text
    assert (unknown.status_code, "<nav" in unknown.text) == (404, False)


async def test_an_unknown_host_is_told_in_a_page() -> None:
    """What the guard refuses before any route is a page too."""
    async with open_client(make_site()) as client:
        answer = await client.get("/tools", headers={**HTML, "Host": "elsewhere.example"})
    assert (answer.status_code, 'data-view="wrong name"' in answer.text) == (421, True)


async def test_a_damaged_run_still_opens() -> None:
    """The page of a run whose record 0 is broken opens and says so; nothing is a bare fault."""
    engine = make_engine(["done"])
    await engine.arun("hi", conversation="c1")
    engine.store._lines["c1"][0] = b'{"broken'  # type: ignore[attr-defined]
    async with open_client(make_site(engine)) as client:
        for path in ("/conversations", "/conversations/c1", "/chat/c1", "/approvals"):
            answer = await client.get(path, headers=HTML)
            assert answer.status_code == 200, path


def test_every_status_has_one_page() -> None:
    """No two pages are for the same status, and every name is used once; an odd status gets the last one."""
    statuses = [status for view in ERROR_VIEWS for status in view.statuses]
    assert len(statuses) == len(set(statuses))
    assert len({view.name for view in ERROR_VIEWS}) == len(ERROR_VIEWS)
    assert find_view(Refusal(418, "teapot"), 418) is ERROR_VIEWS[-1]
