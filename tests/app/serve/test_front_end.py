"""The contract with existing front ends: every endpoint that their pages ask, in its exact shape.

`FrontEnd` sends what those pages send. `SHAPES` says what they read: each answer is compared with its shape,
key by key and type by type. Keys that this server adds stand in `ADDED`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_spec, reply_with_calls
from served import make_site, open_client
from web import WebAnswer, serve_web

from toolchart.app.server.access.tokens import make_tokens
from toolchart.app.server.site import Limits, Site, SiteSettings
from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.tools.retrieval import services

# -- shapes ------------------------------------------------------------------------------------------------


class Maybe:
    """A value that may be missing."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


class Named:
    """An object whose keys are names of the operator, each with a value of one shape."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


NUMBER = (int, float)
TEXT_OR_NULL = (str, type(None))
INT_OR_NULL = (int, type(None))
ANY = object()

ADDED = {"request_id", "conversation", "errorType"}
"""Keys that an answer may have beside those that pages read."""


def find_differences(value: Any, shape: Any, place: str = "$") -> list[str]:
    """Where a value is not of its shape."""
    if shape is ANY:
        return []
    if isinstance(shape, Named):
        if not isinstance(value, dict):
            return [f"{place}: no object"]
        return [
            d for key, item in value.items() for d in find_differences(item, shape.shape, f"{place}.{key}")
        ]
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{place}: no object"]
        optional = {key for key, item in shape.items() if isinstance(item, Maybe)}
        found = [f"{place}.{key}: missing" for key in shape.keys() - optional - value.keys()]
        found += [f"{place}.{key}: unexpected" for key in value.keys() - shape.keys() - ADDED]
        for key in shape.keys() & value.keys():
            inner = shape[key].shape if isinstance(shape[key], Maybe) else shape[key]
            found += find_differences(value[key], inner, f"{place}.{key}")
        return found
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place}: no list"]
        return [d for i, item in enumerate(value) for d in find_differences(item, shape[0], f"{place}[{i}]")]
    kinds = shape if isinstance(shape, tuple) else (shape,)
    is_right = type(value) in kinds
    return [] if is_right else [f"{place}: {type(value).__name__}"]


FIELD = {
    "name": str,
    "type": str,
    "label": str,
    "description": str,
    "required": bool,
    "default": Maybe((int, float, str)),
    "placeholder": Maybe(str),
    "env_var_suggestion": Maybe(str),
    "min": Maybe(NUMBER),
    "max": Maybe(NUMBER),
    "step": Maybe(NUMBER),
}
SCHEMA = {"provider": str, "display_name": str, "description": str, "fields": [FIELD]}
KIND = {"id": str, "display_name": str, "description": str, "schema": SCHEMA}
ERROR = {"error": str, "message": str}
FAILED_TEST = {"success": bool, **ERROR}
COLLECTION = {"name": str, "service": str, "count": int, "metadata": Named(ANY)}
WRAPPER = {
    "name": str,
    "description": Maybe(str),
    "url": str,
    "collectionCount": int,
    "collection": Maybe(str),
}
TOOL = {"name": str, "description": str, "type": str, "parameters": Named(ANY)}
VALIDATION = {
    "modelId": str,
    "validated": bool,
    "successRate": (int, float, type(None)),
    "totalTests": int,
    "successCount": int,
    "lastTestedAt": TEXT_OR_NULL,
    "history": [ANY],
}

SHAPES: dict[str, Any] = {
    "ui-config": {
        "collections": [COLLECTION],
        "wrappers": [WRAPPER],
        "modelSelection": {"enabled": bool, "providers": {}},
        "llms": Named({"provider": str}),
        "defaultHandlerIndex": int,
        "defaultTopicPrompt": str,
        "hasConfig": bool,
        "isZeroConfig": bool,
        "providerStatus": {
            "llms": Named({"connected": bool, "status": str, "error": Maybe(str)}),
            "rag_services": Named(
                {
                    "connected": bool,
                    "status": str,
                    "details": {"embedding_models": Maybe([ANY])},
                    "error": Maybe(str),
                }
            ),
        },
        "hasWorkingProviders": bool,
        "hasResponseHandlers": bool,
        "chatReady": bool,
    },
    "validate": {"valid": bool, "errors": [str], "warnings": [str]},
    "reload": {"success": bool, "message": str, "error": Maybe(str)},
    "providers": {"llm": [KIND], "rag": [KIND]},
    "schema": SCHEMA,
    "env-vars": {"variables": [{"name": str, "exists": bool, "used_by": [str]}], "count": int},
    "llm test": {
        "success": bool,
        "message": str,
        "provider": str,
        "type": str,
        "duration": int,
        "method": str,
        "details": Named(ANY),
    },
    "discovery": {
        "provider": str,
        "count": int,
        "models": [
            {
                "id": str,
                "name": str,
                "type": str,
                "capabilities": [str],
                "maxTokens": INT_OR_NULL,
                "description": str,
            }
        ],
    },
    "discovery failed": {**ERROR, "provider": str},
    "rag test": {
        "success": bool,
        "message": str,
        "provider": str,
        "type": str,
        "duration": int,
        "collectionCount": int,
        "collections": [{"name": str, "count": int, "metadata": Named(ANY)}],
    },
    "topic test": {
        "evolution": [
            {
                "messageIndex": int,
                "userMessage": str,
                "detectedTopic": str,
                "parentTopic": Maybe(str),
                "topicStatus": str,
            }
        ],
        "provider": str,
        "model": str,
        "messageCount": int,
        "userMessageCount": int,
    },
    "intent test": {
        "query": str,
        "detected_intent": TEXT_OR_NULL,
        "available_intents": [str],
        "intent_count": int,
        "collection_count": int,
        "provider": str,
        "model": str,
        "prompt_used": str,
    },
    "tools list": {
        "tools": [{**TOOL, "risk": ANY, "requires_approval": bool}],
        "count": int,
        "enabled": bool,
        "apply_globally": bool,
        "max_iterations": int,
    },
    "tools test": {
        "content": str,
        "model": str,
        "service": str,
        "tool_calls": [
            {
                "tool": str,
                "tool_name": str,
                "params": Named(ANY),
                "result": Named(ANY),
                "iteration": int,
                "execution_time_ms": NUMBER,
                "outcome": str,
            }
        ],
        "max_iterations_reached": bool,
        "validation": VALIDATION,
        "iterations": int,
    },
    "tools test refused": {**ERROR, "model": str, "llm": str, "validation": VALIDATION},
    "collections": {"collections": [COLLECTION], "wrappers": [WRAPPER], "hasWrappers": bool},
    "test-query": {
        "query": str,
        "collection": str,
        "service": str,
        "results": [{"text": str, "distance": NUMBER, "score": NUMBER, "metadata": Named(ANY)}],
        "execution_time_ms": int,
    },
    "health": {
        "status": str,
        "version": str,
        "config_loaded": bool,
        "ai_providers": [str],
        "rag_providers": [str],
    },
    "chat": {"response": str, "status": str, "topic": str, "service": str, "model": str},
    "chat error": {**ERROR, "response": str, "status": str},
    "error": ERROR,
    "failed test": FAILED_TEST,
}
"""What pages read of each answer."""


# -- what the pages send -----------------------------------------------------------------------------------


class FrontEnd:
    """Sends what the pages of an existing front end send, and reads answers as they do."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, shape: str, status: int = 200) -> Any:
        """Load something."""
        return self._read(await self._client.get(path), shape, status)

    async def send(self, path: str, body: Any, shape: str, status: int = 200, method: str = "POST") -> Any:
        """Send a body."""
        return self._read(await self._client.request(method, path, json=body), shape, status)

    async def export(self) -> dict[str, Any]:
        """The configuration that the pages keep in the browser."""
        answer = await self._client.get("/api/config/export")
        assert answer.status_code == 200
        return dict(answer.json())

    async def save_entry(self, name: str, **changes: Any) -> dict[str, Any]:
        """The configuration after an entry was saved in the wizard: each save writes these keys."""
        config = await self.export()
        form = {"description": "Our host", "default_model": "m", **changes}
        config["llms"][name] = {**config["llms"][name], **form}
        return config

    def _read(self, answer: httpx.Response, shape: str, status: int) -> Any:
        assert answer.status_code == status, answer.text
        data = answer.json()
        assert find_differences(data, SHAPES[shape]) == [], answer.text
        return data


