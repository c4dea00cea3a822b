"""What declared effects can start, load, call or read, from their parameters as they are declared.

The parameters are not checked here, and nothing that they name is loaded: the functions read what the loader
of declarations would follow, in every spelling that it accepts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.starts import Start, find_addresses

_USER_PARTS = "user_message"
"""The word of `attach` that names no file."""


def list_call_starts(parameters: Mapping[str, Any]) -> Iterator[Start]:
    """The files that a model call attaches, and the addresses that it hands to the host."""
    attachments = parameters.get("attach")
    for part in attachments if isinstance(attachments, list) else ():
        if isinstance(part, str) and part != _USER_PARTS:
            yield Start(kind="file", subject=part, purpose="is read, and sent to a model host")
    parts = [part for part in attachments if isinstance(part, Mapping)] if attachments else []
    for address in find_addresses([parts, parameters.get("options")]):
        yield Start(kind="address", subject=address, purpose="is handed to a model host, which may ask it")


def list_function_starts(parameters: Mapping[str, Any]) -> Iterator[Start]:
    """The function that is called, with its arguments as they are declared."""
    arguments = parameters.get("arguments") or {}
    purpose = f"is called with {encode_canonical_text(arguments)}" if arguments else "is called"
    yield Start(kind="function", subject=str(parameters.get("function") or ""), purpose=purpose)


def list_agent_starts(parameters: Mapping[str, Any]) -> Iterator[Start]:
    """The agent that is run; its own starts are listed by whoever loads it."""
    agent = {key: parameters[key] for key in ("handler", "spec", "chart") if parameters.get(key)}
    words = [
        f"{key} {value}" if isinstance(value, str) else f"an inline {key}" for key, value in agent.items()
    ]
    yield Start(kind="agent", subject=" with ".join(words), purpose="is run as a child", agent=agent)
