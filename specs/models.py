"""The agent spec: who speaks, with which model, which tools, under which limits.

A superset of the configuration that tool-calling chat servers of this kind already use, so that an
existing file loads unchanged. Keys that Toolchart does not know are kept and warned of (see
`loader.py`); a `comment` is allowed anywhere.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

DEFAULT_MAX_ITERATIONS = 5


class Section(BaseModel):
    """What every part of a spec has."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)

    comment: Any = None
    """Words for readers; ignored."""


class LLMConfig(Section):
    """One model host under a name of its own. Further keys go to the adapter as they are."""

    provider: str
    """Adapter: `openai`, `azure`, `ollama`, `gemini`, `anthropic`, `recorded` or `scripted`."""
    base_url: str | None = None
    """Address of the host; without one the SDK's own environment variable or default holds."""
    api_key: str | None = None
    """Key, best as `${VARIABLE}`; without one the SDK's own environment variable holds."""
    model: str | None = None
    """Model for handlers that name none."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds for one model call."""
    tool_format: Literal[
        "native",
        "auto",
        "bracket",
        "hermes",
        "qwen3_coder",
        "mistral",
        "llama3",
        "deepseek",
        "pythonic",
    ] = "native"
    """How calls are made: the host's own way, or as text in one of these formats (`docs/text-calls.md`)."""
    max_tools: int | None = Field(default=None, ge=1)
    """Tools that this host is offered at most."""
    essential_tools: list[str] = Field(default_factory=list)
    """Names or globs of tools that are offered before others where there is a cap."""
    record: str | None = None
    """Cassette, relative to the spec, to which every exchange with the host is appended without secrets;
    `provider: recorded` answers from it."""

    def extras(self) -> dict[str, Any]:
        """Keys beyond the common ones, for the adapter."""
        return dict(self.model_extra or {})


class Implementation(Section):
    """What a tool does when it is called."""

    type: Literal["mock", "builtin", "internal", "http", "python"] = "builtin"
    """Kind of implementation."""
    handler: str | None = None
    """Name of the builtin or internal service; without one the tool's own name."""
    mock_response: Any = None
    """The answer of a mock tool."""


class ToolEntry(Section):
    """One tool. A name alone activates the builtin of that name."""

    name: str = Field(min_length=1)
    """Name by which the model calls it."""
    description: str | None = None
    """What the model is told; goes before a builtin's own description."""
    parameters: dict[str, Any] | None = None
    """JSON Schema (2020-12) of the arguments."""
    type: Literal["function"] | None = None
    """Accepted for files that spell it; every tool is a function."""
    implementation: Implementation | None = None
    """What it does; without one the builtin of that name."""
    timeout_ms: int | None = Field(default=None, gt=0)
    """Milliseconds for one call; without it `default_timeout_ms`."""
    idempotent: bool = False
    """Whether running it twice does no harm, so that a resumed turn may run it again."""
    requires_approval: bool = False
    """Whether a person decides about every call."""
    risk: Literal["low", "medium", "high"] = "low"
    """How much harm a wrong call can do."""
    isolation: Literal["none", "thread", "process"] | None = None
    """Where it runs; without it the tool's own default."""
    max_result_size: int | None = Field(default=None, gt=0)
    """Characters of its result that the model is shown."""


class ToolsConfig(Section):
    """The tools of a spec; without this section there are none."""

    enabled: bool = True
    """Whether any handler may use tools."""
    apply_globally: bool = False
    """Whether handlers without a `tools` section of their own use tools too."""
    max_iterations: int = Field(default=DEFAULT_MAX_ITERATIONS, ge=1)
    """Limit of iterations for handlers that set none."""
    default_timeout_ms: int = Field(default=30_000, gt=0)
    """Milliseconds for one tool call."""
    registry: list[ToolEntry] = Field(default_factory=list)
    """The tools."""
    parallel: int = Field(default=4, ge=1, le=64)
    """Calls of one reply that run at the same time."""
    max_tools: int | None = Field(default=None, ge=1)
    """Tools that any host is offered at most; an `llms` entry may set a smaller cap."""
    essential_tools: list[str] = Field(default_factory=list)
    """Names or globs of tools that are offered before others where there is a cap."""
    mcp: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """MCP servers by name (extra `mcp`); their tools appear with the name as a prefix."""
    openapi: list[dict[str, Any]] = Field(default_factory=list)
    """OpenAPI documents whose operations are tools (extra `http`)."""