TIDES = {
    "name": "tides",
    "count": 12,
    "metadata": {
        "display_name": "Tides",
        "description": "When the water is high",
        "document_schema": {"a": 1},
    },
}


def answer_host(request: dict[str, Any]) -> WebAnswer:
    """A model host that lists its models, and a document service."""
    path = request["path"].partition("?")[0]
    answers: dict[str, Any] = {
        "/v1/models": {"data": [{"id": "m"}]},
        "/collections": {"collections": [TIDES, {"name": "berths"}]},
        "/query": {"results": [{"text": "At noon.", "distance": 0.25, "metadata": {"title": "Noon"}}]},
    }
    body = answers.get(path)
    if body is None:
        return 404, {"Content-Type": "application/json"}, b'{"error": {"message": "no such path"}}'
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@pytest.fixture
def host() -> Iterator[Any]:
    """A model host and a document service on loopback."""
    with serve_web(answer_host) as server:
        yield server


def make_config(url: str, **changes: Any) -> dict[str, Any]:
    """The configuration of the operator, in the form of such files."""
    sections: dict[str, Any] = {
        "llms": {
            "model": {"provider": "openai", "base_url": f"{url}/v1", "api_key": "${A_HOST_KEY}", "model": "m"}
        },
        "rag_services": {"almanac": {"url": url, "provider": "chromadb-wrapper", "description": "Almanac"}},
        "topic": {"provider": {"llm": "model"}},
        "intent": {"provider": {"llm": "model"}, "detection": {"prices": "They ask for a price."}},
        "responses": [
            {"match": {"intent": "prices"}, "llm": "model", "prompt": "p"},
            {"match": None, "llm": "model", "prompt": "p", "tools": {"enabled": True}},
            {"llm": "model", "prompt": "p"},
        ],
    }
    return make_spec(**{**sections, **changes})


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SiteSettings:
    """Settings whose scores are in a folder of this test; the key of the host is set."""
    monkeypatch.setenv("A_HOST_KEY", "the-key-of-the-host-of-this-test")
    monkeypatch.setattr(services, "FIRST_WAIT_S", 0.0)
    return SiteSettings(results=str(tmp_path / "models.json"))


