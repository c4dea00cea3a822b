"""Keys of other systems' configuration files: each loads, and means what it means there.

The table of `specs/foreign_keys.py` names those with another spelling or unit than ours.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from agents import make_spec
from web import serve_web

from toolchart import Engine, SpecError, load_spec
from toolchart.engine.runtime.start_check import find_start_problems
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.agent_costs import find_widest_limits
from toolchart.specs.foreign_keys import FOREIGN_KEYS
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.sections.context import RagService, ServiceRetry
from toolchart.tools.retrieval import services

HOST = {"provider": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"}


def load_host(**keys: Any) -> tuple[LLMConfig, AgentSpec]:
    """The entry of `llms` with these keys, and its agent."""
    entry = {key: value for key, value in {**HOST, **keys}.items() if value is not None}
    spec = load_spec(make_spec(llms={"model": entry}))
    return spec.llms["model"], spec


def load_service(**keys: Any) -> tuple[RagService, AgentSpec]:
    """The entry of `rag_services` with these keys, and its agent."""
    entry = {"provider": "wrapper", "url": "http://127.0.0.1:9", **keys}
    spec = load_spec(make_spec(rag_services={"almanac": entry}))
    return spec.rag_services["almanac"], spec


def run_turn(spec: Any, *replies: Any, **options: Any) -> list[Any]:
    """The requests of one turn."""
    provider = ScriptedProvider(replies or ["done"])
    with Engine(spec, log="memory", providers={"model": provider}) as engine:
        engine.run("hello", **options)
    return provider.requests


# -- hosts -------------------------------------------------------------------------------------------


def test_a_saved_entry_of_a_wizard_starts() -> None:
    """Row 16: what each save of the wizard writes (`description`, `default_model`, `temperature`,
    `maxTokens`, `max_tokens`, `timeout`) loads, and an adapter can be made of it."""
    saved = {"description": "Our host", "default_model": "n", "temperature": 0.4, "maxTokens": 900}
    entry, spec = load_host(**saved, max_tokens=100, timeout=30000, retries=2, model=None)
    assert (entry.description, entry.model, entry.timeout_s) == ("Our host", "n", 30.0)
    assert entry.extra_options() == {}
    assert spec.warnings == ("keys that Toolchart does not use: llms.model.max_tokens",)
    with Engine(spec, log="memory") as engine:
        assert engine.hosts.get_provider("model") is not None


def test_default_model_is_the_model_where_none_is_named() -> None:
    """`default_model` counts where an entry has no `model`; beside one it gives way without a word."""
    assert load_host(default_model="n", model=None)[0].model == "n"
    entry, spec = load_host(default_model="n")
    assert (entry.model, spec.warnings) == ("m", ())


def test_temperature_and_max_tokens_of_a_host_hold_where_a_handler_says_nothing() -> None:
    """`temperature` and `maxTokens` of an entry reach the request; a handler's own come first."""
    llms = {"model": {"provider": "scripted", "model": "m", "temperature": 0.4, "maxTokens": 900}}
    spec = make_spec(llms=llms, tools=None, responses=[{"llm": "model"}])
    (request,) = run_turn(spec)
    assert (request.options["temperature"], request.options["max_tokens"]) == (0.4, 900)
    spec["responses"] = [{"llm": "model", "temperature": 0.0, "max_tokens": 5}]
    (request,) = run_turn(spec)
    assert (request.options["temperature"], request.options["max_tokens"]) == (0.0, 5)


def test_max_tokens_of_a_host_is_not_read() -> None:
    """`max_tokens` stands in a form whose server does not read it: it changes nothing, with a warning."""
    llms = {"model": {"provider": "scripted", "model": "m", "max_tokens": 900, "replies": []}}
    (request,) = run_turn(make_spec(llms=llms, tools=None, responses=[{"llm": "model"}]))
    assert "max_tokens" not in request.options


def test_retries_of_a_host_are_further_attempts() -> None:
    """`retries: 1` asks a host twice; the bound that `check` proves counts with it."""
    failure = {"fail": {"kind": "server", "message": "no", "retryable": True}}
    llms = {"model": {"provider": "scripted", "model": "m", "retries": 1, "replies": []}}
    spec = make_spec(
        chart="full", llms=llms, retry={"first_wait_s": 0}, tools=None, responses=[{"llm": "model"}]
    )
    assert len(run_turn(spec, failure, failure, "late")) == 2
    assert find_widest_limits(load_spec(spec)).max_attempts == 2


