"""Secrets in a spec: literal secrets never reach the log; references and harmless values do."""

from __future__ import annotations

import json

import agents
import pytest

from toolchart.engine import Engine
from toolchart.specs.secrets import SECRET_PLACEHOLDER, find_references, find_spec_secrets, hide_secrets

LITERAL = {
    "llms": {
        "a": {
            "api_key": "lit-1",
            "base_url": "https://me:lit-2@host.org/v1",
            "headers": {"x-api-key": "lit-3", "X-Auth-Token": "lit-4", "Cookie": "lit-5", "api-key": "lit-6"},
        }
    },
    "tools": {
        "mcp": {"git": {"env": {"GITHUB_TOKEN": "lit-7", "AWS_SECRET_ACCESS_KEY": "lit-8"}}},
        "registry": [{"auth": {"bearer": "lit-9", "password": "lit-10", "access_token": "Bearer lit-11"}}],
    },
}

HARMLESS = {
    "api_key": "${KEY}",
    "authorization": "Bearer ${KEY:-none}",
    "max_tokens": 5,
    "tokenizer": "bpe",
    "base_url": "https://host.org:8080/v1",
    "url": "https://${USER}:${PASSWORD}@host.org",
    "parameters": {"properties": {"password": {"type": "string"}, "token": {"type": "string"}}},
    "key": "value",
    "cookies_allowed": "yes",
    "prompt": "Mail a@b.org: see https://x.org/a:b@c",
}


def test_literal_secrets_are_hidden() -> None:
    """Keys, tokens, cookies and passwords in URLs are hidden, recognised by the names of their keys."""
    assert "lit-" not in json.dumps(hide_secrets(LITERAL))
    assert json.dumps(hide_secrets(LITERAL)).count(SECRET_PLACEHOLDER) == 11
    secrets = [text for text, is_variable in find_spec_secrets(LITERAL) if not is_variable]
    assert {f"lit-{n}" for n in range(1, 12)} - {"lit-2"} <= set(secrets)
    assert "me:lit-2" in secrets


def test_references_and_words_stay() -> None:
    """References, parameter schemas and keys that only resemble secret ones are not changed."""
    assert hide_secrets(HARMLESS) == HARMLESS
    assert [text for text, is_variable in find_spec_secrets(HARMLESS) if not is_variable] == ["none"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("${A}", [("A", "${A}")]), ("x${A:-b}y${C}", [("A", "${A:-b}"), ("C", "${C}")]), ("$A {B}", [])],
)
def test_find_references(text: str, expected: list[tuple[str, str]]) -> None:
    """`find_references` yields each reference of a text with its name and as it is written."""
    assert list(find_references(text)) == expected


def test_no_literal_secret_reaches_the_log() -> None:
    """A literal secret in a spec does not appear in the records of a conversation."""
    spec = agents.make_spec()
    spec["llms"]["model"]["comment"] = {"x-api-key": "lit-header-key", "at": "https://me:lit-pw@h.org"}
    with Engine(spec, log="memory") as engine:
        engine.run("hi", conversation="c")
        records = b"".join(engine.store.read_lines("c"))
    assert b"lit-header-key" not in records
    assert b"lit-pw" not in records