@asynccontextmanager
async def open_pages(
    config: dict[str, Any], settings: SiteSettings, *replies: Any, name: str = "owner"
) -> AsyncIterator[FrontEnd]:
    """The pages of a server with this configuration; its model gives these replies."""
    providers = {"model": ScriptedProvider(replies)} if replies else {}
    site = make_site(Engine(config, log="memory", providers=providers), settings=settings)
    async with open_client(site, name) as client:
        yield FrontEnd(client)


# -- at the start ------------------------------------------------------------------------------------------


async def test_the_pages_load(host: Any, settings: SiteSettings) -> None:
    """Row 16: what pages load at their start: hosts, collections under their wrapper, the default handler."""
    async with open_pages(make_config(host.url), settings, name="viewer") as pages:
        loaded = await pages.get("/api/ui-config", "ui-config")
        listed = await pages.get("/api/collections", "collections")
        health = await pages.get("/health", "health")
    assert loaded["modelSelection"] == {"enabled": False, "providers": {}}
    assert loaded["llms"] == {"model": {"provider": "openai"}}
    assert loaded["defaultHandlerIndex"] == 1
    assert [(row["service"], row["name"], row["count"]) for row in loaded["collections"]] == [
        ("almanac", "tides", 12),
        ("almanac", "berths", 0),
    ]
    assert json.loads(loaded["collections"][0]["metadata"]["document_schema"]) == {"a": 1}
    assert loaded["wrappers"] == [
        {"name": "almanac", "description": "Almanac", "url": host.url, "collectionCount": 2}
    ]
    for word in ("currentTopic", "conversationContext", "userMessage"):
        assert ("{{" + word + "}}" in loaded["defaultTopicPrompt"]) is (word != "currentTopic")
    assert all(
        loaded[key] for key in ("hasConfig", "hasWorkingProviders", "hasResponseHandlers", "chatReady")
    )
    assert loaded["isZeroConfig"] is False
    assert loaded["providerStatus"]["llms"]["model"]["connected"] is True
    assert listed == {key: loaded[key] for key in ("collections", "wrappers")} | {"hasWrappers": True}
    assert (health["ai_providers"], health["rag_providers"]) == (["model"], ["almanac"])


async def test_a_dead_service_drops_out(settings: SiteSettings) -> None:
    """A service that does not answer, and one whose variable is not set, have no collections and no wrapper;
    the pages load all the same, and no password is shown."""
    rows = {
        "dead": {"url": "http://me:a-password-of-this-test@127.0.0.1:9"},
        "unset": {"url": "http://127.0.0.1:9/${NOT_SET_HERE}"},
    }
    async with open_pages(make_config("http://127.0.0.1:9", rag_services=rows), settings) as pages:
        loaded = await pages.get("/api/ui-config", "ui-config")
        listed = await pages.get("/api/collections", "collections")
    assert (loaded["collections"], loaded["wrappers"], listed["hasWrappers"]) == ([], [], False)
    status = loaded["providerStatus"]["rag_services"]
    assert [row["connected"] for row in status.values()] == [False, False]
    assert "a-password" not in json.dumps(loaded)


async def test_without_services_the_lists_are_empty(host: Any, settings: SiteSettings) -> None:
    """No service: empty lists, 200. No handler that always matches: -1."""
    responses = [{"llm": "model", "match": {"intent": "x"}, "prompt": "p"}]
    config = make_config(host.url, rag_services={}, responses=responses)
    async with open_pages(config, settings) as pages:
        loaded = await pages.get("/api/ui-config", "ui-config")
    assert (loaded["collections"], loaded["wrappers"], loaded["defaultHandlerIndex"]) == ([], [], -1)
    assert host.requests == []


async def test_a_pinned_service_shows_its_collection(host: Any, settings: SiteSettings) -> None:
    """`collection` pins one: it alone is listed, and the wrapper names it, which hides "manage"."""
    row = {"url": host.url, "collection": "tides"}
    async with open_pages(make_config(host.url, rag_services={"almanac": row}), settings) as pages:
        listed = await pages.get("/api/collections", "collections")
        path, body = "/api/collections/berths/test-query", {"service": "almanac", "query": "q", "top_k": 3}
        await pages.send(path, body, "error", 404)
    assert [row["name"] for row in listed["collections"]] == ["tides"]
    assert listed["wrappers"][0]["collection"] == "tides"


