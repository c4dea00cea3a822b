"""Tools that a host runs itself, declared once: which host has which, and how each is written for it.

A handler declares them in our words, `{web_search: {max_uses: 3}}`, or as its host does, `{type: web_search}`
or `{googleSearch: {}}`; what is written in a host's own words goes out as it stands.

Sources: openai 3.54.0, `types/responses/tool_param.py`; anthropic 2.12.0, `types/tool_union_param.py`;
google-genai 3.4.0, `types.Tool`; botocore 1.44.5, shape `SystemTool`; docs.x.ai, Tools; console.groq.com,
Built-in tools. Read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from toolchart.states.errors import SpecError

HOST_TOOLS: Mapping[str, str] = MappingProxyType(
    {
        "web_search": "searches the web",
        "web_fetch": "reads pages",
        "code_execution": "runs code in a container of the host",
        "file_search": "searches files that the host keeps",
        "image_generation": "draws pictures",
        "mcp": "calls tools of a remote MCP server",
    }
)
"""Our words for them, and what each does."""


class HostToolForm(msgspec.Struct, frozen=True, kw_only=True):
    """How one host takes one of these tools."""

    wire: dict[str, Any]
    """The entry of `tools`."""
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Our parameters, and where each stands in the entry: keys joined by points."""
    required: tuple[str, ...] = ()
    """Parameters without which the host refuses it."""
    needs_trust: bool = False
    """Whether the operator must say `trust: trusted`: the host acts through it without our approvals."""


_OPENAI_MCP = HostToolForm(
    # `never`: an approval would have to be given to the host, and our approvals concern our own tools. So the
    # operator says in the spec that the server is trusted, as for servers that we call ourselves.
    wire={"type": "mcp", "require_approval": "never"},
    needs_trust=True,
    parameters={"name": "server_label", "url": "server_url", "tools": "allowed_tools"},
    required=("name", "url"),
)

_FORMS: Mapping[tuple[str, str], Mapping[str, HostToolForm]] = MappingProxyType(
    {
        ("responses", ""): {
            "web_search": HostToolForm(
                wire={"type": "web_search"}, parameters={"allowed_domains": "filters.allowed_domains"}
            ),
            # `auto` goes on in the container that an earlier item of the conversation names.
            "code_execution": HostToolForm(
                wire={"type": "code_interpreter", "container": {"type": "auto"}},
                parameters={"container": "container", "files": "container.file_ids"},
            ),
            "file_search": HostToolForm(
                wire={"type": "file_search"},
                parameters={"stores": "vector_store_ids", "max_results": "max_num_results"},
                required=("stores",),
            ),
            "image_generation": HostToolForm(
                wire={"type": "image_generation"}, parameters={"size": "size", "quality": "quality"}
            ),
            "mcp": _OPENAI_MCP,
        },
        ("responses", "xai"): {
            "web_search": HostToolForm(
                wire={"type": "web_search"}, parameters={"allowed_domains": "filters.allowed_domains"}
            ),
            "code_execution": HostToolForm(wire={"type": "code_interpreter"}),
            "mcp": HostToolForm(
                wire={"type": "mcp"},
                parameters=_OPENAI_MCP.parameters,
                required=("name", "url"),
                needs_trust=True,
            ),
        },
        ("messages", ""): {
            "web_search": HostToolForm(
                wire={"type": "web_search_20260318", "name": "web_search"},
                parameters={"allowed_domains": "allowed_domains", "max_uses": "max_uses"},
            ),
            "web_fetch": HostToolForm(
                wire={"type": "web_fetch_20260318", "name": "web_fetch"},
                parameters={"allowed_domains": "allowed_domains", "max_uses": "max_uses"},
            ),
            "code_execution": HostToolForm(
                wire={"type": "code_execution_20260521", "name": "code_execution"}
            ),
        },
        ("gemini", ""): {
            "web_search": HostToolForm(wire={"googleSearch": {}}),
            "web_fetch": HostToolForm(wire={"urlContext": {}}),
            "code_execution": HostToolForm(wire={"codeExecution": {}}),
            "file_search": HostToolForm(
                wire={"fileSearch": {}},
                parameters={"stores": "fileSearch.fileSearchStoreNames", "max_results": "fileSearch.topK"},
                required=("stores",),
            ),
        },
        ("chat", "groq"): {
            "web_search": HostToolForm(wire={"type": "browser_search"}),
            "code_execution": HostToolForm(wire={"type": "code_interpreter"}),
        },
        ("converse", ""): {
            "web_search": HostToolForm(wire={"systemTool": {"name": "nova_grounding"}}),
            "code_execution": HostToolForm(wire={"systemTool": {"name": "nova_code_interpreter"}}),
        },
    }
)
"""By wire format and name of the host's row: its tools. An empty name is any host of the wire format that has
no entry of its own."""


