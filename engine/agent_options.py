"""What an agent in Python may be given beside its types: the keys of the agent spec, by the names of it.

`KEY_PLACES` says for each section of the spec which options become its keys. So a key has one name, one value
and one check, whether it stands in YAML or in Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from toolchart.states.errors import SpecError, suggest_name
from toolchart.tools.definition import Tool

if TYPE_CHECKING:
    from toolchart.tools.definition import Risk, Trust

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class McpServer(TypedDict, total=False):
    """One MCP server of `mcp`: a `command` or a `url`. `docs/tools.md` describes the keys."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    url: str
    headers: Mapping[str, str]
    prefix: str
    timeout_ms: int
    start_timeout_ms: int
    handshake: Literal["auto", "initialize"]
    risk: Risk
    trust: Trust


class RagServiceOptions(TypedDict, total=False):
    """One service of `rag_services`, which searches collections of documents. `RagService` in
    `docs/agent-spec.md` describes the keys."""

    url: str
    provider: str
    description: str
    collections: Sequence[str]
    collection: str
    timeout_s: float
    retry: Mapping[str, Any]
    top_k: int
    max_distance: float
    headers: Mapping[str, str]
    auth: Mapping[str, str]
    health_check_endpoint: str
    match_threshold: float
    partial_threshold: float
    intent_identifier: str
    embedding: Mapping[str, str]


class AgentOptions(TypedDict, total=False):
    """What an agent may be given beside its model, types and handoffs. None counts as not given.

    Options without a description here are keys of the agent spec, with the same names and values:
    `docs/agent-spec.md` describes them. Those of a conversation (from `default_timeout_ms` on) are given to
    the first agent, and hold for its handoffs too.
    """

    name: str
    """Its name, by which others hand a conversation over to it; default: `agent`."""
    description: str
    """What it is for, in one line: by this others choose it."""
    tools: Sequence[Callable[..., Any] | Tool | Mapping[str, Any]]
    """Python functions, ready tools, and entries of `tools.registry` as mappings, for instance
    `{"name": "calculator"}`. A function that needs the dependencies is better added by `Agent.tool`, where
    type checkers compare its context with the agent."""
    chart: str | Path | Mapping[str, Any]
    """The chart: a shipped name, a path, or an inline chart; default: `full`."""
    max_iterations: int
    """Most model replies with tool calls in one turn."""

    # of its model calls: keys of a handler
    temperature: float
    max_tokens: int
    """Most tokens of one reply."""
    top_p: float
    top_k: int
    seed: int
    presence_penalty: float
    frequency_penalty: float
    stop: Sequence[str] | str
    reasoning_effort: Effort
    thinking_budget: int
    verbosity: Literal["low", "medium", "high"]
    logprobs: int
    service_tier: str
    cache_key: str
    cache_ttl: str
    safety_settings: Mapping[str, str]
    strict_tools: bool
    host_tools: Sequence[Mapping[str, Any]]
    """Tools that the host runs itself, for instance `[{"web_search": {"max_uses": 3}}]`."""
    metadata: Mapping[str, Any]
    batch: bool
    extra_body: Mapping[str, Any]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool

    # of its model: keys of its entry of `llms`
    timeout_s: float
    """Seconds for one whole model call."""
    idle_timeout_s: float
    """Seconds of silence after which a model call has failed."""
    context_limit: int
    """Tokens that one request may have; default: that of the model, where it is known."""

    # where its tools come from: keys of `tools`
    mcp: Mapping[str, McpServer]
    """MCP servers by name; the agent is offered all their tools."""
    openapi: Sequence[Mapping[str, Any]]
    """OpenAPI documents; the agent is offered all their operations."""

    # of a conversation
    default_timeout_ms: int
    """Milliseconds for one call of a tool without a time of its own."""
    parallel: int
    """Most calls of one reply that run at the same time."""
    max_tools: int
    essential_tools: Sequence[str]
    pins: Mapping[str, Mapping[str, str]]
    limits: Mapping[str, Any]
    """Limits of a turn, as `limits` of an agent spec: `max_seconds`, `max_cost`, ..."""
    approval: Sequence[Mapping[str, Any]] | Mapping[str, Any] | str
    """Which calls a person must approve, as `approval` of an agent spec."""
    approvers: Mapping[str, Any]
    effects: Mapping[str, Mapping[str, Any]]
    rag_services: Mapping[str, RagServiceOptions]
    """Services that are searched before the answer; the prompt has what they find by `{{rag_context}}`."""
    intent: Mapping[str, Any]
    topic: Mapping[str, Any]
    profile: Mapping[str, Any]
    retry: Mapping[str, Any]
    prices: str | Mapping[str, Any]
    message_trust: Literal["trusted", "untrusted"]
    policy: Literal["strict", "lenient"]
    durability: Literal["full", "normal"]
    lease_s: float
    log_deltas: bool
    log_answers: bool
    debug: Mapping[str, Any]
    redact: Mapping[str, Any]
    seal_keys: Sequence[str]
    output: Mapping[str, Any]


