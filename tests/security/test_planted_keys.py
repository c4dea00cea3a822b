"""A key in any place where a spec can hold one is known, and found nowhere afterwards."""

from __future__ import annotations

import base64
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from command_runs import RunCli
from planted_key import find_key
from pydantic import BaseModel
from web import WebAnswer, serve_web

from toolchart.providers.anthropic.client import AnthropicSettings
from toolchart.providers.bedrock.client import BedrockSettings
from toolchart.providers.entries import AdapterSettings
from toolchart.providers.gemini.client import GeminiSettings
from toolchart.providers.ollama.client import OllamaSettings
from toolchart.providers.openai.client import OpenAISettings
from toolchart.specs import secrets
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import find_spec_secrets, hide_secrets, resolve_environment
from toolchart.tools.sources.http.settings import HttpSettings
from toolchart.tools.sources.mcp import McpSettings
from toolchart.tools.sources.openapi import OpenApiSettings

MARK = "plantedmark"
"""Stands in every key that these tests plant."""

Path_ = tuple[str, ...]

FREE_MODELS: dict[Path_, tuple[type[BaseModel], ...]] = {
    ("llms", "box"): (
        AnthropicSettings, BedrockSettings, GeminiSettings, OllamaSettings, OpenAISettings,
    ),
    ("tools", "mcp", "box"): (McpSettings,),
    ("tools", "openapi", "0"): (OpenApiSettings,),
    ("tools", "registry", "0", "implementation"): (HttpSettings,),
}  # fmt: skip
"""The forms that have their own models, by the places of the spec where they stand."""

PUBLIC_KEYS = frozenset(
    {
        # where something is, and what it is called
        *(
            "base_url",
            "url",
            "proxy",
            "ca_file",
            "client_certificate",
            "command",
            "cwd",
            "document",
            "region",
        ),
        *("profile", "project", "location", "folder", "model", "provider", "name", "description", "prompt"),
        *("comment", "health_check_endpoint"),
    }
)
"""Keys whose whole value may be a variable that is no secret. Who adds one says so here."""

SECTIONS = ("llms", "tools", "rag_services")
"""Sections of a spec in which `${VARIABLE}` is filled in."""


def list_text_places() -> Iterator[Path_]:
    """The path of every text of the sections that fill in variables, from the models themselves."""
    for name in SECTIONS:
        yield from _walk(AgentSpec.model_fields[name].annotation, (name,))
    for path, models in FREE_MODELS.items():
        for model in models:
            yield from _walk(model, path)


def _walk(annotation: Any, path: Path_) -> Iterator[Path_]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is str:
        yield path
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, info in annotation.model_fields.items():
            yield from _walk(info.annotation, (*path, name))
    elif origin is dict:
        yield from _walk(parts[1], (*path, "box"))
    elif origin in (list, tuple):
        yield from _walk(parts[0], (*path, "0"))
    elif origin in (Union, types.UnionType, Annotated):
        for part in parts:
            yield from _walk(part, path)
    elif origin is not Literal and annotation is Any:
        yield path


def plant(path: Path_, text: str) -> Any:
    """A document with a text at a path; `0` is the first entry of a list."""
    value: Any = text
    for key in reversed(path):
        value = [value] if key == "0" else {key: value}
    return value


DATA_KEYS = frozenset({"parameters", "mock_response", "document"})
"""Keys whose values are data, in which nothing is filled in."""

PLACES = sorted({path for path in list_text_places() if not DATA_KEYS & set(path)})


def test_the_walk_reaches_the_places_that_are_known_to_hold_keys() -> None:
    """The walk over the models finds headers, environments, arguments and sign-ins."""
    assert {
        ("llms", "box", "api_key"),
        ("llms", "box", "headers", "box"),
        ("tools", "mcp", "box", "env", "box"),
        ("tools", "mcp", "box", "args", "0"),
        ("tools", "mcp", "box", "headers", "box"),
        ("tools", "openapi", "0", "headers", "box"),
        ("tools", "registry", "0", "implementation", "headers", "box"),
        ("rag_services", "box", "headers", "box"),
        ("rag_services", "box", "auth", "password"),
    } <= set(PLACES)
    assert set(FREE_MODELS[("llms", "box")]) == set(AdapterSettings.__subclasses__()) - {
        part
        for part in AdapterSettings.__subclasses__()
        if part.__name__ in ("ThinkingSettings", "VertexSettings")
    }


