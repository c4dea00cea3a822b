"""Secrets in a spec: what is written into it itself never reaches the log; references and words do."""

from __future__ import annotations

import json

import agents
import pytest

from toolchart.engine import Engine
from toolchart.specs.secrets import HIDDEN, hidden, literal_secrets, references

LITERAL = {
    "llms": {
        "a": {
            "api_key": "lit-1",
            "base_url": "https://me:lit-2@host.org/v1",
            "headers": {
                "x-api-key": "lit-3",
                "X-Auth-Token": "lit-4",
                "Cookie": "lit-5",
                "api-key": "lit-6",
            },
        }
    },
    "tools": {
        "mcp": {"git": {"env": {"GITHUB_TOKEN": "lit-7", "AWS_SECRET_ACCESS_KEY": "lit-8"}}},
        "registry": [
            {"auth": {"bearer": "lit-9", "password": "lit-10", "access_token": "Bearer lit-11"}}
        ],
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
    """Keys, tokens, cookies and passwords in addresses are hidden by the names of their keys."""
    assert "lit-" not in json.dumps(hidden(LITERAL))
    assert json.dumps(hidden(LITERAL)).count(HIDDEN) == 11
    found = list(literal_secrets(LITERAL))
    assert {f"lit-{n}" for n in range(1, 12)} - {"lit-2"} <= set(found)
    assert "me:lit-2" in found


def test_references_and_words_stay() -> None:
    """References, schemas of parameters and words that only look alike stay as they are written."""
    assert hidden(HARMLESS) == HARMLESS
    assert list(literal_secrets(HARMLESS)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${A}", [("A", "${A}")]),
        ("x${A:-b}y${C}", [("A", "${A:-b}"), ("C", "${C}")]),
        ("$A {B}", []),
    ],
)
def test_references_are_found(text: str, found: list[tuple[str, str]]) -> None:
    """Each reference of a text is found with its name and as it is written."""
    assert list(references(text)) == found


def test_no_literal_secret_reaches_the_log() -> None:
    """A key that was written into a header is not in the conversation's records."""
    spec = agents.spec()
    spec["llms"]["model"]["comment"] = {
        "x-api-key": "lit-header-key",
        "at": "https://me:lit-pw@h.org",
    }
    with Engine(spec, log="memory") as engine:
        engine.run("hi", conversation="c")
        records = b"".join(engine.store.read("c"))
    assert b"lit-header-key" not in records
    assert b"lit-pw" not in records