def test_timeout_is_in_milliseconds() -> None:
    """`timeout: 60000` is a minute, as a number or a text; one that is too short to be meant is a warning,
    and one that is no number is an error at its place."""
    assert load_host(timeout=60000)[0].timeout_s == 60
    assert load_host(timeout="1500")[0].timeout_s == 1.5
    short, spec = load_host(timeout=60)
    assert (short.timeout_s, spec.warnings) == (
        0.06,
        ("llms.model.timeout is 60 milliseconds; `timeout_s` takes seconds",),
    )
    for wrong in ("soon", 0, -1, True, []):
        with pytest.raises(SpecError, match="milliseconds above 0") as caught:
            load_host(timeout=wrong)
        assert caught.value.path == "llms.model.timeout"


def test_our_own_key_comes_first() -> None:
    """Where a file says the same in both spellings ours counts, and a warning names the other one."""
    entry, spec = load_host(timeout=60000, timeout_s=5)
    assert entry.timeout_s == 5
    assert spec.warnings == ("llms.model.timeout is not used, because `timeout_s` stands beside it",)
    assert load_host(baseUrl=HOST["base_url"])[1].warnings == ()


def test_base_url_and_api_key_in_camel_case() -> None:
    """`baseUrl` and `apiKey` are `base_url` and `api_key`; a literal key is as hidden as ever."""
    entry, spec = load_host(baseUrl="http://127.0.0.1:8/v1", base_url=None, apiKey="sk-literal-key-of-a-test")
    assert (entry.base_url, entry.api_key) == ("http://127.0.0.1:8/v1", "sk-literal-key-of-a-test")
    assert "sk-literal" not in json.dumps(spec.to_public_dict())


def test_null_values_are_as_absent() -> None:
    """A form writes null for a field that is empty."""
    entry, _ = load_host(baseUrl=None, timeout=None, default_model=None, description=None)
    assert (entry.timeout_s, entry.model) == (60, "m")
    assert load_service(timeout=None, retry={"delay": None})[0].timeout_s == 30


def test_the_table_names_no_key_of_ours() -> None:
    """Each row of the table is a key that its section does not have, and becomes one that it has."""
    models = {"LLMConfig": LLMConfig, "RagService": RagService, "ServiceRetry": ServiceRetry}
    assert FOREIGN_KEYS.keys() == models.keys()
    for name, rows in FOREIGN_KEYS.items():
        for row in rows:
            assert row.key not in models[name].model_fields
            assert not row.becomes or row.becomes in models[name].model_fields


def test_a_key_of_the_table_is_no_misspelt_key() -> None:
    """Issue 16: what is nearly a known key is refused, but not a key that another system has."""
    load_service(collection="tides", default_threshold=0.3)
    with pytest.raises(SpecError, match="did you mean 'temperature'"):
        load_host(temperatur=0.1)
    with pytest.raises(SpecError, match="did you mean 'collections'"):
        load_service(colections=["tides"])


# -- document services -------------------------------------------------------------------------------


@pytest.fixture
def almanac() -> Iterator[Any]:
    """A document service with two passages, one of them far away."""

    def answer(request: dict[str, Any]) -> Any:
        rows = [
            {"text": "near", "distance": 0.1, "metadata": {"title": "Near"}},
            {"text": "far", "distance": 0.9, "metadata": {"title": "Far"}},
        ]
        return 200, {"Content-Type": "application/json"}, json.dumps({"results": rows}).encode()

    with serve_web(answer) as server:
        yield server


def search(url: str, place: str = "tides", **keys: Any) -> services.Found:
    """What a search of one collection finds."""
    import asyncio

    service, _ = load_service(**{"url": url, **keys})
    return asyncio.run(services.search_services({"almanac": service}, [("almanac", place)], "high?"))


def test_a_pinned_collection_is_the_one_that_is_searched(almanac: Any) -> None:
    """Row 16: `collection` is the only one of its service: without a choice it is searched, and no other."""
    service, spec = load_service(url=almanac.url, collection="tides")
    assert spec.warnings == ()
    assert services.list_places({"almanac": service}, None) == [("almanac", "tides")]
    refused = search(almanac.url, "berths", collection="tides")
    assert refused.problems == ("almanac/berths is not searched: only 'tides' of it is",)
    assert almanac.requests == []
    assert search(almanac.url, collection="tides").rag_results == "match"


