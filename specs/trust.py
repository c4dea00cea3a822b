"""What an agent spec lets act: commands, Python functions, hosts, files and variables of the environment.

A spec that the operator wrote may act. One that stands in a log is data, because anybody can have written
the log. Before such a spec acts, a person must see this list. A shipped agent, word for word, is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.specs.loader import list_shipped_agents, load_spec
from toolchart.specs.secrets import find_references

_FILE_KEYS = ("chart", "root", "folder", "folders", "index", "record", "log", "prices", "document", "cwd")
"""Keys whose texts name files or folders."""


def list_acting_parts(document: Mapping[str, Any]) -> list[str]:
    """What a spec would start, call, open or read, one short line each, without repetitions."""
    parts = [*_list_hosts(document), *_list_programs(document), *_list_texts(document, "")]
    return list(dict.fromkeys(parts))


def find_shipped_agent(document: Mapping[str, Any]) -> str | None:
    """The name of the shipped agent that has exactly this spec, or None."""
    for name in list_shipped_agents():
        if load_spec(name).to_public_dict() == document:
            return name
    return None


def _list_hosts(document: Mapping[str, Any]) -> Iterator[str]:
    """The model hosts, also those whose address and key come from the environment."""
    for name, entry in _iterate_mappings(document.get("llms")):
        address = entry.get("base_url") or "its default address"
        yield f"model host {name}: {entry.get('provider')} at {address}"


def _list_programs(document: Mapping[str, Any]) -> Iterator[str]:
    """The commands and Python functions that the tools are made of."""
    tools = document.get("tools")
    section = tools if isinstance(tools, Mapping) else {}
    for name, server in _iterate_mappings(section.get("mcp")):
        if server.get("command"):
            words = [server["command"], *(server.get("args") or ())]
            yield f"command of the MCP server {name}: {' '.join(map(str, words))}"
    entries = section.get("registry")
    for entry in entries if isinstance(entries, list) else ():
        implementation = entry.get("implementation") if isinstance(entry, Mapping) else None
        if isinstance(implementation, Mapping) and implementation.get("type", "builtin") != "mock":
            kind, handler = implementation.get("type", "builtin"), implementation.get("handler")
            yield f"tool {entry.get('name')}: {kind} {handler or implementation.get('url') or ''}".rstrip()


def _list_texts(value: Any, key: str) -> Iterator[str]:
    """The variables, addresses and files that texts anywhere in a spec name."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _list_texts(item, key if key == "folders" else str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item, key)
    elif isinstance(value, str):
        for variable, _ in find_references(value):
            yield f"variable of the environment: {variable}"
        if "://" in value and key != "description":
            yield f"address: {value}"
        elif key in _FILE_KEYS:
            yield f"file: {value}"


def _iterate_mappings(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(item, Mapping):
            yield str(name), item
