"""Recorded requests, asked again by our adapters: the same question, in the same wire format."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from asked_again import Outside, request_of
from recorded import RECORDED, index, needs_recorded

from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.recording.canonical_requests import asked_of, differences
from toolchart.providers.recording.cassettes import read_cassette
from toolchart.providers.recording.request_readers import READERS
from toolchart.states.messages import Request

CASSETTES = [entry["file"] for entry in index() if entry["kind"] == "cassette"]


EXPECTED = {
    "chat": (364, {"content that is no text": 9}),
    "gemini": (144, {"content that is no text": 21, "the host's own": 8}),
    "ollama": (6, {}),
    "responses": (151, {"content that is no text": 12, "a result without a call": 1}),
}
"""Requests that are the same, and those that ours cannot say, with the reason."""


def sent(endpoint: str, request: Request) -> dict[str, Any]:
    """The body that our adapter builds."""
    if endpoint == "chat":
        return wire_openai.to_wire(request)
    if endpoint == "responses":
        return wire_responses.to_wire(request)
    if endpoint == "ollama":
        return wire_ollama.to_wire(request)
    wire = wire_gemini.to_wire(request)
    config = wire["config"]
    system = [{"text": config["system_instruction"]}] if "system_instruction" in config else []
    return {
        "model": wire["model"],
        "contents": wire["contents"],
        "systemInstruction": {"parts": system},
        "tools": config.get("tools"),
        "toolConfig": config.get("tool_config") or {},
        "generationConfig": config,
    }


@needs_recorded
@pytest.mark.parametrize("endpoint", ["chat", "gemini", "ollama", "responses"])
def test_our_request_is_the_recorded_one(endpoint: str) -> None:
    """S2.2, S4.1: every recorded request that ours can say leaves our adapter as the same request.

    What counts as the same, and the list of harmless differences, stands in
    `providers/recording/canonical_requests.py`; what
    ours cannot say is counted by its reason.
    """
    same, outside = 0, Counter[str]()
    for path in CASSETTES:
        for exchange in read_cassette(RECORDED / path):
            if exchange.endpoint != endpoint:
                continue
            recorded = READERS[endpoint](exchange.asked, exchange.uri)
            try:
                request = request_of(recorded)
            except Outside as reason:
                outside[str(reason).split(" tool ")[0]] += 1
                continue
            again = READERS[endpoint](sent(endpoint, request), exchange.uri)
            assert not [str(one) for one in differences(recorded, again)], path
            # The shape of our own request is the same, too: strict matching rests on it.
            assert not [str(one) for one in differences(recorded, asked_of(request))], path
            same += 1
    assert (same, dict(outside)) == EXPECTED[endpoint]