async def test_an_empty_configuration_is_served(settings: SiteSettings) -> None:
    """Row 16: `{llms: {}, responses: []}` is served as not configured; a message is answered with what is
    missing, and the page stays usable."""
    async with open_pages({"llms": {}, "responses": []}, settings) as pages:
        loaded = await pages.get("/api/ui-config", "ui-config")
        await pages.get("/api/connections/providers", "providers")
        refused = await pages.send("/chat/api", {"prompt": "hello"}, "chat error", 400)
        valid = await pages.send("/api/config/validate", {"llms": {}, "responses": []}, "validate")
    flags = ("hasConfig", "isZeroConfig", "hasWorkingProviders", "hasResponseHandlers", "chatReady")
    assert [loaded[flag] for flag in flags] == [False, True, False, False, False]
    assert "no handlers" in refused["response"]
    assert valid["valid"] is True


# -- the configuration pages -------------------------------------------------------------------------------


async def test_the_configuration_goes_round(host: Any, settings: SiteSettings) -> None:
    """Row 16: what is exported is the configuration itself, with references and without keys; it validates,
    and to apply it is a success. A saved entry validates too; to apply it is refused with what to do."""
    config = make_config(host.url, name="desk")
    config["llms"]["spare"] = {"provider": "openai", "model": "n", "api_key": "sk-a-literal-key-of-this-test"}
    async with open_pages(config, settings) as pages:
        exported = await pages.export()
        assert {"llms", "rag_services", "topic", "intent", "tools", "responses"} <= exported.keys()
        assert exported["llms"]["model"]["api_key"] == "${A_HOST_KEY}"
        text = json.dumps(exported)
        assert "the-key-of-the-host" not in text
        assert "sk-a-literal" not in text
        checked = await pages.send("/api/config/validate", exported, "validate")
        applied = await pages.send("/api/config/reload", exported, "reload")
        reordered = dict(reversed(exported.items())) | {"_note": "a comment"}
        again = await pages.send("/api/config/reload", reordered, "reload")
        saved = await pages.save_entry("model", temperature=0.3, maxTokens=800, timeout=30000)
        valid = await pages.send("/api/config/validate", saved, "validate")
        refused = await pages.send("/api/config/reload", saved, "reload", 409)
        for other in ({"llms": {}}, {"llms": {}, "responses": []}, [1]):
            await pages.send("/api/config/reload", other, "reload", 409)
        assert await pages.export() == exported
    assert checked == {"valid": True, "errors": [], "warnings": []}
    assert (applied["success"], again["success"], valid["valid"]) == (True, True, True)
    assert (refused["success"], "toolchart serve" in refused["message"]) == (False, True)


@pytest.mark.parametrize("body", [{"llms": 1}, {"llms": {}, "responses": [{"llm": "x"}]}, [], "text", 0])
async def test_what_is_wrong_with_a_configuration_is_text(
    host: Any, settings: SiteSettings, body: Any
) -> None:
    """Row 16: problems are texts: an object in the list makes the page white."""
    async with open_pages(make_config(host.url), settings) as pages:
        checked = await pages.send("/api/config/validate", body, "validate")
    assert checked["valid"] is False
    assert checked["errors"]


async def test_the_wizards_find_their_fields(host: Any, settings: SiteSettings) -> None:
    """Row 16: each kind of host and service has its fields; a required one has a text as its value. An
    unknown kind is 404. Every field is a key that an entry may have: an entry with all defaults is valid."""
    async with open_pages(make_config(host.url), settings, name="viewer") as pages:
        kinds = await pages.get("/api/connections/providers", "providers")
        for kind, rows in kinds.items():
            for row in rows:
                path = f"/api/connections/providers/{row['id']}/schema?type={kind}"
                assert await pages.get(path, "schema") == row["schema"]
                assert {field["type"] for field in row["schema"]["fields"]} <= {
                    "secret",
                    "number",
                    "url",
                    "text",
                }
                assert {field["type"] for field in row["schema"]["fields"] if field["required"]} <= {"text"}
        await pages.get("/api/connections/providers/nobody/schema?type=llm", "error", 404)
        await pages.get("/api/connections/providers/openai/schema?type=what", "error", 400)
    assert {"openai", "ollama", "anthropic", "gemini"} <= {row["id"] for row in kinds["llm"]}
    assert [row["id"] for row in kinds["rag"]] == ["chromadb-wrapper"]
    samples = {"secret": "${NAME}", "number": 1000, "url": "http://127.0.0.1:9", "text": "x"}
    async with open_pages(make_config(host.url), settings) as pages:
        for section, kind in (("llms", "llm"), ("rag_services", "rag")):
            for row in kinds[kind]:
                fields = row["schema"]["fields"]
                entry = {field["name"]: field.get("default", samples[field["type"]]) for field in fields}
                entry = {"provider": row["id"], **entry}
                config = {"llms": {}, "responses": [], section: {"x": entry}}
                checked = await pages.send("/api/config/validate", config, "validate")
                assert (checked["valid"], "does not use" in str(checked["warnings"])) == (True, False), (
                    checked
                )


async def test_variables_are_named(host: Any, settings: SiteSettings) -> None:
    """Row 16: names of variables and whether they exist; never a value."""
    async with open_pages(make_config(host.url), settings, name="viewer") as pages:
        found = await pages.get("/api/connections/env-vars?mask=true", "env-vars")
    assert {row["name"]: row["exists"] for row in found["variables"]}["A_HOST_KEY"] is True
    assert "the-key-of" not in json.dumps(found)


