"""A key that tests plant, and the search for it."""

from __future__ import annotations

import json
from pathlib import Path

KEY = "planted/key+0123456789abcdef"
"""A key that no pattern recognises."""


def find_key(folder: Path, *outputs: str) -> list[str]:
    """Where the key is found, in any spelling: files of a folder and outputs."""
    spellings = [KEY, json.dumps(KEY)[1:-1], KEY.replace("/", "%2F").replace("+", "%2B")]
    places = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places |= {f"output {number}": text.encode() for number, text in enumerate(outputs)}
    return [place for place, data in places.items() if any(text.encode() in data for text in spellings)]
