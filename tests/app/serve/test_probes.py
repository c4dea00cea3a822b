"""What a supervisor asks a server: whether it lives, and whether it takes on turns."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import make_site, open_client

from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import LogUnavailable


class UnusableStore(MemoryStore):
    """A store whose files somebody has replaced."""

    is_usable = True

    def check_place(self) -> None:
        """Say so."""
        if not self.is_usable:
            raise LogUnavailable("the log /srv/secret/log.db was replaced")


async def read_probes(client: Any) -> dict[str, tuple[int, str]]:
    """Status of the answer and the word in it, by path."""
    answers = {path: await client.get(path) for path in ("/livez", "/readyz", "/health")}
    assert "secret" not in "".join(answer.text for answer in answers.values())
    return {path: (answer.status_code, answer.json()["status"]) for path, answer in answers.items()}


async def test_probes_need_no_token_and_follow_the_server() -> None:
    """Without a token: a server that takes on turns is alive and ready. While its log cannot be used, and
    while it stops, it is alive and not ready; it says which and no path, and when to ask again."""
    store = UnusableStore()
    site = make_site(make_engine(["hello"], log=store))
    async with open_client(site, None) as client:
        assert set((await read_probes(client)).values()) == {(200, "ok")}
        store.is_usable = False
        unusable = (503, "log unavailable")
        assert await read_probes(client) == {"/livez": (200, "ok"), "/readyz": unusable, "/health": unusable}
        assert "replaced" in (await client.get("/readyz")).json()["problem"]
        store.is_usable = True
        assert (await client.get("/readyz")).status_code == 200
        await site.stop(0.0)
        stopping = (503, "stopping")
        assert await read_probes(client) == {"/livez": (200, "ok"), "/readyz": stopping, "/health": stopping}
        assert int((await client.get("/readyz")).headers["Retry-After"]) > 0
