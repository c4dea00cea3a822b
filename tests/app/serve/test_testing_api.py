"""The testing API and the chat API, as existing front ends speak them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from msgspec.structs import replace
from served import make_site, open_client
from web import WebAnswer, serve_web

from toolchart.app.server.site import Site, SiteSettings
from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import ProviderError


@pytest.fixture
def settings(tmp_path: Path) -> SiteSettings:
    """Settings whose scores are in a folder of this test."""
    return SiteSettings(results=str(tmp_path / "models.json"))


def make_bench(settings: SiteSettings, *replies: Any, **changes: Any) -> Site:
    """A site whose model gives these replies."""
    return make_site(make_engine(replies, **changes), settings=settings)


async def post(client: httpx.AsyncClient, path: str, status: int, /, **body: Any) -> dict[str, Any]:
    """Post a body and return the answer, which must have this status."""
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


# -- lists -------------------------------------------------------------------------------------------


async def test_tools_are_listed_with_type_and_schema(settings: SiteSettings) -> None:
    """S2.10: the list has name, description, type and schema of each tool, and the settings about tools."""
    async with open_client(make_bench(settings), "viewer") as client:
        listed = (await client.get("/api/tools/list")).json()
        available = (await client.get("/api/tools/available")).json()
    rows = {tool["name"]: tool for tool in listed["tools"]}
    assert (listed["count"], listed["enabled"], listed["max_iterations"]) == (3, True, 5)
    assert rows["weather"]["type"] == "mock"
    assert rows["weather"]["parameters"]["required"] == ["city"]
    assert available == {"tools": listed["tools"], "count": 3}


async def test_an_agent_without_tools_says_so(settings: SiteSettings) -> None:
    """Without a `tools` section the list has a message, and a test is refused with what to add."""
    site = make_bench(settings, tools=None, responses=[{"llm": "model", "prompt": "Be brief."}])
    async with open_client(site) as client:
        listed = (await client.get("/api/tools/list")).json()
        refused = await post(client, "/api/tools/test", 400, llm="model", model="m", query="q")
    assert listed == {"tools": [], "count": 0, "message": "Tool manager not initialized"}
    assert refused["error"] == 'Tool manager not initialized. Add a "tools" section to your config.'


# -- tests of models ---------------------------------------------------------------------------------


async def test_a_test_by_name_gives_calls_answer_and_score(settings: SiteSettings) -> None:
    """S2.10: a test has the calls with arguments, result, iteration and milliseconds, and the new score."""
    call = reply_with_calls(("weather", {"city": "Oslo"}))
    async with open_client(make_bench(settings, call, "It is blue.")) as client:
        tested = await post(client, "/api/tools/test", 200, llm="model", model="m", query="How is Oslo?")
        statuses = (await client.get("/api/tools/validation")).json()["statuses"]
    (made,) = tested["tool_calls"]
    assert (made["tool"], made["tool_name"], made["iteration"]) == ("weather", "weather", 1)
    assert made["params"] == {"city": "Oslo"}
    assert made["result"]["success"] is True
    assert isinstance(made["execution_time_ms"], float)
    assert (tested["content"], tested["model"], tested["service"]) == ("It is blue.", "m", "model")
    assert tested["max_iterations_reached"] is False
    score = tested["validation"]
    assert (score["modelId"], score["validated"], score["successRate"]) == ("model/m", True, 1.0)
    assert (score["totalTests"], score["successCount"]) == (1, 1)
    (entry,) = score["history"]
    assert (entry["success"], entry["query"], entry["tools_used"]) == (True, "How is Oslo?", ["weather"])
    assert entry["iterations_used"] == 1
    assert statuses == [score]


async def test_a_test_without_a_call_counts_against_the_model(settings: SiteSettings) -> None:
    """An answer without a successful call is a failure in the score, and no error of the request."""
    async with open_client(make_bench(settings, "I know nothing.")) as client:
        tested = await post(client, "/api/tools/test", 200, llm="model", model="m", query="q")
    assert (tested["validation"]["validated"], tested["validation"]["successRate"]) == (False, 0.0)


async def test_a_model_that_never_ends_reaches_the_limit(settings: SiteSettings) -> None:
    """The limit of iterations ends a test, and the answer says so."""
    calls = [reply_with_calls(("echo", {"text": str(number)})) for number in range(9)]
    site = make_bench(settings, *[{**call, "content": "hm"} for call in calls])
    async with open_client(site) as client:
        tested = await post(client, "/api/tools/test", 200, llm="model", model="m", query="q")
    assert tested["max_iterations_reached"] is True
    ran = [call["iteration"] for call in tested["tool_calls"] if call["outcome"] == "succeeded"]
    assert ran == [1, 2, 3, 4, 5]


async def test_a_call_that_needs_an_approval_is_rejected_in_a_test(settings: SiteSettings) -> None:
    """Nobody watches a test, so a call that a person must approve does not run in it."""
    site = make_bench(
        settings, reply_with_calls(("echo", {"text": "a"})), "well", approval={"default": "ask"}
    )
    async with open_client(site) as client:
        tested = await post(client, "/api/tools/test", 200, llm="model", model="m", query="q")
    assert [call["outcome"] for call in tested["tool_calls"]] == ["denied"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "Missing required parameters: query, model"),
        ({"query": "q"}, "Missing required parameters: query, model"),
        ({"query": 1, "model": "m", "llm": "model"}, "Missing required parameters: query, model"),
        (
            {"query": "q", "model": "m"},
            "Missing required parameters: query, model, llm (or use provider_config for inline mode)",
        ),
        ({"query": "q", "model": "m", "llm": "x"}, 'LLM provider "x" not found. Available: model'),
        (
            {"query": "q", "model": "m", "provider_config": {}},
            'provider_config must include a "provider" field',
        ),
    ],
)
async def test_wrong_tests_are_refused_in_the_known_words(
    settings: SiteSettings, body: dict[str, Any], error: str
) -> None:
    """Front ends show and compare these texts."""
    async with open_client(make_bench(settings)) as client:
        assert (await post(client, "/api/tools/test", 400, **body))["error"] == error


@pytest.mark.parametrize(
    ("status", "answer_status", "text"),
    [
        (
            400,
            422,
            'Model "m" rejected the request (HTTP 400). This usually means the model does not support',
        ),
        (404, 500, 'Model "m" was not found on provider "scripted". Check the model name is correct.'),
        (503, 500, "no room"),
    ],
)
async def test_a_host_that_refuses_is_explained(
    settings: SiteSettings, status: int, answer_status: int, text: str
) -> None:
    """The refusal of a host becomes a text for people, with the score beside it; trouble of the network does
    not count against the model."""
    failure = ProviderError("bad_request" if status < 500 else "server", "no room", status=status)
    site = make_site(
        Engine(make_spec(), log="memory", providers={"model": FailingProvider(failure)}), settings=settings
    )
    async with open_client(site) as client:
        refused = await post(client, "/api/tools/test", answer_status, llm="model", model="m", query="q")
    assert text in refused["error"]
    assert (refused["llm"], refused["model"]) == ("model", "m")
    assert refused["validation"]["totalTests"] == (0 if status == 503 else 1)


@pytest.mark.parametrize(
    ("status", "message", "answer_status", "text"),
    [
        (400, "this model does not support tools", 422, 'Model "m" rejected the request (HTTP 400).'),
        (400, "Unknown parameter: 'tools'", 422, 'Model "m" rejected the request (HTTP 400).'),
        (404, "This endpoint does not support tool use", 422, 'Model "m" rejected the request (HTTP 404).'),
        (404, "The model `m` does not exist", 500, 'Model "m" was not found on provider "openai".'),
    ],
)
async def test_a_host_that_refuses_tools_is_not_asked_again_without_them(
    settings: SiteSettings, status: int, message: str, answer_status: int, text: str
) -> None:
    """S2.10: where a host refuses the request with tools, and would answer one without them, the test says
    422 with the host's words; nothing is asked again, and the score has the refusal."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        if json.loads(request["body"]).get("tools"):
            error = {"error": {"message": message, "type": "invalid_request_error"}}
            return status, {"Content-Type": "application/json"}, json.dumps(error).encode()
        reply = {"role": "assistant", "content": "I have no tools."}
        body = {"id": "r", "model": "m", "choices": [{"index": 0, "message": reply, "finish_reason": "stop"}]}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    with serve_web(answer) as host:
        llms = {"model": {"provider": "openai", "base_url": f"{host.url}/v1", "model": "m"}}
        site = make_site(Engine(make_spec(llms=llms), log="memory"), settings=settings)
        async with open_client(site) as client:
            path = "/api/tools/test"
            refused = await post(client, path, answer_status, llm="model", model="m", query="q")
        assert len(host.requests) == 1
    assert refused["error"].startswith(text)
    assert refused["message"] == refused["error"]
    if answer_status == 422:
        assert f"Provider said: {message}" in refused["error"]
    assert (refused["validation"]["totalTests"], refused["validation"]["successCount"]) == (1, 0)


