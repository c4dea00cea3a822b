"""The context that existing configuration files find before a handler is chosen: topic, documents, intent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from web import serve_web

from toolchart import Engine, TurnChanged
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.verify import verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LogDamaged
from toolchart.tools.retrieval import services

DISTANCES = {"tides": 0.1, "berths": 0.4, "boats": 0.3, "far": 0.9}


@pytest.fixture
def almanac() -> Iterator[Any]:
    """A document service: the name of a collection decides how near its one passage is."""

    def answer(request: dict[str, Any]) -> Any:
        name = json.loads(request["body"])["collection"]
        passage = {
            "text": f"All about {name}.",
            "distance": DISTANCES[name],
            "metadata": {"title": name.title()},
        }
        far = {"text": "unrelated", "distance": 1.4, "metadata": {}}
        data = {"results": [far, passage], "collection_metadata": {"description": f"The {name}"}}
        return 200, {"Content-Type": "application/json"}, json.dumps(data).encode()

    with serve_web(answer) as server:
        yield server


def read_bodies(server: Any) -> list[dict[str, Any]]:
    """The bodies of the requests that a service got."""
    return [json.loads(request["body"]) for request in server.requests]


def make_spec(url: str, **changes: Any) -> dict[str, Any]:
    """A configuration as chat servers have it, on a scripted model."""
    return {
        "llms": {"quay": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "rag_services": {"almanac": {"url": url, "provider": "wrapper", "match_threshold": 0.2}},
        "embedding": {"llm": "quay", "model": "e"},
        "intent": {
            "provider": {"llm": "quay", "model": "i"},
            "detection": {"prices": "They ask for a price."},
        },
        "profile": {"name": "Ada"},
        "responses": [
            {
                "name": "reader",
                "match": {"rag_results": "match", "service": "almanac", "collection_contains": "tide"},
                "llm": "quay",
                "prompt": "For {{profile.name}}:\n{{rag_context}}",
            },
            {
                "name": "seller",
                "match": {"intent": "prices"},
                "llm": "quay",
                "prompt": "Sell. {{rag_context}}",
            },
            {
                "name": "berths",
                "match": {"intent": "almanac/boats"},
                "llm": "quay",
                "prompt": "{{rag_context}}",
            },
            {"name": "keeper", "llm": "quay", "prompt": "Topic: {{topic}}"},
        ],
        **changes,
    }


def run_turn(spec: dict[str, Any], replies: list[Any], *collections: str, **options: Any) -> Any:
    """The requests of a turn, its result and its engine's store."""
    provider = ScriptedProvider(replies)
    with Engine(spec, log="memory", providers={"quay": provider}) as engine:
        names: Any = [{"service": "almanac", "name": name} for name in collections]
        names = names if len(names) > 1 else f"almanac/{collections[0]}"
        result = engine.run("How high is it?", conversation="c", variables={"collections": names}, **options)
        problems = [one for one in verify_store(engine.store) if isinstance(one, LogDamaged)]
        assert not problems
        for conversation in engine.store.list_conversations():
            assert list(replay_conversation(engine.store, conversation))
        context = load_conversation(engine.store, "c.context")
    return provider.requests, result, context


def test_a_match_reaches_its_handler(almanac: Any) -> None:
    """Issue 16: a near passage is a match: its handler answers with the passage, and no model is asked for
    the intent. The search is a recorded effect that replays."""
    requests, result, context = run_turn(make_spec(almanac.url), ["high"], "far", "tides", "berths")
    assert [body["collection"] for body in read_bodies(almanac)] == ["far", "tides"]
    assert read_bodies(almanac)[0] == {"query": "How high is it?", "collection": "far", "top_k": 3}
    assert len(requests) == 1
    assert requests[0].messages[0].content == "For Ada:\n### Tides (from tides)\n\nAll about tides."
    assert context.snapshot.results["search"].value["rag_results"] == "match"
    assert result.warnings == ()


@pytest.mark.parametrize("ending", ["", "/", "/query", "/Query/", "/collections"])
def test_the_path_of_a_service_is_sent_once(almanac: Any, ending: str) -> None:
    """An address that already ends in a path of the service is understood."""
    run_turn(make_spec(almanac.url + "/v2" + ending), ["high"], "tides")
    assert {request["path"] for request in almanac.requests} == {"/v2/query"}


