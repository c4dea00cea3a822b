"""Random hostile values for the fuzzer: texts, JSON values, schemas, and edits of well-formed data."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

PIECES = (
    *("{", "}", "[", "]", '"', "'", ":", ",", "\\", "\n", " ", "&a ", "*a ", "<<: ", "- ", "# "),
    *("null", "true", "-1", "1e999", "0x10", "NaN", "name", "arguments", "type", "object", "$ref", "#/"),
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<think>", "<!--", "<a ", "${HOME}"),
    *("\x00", "\x1b[2J", "\u202e", "\ud800", "\U000e0041", "é", "日本", "a" * 200, "(a+)+$", "9**9"),
    *("sqrt(", ")", "{{x}}", "anyOf", "!!python/object "),
)


def build_text(random: Random, most: int = 40) -> str:
    """A text of random pieces."""
    return "".join(random.choice(PIECES) for _ in range(random.randint(0, most)))


def build_value(random: Random, depth: int = 4) -> Any:
    """A random JSON value."""
    kind = random.randrange(8 if depth else 5)
    if kind < 5:
        return random.choice([None, True, 0, -1, 10**30, 0.5, "", "5000", build_text(random, 5)])
    if kind < 7:
        return [build_value(random, depth - 1) for _ in range(random.randint(0, 4))]
    names = ("type", "properties", "items", "anyOf", "pattern", "$ref", "enum", "name", "amount", "x")
    return {random.choice(names): build_value(random, depth - 1) for _ in range(random.randint(0, 4))}


def build_schema(random: Random, depth: int = 3) -> Any:
    """A random JSON Schema, mostly well-formed."""
    if random.random() < 0.05:
        return build_value(random, 2)
    schema: dict[str, Any] = {}
    if random.random() < 0.8:
        schema["type"] = random.choice(["string", "integer", "array", "object", "number", ["string", "null"]])
    if random.random() < 0.2:
        schema["pattern"] = random.choice(["^(a+)+$", "(a|aa)*b", "(?=a)b", "(", "^x", r"(a)\1"])
    if depth and random.random() < 0.4:
        schema["properties"] = {name: build_schema(random, depth - 1) for name in ("x", "amount", "name")}
    if depth and random.random() < 0.3:
        word = random.choice(["anyOf", "oneOf", "allOf"])
        schema[word] = [build_schema(random, depth - 1) for _ in range(random.randint(1, 3))]
    if random.random() < 0.1:
        schema["$ref"] = random.choice(["#", "#/properties/x", "#/nothing", "https://x.example"])
    return schema


def edit_bytes(random: Random, data: bytes) -> bytes:
    """The bytes with up to four edits: a cut, a piece put in, a part repeated, a byte changed."""
    for _ in range(random.randint(1, 4)):
        place, other = random.randint(0, len(data)), random.randint(0, len(data))
        first, last = sorted((place, other))
        kind = random.randrange(5)
        if kind == 0:
            data = data[:first] + data[last:]
        elif kind == 1:
            piece = random.choice(PIECES).encode("utf-8", "surrogatepass")
            data = data[:place] + piece + data[place:]
        elif kind == 2:
            data = data[:last] + data[first : min(last, first + 2000)] + data[last:]
        elif kind == 3 and data:
            data = data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]
        else:
            data = data[:place]
    return data


def edit_value(random: Random, value: Any) -> Any:
    """A copy of a JSON value with up to three random nodes replaced, left out or put in."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        nodes = [node for node in _iterate_containers(value) if node]
        if not nodes:
            return build_value(random)
        node = random.choice(nodes)
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        kind = random.randrange(4)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(node, dict):
            node[random.choice(["type", "id", "content", "x", str(key) + "_"])] = build_value(random, 2)
        else:
            node[key] = build_value(random, 2)
    return value


def _iterate_containers(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_containers(item)
