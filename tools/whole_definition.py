"""The whole definition of a tool: what a model reads of it, what running it does, and what the operator says.

What a model reads (name, description, schema) says nothing of the address that a call goes to. So pins,
approvals and signatures bind all of it. The definition is a mapping from parts to texts, and not one digest,
so that whoever finds a difference can say which part changed, and from what to what:

    {"name": "look", "schema": "sha256:...", "risk": "low", "method": "GET", "address": "https://a.example/{id}"}

A part that is long, or that could hold a secret, is a digest. A `${VARIABLE}` stands as its name, never as
its value: the environment is the operator's, and its values belong in no log.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from toolchart.states.canonical_json import encode_canonical, encode_canonical_text
from toolchart.states.visible_text import make_visible_line
from toolchart.tools.definition import Tool

Definition = Mapping[str, str]
"""A whole definition: by part its text."""

MAX_PLAIN = 1000
"""Characters of a part that stands as it is; a longer one is a digest."""

_DIGEST = "sha256:"
_MAX_SHOWN = 80
"""Characters of a part, or of an argument, in a message."""

_COMMON_PARTS = (
    *("name", "alias", "description", "schema", "kind", "risk", "requires_approval", "idempotent", "status"),
    *("needs", "needs_in", "not_after", "max_calls", "trust", "isolation", "environment"),
)
"""Parts that every tool has. The others say what running it does."""

_SLOT = re.compile(r"(?<!\$)\{(\w+)\}")


def describe_definition(tool: Tool) -> dict[str, str]:
    """The whole definition of a tool, part by part.

    It leaves out what changes no effect of a call: timeout, cache, size of the result for the model. Of a
    Python function it has the reference and not the source, since the operator's own code is trusted; the log
    names a changed source (`Versions.sources`).
    """
    definition = tool.definition
    parts: dict[str, Any] = {
        "name": definition.name,
        "alias": tool.alias,
        "description": digest_text(definition.description),
        "schema": digest_text(encode_canonical_text(dict(definition.parameters))),
        "kind": tool.kind,
        "risk": tool.risk,
        "requires_approval": tool.requires_approval,
        "idempotent": tool.idempotent,
        "status": describe_function(tool.status)["function"] if tool.status is not None else None,
        "needs": list(tool.needs) or None,
        "needs_in": tool.needs_in if tool.needs and tool.needs_in != "turn" else None,
        "not_after": list(tool.not_after) or None,
        "max_calls": tool.max_calls,
        "isolation": tool.execution_mode,
        "environment": list(tool.environment) or None,
        **(describe_function(tool.function or tool.run) if tool.action is None else tool.action),
    }
    return {name: _encode_part(value) for name, value in parts.items() if value is not None}


def describe_function(function: Callable[..., Any]) -> dict[str, str]:
    """What running a function of the program does: its reference, which is the same in the process that has
    its module as the program and in one that imports it."""
    target = function if hasattr(function, "__qualname__") else type(function)
    module = target.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        module = (
            main.__spec__.name if main.__spec__ is not None else Path(getattr(main, "__file__", module)).stem
        )
    return {"function": f"{module}:{target.__qualname__}"}


def digest_definition(definition: Definition) -> str:
    """The digest of a whole definition: 32 hexadecimal digits."""
    return hashlib.sha256(encode_canonical(dict(definition))).hexdigest()[:32]


def name_by_digest(digest: str) -> dict[str, str]:
    """A definition that a person names by its digest, because they have read what changed."""
    return {"digest": digest}


def is_named_by(named: Definition, definition: Definition) -> bool:
    """Whether somebody has named this definition, whole or by its digest."""
    return named == definition or named == name_by_digest(digest_definition(definition))


def digest_text(text: str) -> str:
    """A part that stands as a digest: it is long, or could hold a secret."""
    return _DIGEST + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _encode_part(value: Any) -> str:
    text = value if isinstance(value, str) else encode_canonical_text(value)
    if text.startswith(_DIGEST) and len(text) == len(_DIGEST) + 32:
        return text
    # A plain text must not be able to look like the digest of another one.
    return digest_text(text) if len(text) > MAX_PLAIN or text.startswith(_DIGEST) else text


# -- for people ----------------------------------------------------------------------------------


def describe_changes(before: Definition, now: Definition) -> str:
    """What changed between two definitions, by name: `its method changed: GET, now DELETE`; empty for
    nothing."""
    changes = []
    for part in dict.fromkeys((*now, *before)):
        old, new = before.get(part), now.get(part)
        if old == new:
            continue
        if old is None:
            changes.append(f"its {part} is new{_show_value(new)}")
        elif new is None:
            changes.append(f"its {part} is gone{_show_value(old)}")
        elif old.startswith(_DIGEST) or new.startswith(_DIGEST):
            changes.append(f"its {part} changed")
        else:
            changes.append(f"its {part} changed: {_shorten_value(old)}, now {_shorten_value(new)}")
    return make_visible_line("; ".join(changes))


def _show_value(value: str | None) -> str:
    return "" if value is None or value.startswith(_DIGEST) else f": {_shorten_value(value)}"


def _shorten_value(value: str) -> str:
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}..."


def describe_run(definition: Definition, arguments: Mapping[str, Any] | None) -> str:
    """What a run of a tool with these arguments does, for the person who is asked: on one line, with
    deceptive characters visible; empty where the definition does not say."""
    if "method" in definition and "address" in definition:
        return make_visible_line(_describe_request(definition, arguments or {}))
    parts = (f"{part}: {text}" for part, text in definition.items() if part not in _COMMON_PARTS)
    return make_visible_line("; ".join(parts))


def name_place(argument: str) -> str:
    """The part that says where an argument of a request goes: `path: id`, `query: limit`."""
    return f"place of {argument!r}"


def _describe_request(definition: Definition, arguments: Mapping[str, Any]) -> str:
    """Method and address with the arguments in place; those that do not stand in the address follow."""
    slots: dict[str, str] = {}
    others = []
    for argument, value in arguments.items():
        text = value if isinstance(value, str) else encode_canonical_text(value)
        location, _, name = definition.get(name_place(argument), "").partition(": ")
        if location == "path":
            slots[name] = quote(text, safe="")
        else:
            others.append(f"{location or 'argument'} {name or argument}={_shorten_value(text)}")
    address = _SLOT.sub(lambda slot: slots.get(slot.group(1), slot.group(0)), definition["address"])
    return ", ".join([f"{definition['method']} {address}", *others])
