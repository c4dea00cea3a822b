"""A key that tests plant, a host that quotes it, and the search for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from web import WebAnswer

KEY = "planted/key+0123456789abcdef"
"""A key that no pattern recognises."""


def find_key(folder: Path, *outputs: str) -> list[str]:
    """Where the key is found, in any spelling: files of a folder and outputs."""
    spellings = [KEY, json.dumps(KEY)[1:-1], KEY.replace("/", "%2F").replace("+", "%2B")]
    places = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places |= {f"output {number}": text.encode() for number, text in enumerate(outputs)}
    return [place for place, data in places.items() if any(text.encode() in data for text in spellings)]


def quote_key(request: dict[str, Any]) -> WebAnswer:
    """A host that quotes the key in its replies, its calls and its errors."""
    names = {name.lower(): value for name, value in request["headers"].items()}
    key = names.get("authorization", "")
    headers = {"content-type": "application/json"}
    if b"fail" in request["body"]:
        return 401, headers, json.dumps({"error": {"message": f"the key {key} is wrong"}}).encode()
    message: dict[str, Any] = {"role": "assistant", "content": f"I got {key}"}
    if b'"role":"tool"' not in request["body"].replace(b" ", b""):
        function = {"name": "echo", "arguments": json.dumps({"text": key})}
        message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return (
        200,
        headers,
        json.dumps({"id": "1", "model": "m", "choices": [{**choice, "message": message}]}).encode(),
    )