# -- the tests of connections ------------------------------------------------------------------------------


async def test_a_host_is_tested_as_the_wizard_does(host: Any, settings: SiteSettings) -> None:
    """Row 16: the entry of the agent, also as a save of the wizard has left it, is asked; the answer has a
    message. A new host ends at this step with the reason, and nobody is asked."""
    async with open_pages(make_config(host.url), settings) as pages:
        saved = (await pages.save_entry("model", timeout=60000))["llms"]["model"]
        body = {"provider": saved["provider"], "config": {k: v for k, v in saved.items() if k != "provider"}}
        done = await pages.send("/api/connections/llm/test", body, "llm test")
        models = await pages.send("/api/connections/llm/discovery/models", body, "discovery")
        asked = len(host.requests)
        for config in (
            {"base_url": "http://127.0.0.1:9/v1"},
            {"baseUrl": "http://127.0.0.1:9/v1"},
            {},
            {"base_url": f"{host.url}/v1", "api_key": "sk-another-key-of-a-request"},
            {"base_url": f"{host.url}/v1", "headers": {"x": "y"}},
            {"base_url": f"{host.url}/v1", "timeout": "soon"},
        ):
            other = {"provider": "openai", "config": config}
            refused = await pages.send("/api/connections/llm/test", other, "failed test", 400)
            assert "no entry of the agent's `llms`" in refused["message"]
            path = "/api/connections/llm/discovery/models"
            failed = await pages.send(path, other, "discovery failed", 400)
            assert "no entry" in failed["message"]
        assert len(host.requests) == asked == 2
    assert (done["success"], done["type"], done["method"]) == (True, "llm", "list_models")
    assert [model["id"] for model in models["models"]] == ["m"]


async def test_a_host_that_is_down_says_so(settings: SiteSettings) -> None:
    """A host that does not answer is 400 with the reason in both texts; one without a list is not asked."""
    config = make_config("http://127.0.0.1:9")
    config["llms"]["script"] = {"provider": "scripted", "model": "m", "replies": ["x"]}
    async with open_pages(config, settings) as pages:
        path = "/api/connections/llm/test"
        entry = {"base_url": "http://127.0.0.1:9/v1", "api_key": "${A_HOST_KEY}"}
        down = await pages.send(path, {"provider": "openai", "config": entry}, "failed test", 400)
        script = {"provider": "scripted", "config": {"replies": ["x"]}}
        done = await pages.send(path, script, "llm test")
    assert (down["success"], down["errorType"]) == (False, "connection")
    assert (done["success"], done["method"]) == (True, "configuration")


async def test_a_service_is_tested_as_the_wizard_does(host: Any, settings: SiteSettings) -> None:
    """Row 16: a service is tested without a collection and a query: it says what it has."""
    async with open_pages(make_config(host.url), settings) as pages:
        path, config = (
            "/api/connections/rag/test",
            {"url": host.url, "description": "Renamed", "timeout": 30000},
        )
        done = await pages.send(path, {"provider": "chromadb-wrapper", "config": config}, "rag test")
        for other in ({"url": "http://127.0.0.1:9"}, {"url": host.url, "headers": {"a": "b"}}, {}):
            await pages.send(path, {"provider": "chromadb-wrapper", "config": other}, "failed test", 400)
    assert (done["success"], done["collectionCount"]) == (True, 2)
    dead = {"almanac": {"url": "http://me:a-password-of-this-test@127.0.0.1:9"}}
    async with open_pages(make_config(host.url, rag_services=dead), settings) as pages:
        shown = (await pages.export())["rag_services"]["almanac"]
        down = await pages.send(path, {"provider": "", "config": shown}, "failed test", 400)
    assert "does not answer" in down["message"]
    assert "a-password" not in json.dumps(down)


def make_topic(words: str, status: str = "new_topic") -> str:
    """The reply of a model that was asked for the topic."""
    return json.dumps({"topic_status": status, "topic_summary": words})


CONVERSATION = [
    {"type": "user", "text": "How high is the tide?"},
    {"type": "bot", "text": "Two metres."},
    {"type": "user", "text": "And at night?"},
    {"type": "user", "text": "What is a berth?"},
]


async def test_topics_are_tested_step_by_step(host: Any, settings: SiteSettings) -> None:
    """Row 16: a step for each message of the user, each with what came before it; words that are no topic
    leave the message."""
    config = make_config(host.url)
    replies = make_topic("Tides"), make_topic("Tides at night", "continuation"), "no JSON"
    provider = ScriptedProvider(replies)
    site = make_site(Engine(config, log="memory", providers={"model": provider}), settings=settings)
    async with open_client(site, "talker") as client:
        pages = FrontEnd(client)
        entry = (await pages.export())["llms"]["model"]
        body = {"provider_config": entry, "model": "small", "messages": CONVERSATION}
        found = await pages.send("/api/connections/topic/test", body, "topic test")
    steps = found["evolution"]
    assert [step["messageIndex"] for step in steps] == [0, 1, 2]
    assert [step["detectedTopic"] for step in steps] == ["Tides", "Tides at night", "What is a berth?"]
    assert [step.get("parentTopic") for step in steps] == [None, "Tides", None]
    assert (found["provider"], found["model"]) == ("openai", "small")
    assert (found["messageCount"], found["userMessageCount"]) == (4, 3)
    asked = [request.messages[-1].content for request in provider.requests]
    assert "user: How high is the tide?\nassistant: Two metres." in asked[1]
    assert {request.model for request in provider.requests} == {"small"}