class FailingProvider(ScriptedProvider):
    """A model host that always refuses."""

    def __init__(self, failure: ProviderError) -> None:
        super().__init__()
        self._failure = failure

    async def complete(self, request: Any) -> Any:
        raise self._failure


async def test_the_agent_of_a_test_is_closed_with_it(
    settings: SiteSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test closes the agent that it made; the hosts and the log of the served agent stay open."""
    site = make_bench(settings, "x", "x", "x", "x")
    closed: list[Engine] = []
    close = Engine.aclose

    async def note_close(engine: Engine) -> None:
        closed.append(engine)
        await close(engine)

    monkeypatch.setattr(Engine, "aclose", note_close)
    async with open_client(site) as client:
        for count in (1, 2, 3):
            await post(client, "/api/tools/test", 200, llm="model", model="m", query="q")
            assert len(closed) == count
        assert site.engine not in closed
        answer = await client.post("/api/conversations", json={"message": "hi"})
    assert answer.json()["content"] == "x"


# -- configurations in requests ----------------------------------------------------------------------

OWN = {"provider": "scripted", "model": "m", "replies": ["unused"]}


async def test_a_configuration_that_is_an_entry_of_the_agent_is_that_entry(settings: SiteSettings) -> None:
    """Such a test asks the operator's host, with the tools that the request names and no others."""
    call = reply_with_calls(("echo", {"text": "a"}), ("weather", {"city": "Oslo"}))
    async with open_client(make_bench(settings, call, "done")) as client:
        body = {"provider_config": OWN, "registry": [{"name": "echo"}, {"name": "rm"}]}
        tested = await post(client, "/api/tools/test", 200, model="m", query="q", **body)
    assert [call["outcome"] for call in tested["tool_calls"]] == ["succeeded", "failed"]
    assert tested["service"] == "model"


@pytest.mark.parametrize(
    "config",
    [
        {"provider": "openai", "base_url": "http://127.0.0.1:1/v1"},
        {"provider": "openai", "api_key": "${OPENAI_API_KEY}"},
        {"provider": "scripted", "replies": ["mine"]},
        {"provider": "scripted", "model": "m", "replies": ["unused"], "base_url": "http://evil.example"},
    ],
)
async def test_a_request_cannot_name_another_host(settings: SiteSettings, config: dict[str, Any]) -> None:
    """A host, key, variable or file in a request is refused; nothing of it is looked at."""
    async with open_client(make_bench(settings)) as client:
        for path, body in (
            ("/api/tools/test", {"model": "m", "query": "q", "provider_config": config}),
            (
                "/api/connections/llm/discovery/models",
                {"provider": config["provider"], "config": {**config, "api_key": "x"}},
            ),
        ):
            refused = await post(client, path, 400, **body)
            assert "no entry" in refused["error"] + refused.get("message", "")


@pytest.mark.parametrize("key", ["base_url", "proxy", "ca_file", "api_key"])
async def test_inline_configurations_are_scripted_models_only(settings: SiteSettings, key: str) -> None:
    """With `--allow-inline` a request may bring a scripted model, and still no host, file or variable."""
    site = make_bench(replace(settings, allow_inline=True))
    inline = {"provider": "scripted", "replies": [reply_with_calls(("echo", {"text": "a"})), "mine"]}
    async with open_client(site) as client:
        body = {"model": "m", "query": "q", "registry": [{"name": "echo"}]}
        tested = await post(client, "/api/tools/test", 200, provider_config=inline, **body)
        wrong = {**inline, key: "${HOME}"}
        refused = await post(client, "/api/tools/test", 400, provider_config=wrong, **body)
    assert (tested["content"], [call["outcome"] for call in tested["tool_calls"]]) == ("mine", ["succeeded"])
    assert "scripted model" in refused["error"]


# -- one tool, models, chat --------------------------------------------------------------------------


async def test_one_tool_is_run_alone(settings: SiteSettings) -> None:
    """A tool runs with the arguments of a form; wrong ones are a result, and an unknown tool is 404."""
    async with open_client(make_bench(settings)) as client:
        done = await post(client, "/api/tools/calculator/run", 200, arguments={"expression": "6 * 7"})
        wrong = await post(client, "/api/tools/weather/run", 200, arguments={"town": "Oslo"})
        unknown = await post(client, "/api/tools/nothing/run", 404, arguments={})
    assert (done["success"], done["outcome"]) == (True, "succeeded")
    assert "42" in str(done["result"])
    assert (wrong["success"], wrong["outcome"]) == (False, "failed")
    assert "no tool 'nothing'" in unknown["error"]


async def test_a_tool_that_needs_approval_wants_an_approver(settings: SiteSettings) -> None:
    """Running it alone needs a word, and that word needs the role `approve`."""
    async with open_client(make_bench(settings, approval={"default": "ask"}), "tester") as client:
        path, arguments = "/api/tools/echo/run", {"text": "a"}
        asked = await post(client, path, 409, arguments=arguments)
        await post(client, path, 403, arguments=arguments, approved=True)
        client.headers["Authorization"] = "Bearer token-of-owner-for-tests-only"
        done = await post(client, path, 200, arguments=arguments, approved=True)
    assert asked["needs_approval"] is True
    assert done["outcome"] == "succeeded"


async def test_models_and_interface_are_described_without_keys(settings: SiteSettings) -> None:
    """Lists for front ends name hosts and models, and never a key."""
    llms = {"model": {"provider": "scripted", "model": "m", "replies": [], "api_key": "sk-very-secret-key"}}
    async with open_client(make_bench(settings, llms=llms)) as client:
        models = await client.get("/api/models/list")
        interface = await client.get("/api/ui-config")
        hosts = await client.get("/api/connections/providers")
        health = (await client.get("/health")).json()
    assert [row["id"] for row in models.json()["models"]] == ["model/m"]
    assert interface.json()["chatReady"] is True
    assert "scripted" in [row["id"] for row in hosts.json()["llm"]]
    assert "sk-very" not in models.text + interface.text + hosts.text
    assert (health["status"], health["ai_providers"], health["rag_providers"]) == ("ok", ["model"], [])


async def test_the_chat_answers_with_its_history(settings: SiteSettings) -> None:
    """A message comes with what was said before, and one JSON object is the answer."""
    site = make_bench(settings, "fine")
    async with open_client(site) as client:
        history = [{"type": "user", "text": "hello"}, {"type": "agent", "text": "hi"}]
        body = {"prompt": "how are you?", "previousMessages": history, "topic": "small talk"}
        answer = await post(client, "/chat/api", 200, **body)
        messages = await client.get(f"/api/conversations/{answer['conversation']}/messages")
        refused = await post(client, "/chat/api", 400, prompt=7)
    assert (answer["response"], answer["status"], answer["topic"]) == ("fine", "success", "small talk")
    assert (answer["service"], answer["model"]) == ("model", "m")
    texts = [(message["role"], message["content"]) for message in messages.json()["messages"]]
    assert texts[:3] == [("user", "hello"), ("assistant", "hi"), ("user", "how are you?")]
    assert refused["error"] == "Invalid request: prompt is required and must be a string"
