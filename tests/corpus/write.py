"""Writes the corpus of recorded traffic, transcripts, questions and configurations for the tests.

    python tests/corpus/write.py            # writes the files beside this script
    python tests/corpus/write.py FOLDER     # writes them there

Everything in it is our own; README.md describes every file. The files are the same on each run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import anthropic_traffic
import documents
import gemini_traffic
import ollama_traffic
import openai_traffic
import parts_traffic
import responses_traffic
from spellings import NDJSON, SPELLINGS, SSE, Exchange
from station import JsonObject

HERE = Path(__file__).resolve().parent

CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    **openai_traffic.CASSETTES,
    **responses_traffic.CASSETTES,
    **ollama_traffic.CASSETTES,
    **gemini_traffic.CASSETTES,
    **anthropic_traffic.CASSETTES,
    **parts_traffic.CASSETTES,
}
"""Spelling and exchanges of each cassette."""


def _find_endpoint(uri: str) -> str:
    """The end of the address, as the index names endpoints."""
    path = urlsplit(uri.replace("<OLLAMA_API_BASE>", "http://host")).path
    if ":" in path.rpartition("/")[2]:
        return path.rpartition(":")[2]
    ends = ("/chat/completions", "/responses", "/api/chat", "/messages")
    return next(end for end in ends if path.endswith(end))


def _build_index_row(path: str, spelling: str, exchanges: list[Exchange]) -> JsonObject:
    types = {exchange.content_type for exchange in exchanges}
    return {
        "file": path,
        "kind": "cassette",
        "format": spelling,
        "interactions": len(exchanges),
        "endpoints": sorted({_find_endpoint(exchange.uri) for exchange in exchanges}),
        "status_codes": sorted({exchange.status for exchange in exchanges}),
        "features": [name for name, kind in (("sse", SSE), ("ndjson", NDJSON)) if kind in types],
        "streamed_responses": sum(exchange.is_streamed for exchange in exchanges),
    }


def build_files() -> dict[str, str]:
    """The text of every file, by its path."""
    files = documents.build_documents()
    index: list[JsonObject] = []
    expected: list[JsonObject] = []
    for name, (spelling, exchanges) in sorted(CASSETTES.items()):
        spell, ending = SPELLINGS[spelling]
        path = f"cassettes/{name}.{ending}"
        files[path] = spell(exchanges)
        index.append(_build_index_row(path, spelling, exchanges))
        expected += [
            {"file": path, "exchange": number, **exchange.expected}
            for number, exchange in enumerate(exchanges)
        ]
    kinds = {"bfcl": "questions", "configs": "config", "transcripts": "transcript"}
    index += [
        {"file": path, "kind": kinds[path.split("/")[0]]}
        for path in sorted(files)
        if not path.startswith("cassettes/")
    ]
    for path, rows in (("INDEX.jsonl", index), ("EXPECTED.jsonl", expected)):
        files[path] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return files


def write_files(folder: Path) -> None:
    """Write every file of the corpus into a folder."""
    for path, text in build_files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8"))


if __name__ == "__main__":
    write_files(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