async def test_a_prompt_of_ones_own_needs_debug(host: Any, settings: SiteSettings) -> None:
    """The prompt for the topic is the operator's: the page's own needs the role `debug`; the one that the
    page was filled with does not."""
    config = make_config(host.url)
    path = "/api/connections/topic/test"
    async with open_pages(config, settings, make_topic("A"), name="talker") as pages:
        entry = (await pages.export())["llms"]["model"]
        default = (await pages.get("/api/ui-config", "ui-config"))["defaultTopicPrompt"]
        body = {"provider_config": entry, "model": "m", "messages": CONVERSATION[:1]}
        own = {**body, "custom_prompt": "Now {{currentTopic}}: {{userMessage}}"}
        refused = await pages.send(path, own, "error", 403)
        await pages.send(path, {**body, "custom_prompt": default}, "topic test")
    assert "'debug'" in refused["message"]
    provider = ScriptedProvider([make_topic("A"), make_topic("B")])
    site = make_site(Engine(config, log="memory", providers={"model": provider}), settings=settings)
    async with open_client(site) as client:
        body = {**own, "messages": CONVERSATION[:3]}
        await FrontEnd(client).send(path, body, "topic test")
    asked = [request.messages[-1].content for request in provider.requests]
    assert [text.partition("\n")[0] for text in asked] == [
        "Now : How high is the tide?",
        "Now A: And at night?",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"provider_config": {"provider": "openai", "base_url": "http://evil.example"}},
        {"provider_config": {}},
        {"model": ""},
        {"messages": []},
        {"messages": [{"type": "user", "text": "a"}] * (Limits().test_messages + 1)},
    ],
)
async def test_a_topic_test_that_is_not_complete_asks_nobody(
    host: Any, settings: SiteSettings, change: dict[str, Any]
) -> None:
    """A host that is no entry, a missing part, or too many messages: 400 with the reason, and no call."""
    async with open_pages(make_config(host.url), settings) as pages:
        entry = (await pages.export())["llms"]["model"]
        body = {"provider_config": entry, "model": "m", "messages": CONVERSATION, **change}
        await pages.send("/api/connections/topic/test", body, "error", 400)
    assert host.requests == []


async def test_intents_are_tested(host: Any, settings: SiteSettings) -> None:
    """Row 16: the intents of the configuration and the collections of the page are what a model chooses
    from."""
    async with open_pages(
        make_config(host.url), settings, "Prices.", "almanac/tides", name="talker"
    ) as pages:
        config = await pages.export()
        chosen = [{"service": "almanac", "name": "tides", "metadata": {"description": "High water"}}]
        body = {"query": "How much?", "provider_config": config["llms"]["model"], "model": "small"}
        page = {**body, "working_config": config, "selected_collections": chosen}
        found = await pages.send("/api/connections/intent/test", page, "intent test")
        second = await pages.send("/api/connections/intent/test", page, "intent test")
        empty = {"selected_collections": [], "working_config": {**config, "intent": {"detection": {}}}}
        await pages.send("/api/connections/intent/test", {**body, **empty}, "error", 403)
        unknown = {**page, "selected_collections": [{"service": "evil", "name": "x"}]}
        await pages.send("/api/connections/intent/test", unknown, "error", 400)
    assert (found["detected_intent"], second["detected_intent"]) == ("prices", "almanac/tides")
    assert found["available_intents"] == ["prices", "almanac/tides", "other"]
    assert (found["intent_count"], found["collection_count"], found["model"]) == (1, 1, "small")
    assert "- almanac/tides: High water" in found["prompt_used"]
    assert "Message: How much?" in found["prompt_used"]


async def test_intents_of_the_page_need_debug_and_categories(host: Any, settings: SiteSettings) -> None:
    """Intents that the page has changed are tested with the role `debug`; without any it is 400."""
    path = "/api/connections/intent/test"
    async with open_pages(make_config(host.url), settings, "boats") as pages:
        entry = (await pages.export())["llms"]["model"]
        body = {"query": "A boat?", "provider_config": entry, "model": "m", "selected_collections": []}
        changed = {"intent": {"detection": {"boats": "They ask for a boat."}}}
        found = await pages.send(path, {**body, "working_config": changed}, "intent test")
        none = await pages.send(path, {**body, "working_config": {"intent": {"detection": {}}}}, "error", 400)
        other = {"provider": "openai", "base_url": "http://evil.example"}
        await pages.send(path, {**body, "provider_config": other}, "error", 400)
        await pages.send(path, {**body, "query": " "}, "error", 400)
    assert found["detected_intent"] == "boats"
    assert "add an intent" in none["message"]