def test_partial_matches_let_a_model_choose(almanac: Any) -> None:
    """Issue 16: without a match one model call names the intent: 50 tokens, the detections and the partial
    collections; `other` takes the nearest of them."""
    spec = make_spec(almanac.url)
    requests, _, _ = run_turn(spec, ["prices", "100"], "berths", "boats")
    question = requests[0].messages[-1].content
    assert "- prices: They ask for a price." in question
    assert "- almanac/boats: The boats" in question
    assert requests[0].options["max_tokens"] == 50
    assert "All about boats.\n\n---\n\n### Berths" in requests[1].messages[0].content
    requests, _, _ = run_turn(spec, ["Other.", "a boat"], "berths", "boats")
    assert requests[1].messages[0].content.startswith("### Boats (from boats)")


def test_nothing_found_reaches_the_fallback(almanac: Any) -> None:
    """Issue 16: distances above 1 are dropped; without documents the topic is the user's message."""
    requests, _, _ = run_turn(make_spec(almanac.url), ["I do not know", "sorry"], "far")
    assert requests[-1].messages[0].content == "Topic: How high is it?"


def test_the_topic_is_the_query_of_later_turns(almanac: Any) -> None:
    """Issue 16: with earlier messages a model finds the topic (200 tokens), and its words, in lower case, are
    the query; a topic that fails leaves the message."""
    history = [{"type": "user", "text": "The harbour?"}, {"type": "bot", "text": "It is old."}]
    topic = json.dumps({"topic_status": "continuation", "topic_summary": "Harbour TIDES"})
    requests, _, _ = run_turn(make_spec(almanac.url), [topic, "high"], "tides", history=history)
    assert read_bodies(almanac)[0]["query"] == "harbour tides"
    assert requests[0].options["max_tokens"] == 200
    assert "user: The harbour?\nassistant: It is old." in requests[0].messages[-1].content
    almanac.requests.clear()
    _, result, _ = run_turn(make_spec(almanac.url), ["no JSON", "high"], "tides", history=history)
    assert read_bodies(almanac)[0]["query"] == "How high is it?"
    assert "topic" in result.warnings[0]


def test_a_turn_that_is_run_once_finds_its_context_once(almanac: Any) -> None:
    """Reading a turn again, and telling it from another one, asks no model and searches nothing: what was
    found is left out of the comparison. Another message, other places and another prompt are told."""
    spec, places = make_spec(almanac.url), ["almanac/far", "almanac/berths"]
    with Engine(spec, log="memory", providers={"quay": ScriptedProvider(["prices", "100"])}) as engine:
        store, requests = engine.store, engine.hosts.get_provider("quay").requests

        def run(message: str, *collections: str, prompt: str = "Sell. {{rag_context}}") -> str:
            changed = {**spec, "responses": [*spec["responses"]]}
            changed["responses"][1] = {**spec["responses"][1], "prompt": prompt}
            with Engine(changed, log=store, providers={"quay": engine.hosts.get_provider("quay")}) as other:
                variables = {"collections": list(collections)}
                return other.run_once(message, conversation="c", variables=variables).content

        assert [run("How high?", *places) for _ in range(3)] == ["100"] * 3
        for message, collections, prompt, part in (
            ("How deep?", places, "Sell. {{rag_context}}", "message"),
            ("How high?", places[1:], "Sell. {{rag_context}}", "variables.collections"),
            ("How high?", places, "Give. {{rag_context}}", "prompt"),
            ("How high?", places, "Sell. {{rag_context}} Now.", "prompt"),
        ):
            with pytest.raises(TurnChanged, match=f"another {part}"):
                run(message, *collections, prompt=prompt)
    assert len(requests) == 2
    assert len(read_bodies(almanac)) == 2


def test_a_service_that_is_down_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: a service is asked three times; then the turn goes on without it, with a warning."""
    monkeypatch.setattr(services, "FIRST_WAIT_S", 0.0)
    spec = make_spec("http://127.0.0.1:9")
    requests, result, _ = run_turn(spec, ["other", "sorry"], "tides")
    assert "almanac/tides could not be searched" in result.warnings[0]
    assert requests[-1].messages[0].content == "Topic: How high is it?"


def test_the_tool_rag_query_searches_the_services(almanac: Any) -> None:
    """Issue 16: the handler `rag_query` searches the services of the spec, one collection or all."""
    spec = make_spec(almanac.url, intent=None)
    spec["rag_services"]["almanac"]["collections"] = ["tides"]
    spec["responses"] = [{"llm": "quay", "prompt": "p", "tools": {"enabled": True}}]
    entry = {"name": "look", "description": "Look.", "type": "builtin", "handler": "rag_query"}
    spec["tools"] = {"registry": [entry]}
    call = {"tool_calls": [{"name": "look", "arguments": {"query": "boats", "collection": "boats"}}]}
    provider = ScriptedProvider([call, "done"])
    with Engine(spec, log="memory", providers={"quay": provider}) as engine:
        (result,) = engine.run("go").tool_calls
    assert result.value["hits"][0]["title"] == "Boats"