class HandlerTools(Section):
    """Whether and which tools a handler offers."""

    enabled: bool = True
    """Whether this handler offers tools."""
    allowed_tools: list[str] = Field(default_factory=list)
    """Names or globs; empty means all."""
    max_iterations: int | None = Field(default=None, ge=1)
    """Limit of iterations; goes before the global one."""


class Handler(Section):
    """One way to answer. The first handler whose `match` fits is taken."""

    name: str | None = None
    """Name for `--handler`."""
    match: dict[str, Any] | None = None
    """Conditions on the variables; without any the handler is the fallback."""
    llm: str
    """Name of an entry of `llms`."""
    model: str | None = None
    """Model; without one that of the `llms` entry."""
    prompt: str | None = None
    """System prompt with `{{variables}}`."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens of one reply."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling."""
    seed: int | None = None
    """Seed, for providers that take one."""
    stop: list[str] | str | None = None
    """Texts that end a reply."""
    tool_choice: Any = None
    """`auto`, `none`, `required` or the name of a tool."""
    parallel_tool_calls: bool | None = None
    """Whether one reply may ask for several calls."""
    response_format: dict[str, Any] | None = None
    """JSON Schema form of the reply, as the provider takes it."""
    tools: HandlerTools | None = None
    """Tools of this handler."""


class LimitsConfig(Section):
    """Numbers that bound a turn."""

    max_iterations: int | None = Field(default=None, ge=1)
    """Replies with tool calls, where neither handler nor tools section says."""
    max_tool_only_streak: int = Field(default=3, ge=1)
    """Replies in a row that call tools and say nothing."""
    max_repeats: int = Field(default=2, ge=1)
    """Runs of the same tool with the same arguments."""
    max_attempts: int = Field(default=3, ge=1)
    """Tries of one model call."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens of all replies of the turn."""
    max_cost: float | None = Field(default=None, gt=0)
    """Money of the turn, in the currency of the price table."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Wall clock of the turn."""
    max_tool_calls: int | None = Field(default=None, gt=0)
    """Tool calls of the turn."""
    unbounded: bool = False
    """Says aloud that the chart has no bound of its own."""


class RetryConfig(Section):
    """How a model call that failed is tried again, by charts that do so."""

    max_attempts: int | None = Field(default=None, ge=1)
    """Tries of one model call; goes before that of `limits`."""
    first_wait_s: float = Field(default=0.5, ge=0)
    """Seconds before the second try; doubled with every further one."""
    max_wait_s: float = Field(default=60.0, ge=0)
    """Seconds of one wait at most; a host that asks for more is not asked again."""


class RedactConfig(Section):
    """What is taken out of the log before it is hashed; the model still sees it."""

    keys: list[str] = Field(default_factory=list)
    """Keys inside arguments and results whose values are secret; globs, upper and lower case alike."""
    patterns: list[str] = Field(default_factory=list)
    """Patterns in any text: `email`, `phone`, `card`, `iban`, `ipv4`, `token`, or `/expression/`."""


class AgentSpec(Section):
    """An agent: the chart, the hosts, the tools and the handlers."""

    name: str | None = None
    """Name of the agent."""
    chart: str | dict[str, Any] | None = None
    """Chart: a shipped name, a path, or inline; without one `tool_loop`."""
    llms: dict[str, LLMConfig] = Field(min_length=1)
    """Model hosts by name."""
    tools: ToolsConfig | None = None
    """Tools; without this section the agent only talks."""
    responses: list[Handler] = Field(min_length=1)
    """Handlers, the first that matches is taken."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """Limits of a turn."""
    retry: RetryConfig = Field(default_factory=RetryConfig)
    """Waits between tries of a model call."""
    approval: Any = None
    """Which calls a person decides about: rules over tools and arguments, the first that matches."""
    prices: str | dict[str, Any] | None = None
    """Price table, a file beside the spec or inline: `{currency, models: {NAME: {input, output, cached}}}`,
    per million tokens."""
    policy: Literal["strict", "lenient"] = "lenient"
    """Whether a warning of a provider, a prompt or a tool list ends the run, or is recorded only."""
    log_deltas: bool = False
    """Whether the log tells how replies grew; never where `redact` is given."""
    redact: RedactConfig | None = None
    """What the log must not hold."""
    output: dict[str, Any] | None = None
    """Characters of tool output that a model is shown: `total`, `per_tool`, `listing`, `least`."""

    _source: str | None = PrivateAttr(default=None)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _authored: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def source(self) -> str | None:
        """The file that it came from, where it came from one."""
        return self._source

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the loader has to say about keys that it does not know."""
        return self._warnings

    def public(self) -> dict[str, Any]:
        """The spec as it was written, secrets as references: what goes into the log."""
        return self._authored