async def test_a_model_that_cannot_be_asked_is_an_error(settings: SiteSettings) -> None:
    """A host that is down is 502 with the reason, for the intent and for the topic."""
    config = make_config("http://127.0.0.1:9")
    config["llms"]["model"]["retries"] = 0
    async with open_pages(config, settings) as pages:
        entry = (await pages.export())["llms"]["model"]
        for name, more in (("intent", {"query": "q"}), ("topic", {"messages": CONVERSATION[:1]})):
            body = {"provider_config": entry, "model": "m", **more}
            failed = await pages.send(f"/api/connections/{name}/test", body, "error", 502)
            assert "could not be asked" in failed["message"]


# -- collections -------------------------------------------------------------------------------------------


async def test_a_collection_is_searched(host: Any, settings: SiteSettings) -> None:
    """A test of a search is passed to the service; wrong ones say why."""
    path = "/api/collections/tides/test-query"
    async with open_pages(make_config(host.url), settings, name="talker") as pages:
        found = await pages.send(path, {"service": "almanac", "query": "high?", "top_k": 7}, "test-query")
        for body, status in (
            ({"query": "q", "top_k": 3}, 400),
            ({"service": "nobody", "query": "q"}, 404),
            ({"service": "almanac", "query": " "}, 400),
            ({"service": "almanac", "query": "q", "top_k": 1000}, 400),
        ):
            await pages.send(path, body, "error", status)
    (result,) = found["results"]
    assert (result["distance"], result["score"], result["metadata"]) == (0.25, 0.75, {"title": "Noon"})
    (request,) = host.requests
    assert json.loads(request["body"]) == {"query": "high?", "collection": "tides", "top_k": 7}
    async with open_pages(make_config("http://127.0.0.1:9"), settings) as pages:
        await pages.send(path, {"service": "almanac", "query": "q"}, "error", 502)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/collections", {"name": "n", "embedding_model": "e", "metadata": {}}),
        ("PUT", "/api/collections/tides/metadata", {"metadata": {}, "merge": True}),
        ("DELETE", "/api/collections/tides", None),
        ("DELETE", "/api/collections/tides/documents/all", None),
        ("POST", "/api/collections/tides/documents", {"documents": [{"text": "t", "metadata": {}}]}),
        ("GET", "/api/collections/tides/metadata-values?field=title", None),
    ],
)
async def test_documents_are_managed_at_their_service(
    host: Any, settings: SiteSettings, method: str, path: str, body: Any
) -> None:
    """What would change a collection is refused with 501 and a text that pages show: nothing reaches the
    service. A missing service is 400, an unknown one 404."""
    site = make_site(Engine(make_config(host.url), log="memory"), settings=settings)
    async with open_client(site) as client:
        for service, status in (("almanac", 501), ("nobody", 404), (None, 400)):
            sent: dict[str, Any] = {"params": {}} if body is None else {"json": dict(body)}
            if service is not None:
                (sent.get("json") if body is not None else sent["params"])["service"] = service  # type: ignore[index]
            if "?" in path:
                sent["params"]["field"] = "title"
            answer = await client.request(method, path.partition("?")[0], **sent)
            assert answer.status_code == status, answer.text
            assert find_differences(answer.json(), ERROR) == []
    assert host.requests == []


# -- tools and chat ----------------------------------------------------------------------------------------


async def test_the_tools_page_works(host: Any, settings: SiteSettings) -> None:
    """Row 18: the page lists the tools and tests a model inline, with an entry as its wizard has saved it."""
    call = reply_with_calls(("weather", {"city": "Oslo"}))
    async with open_pages(make_config(host.url), settings, call, "It is blue.") as pages:
        listed = await pages.get("/api/tools/list", "tools list")
        saved = (await pages.save_entry("model"))["llms"]["model"]
        registry = [{"name": row["name"], "description": row["description"]} for row in listed["tools"]]
        body = {"provider_config": saved, "model": "m", "query": "How is Oslo?", "registry": registry}
        tested = await pages.send("/api/tools/test", body, "tools test")
    assert [row["tool_name"] for row in tested["tool_calls"]] == ["weather"]
    assert tested["validation"]["validated"] is True


async def test_a_model_that_refuses_tools_is_422_on_the_tools_page(host: Any, settings: SiteSettings) -> None:
    """Row 18: the refusal of the host has its own status, and its score beside it."""
    refusal = {"fail": {"kind": "bad_request", "message": "no tools here", "status": 400}}
    async with open_pages(make_config(host.url), settings, refusal, "plain") as pages:
        body = {"llm": "model", "model": "m", "query": "q"}
        refused = await pages.send("/api/tools/test", body, "tools test refused", 422)
    assert "no tools here" in refused["error"]


async def test_the_tools_page_needs_debug(host: Any, settings: SiteSettings) -> None:
    """A token without the role `debug` is told which one it lacks, in both texts."""
    async with open_pages(make_config(host.url), settings, name="talker") as pages:
        body = {"llm": "model", "model": "m", "query": "q"}
        refused = await pages.send("/api/tools/test", body, "error", 403)
    assert "'debug'" in refused["message"]