def test_a_tool_asks_no_pinned_service_for_another_collection(almanac: Any) -> None:
    """The tool `rag_query` searches a named collection in the services that have it: a service that is pinned
    to another one is no failure of the search."""
    pinned, _ = load_service(url=almanac.url, collection="tides")
    free, _ = load_service(url=almanac.url)
    search_tool = services.ServiceSearch({"pinned": pinned, "free": free})
    hits = search_tool.search("boats?", collection="boats", limit=1)
    assert [hit.file for hit in hits] == ["free/boats"]
    assert [json.loads(request["body"])["collection"] for request in almanac.requests] == ["boats"]


def test_default_threshold_loads() -> None:
    """`default_threshold` decides nothing that we know of; it loads, with a warning that it is not used."""
    service, spec = load_service(default_threshold=0.3)
    assert (service.match_threshold, service.partial_threshold) == (0.25, 0.5)
    assert spec.warnings == ("keys that Toolchart does not use: rag_services.almanac.default_threshold",)


def test_the_title_of_a_service_is_silent() -> None:
    """`description` is written by each save of the wizard."""
    service, spec = load_service(description="The almanac")
    assert (service.description, spec.warnings) == ("The almanac", ())


def test_timeout_and_retry_of_a_service() -> None:
    """`timeout` and `retry.delay` are milliseconds; a service that is down is asked `max_attempts` times."""
    service, spec = load_service(timeout=5000, retry={"max_attempts": 2, "delay": 1})
    assert service.retry is not None
    assert (service.timeout_s, service.retry.delay_s, spec.warnings) == (5.0, 0.001, ())

    def answer(request: dict[str, Any]) -> Any:
        return 503, {}, b"down"

    with serve_web(answer) as server:
        found = search(server.url, retry={"max_attempts": 2, "delay": 1})
        assert len(server.requests) == 2
    assert "could not be searched" in found.problems[0]


def test_passages_beyond_max_distance_are_dropped(almanac: Any) -> None:
    """`max_distance` replaces the 1.0 beyond which a passage is dropped."""
    assert [p.text for p in search(almanac.url).matches[0].passages] == ["near", "far"]
    assert [p.text for p in search(almanac.url, max_distance=0.5).matches[0].passages] == ["near"]


def test_top_k_is_what_a_tool_asks_for(almanac: Any) -> None:
    """Before a handler is chosen a service is asked for 3 passages; the tool `rag_query` asks for `top_k`."""
    search(almanac.url, top_k=7)
    service, _ = load_service(url=almanac.url, top_k=7)
    services.ServiceSearch({"almanac": service}).search("high?", collection="tides", limit=5)
    assert [json.loads(request["body"])["top_k"] for request in almanac.requests] == [3, 7]


BASIC = "Basic " + base64.b64encode(b"me:a-password-of-this-test").decode()


@pytest.mark.parametrize(
    ("keys", "header", "value"),
    [
        ({"headers": {"X-Team": "${A_TEAM}"}}, "x-team", "harbour-team"),
        ({"auth": {"type": "bearer", "token": "${A_TEAM}"}}, "authorization", "Bearer harbour-team"),
        (
            {"auth": {"type": "basic", "username": "me", "password": "a-password-of-this-test"}},
            "authorization",
            BASIC,
        ),
        ({"auth": {"type": "api-key", "key": "${A_TEAM}"}}, "x-api-key", "harbour-team"),
        ({"auth": {"type": "api_key", "api_key": "${A_TEAM}", "header": "X-Own"}}, "x-own", "harbour-team"),
    ],
)
def test_headers_and_sign_in_reach_the_service(
    almanac: Any, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], header: str, value: str
) -> None:
    """`headers` and `auth` (bearer, basic, api-key) go with each request; only there variables are filled."""
    monkeypatch.setenv("A_TEAM", "harbour-team")
    found = search(almanac.url, **keys)
    assert found.problems == ()
    (request,) = almanac.requests
    headers = {name.lower(): text for name, text in dict(request["headers"]).items()}
    assert headers[header] == value
    _, spec = load_service(url=almanac.url, **keys)
    assert "harbour-team" not in json.dumps(spec.to_public_dict())
    assert "a-password" not in json.dumps(spec.to_public_dict())


