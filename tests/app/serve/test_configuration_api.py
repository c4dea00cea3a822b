"""The endpoints about the configuration: what is exported, checked, compared and named.

`test_front_end.py` has the shapes of these answers, and the tests of connections.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec
from served import make_site, open_client

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider


async def post(client: httpx.AsyncClient, path: str, status: int, /, **body: Any) -> dict[str, Any]:
    """Post a body and return the answer, which must have this status."""
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


# -- the configuration -------------------------------------------------------------------------------


async def test_the_configuration_is_exported_without_keys() -> None:
    """Whoever may read gets the spec as it is written: references stay, a literal key is hidden."""
    llms = {
        "model": {"provider": "scripted", "model": "m", "replies": [], "api_key": "${A_KEY}"},
        "other": {"provider": "openai", "model": "n", "api_key": "sk-a-literal-key-of-this-test"},
    }
    async with open_client(make_site(make_engine([], llms=llms)), "viewer") as client:
        answer = await client.get("/api/config/export")
    config = answer.json()
    assert config["llms"]["model"]["api_key"] == "${A_KEY}"
    assert config["responses"] == make_spec()["responses"]
    assert "sk-a-literal" not in answer.text


async def test_a_configuration_is_checked_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration of a request is valid or says what is wrong and where; its variables stay as they are,
    and no file that it names is opened."""
    monkeypatch.setenv("A_VARIABLE_OF_THE_SERVER", "what only the server knows")
    llms = {"model": {"provider": "scripted", "model": "${A_VARIABLE_OF_THE_SERVER}", "replies": []}}
    missing = str(tmp_path / "none.yaml")
    async with open_client(make_site()) as client:
        path = "/api/config/validate"
        good = await post(client, path, 200, **make_spec(llms=llms, chart=missing))
        wrong = await post(client, path, 200, **make_spec(responses=[{"llm": "modle"}]))
        echoed = await post(client, path, 200, **make_spec(policy="${A_VARIABLE_OF_THE_SERVER}"))
        empty = await post(client, path, 200)
    assert good == {"valid": True, "errors": [], "warnings": []}
    (problem,) = wrong["errors"]
    assert wrong["valid"] is False
    assert "responses[0].llm: there is no llm 'modle'" in problem
    assert "did you mean 'model'?" in problem
    assert echoed["valid"] is False
    assert "what only the server knows" not in json.dumps(echoed)
    assert "llms" in empty["errors"][0]


async def test_a_changed_file_is_reported_and_not_served(tmp_path: Path) -> None:
    """`reload` compares the agent with its file: unchanged, changed, and changed to what cannot be used. The
    agent stays the one of the start."""
    file = tmp_path / "agent.json"
    file.write_text(json.dumps(make_spec(name="one")))
    engine = Engine(str(file), log="memory", providers={"model": ScriptedProvider(["x"])})
    async with open_client(make_site(engine)) as client:
        same = await post(client, "/api/config/reload", 200)
        file.write_text(json.dumps(make_spec(name="two")))
        changed = await post(client, "/api/config/reload", 409)
        file.write_text("{")
        broken = await post(client, "/api/config/reload", 409)
        file.unlink()
        gone = await post(client, "/api/config/reload", 409)
        served = (await client.get("/api/config/export")).json()["name"]
    assert same["success"] is True
    assert (changed["success"], "start `toolchart serve` again" in changed["message"]) == (False, True)
    for answer in (broken, gone):
        assert (answer["success"], "cannot be used" in answer["message"]) == (False, True)
    assert served == "one"


async def test_an_agent_without_a_file_never_changes() -> None:
    """An agent that ships, or that a program has made, has nothing to be read again."""
    async with open_client(make_site()) as client:
        assert (await post(client, "/api/config/reload", 200))["success"] is True


async def test_variables_are_named_and_their_values_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable that the agent refers to, or whose key a host looks for, is listed: is it set?"""
    monkeypatch.setenv("A_SET_VARIABLE", "a value that nobody may read")
    monkeypatch.delenv("AN_UNSET_VARIABLE", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    llms = {
        "model": {"provider": "scripted", "model": "m", "replies": [], "api_key": "${A_SET_VARIABLE}"},
        "other": {"provider": "openai", "model": "${AN_UNSET_VARIABLE:-n}"},
    }
    async with open_client(make_site(make_engine([], llms=llms)), "viewer") as client:
        answer = await client.get("/api/connections/env-vars")
        interface = (await client.get("/api/ui-config")).json()
    rows = {row["name"]: row for row in answer.json()["variables"]}
    assert rows["A_SET_VARIABLE"] == {
        "name": "A_SET_VARIABLE",
        "exists": True,
        "used_by": ["llms.model.api_key"],
    }
    assert rows["AN_UNSET_VARIABLE"]["exists"] is False
    assert rows["OPENAI_API_KEY"] == {"name": "OPENAI_API_KEY", "exists": False, "used_by": ["llms.other"]}
    assert "nobody may read" not in answer.text
    hosts = interface["providerStatus"]["llms"]
    assert {name: row["connected"] for name, row in hosts.items()} == {"model": True, "other": False}
    assert interface["hasWorkingProviders"] is True
