"""`toolchart doctor`: each trouble is found, named, and comes with the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web import Answer, web

Typed = Callable[..., Any]

KEY = "sk-secret-0123456789abcdef"


def host(asked: dict[str, Any]) -> Answer:
    """An Ollama with one model that calls tools and one that does not, and a host of OpenAI's kind."""
    path = asked["path"]
    headers = {"content-type": "application/json"}
    if path == "/v1/models":
        if asked["headers"].get("authorization") != f"Bearer {KEY}":
            return 401, headers, b'{"error": {"message": "bad key"}}'
        return 200, headers, b'{"data": [{"id": "gpt-small"}]}'
    if path == "/api/tags":
        return 200, headers, b'{"models": [{"name": "qwen3:latest"}, {"name": "mute:1b"}]}'
    if path == "/api/show":
        able = ["tools"] if json.loads(asked["body"])["model"] == "qwen3:latest" else []
        return 200, headers, json.dumps({"capabilities": ["completion", *able]}).encode()
    return 404, headers, b"{}"


def checks(
    typed: Typed, here: Path, llm: dict[str, Any], **more: Any
) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and checks of an agent with that entry, without those of the machine."""
    spec = {
        "llms": {"box": llm},
        "tools": {"registry": [{"name": "echo"}]},
        "responses": [{"llm": "box", "tools": {"enabled": True}}],
        **more,
    }
    (here / "agent.yaml").write_text(json.dumps(spec))
    done = typed("doctor", "agent.yaml", "--json")
    assert "Traceback" not in done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    return done.code, [row for row in rows if row["about"].startswith(("llms", "prices"))]


def failed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The one failed check; it has a next step."""
    (row,) = [row for row in rows if row["ok"] is False]
    assert row["hint"]
    return row