KEY_PLACES: dict[str, tuple[str, ...]] = {
    "responses[]": (
        "prompt",
        "temperature",
        "max_tokens",
        "top_p",
        "top_k",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "stop",
        "reasoning_effort",
        "thinking_budget",
        "verbosity",
        "logprobs",
        "service_tier",
        "cache_key",
        "cache_ttl",
        "safety_settings",
        "strict_tools",
        "host_tools",
        "metadata",
        "batch",
        "extra_body",
        "tool_choice",
        "parallel_tool_calls",
    ),
    "responses[].tools": ("max_iterations",),
    "llms.*": ("timeout_s", "idle_timeout_s", "context_limit"),
    "tools": ("default_timeout_ms", "parallel", "max_tools", "essential_tools", "pins"),
    "tools.*": ("mcp", "openapi"),
    "": (
        "chart",
        "limits",
        "approval",
        "approvers",
        "effects",
        "rag_services",
        "intent",
        "topic",
        "profile",
        "retry",
        "prices",
        "message_trust",
        "policy",
        "durability",
        "lease_s",
        "log_deltas",
        "log_answers",
        "debug",
        "redact",
        "seal_keys",
        "output",
    ),
}
"""The options that are keys of the spec, by the section where they stand. `tools.*` is what each agent adds
to `tools`; the rest of `tools` and the spec's own keys are of the conversation."""

OWN_OPTIONS = ("name", "description", "tools")
"""Options that are no key of the same name."""


def check_option_names(
    subject: str, options: Mapping[str, Any], method: Callable[..., Any], form: type
) -> None:
    """Refuse options that a method does not take, as Python refuses an argument.

    Args:
        subject: what has the options, with its article.
        form: the `TypedDict` of the method's `**options`.

    Raises:
        SpecError: names the option, and the nearest of the method's parameters and options.
    """
    names = _list_names(method, form)
    for name in options:
        if name not in names:
            raise SpecError(
                f"{subject} has no option {name!r}: unexpected keyword argument {name!r}",
                hint=suggest_name(name, names),
            )


@cache
def _list_names(method: Callable[..., Any], form: Any) -> frozenset[str]:
    """All that a method takes by name."""
    _, *parameters = inspect.signature(method).parameters.values()  # without `self`
    return frozenset(p.name for p in parameters if p.kind is not p.VAR_KEYWORD) | form.__optional_keys__


def select_options(options: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The options that are keys of a section of the spec, as plain data; None counts as not given."""
    names = KEY_PLACES[section]
    return {name: make_plain(options[name]) for name in names if options.get(name) is not None}


def make_plain(value: Any) -> Any:
    """A value of a document as plain data: what YAML could hold."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): make_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [make_plain(item) for item in value]
    return value


def list_imported_globs(sections: Mapping[str, Any]) -> list[str]:
    """Globs over the names of the tools that `mcp` and `openapi` import, by the prefix of each.

    What has the wrong form is passed over: the loader refuses it.
    """
    servers, documents = sections.get("mcp"), sections.get("openapi")
    prefixes: list[Any] = []
    if isinstance(servers, Mapping):
        prefixes += [
            server.get("prefix") if server.get("prefix") is not None else f"{name}__"
            for name, server in servers.items()
            if isinstance(server, Mapping)
        ]
    if isinstance(documents, list):
        prefixes += [entry.get("prefix") or "" for entry in documents if isinstance(entry, Mapping)]
    return [f"{prefix}*" for prefix in prefixes]


def merge_imports(sections: dict[str, Any], added: Mapping[str, Any], agent: str) -> None:
    """Add what an agent imports to the `tools` section of the spec.

    Raises:
        SpecError: two agents mean different servers by one name, or different tools.
    """
    for key, value in added.items():
        if isinstance(value, Mapping):
            known = sections.setdefault(key, {})
            for name, server in value.items():
                if known.setdefault(name, server) != server:
                    raise _build_conflict(f"MCP server {name!r}", agent)
            continue
        if not isinstance(value, list):
            sections[key] = value  # the loader says what it should be
            continue
        known = sections.setdefault(key, [])
        for entry in value:
            if key == "registry" and any(
                each != entry and each.get("name") == entry.get("name") for each in known
            ):
                raise _build_conflict(f"tool {entry.get('name')!r}", agent)
            if entry not in known:
                known.append(entry)


def check_imports(sections: Mapping[str, Any]) -> None:
    """Refuse settings of MCP servers that are not allowed. None is started or asked.

    Raises:
        SpecError: names the setting and the nearest that exists.
    """
    if sections.get("mcp"):
        from toolchart.tools.sources.mcp import list_mcp_starts

        tuple(list_mcp_starts(sections["mcp"], Path()))


def _build_conflict(what: str, agent: str) -> SpecError:
    return SpecError(
        f"the {what} of the agent {agent!r} is another one than that of an agent beside it",
        hint="give each its own name: agents that hand over to each other are one spec",
    )