CHAT = {"prompt": "How high?", "previousMessages": [], "retryCount": 0, "topic": None}


async def test_a_chat_with_a_topic_from_the_first_message(host: Any, settings: SiteSettings) -> None:
    """Row 16: the topic badge of the first message is the topic that a model found, and the collection that
    the page has chosen is searched for the message."""
    replies = make_topic("Tides"), "prices", "Two metres.", make_topic("Night"), "other", "One."
    async with open_pages(make_config(host.url), settings, *replies, name="talker") as pages:
        chosen = [{"service": "almanac", "name": "tides"}]
        first = await pages.send("/chat/api", {**CHAT, "selectedCollections": chosen}, "chat")
        said = [{"type": "user", "text": "How high?"}, {"type": "bot", "text": "Two metres."}]
        body = {"prompt": "And at night?", "previousMessages": said, "topic": first["topic"], "retryCount": 0}
        second = await pages.send("/chat/api", body, "chat")
    assert (first["response"], first["topic"], first["status"]) == ("Two metres.", "Tides", "success")
    assert (second["response"], second["topic"]) == ("One.", "Night")
    assert json.loads(host.requests[0]["body"])["query"] == "How high?"


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        ({"fail": {"kind": "auth", "message": "the key is wrong", "status": 401}}, 500, "the key is wrong"),
        ("  ", 500, "the reply is empty"),
        ({"parts": [{"type": "image", "media_type": "image/png", "data": "aGk="}]}, 200, "without any text"),
    ],
)
async def test_every_answer_of_the_chat_has_a_sentence(
    settings: SiteSettings, reply: Any, status: int, words: str
) -> None:
    """Row 16: the page stays locked without a text in `response`: an error and an empty reply have one."""
    async with open_pages(make_spec(), settings, reply, reply) as pages:
        shape = "chat" if status == 200 else "chat error"
        answer = await pages.send("/chat/api", CHAT, shape, status)
        refused = await pages.send("/chat/api", {"prompt": 7}, "chat error", 400)
        wrong = await pages.send("/chat/api", {"prompt": "x", "topic": 7}, "chat error", 400)
    assert words in answer["response"]
    assert refused["error"] == "Invalid request: prompt is required and must be a string"
    assert "topic" in wrong["response"]


async def test_a_failure_of_the_server_has_a_sentence(
    settings: SiteSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody expected shows no detail, and still unlocks the page."""

    async def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("an inner detail")

    monkeypatch.setattr(Engine, "arun", fail)
    async with open_pages(make_spec(), settings) as pages:
        answer = await pages.send("/chat/api", CHAT, "chat error", 500)
    assert answer["response"]
    assert "inner detail" not in json.dumps(answer)


async def test_a_full_server_says_when_to_come_back(settings: SiteSettings) -> None:
    """The page tries again after the seconds in `retryAfter` of a 429."""
    site = make_site(Engine(make_spec(), log="memory"), settings=settings, limits=Limits(turns=0))
    async with open_client(site) as client:
        answer = await client.post("/chat/api", json=CHAT)
    assert answer.status_code == 429
    assert answer.json()["retryAfter"] == int(answer.headers["retry-after"]) >= 1
    assert (
        find_differences({**answer.json(), "retryAfter": 1}, {**SHAPES["chat error"], "retryAfter": int})
        == []
    )


async def test_a_chat_that_waits_for_an_approval_has_a_sentence(settings: SiteSettings) -> None:
    """Row 16: a call that waits for a person leaves the page usable: a text names the tool and the place."""
    call = reply_with_calls(("echo", {"text": "a"}))
    async with open_pages(make_spec(approval={"default": "ask"}), settings, call) as pages:
        answer = await pages.send("/chat/api", CHAT, "chat")
    assert answer["status"] == "waiting"
    assert "(echo)" in answer["response"]
    assert f"/chat/{answer['conversation']}" in answer["response"]


async def test_the_token_without_options_may_do_all_of_it(host: Any, settings: SiteSettings) -> None:
    """Row 18: who signs in on the server's page with the token `owner`, which a server has without `--token`,
    uses the pages of a front end on the same site with the session alone: the tools test and the rest."""
    (default,) = make_tokens(())
    assert default.access.roles >= {"read", "chat", "debug"}
    call = reply_with_calls(("weather", {"city": "Oslo"}))
    engine = Engine(
        make_config(host.url), log="memory", providers={"model": ScriptedProvider([call, "blue"])}
    )
    site = Site(engine, [default], settings=settings)
    async with open_client(site, None) as client:
        client.headers["Origin"] = "http://127.0.0.1:8765"
        pages = FrontEnd(client)
        await pages.get("/api/ui-config", "error", 401)
        signed_in = await client.post("/sign-in", data={"token": default.value})
        assert signed_in.status_code == 200
        await pages.get("/api/ui-config", "ui-config")
        body = {"llm": "model", "model": "m", "query": "How is Oslo?"}
        await pages.send("/api/tools/test", body, "tools test")
        await pages.send("/api/config/reload", await pages.export(), "reload")