def test_a_healthy_agent_passes(typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Key present, host there, model there, tools supported: exit 0, and the key is not printed."""
    monkeypatch.setenv("BOX_KEY", KEY)
    with web(host) as server:
        llm = {
            "provider": "ollama",
            "base_url": server.url,
            "api_key": "${BOX_KEY}",
            "model": "qwen3",
        }
        code, rows = checks(typed, here, llm)
        told = typed("doctor", "agent.yaml")
    assert code == told.code == 0
    said = " | ".join(row["said"] for row in rows)
    for words in (
        "is set up",
        "key from BOX_KEY",
        "offers 2 models",
        "'qwen3' is there",
        "calls tools",
    ):
        assert words in said
    assert KEY not in told.out + told.err
    assert "ok      llms.box: model 'qwen3' is there" in told.out


def test_an_unknown_model_is_named_with_the_nearest(typed: Typed, here: Path) -> None:
    """A model that the host lacks fails, with the nearest one and, for Ollama, how to get it."""
    with web(host) as server:
        llm = {"provider": "ollama", "base_url": server.url, "model": "qwen3x"}
        code, rows = checks(typed, here, llm)
    row = failed(rows)
    assert code == 1
    assert "no model 'qwen3x'" in row["said"]
    assert "ollama pull qwen3x" in row["hint"]
    assert "qwen3:latest" in row["hint"]


def test_a_model_without_tools_fails_where_tools_are_offered(typed: Typed, here: Path) -> None:
    """S3.3: a model that cannot call tools fails for a handler that offers some, and only for that."""
    with web(host) as server:
        llm = {"provider": "ollama", "base_url": server.url, "model": "mute:1b"}
        code, rows = checks(typed, here, llm)
        assert "does not call tools" in failed(rows)["said"]
        assert "models list" in failed(rows)["hint"]
        talking = checks(typed, here, llm, responses=[{"llm": "box"}], tools=None)
    assert code == 1
    assert talking[0] == 0


def test_what_a_host_does_not_say_is_no_failure(
    typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenAI's list tells no capabilities: that is said, and is no failure."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with web(host) as server:
        llm = {"provider": "openai", "base_url": server.url + "/v1", "model": "gpt-small"}
        code, rows = checks(typed, here, llm)
    assert code == 0
    assert [row["said"] for row in rows if row["ok"] is None] == [
        "the host does not say if 'gpt-small' calls tools"
    ]
    assert any(row["said"] == "key from OPENAI_API_KEY" for row in rows)


@pytest.mark.parametrize(
    ("llm", "said", "hint"),
    [
        (
            {"provider": "openai", "base_url": "URL/v1", "api_key": "wrong-key"},
            "auth (HTTP 401)",
            "refused",
        ),
        ({"provider": "openai", "base_url": "URL"}, "HTTP 404", "/v1"),
        (
            {"provider": "ollama", "base_url": "http://127.0.0.1:9"},
            "could not be reached",
            "ollama serve",
        ),
        (
            {"provider": "openai", "base_url": "http://127.0.0.1:9/v1"},
            "not be reached",
            "is it running",
        ),
        ({"provider": "openai"}, "no API key", "export OPENAI_API_KEY"),
        ({"provider": "openai", "api_key": "${UNSET_X}"}, "UNSET_X is not set", "export UNSET_X"),
        (
            {"provider": "openai", "api_key": "k", "heders": {}},
            "no setting 'heders'",
            "mean 'headers'",
        ),
        ({"provider": "recorded", "cassette": "none.yaml"}, "no such cassette", "record: FILE"),
        ({"provider": "recorded", "log": "none.db"}, "there is no log", "run a conversation first"),
    ],
)
def test_every_trouble_has_a_next_step(
    typed: Typed, here: Path, llm: dict[str, Any], said: str, hint: str
) -> None:
    """Refused keys, silent hosts, missing keys, misspelt settings: exit 1, named, with what to do."""
    with web(host) as server:
        llm = {**llm, "model": "m"}
        if "base_url" in llm:
            llm["base_url"] = llm["base_url"].replace("URL", server.url)
        code, rows = checks(typed, here, llm)
    assert code == 1
    row = failed(rows)
    assert said in row["said"]
    assert hint in row["hint"]
    assert "wrong-key" not in json.dumps(rows)


def test_a_rehearsal_needs_nothing(typed: Typed, here: Path) -> None:
    """The shipped offline agent passes with no key and no network; nothing is written."""
    done = typed("doctor", "quickstart")
    assert done.code == 0, done.out
    assert "FAILED" not in done.out
    assert not list(here.iterdir())


def test_prices_are_looked_at(typed: Typed, here: Path) -> None:
    """A price table that cannot be read fails; a budget of money without one is said."""
    llm = {"provider": "scripted", "replies": ["x"]}
    code, rows = checks(typed, here, llm, prices="none.yaml")
    assert (code, failed(rows)["about"]) == (1, "prices")
    code, rows = checks(typed, here, llm, limits={"max_cost": 1})
    assert code == 0
    assert rows[0]["ok"] is None
    assert "no price table" in rows[0]["said"]
    code, rows = checks(typed, here, llm, prices={"models": {"m": {"input": 1, "output": 2}}})
    assert rows[0]["said"] == "1 models, in USD"


def test_nothing_is_recorded_by_looking(typed: Typed, here: Path) -> None:
    """A `record` in the entry makes no cassette: the doctor writes nothing."""
    with web(host) as server:
        llm = {"provider": "ollama", "base_url": server.url, "model": "qwen3", "record": "c.yaml"}
        assert checks(typed, here, llm)[0] == 0
    assert [path.name for path in here.iterdir()] == ["agent.yaml"]


def test_the_machine_is_looked_at(typed: Typed, here: Path) -> None:
    """Versions of Python and packages, and whether the log can be made or written."""
    done = typed("doctor", "--json")
    rows = {row["about"]: row for row in map(json.loads, done.out.splitlines())}
    assert done.code == 0
    assert rows["python"]["ok"] is rows["openai"]["ok"] is rows["log"]["ok"] is True
    assert rows["pydantic"]["said"][0].isdigit()
    (here / "file").write_text("")
    done = typed("doctor", "--log", "file/log.db", "--json")
    row = next(row for row in map(json.loads, done.out.splitlines()) if row["about"] == "log")
    assert done.code == 1
    assert (row["ok"], row["hint"]) == (False, "choose another: --log FILE")


def test_a_spec_that_cannot_be_read_is_wrong_usage(typed: Typed) -> None:
    """An agent that is not there is exit 2, as everywhere."""
    assert typed("doctor", "nowhere.yaml").code == 2