@pytest.mark.parametrize("path", PLACES, ids=".".join)
def test_a_variable_is_known_wherever_it_stands(path: Path_, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable in any text of a spec is a secret, whatever it is called, unless its key is a public one."""
    monkeypatch.setattr(secrets, "_known_spellings", {})
    monkeypatch.setattr(secrets, "_secret_variables", set())
    document = plant(path, "x ${INNOCENT}")
    is_known = ("INNOCENT", True) in list(find_spec_secrets(document))
    assert is_known == (path[-1] not in PUBLIC_KEYS)
    if is_known:
        monkeypatch.setenv("INNOCENT", f"{MARK}-1")
        secrets.remember_spec_secrets(document)
        monkeypatch.setenv("INNOCENT", f"{MARK}-2")  # changed since, as a rotated key is
        assert resolve_environment("${INNOCENT}", "x") == f"{MARK}-2"
        assert secrets.strike_secrets(f"a {MARK}-1 b {MARK}-2") == "a (secret) b (secret)"


@pytest.mark.parametrize("path", [path for path in PLACES if set(path) & {"headers", "env"}], ids=".".join)
def test_a_written_value_of_headers_and_environments_is_known_and_not_logged(path: Path_) -> None:
    """Every written value of `headers` and `env` is a secret and hidden in the public form, under any name
    but those that are known to be public."""
    document = plant((*path[:-1], "x-shop"), f"{MARK}-written")
    assert (f"{MARK}-written", False) in list(find_spec_secrets(document))
    assert MARK not in json.dumps(hide_secrets(document))
    document = plant((*path[:-1], "user-agent"), "a-shop-of-mine/1.0")
    assert list(find_spec_secrets(document)) == []
    assert hide_secrets(document) == document


ADDRESSES = (
    (f"https://me:{MARK}-pw@h.org/", [f"me:{MARK}-pw", f"{MARK}-pw"]),
    (f"https://me:{MARK}%2Fpw@h.org/", [f"{MARK}/pw"]),
    (f"https://h.org/?key={MARK}%2Fq", [f"{MARK}%2Fq", f"{MARK}/q"]),
)


@pytest.mark.parametrize(("address", "expected"), ADDRESSES)
def test_what_an_address_holds_is_known_in_each_spelling(address: str, expected: list[str]) -> None:
    """Passwords and secret values of queries are known as they are written and as they are sent."""
    assert {(text, False) for text in expected} <= set(find_spec_secrets({"base_url": address}))


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("${A}", []),
        ("https://${A}/v1", []),
        ("https://h.org/${A}/v1?x=${B}", ["A", "B"]),
        ("https://${A}:${B}@h.org/", ["A", "B"]),
        ("https://${A}:${B}@h.org", ["A", "B"]),
    ],
)
def test_a_variable_in_an_address_is_secret_behind_the_host_and_before_it(
    address: str, names: list[str]
) -> None:
    """A variable that is the host of an address is public; in its path, query and sign-in it is not."""
    assert list(find_spec_secrets({"url": address})) == [(name, True) for name in names]


@pytest.mark.parametrize(
    ("arguments", "hidden", "known"),
    [
        (["--api-key", f"{MARK}-a", "x"], ["--api-key", "(secret)", "x"], [f"{MARK}-a"]),
        ([f"--token={MARK}-b"], ["--token=(secret)"], [f"{MARK}-b"]),
        (["--token", "--verbose", "x"], ["--token", "--verbose", "x"], []),
        (["--port", "80", 7], ["--port", "80", 7], []),
    ],
)
def test_the_secret_options_of_a_command_line_are_known(
    arguments: list[Any], hidden: list[Any], known: list[str]
) -> None:
    """An option with the name of a secret hides its value, in the same word or in the next."""
    section = {"mcp": {"a": {"command": "x", "args": arguments}}}
    assert hide_secrets(section)["mcp"]["a"]["args"] == hidden
    assert [text for text, _ in find_spec_secrets(section)] == known


def test_a_written_default_of_a_secret_is_one() -> None:
    """The default of a reference is hidden and known where the reference stands at a secret place."""
    section = {"api_key": f"${{KEY:-{MARK}-default}}"}
    assert hide_secrets(section) == {"api_key": "${KEY:-(secret)}"}
    assert list(find_spec_secrets(section)) == [("KEY", True), (f"{MARK}-default", False)]


def test_a_written_basic_sign_in_gives_its_password_away_to_the_striker() -> None:
    """Of `Basic` and Base64 the password is known too: a host that decodes it may quote it."""
    words = base64.b64encode(f"me:{MARK}-basic".encode()).decode()
    found = list(find_spec_secrets({"headers": {"Authorization": f"Basic {words}"}}))
    assert (words, False) in found
    assert (f"{MARK}-basic", False) in found


def test_the_variables_of_a_worker_are_secret() -> None:
    """The variables that a tool in a process of its own gets are known, those such as PATH excepted."""
    section = {"tools": {"registry": [{"name": "a", "environment": ["PATH", "SHOP_SIGN"]}]}}
    assert list(find_spec_secrets(section)) == [("SHOP_SIGN", True)]


MCP_SERVER = '''
import os, sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("test")


@server.tool()
def read_all() -> str:
    """Read all."""
    return " ".join([*sys.argv, *os.environ.values()])


server.run()
'''


def echo_request(request: dict[str, Any]) -> WebAnswer:
    """A host and a web service that quote whatever they are sent but the body."""
    words = json.dumps([*request["headers"].values(), request["path"]])
    words += base64.b64decode(
        "".join(w.split()[1] for w in request["headers"].values() if w[:6] == "Basic ")
    ).decode()
    headers = {"content-type": "application/json"}
    body = request["body"]
    if not request["path"].startswith("/v1/chat"):
        return 200, headers, json.dumps({"echo": words, "results": []}).encode()
    if b"fail" in body:
        return 401, headers, json.dumps({"error": {"message": words}}).encode()
    message: dict[str, Any] = {"role": "assistant", "content": f"I got {words}"}
    count = body.replace(b" ", b"").count(b'"role":"tool"')
    if count < 2:
        name = ("fetch_shop", "local__read_all")[count]
        function = {"name": name, "arguments": "{}"}
        message["tool_calls"] = [{"id": f"c{count}", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls" if count < 2 else "stop", "message": message}
    return 200, headers, json.dumps({"id": "1", "model": "m", "choices": [choice]}).encode()


@pytest.mark.slow
def test_keys_in_every_place_leave_the_house_nowhere(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts, tools and servers echo all that they are sent: log, exports, answers and errors are clean."""
    (tmp_path / "server.py").write_text(MCP_SERVER, "utf-8")
    names = iter(range(100))

    def reference() -> str:
        name = f"INNOCENT_{next(names)}"
        monkeypatch.setenv(name, f"{MARK}/{name}+value")
        return f"${{{name}}}"

    with serve_web(echo_request) as web:
        host = web.url.removeprefix("http://")
        spec = {
            "llms": {
                "box": {
                    "provider": "openai", "base_url": f"{web.url}/v1", "api_key": reference(), "model": "m",
                    "headers": {"x-shop": reference(), "x-written": f"{MARK}-written-1"},
                }
            },
            "tools": {
                "registry": [
                    {
                        "name": "fetch_shop", "description": "x", "parameters": {"type": "object"},
                        "implementation": {
                            "type": "http", "url": f"{web.url}/{reference()}?sign={reference()}",
                            "headers": {"x-a": reference(), "x-b": f"{MARK}-written-2"},
                            "allow_hosts": [host],
                        },
                    },
                ],
                "mcp": {
                    "local": {
                        "command": sys.executable,
                        "args": ["server.py", "--sign", reference(), "--token", f"{MARK}-written-3"],
                        "env": {"SHOP": reference(), "OTHER": f"{MARK}-written-4"},
                    }
                },
            },
            "responses": [{"llm": "box", "prompt": "x", "tools": {"enabled": True}}],
        }  # fmt: skip
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
        (tmp_path / "batch.jsonl").write_text('{"message": "hello"}\n', "utf-8")
        kept = tmp_path / "kept"
        kept.mkdir()
        (tmp_path / "agent.yaml").rename(kept / "agent.yaml")
        outputs = []
        for words in (
            ("run", "kept/agent.yaml", "hello", "--conversation", "a", "--verbose"),
            ("run", "kept/agent.yaml", "hello", "--json", "--conversation", "b"),
            ("run", "kept/agent.yaml", "fail", "--conversation", "f"),
            ("batch", "kept/agent.yaml", "batch.jsonl"),
            *(("show", name, *more) for name in "abf" for more in ((), ("--json",), ("-n", "9", "--json"))),
            *(("export", "a", *more) for more in ((), ("--format", "jsonl"), ("--format", "calls"))),
            *(("tools", "list", "kept/agent.yaml", "--json"), ("check", "kept/agent.yaml"), ("draw", "a")),
            *(("doctor", "kept/agent.yaml", "--json"), ("runs", "--json"), ("replay", "a"), ("stats",)),
        ):
            result = run_cli(*words)
            outputs += [result.out, result.err]
        seen = str(web.requests)
        (kept / "agent.yaml").unlink()
    (tmp_path / "server.py").unlink(missing_ok=True)
    assert seen.count(MARK) > 20
    assert sum(text.count("(secret)") for text in outputs) > 20
    assert [text for text in outputs if MARK in text] == []
    assert find_key(tmp_path) == []
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()
    ] == []
