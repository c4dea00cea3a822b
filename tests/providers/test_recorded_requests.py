"""Recorded requests, rebuilt as our own and encoded by our adapters, have the same canonical form again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from canonical_requests import find_differences, read_request
from recorded_exchanges import read_cassette
from recorded_traffic import CORPORA, find_recording, list_cassette_paths
from request_rebuilding import NotExpressible, rebuild_request

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.states.messages import Request

EXPECTED: dict[str, dict[str, tuple[int, dict[str, int]]]] = {
    "own": {
        "chat": (22, {}),
        "gemini": (13, {}),
        "messages": (13, {}),
        "ollama": (9, {}),
        "responses": (9, {}),
    },
    "recorded": {
        "chat": (373, {}),
        "gemini": (172, {"content that is no text": 1}),
        "messages": (0, {}),
        "ollama": (6, {}),
        "responses": (154, {"content that is no text": 9, "a result without a call": 1}),
    },
}
"""By corpus and endpoint: the number of equal requests, and of those that ours cannot express, by reason."""


def encode_for_endpoint(endpoint: str, request: Request) -> dict[str, Any]:
    """The body that our adapter builds."""
    if endpoint == "chat":
        return wire_openai.encode_request(request)
    if endpoint == "responses":
        return wire_responses.encode_request(request)
    if endpoint == "messages":
        return wire_anthropic.encode_request(request)
    if endpoint == "ollama":
        return wire_ollama.encode_request(request)
    return wire_gemini.encode_request(request)


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("endpoint", EXPECTED["own"])
def test_rebuilt_requests_equal_the_recorded_ones(endpoint: str, corpus: str) -> None:
    """S2.2, S4.1: every recorded request that ours can express leaves our adapter as the same request.

    `tests/support/canonical_requests.py` lists what may differ. Requests that ours cannot express are
    counted by reason.
    """
    equal_count, not_expressible = 0, Counter[str]()
    for path in list_cassette_paths(corpus):
        for exchange in read_cassette(find_recording(path)):
            if exchange.endpoint != endpoint:
                continue
            recorded = read_request(endpoint, exchange.request_body, exchange.uri)
            try:
                request = rebuild_request(recorded)
            except NotExpressible as reason:
                not_expressible[str(reason).split(" tool ")[0]] += 1
                continue
            again = read_request(endpoint, encode_for_endpoint(endpoint, request), exchange.uri)
            assert find_differences(recorded, again) == [], path
            equal_count += 1
    assert (equal_count, dict(not_expressible)) == EXPECTED[corpus][endpoint]