def test_a_literal_key_of_a_sign_in_is_hidden() -> None:
    """`auth.key` is a secret by its place."""
    _, spec = load_service(auth={"type": "api-key", "key": "a-literal-key-of-a-test"})
    assert spec.to_public_dict()["rag_services"]["almanac"]["auth"]["key"] == "(secret)"


@pytest.mark.parametrize(
    ("auth", "words"),
    [({"type": "bearer"}, "needs `token`"), ({"type": "saml"}, "bearer, basic, api-key, none")],
)
def test_a_sign_in_that_is_not_complete_says_what_it_needs(auth: dict[str, Any], words: str) -> None:
    """A sign-in without its parts, or of another type, is an error with the next step, and asks nobody."""
    with pytest.raises(SpecError, match=words):
        search("http://127.0.0.1:9", auth=auth)


# -- topic, tools, handlers ----------------------------------------------------------------------------


def test_the_topic_prompt_of_the_file_is_asked() -> None:
    """`topic.prompt` replaces the question, with the placeholders of existing files; the topic of the turn
    before is `{{currentTopic}}`."""
    prompt = "Now: {{currentTopic}} / {{ conversationContext }} / {{userMessage}}"
    llms = {"model": {"provider": "scripted", "model": "m", "replies": []}}
    spec = make_spec(
        llms=llms, tools=None, topic={"prompt": prompt}, responses=[{"llm": "model", "prompt": "{{topic}}"}]
    )
    assert load_spec(spec).warnings == ()
    topic = json.dumps({"topic_status": "new_topic", "topic_summary": "Tides"})
    provider = ScriptedProvider([topic, "one", topic, "two"])
    with Engine(spec, log="memory", providers={"model": provider}) as engine:
        engine.run("How high?", conversation="c")
        engine.run("And now?", conversation="c")
    asked = [request.messages[-1].content for request in provider.requests]
    assert asked[0].startswith("Now:  /  / How high?")
    assert asked[2].startswith("Now: Tides / user: How high?\nassistant: one / And now?")
    assert provider.requests[1].messages[0].content == "Tides"


def test_the_topic_is_asked_for_in_the_first_turn_too(almanac: Any) -> None:
    """With a section `topic` a model finds the topic of the first message; what is searched for then is the
    message itself."""
    service = {"url": almanac.url, "collections": ["tides"]}
    llms = {"model": {"provider": "scripted", "model": "m", "replies": []}}
    handler = {"llm": "model", "prompt": "{{topic}}"}
    spec = make_spec(llms=llms, tools=None, topic={}, rag_services={"almanac": service}, responses=[handler])
    topic = json.dumps({"topic_status": "new_topic", "topic_summary": "Tides"})
    requests = run_turn(spec, topic, "done")
    assert [request.messages[0].content for request in requests][1] == "Tides"
    assert json.loads(almanac.requests[0]["body"])["query"] == "hello"


def test_a_tool_that_does_not_exist_is_left_out() -> None:
    """An unknown name in `tools.registry` leaves that tool out with a warning; the agent answers."""
    spec = make_spec(tools={"registry": [{"name": "calculater"}, {"name": "calculator"}]})
    with Engine(spec, log="memory", providers={"model": ScriptedProvider(["ok"])}) as engine:
        assert engine.tools.names() == ("calculator",)
        result = engine.run("hi")
    assert any("calculater" in warning for warning in result.warnings)


def test_handlers_with_null_for_match_and_tools() -> None:
    """A form writes `match: null` and `tools: null`: a handler that always matches and has no tools."""
    spec = make_spec(responses=[{"llm": "model", "match": None, "tools": None}])
    (request,) = run_turn(spec)
    assert request.tools == ()


def test_an_empty_configuration_is_valid_and_not_configured() -> None:
    """Row 16: `{llms: {}, responses: []}` loads with warnings; a message and `check` say what is missing."""
    spec = load_spec({"llms": {}, "responses": []})
    assert [warning.partition(":")[0] for warning in spec.warnings] == [
        "there are no hosts",
        "there are no handlers",
    ]
    (problem,) = find_start_problems(spec)
    assert "`toolchart init`" in str(problem)
    for keys in ({}, {"topic": {}}):
        with (
            Engine({"llms": {}, "responses": [], **keys}, log="memory") as engine,
            pytest.raises(SpecError, match="the agent has no handlers"),
        ):
            engine.run("hi")