def find_declared_name(entry: Mapping[str, Any]) -> str:
    """Our word for a declared tool; empty for one in a host's own words."""
    name = next(iter(entry)) if len(entry) == 1 else ""
    return name if name in HOST_TOOLS else ""


def list_forms(wires: Iterable[str], host: str) -> dict[str, HostToolForm]:
    """The tools of a host, by our words.

    Args:
        wires: the wire formats through which it may be called.
        host: the name of its row; empty for a host that has none.
    """
    forms: dict[str, HostToolForm] = {}
    for wire in wires:
        forms |= _FORMS.get((wire, host), _FORMS.get((wire, ""), {}))
    return forms


def encode_host_tools(
    entries: Sequence[Mapping[str, Any]], wires: Iterable[str], host: str, path: str = "host_tools"
) -> list[dict[str, Any]]:
    """The entries of `tools` for what a handler declares.

    Args:
        wires, host: as for `list_forms`.
        path: where they stand in the spec.

    Raises:
        SpecError: the host has no such tool, or does not take a parameter; says which ones it has.
    """
    forms, names = list_forms(wires, host), list(wires)
    return [_encode_entry(entry, forms, names, host, f"{path}[{n}]") for n, entry in enumerate(entries)]


def _encode_entry(
    entry: Mapping[str, Any], forms: Mapping[str, HostToolForm], wires: list[str], host: str, path: str
) -> dict[str, Any]:
    name = find_declared_name(entry)
    if not name:
        return dict(entry)
    title = f"{host or 'this host'} ({', '.join(wires)})"
    form = forms.get(name)
    if form is None:
        raise SpecError(
            f"{title} has no {name!r} of its own",
            path=path,
            hint=f"it has: {', '.join(forms)}" if forms else "it runs no tools that we know",
        )
    chosen = entry[name]
    if chosen is None:
        chosen = {}
    if not isinstance(chosen, Mapping):
        raise SpecError(
            f"{name} is a mapping of its parameters", path=path, hint=f"for instance {{{name}: {{}}}}"
        )
    trust = chosen.get("trust") if form.needs_trust else None
    chosen = {key: value for key, value in chosen.items() if key != "trust" or not form.needs_trust}
    allowed = ", ".join((*form.parameters, *(("trust",) if form.needs_trust else ()))) or "none"
    for parameter in chosen:
        if parameter not in form.parameters:
            raise SpecError(
                f"{title} takes no {parameter!r} for {name}", path=path, hint=f"its parameters: {allowed}"
            )
    for parameter in form.required:
        if not chosen.get(parameter):
            raise SpecError(f"{name} needs {parameter!r}", path=path, hint=f"its parameters: {allowed}")
    if form.needs_trust and trust != "trusted":
        raise SpecError(
            f"{title} calls the tools of an {name} server without an approval, and the spec does not say "
            "that the server is trusted",
            path=path,
            hint="write `trust: trusted` beside `url`, or list the server under `tools.mcp`: then Toolchart "
            "calls it, and approvals hold",
        )
    wire = form.wire
    for parameter, value in chosen.items():
        wire = _set_place(wire, form.parameters[parameter].split("."), value)
    return dict(wire)


def _set_place(entry: Mapping[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    """The entry with a value at a place."""
    first, *others = keys
    inner = entry.get(first)
    inner = inner if isinstance(inner, Mapping) else {}
    return {**entry, first: _set_place(inner, others, value) if others else value}
