"""Tool conversations of the large corpus run through engine, adapters and SDKs to their recorded end.

Those of our own corpus are in `test_own_corpus.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from recorded_chains import read_chain, run_chain
from recorded_exchanges import read_cassette
from recorded_traffic import find_recording, needs_recorded, read_index

MINIMUM_COUNTS = {
    "azure-openai": (3, 0),
    "gemini": (10, 2),
    "gemini-vertex": (1, 0),
    "ollama-openai-endpoint": (6, 0),
    "openai-chat": (6, 1),
    "openai-compatible-chat": (1, 0),
    "openai-compatible-responses": (3, 2),
    "openai-responses": (11, 0),
}
"""By folder: the least number of conversations whose answers are whole, and of those with streams."""

OTHER_REQUESTS = (
    "test_multimodal_tool_return_matrix",
    "test_mixed_content_ordering_google",
    "test_instrument_google_genai_no_content",
    "test_google_vertex_tool_combination",
    "test_document_as_binary_content_input_with_tool",
)
"""Parts of names of recordings whose client wrote something that ours writes in another form: results with
pictures, contents that were struck out, tools that the host runs."""


@needs_recorded
@pytest.mark.parametrize("folder", MINIMUM_COUNTS)
def test_conversations_reach_their_recorded_answer(folder: str) -> None:
    """S1.9-13, S2.13, S3.4, S4.1-2: each recorded tool conversation, whole or streamed, runs to its recorded
    answer with the recorded calls; its requests have model, prompt, messages and tools of the recorded ones
    and every thought signature; its log replays."""
    counts: Counter[bool] = Counter()
    for entry in read_index("recorded"):
        path = entry["file"]
        is_candidate = entry["kind"] == "cassette" and entry.get("interactions", 0) > 1
        if is_candidate and path.split("/")[1] == folder and read_chain(path):
            is_other = any(part in path for part in OTHER_REQUESTS)
            run_chain(path, is_exact=False, has_same_requests=not is_other)
            exchanges = read_cassette(find_recording(path))
            counts[any(exchange.is_streamed for exchange in exchanges)] += 1
    assert counts[False] >= MINIMUM_COUNTS[folder][0], counts
    assert counts[True] >= MINIMUM_COUNTS[folder][1], counts
