"""The endpoints about the configuration, and the tests of its connections: search, intent and topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec
from served import make_site, open_client
from web import serve_web

from toolchart.app.server.site import Site
from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.tools.retrieval import services


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
    config = answer.json()["config"]
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
        good = await post(client, path, 200, config=make_spec(llms=llms, chart=missing))
        wrong = await post(client, path, 200, config=make_spec(responses=[{"llm": "modle"}]))
        echoed = await post(client, path, 200, config=make_spec(policy="${A_VARIABLE_OF_THE_SERVER}"))
        empty = await post(client, path, 400)
    assert good == {"valid": True, "errors": [], "warnings": []}
    (problem,) = wrong["errors"]
    assert (wrong["valid"], problem["path"]) == (False, "responses[0].llm")
    assert "modle" in problem["message"]
    assert "model" in problem["hint"]
    assert echoed["valid"] is False
    assert "what only the server knows" not in json.dumps(echoed)
    assert "config" in empty["error"]


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
    assert (same["success"], same["changed"]) == (True, False)
    assert (changed["success"], changed["changed"], changed["valid"]) == (False, True, True)
    assert [answer["valid"] for answer in (broken, gone)] == [False, False]
    assert broken["errors"][0]["message"]
    assert served == "one"


async def test_an_agent_without_a_file_never_changes() -> None:
    """An agent that ships, or that a program has made, has nothing to be read again."""
    async with open_client(make_site()) as client:
        assert (await post(client, "/api/config/reload", 200))["changed"] is False


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
        "is_set": True,
        "used_by": ["llms.model.api_key"],
    }
    assert rows["AN_UNSET_VARIABLE"]["is_set"] is False
    assert rows["OPENAI_API_KEY"] == {"name": "OPENAI_API_KEY", "is_set": False, "used_by": ["llms.other"]}
    assert "nobody may read" not in answer.text
    assert interface["providerStatus"] == {"model": {"configured": True}, "other": {"configured": False}}
    assert interface["hasWorkingProviders"] is True


# -- search, intent and topic ------------------------------------------------------------------------


@pytest.fixture
def almanac() -> Iterator[Any]:
    """A document service with one near passage about everything."""

    def answer(request: dict[str, Any]) -> Any:
        passage = {"text": "All about it.", "distance": 0.3, "metadata": {"title": "It"}}
        body = json.dumps({"results": [passage], "collection_metadata": {"description": "Tides"}})
        return 200, {"Content-Type": "application/json"}, body.encode()

    with serve_web(answer) as server:
        yield server


def make_reader(url: str, *replies: Any, **changes: Any) -> Site:
    """A site whose agent searches one service and finds topic and intent."""
    sections: dict[str, Any] = {
        "rag_services": {"almanac": {"url": url, "provider": "wrapper", "collections": ["tides"]}},
        "intent": {"provider": {"llm": "model"}, "detection": {"prices": "They ask for a price."}},
        "topic": {"provider": {"llm": "model"}},
    }
    return make_site(make_engine(replies, **{**sections, **changes}))


async def test_a_service_of_the_agent_is_searched(almanac: Any) -> None:
    """A service is named, or described as the operator has described it; the answer says what was found."""
    async with open_client(make_reader(almanac.url)) as client:
        path, config = "/api/connections/rag/test", {"url": almanac.url}
        named = await post(client, path, 200, service="almanac", query="when?")
        described = await post(client, path, 200, provider="wrapper", config=config, collection="tides")
    assert named == {
        "success": True,
        "service": "almanac",
        "collections": ["tides"],
        "rag_results": "partial",
        "count": 1,
    }
    assert described["success"] is True
    assert [json.loads(request["body"])["query"] for request in almanac.requests] == ["when?", "test"]


async def test_a_service_that_is_down_is_an_answer_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service that cannot be reached is no error of the request; what is said about it holds no secret."""
    monkeypatch.setattr(services, "FIRST_WAIT_S", 0.0)
    site = make_reader("http://user:a-password-of-this-test@127.0.0.1:9/${NOT_SET_HERE:-x}")
    unset = make_reader("http://127.0.0.1:9/${NOT_SET_HERE}")
    async with open_client(site) as client, open_client(unset) as other:
        path = "/api/connections/rag/test"
        down = await post(client, path, 200, service="almanac")
        without = await post(other, path, 200, service="almanac")
    assert (down["success"], "could not be searched" in down["error"]) == (False, True)
    assert "a-password" not in json.dumps(down)
    assert (without["success"], "NOT_SET_HERE is not set" in without["error"]) == (False, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("rag", {"config": {"url": "http://evil.example"}}),
        ("rag", {"service": "almanac", "config": {"url": "http://evil.example"}}),
        ("rag", {"service": "nothing"}),
        ("rag", {"config": {"api_key": "${HOME}"}}),
        ("intent", {"query": "q", "config": {"provider": {"llm": "evil"}}}),
        ("intent", {"query": "q", "config": {"detection": {"mine": "Everything."}}}),
        ("topic", {"query": "q", "config": {"provider": {"llm": "model", "model": "dear"}}}),
        ("topic", {"query": " "}),
    ],
)
async def test_a_request_brings_no_service_and_no_model(
    almanac: Any, path: str, body: dict[str, Any]
) -> None:
    """What is not the operator's own configuration is refused, and nobody is asked."""
    site = make_reader(almanac.url)
    async with open_client(site) as client:
        await post(client, f"/api/connections/{path}/test", 400, **body)
        assert list(site.engine.store.list_conversations()) == []
    assert almanac.requests == []


async def test_an_intent_is_found_as_in_a_turn(almanac: Any) -> None:
    """The services are searched, then a model chooses; the test is a conversation of the log."""
    site = make_reader(almanac.url, "Prices.")
    async with open_client(site) as client:
        found = await post(client, "/api/connections/intent/test", 200, query="How much?")
        assert (found["success"], found["intent"], found["rag_results"]) == (True, "prices", "partial")
        assert found["conversation"] in list(site.engine.store.list_conversations())
        assert (await post(client, "/api/tools/echo/run", 200, arguments={"text": "a"}))["success"]


async def test_a_topic_is_found_from_the_earlier_messages(almanac: Any) -> None:
    """The model is asked with the earlier messages; a reply that is no topic is an answer that says so."""
    topic = json.dumps({"topic_status": "continuation", "topic_summary": "Harbour tides"})
    site = make_reader(almanac.url, topic, "prices", "no JSON", "prices")
    earlier = [{"type": "user", "text": "The harbour?"}, {"type": "agent", "text": "It is old."}]
    async with open_client(site) as client:
        path = "/api/connections/topic/test"
        found = await post(client, path, 200, query="How high?", previousMessages=earlier)
        failed = await post(client, path, 200, query="How high?")
    assert (found["success"], found["topic"], found["topic_status"]) == (
        True,
        "Harbour tides",
        "continuation",
    )
    (question,) = [
        message.content
        for request in site.engine.hosts.providers["model"].requests[:1]  # type: ignore[attr-defined]
        for message in request.messages[-1:]
    ]
    assert "user: The harbour?\nassistant: It is old." in question
    assert (failed["success"], failed["topic"]) == (False, "How high?")
    assert failed["error"]


async def test_an_agent_without_these_sections_says_so() -> None:
    """Without retrieval, intent or topic a test of it is refused with what is missing."""
    async with open_client(make_site()) as client:
        for name, text in (("rag", "rag_services"), ("intent", "`intent`"), ("topic", "`topic`")):
            refused = await post(client, f"/api/connections/{name}/test", 400, query="q")
            assert text in refused["error"]
