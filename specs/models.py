"""The data models of the agent spec: hosts, tools, handlers, limits, and the JSON Schema of them all.

The spec is a superset of the configuration that existing tool-calling chat servers use, so that such a file
loads unchanged. Unknown keys are kept, with a warning (see `loader.py`). A `comment` is allowed anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from toolchart.specs.sections.base import Section
from toolchart.specs.sections.context import IntentConfig, ModelChoice, RagService, TopicConfig
from toolchart.specs.sections.debug import DebugConfig
from toolchart.specs.sections.keeping import RedactConfig
from toolchart.specs.sections.limits import LimitsConfig, RetryConfig
from toolchart.states.chart.yaml_document import SourcePosition
from toolchart.states.descriptors import find_registry, load_reference
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.ports import LEASE_S

DEFAULT_MAX_ITERATIONS = 5
"""Iterations of a turn where the spec sets no limit."""


TOOL_FORMAT_WORDS = ("native", "auto", "bracket")
"""Words of `tool_format` that are no row of the table of text formats."""


def _check_tool_format(word: str) -> str:
    names = _list_tool_formats()
    if word not in names:
        raise _build_name_problem("text format", word, names)
    return word


def _list_tool_formats() -> list[str]:
    """The words of `tool_format`."""
    return [*TOOL_FORMAT_WORDS, *load_reference("toolchart.providers.text_calls.formats:TEXT_FORMATS")]


def _check_provider(word: str) -> str:
    """Refuse a host that nobody has; a row of another package is imported where the host is first called."""
    hosts = find_registry("toolchart.hosts")
    if word not in hosts:
        raise _build_name_problem(hosts.kind, word, hosts.names())
    return word


def _check_tool_source(word: str) -> str:
    if _find_source(word).place != "entry":
        raise PydanticCustomError(
            "tool_source", "{word} is a section of `tools`, not a type", {"word": repr(word)}
        )
    return word


def _find_source(word: str) -> Any:
    """The tool source that a word of the spec names.

    Raises:
        PydanticCustomError: there is none, or it is incomplete.
    """
    registry = find_registry("toolchart.tool_sources")
    if word not in registry:
        raise _build_name_problem(registry.kind, word, registry.names())
    try:
        return registry.find(word)
    except SpecError as error:
        raise PydanticCustomError("row", "{problem}", {"problem": error.message}) from None


def _build_name_problem(kind: str, word: str, names: Iterable[str]) -> PydanticCustomError:
    """The problem of a name that no row of a table has; the loader makes a hint of its `hint`."""
    return PydanticCustomError("row", "unknown {kind}", {"kind": kind, "hint": suggest_name(word, names)})


def _check_pins(pins: Any) -> Any:
    """Refuse the digests of an earlier form, which held what a model reads and not what is done."""
    for name, pin in pins.items() if isinstance(pins, Mapping) else ():
        if isinstance(pin, str):
            raise PydanticCustomError(
                "pin",
                "the pin of {name} is a digest of an earlier form; read the tools and pin them anew: "
                "toolchart tools pin SPEC",
                {"name": repr(name)},
            )
    return pins


def _check_entry_type(word: str | None) -> str | None:
    return word if word in (None, "function") else _check_tool_source(str(word))


class LLMConfig(Section):
    """One model host, under a name. Additional keys are passed to its adapter unchanged."""

    misspelt_cutoff = 0.8
    """There are further keys besides these: `headers` is no misspelt `handler`."""

    provider: Annotated[str, AfterValidator(_check_provider)]
    """Kind of model host: one of those in docs/providers.md, or the name of a host that another package
    adds."""
    base_url: str | None = None
    """Address of the host; default: the SDK's environment variable or its default address."""
    api_key: str | None = None
    """API key, best as `${VARIABLE}`; default: the SDK's environment variable."""
    model: str | None = None
    """Model of handlers that name none."""
    description: str | None = None
    """What people call the host."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature of handlers that set none."""
    maxTokens: int | None = Field(default=None, gt=0)  # noqa: N815  the spelling of existing files
    """Most tokens of one reply, for handlers that set no `max_tokens`, which itself is not read here."""
    retries: int | None = Field(default=None, ge=0)
    """How often a failed call is tried again, in charts that retry; goes before `retry` and `limits`."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds for one whole model call, to the last byte of its answer."""
    idle_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds of silence after which a call has failed; default: only `timeout_s` counts."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Most calls in any 60 seconds; more calls wait. Entries with the same address and limits share them."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Most tokens in any 60 seconds, estimated until a reply says how many they were."""
    concurrent: int | None = Field(default=None, ge=1)
    """Most calls at the same time."""
    batch_gather_s: float = Field(default=5.0, ge=0)
    """With `batch: true`: seconds without a further call after which a batch job begins."""
    batch_poll_s: float = Field(default=15.0, gt=0)
    """Seconds until the first look at a batch job; the pauses grow up to twenty times as long."""
    max_connections: int | None = Field(default=None, ge=1)
    """Most connections to the host; default: that of the HTTP library."""
    proxy: str | None = None
    """Address of a proxy; default: the environment's (`HTTPS_PROXY`, ...)."""
    ca_file: str | None = None
    """PEM file, relative to the spec, of an authority that is trusted besides the usual ones."""
    client_certificate: str | None = None
    """PEM file, relative to the spec, with the certificate and the key that the host asks for."""
    tool_format: Annotated[str, AfterValidator(_check_tool_format)] = "native"
    """How the model writes tool calls: in the host's API, or as text (`docs/text-calls.md`)."""
    max_tools: int | None = Field(default=None, ge=1)
    """Most tools that this host is offered."""
    essential_tools: list[str] = Field(default_factory=list)
    """Names or globs of tools that are offered before others if there is a cap."""
    context_limit: int | None = Field(default=None, ge=1)
    """Tokens that one request may have; default: that of the model, where it is known (`docs/context.md`)."""
    count_tokens: Literal["estimate", "host"] = "estimate"
    """Who answers `count_tokens`: our own estimate, or the host, where it has a counter."""

    def extra_options(self) -> dict[str, Any]:
        """Return the additional keys, which belong to the adapter."""
        return dict(self.model_extra or {})


class Implementation(Section):
    """How a tool is implemented."""

    misspelt_cutoff = 0.8
    """There are further keys besides these: `headers` is no misspelt `handler`."""

    type: Annotated[str, AfterValidator(_check_tool_source)] = "builtin"
    """Kind of implementation: `mock`, `builtin`, `internal`, `http`, `python`, `agent`, or one of another
    package."""
    handler: str | None = None
    """Name of the builtin or internal service, by default the tool's; of an `agent`, a handler of the
    spec."""
    mock_response: Any = None
    """The result of a mock tool."""


class ToolEntry(Section):
    """One tool. A name alone activates the builtin of that name."""

    misspelt_cutoff = 0.8
    """There are further keys besides these: `headers` is no misspelt `handler`."""

    name: str = Field(min_length=1)
    """Name by which the model calls it."""
    description: str | None = None
    """The description that the model gets; replaces that of a builtin."""
    parameters: dict[str, Any] | None = None
    """JSON Schema (2020-12) of the arguments."""
    type: Annotated[str | None, AfterValidator(_check_entry_type)] = None
    """`function`, or the kind of implementation of an entry without `implementation`, as in existing files:
    then `handler` and `mock_response` stand beside it."""
    implementation: Implementation | None = None
    """Its implementation; default: the builtin of that name."""
    timeout_ms: int | None = Field(default=None, gt=0)
    """Milliseconds for one call; default: `default_timeout_ms`."""
    idempotent: bool = False
    """Whether a call may run twice without harm, so that a resumed turn may run it again."""
    status: str | None = None
    """`module:function` that says what became of a call that a crash has interrupted; it gets the call's
    `ToolContext`, with its idempotency key, and returns a `CallStatus`."""
    requires_approval: bool = False
    """Whether a person must approve every call."""
    risk: Literal["low", "medium", "high"] | None = None
    """How much harm a wrong call can do. A person decides about each call of a `high` one, unless a rule of
    `approval` does. Without it no call asks for this reason, and `check` takes tools that may write for
    `high`."""
    trust: Literal["trusted", "untrusted"] | None = None
    """Whether strangers may have written what it returns; default: `untrusted` for HTTP and documents."""
    isolation: Literal["none", "inline", "thread", "process"] | None = None
    """Where it runs; default: that of the tool. `inline`: on the event loop, without a timeout."""
    max_result_size: int | None = Field(default=None, gt=0)
    """Most characters of its result that the model gets."""

    @property
    def kind(self) -> Implementation:
        """The implementation, also of an entry that is written flat."""
        if self.implementation is not None:
            return self.implementation
        extra = self.model_extra or {}
        flat = {key: extra[key] for key in ("handler", "mock_response") if key in extra}
        return Implementation(type=self.type if self.type not in (None, "function") else "builtin", **flat)


class ToolsConfig(Section):
    """The tools of a spec; without this section the agent has none."""

    enabled: bool = True
    """Whether any handler may use tools."""
    apply_globally: bool = False
    """Whether handlers without a `tools` section use tools too."""
    max_iterations: int = Field(default=DEFAULT_MAX_ITERATIONS, ge=1)
    """Most iterations of a turn for handlers that set no limit."""
    default_timeout_ms: int = Field(default=30_000, gt=0)
    """Milliseconds for one tool call."""
    registry: list[ToolEntry] = Field(default_factory=list)
    """The tools."""
    parallel: int = Field(default=4, ge=1, le=64)
    """Most calls of one reply that run at the same time."""
    max_tools: int | None = Field(default=None, ge=1)
    """Most tools that any host is offered; an `llms` entry may set a smaller cap."""
    essential_tools: list[str] = Field(default_factory=list)
    """Names or globs of tools that are offered before others if there is a cap."""
    mcp: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """MCP servers by name (extra `mcp`); the names of their tools get the server's name as a prefix."""
    openapi: list[dict[str, Any]] = Field(default_factory=list)
    """OpenAPI documents whose operations are tools (extra `http`)."""
    pins: Annotated[dict[str, dict[str, str]] | None, BeforeValidator(_check_pins)] = None
    """Definitions of tools by name, part by part, as `toolchart tools pin` prints them; a changed tool asks
    before each call, and so does an imported one without a pin."""

    @classmethod
    def has_key(cls, key: str) -> bool:
        """Whether the section has such a key, or another package adds a tool source of this name.

        Raises:
            SpecError: a package does, and its row is incomplete.
        """
        sources = find_registry("toolchart.tool_sources")
        return super().has_key(key) or (key in sources and sources.find(key).place == "section")


class HandlerTools(Section):
    """Whether and which tools a handler offers."""

    enabled: bool = False
    """Whether this handler offers tools; only `true` says so."""
    allowed_tools: list[str] = Field(default_factory=list)
    """Names or globs; empty means all."""
    max_iterations: int | None = Field(default=None, ge=1)
    """Most iterations of a turn; has precedence over the global limit."""


class Handler(Section):
    """One way to answer: model, prompt, options and tools. The first handler that matches is used."""

    name: str | None = None
    """Name for `--handler`."""
    match: dict[str, Any] | None = None
    """Conditions on the variables; a handler without conditions always matches."""
    llm: str
    """Name of an entry of `llms`."""
    model: str | None = None
    """Model; default: that of the `llms` entry."""
    prompt: str | None = None
    """System prompt with `{{variables}}`."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of one reply."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling."""
    seed: int | None = None
    """Seed, for providers that support one."""
    top_k: int | None = Field(default=None, ge=1)
    """Sample among that many most likely tokens."""
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Above 0: speak of new things."""
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    """Above 0: repeat fewer words."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much the model reasons before it answers."""
    thinking_budget: int | None = Field(default=None, ge=0)
    """Most tokens of reasoning, for hosts that count it so."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """How long answers are."""
    logprobs: int | None = Field(default=None, ge=0, le=20)
    """Log probabilities of so many tokens at each position; they are kept in the reply's details."""
    service_tier: str | None = None
    """How fast and at which price the host answers, in its own words."""
    cache_key: str | None = None
    """Requests with the same key share the host's prompt cache."""
    cache_ttl: str | None = None
    """How long the host keeps the prompt in its cache, in its own words (`5m`, `1h`, `30m`)."""
    safety_settings: dict[str, str] | None = None
    """Thresholds of a host's safety filters by category, in its own words."""
    strict_tools: bool | None = None
    """Whether the host keeps calls to the schemas of the tools, where it can."""
    host_tools: list[dict[str, Any]] | None = None
    """Tools that the host runs itself: `web_search`, `web_fetch`, `code_execution`, `file_search`,
    `image_generation`, `mcp`, each with its parameters (`{web_search: {max_uses: 3}}`), or as the host
    declares them."""
    metadata: dict[str, Any] | None = None
    """Names and values that the host keeps with the call."""
    batch: bool | None = None
    """Whether model calls go through the host's batch API: at half the price, and answered within a day."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the host names them."""
    stop: list[str] | str | None = None
    """Texts at which the model stops its reply."""
    tool_choice: Any = None
    """`auto`, `none`, `required`, the name of a tool, or `{allowed: [names], mode: auto or required}`.
    A forced call is asked for until the first outcome of a turn; then the model may answer."""
    parallel_tool_calls: bool | None = None
    """Whether one reply may ask for several calls."""
    response_format: dict[str, Any] | None = None
    """The form of the answer, as OpenAI's chat API writes it: `{type: json_object}`, or `{type: json_schema,
    json_schema: {name: NAME, schema: SCHEMA}}`. Each answer is checked, whatever the host promises: one that
    breaks it is `failed` of the kind `bad_output`. Charts with retries ask again, and say what was wrong."""
    tools: HandlerTools | None = None
    """Tools of this handler."""


class AgentSpec(Section):
    """An agent: the chart, the hosts, the tools and the handlers."""

    name: str | None = None
    """Name of the agent."""
    chart: str | dict[str, Any] | None = None
    """Chart: a shipped name, a path, or inline; default: `full`."""
    effects: dict[str, dict[str, Any]] | None = None
    """Effects that the chart may ask for, by name: `{kind: parameters}` (`docs/writing-charts/index.md`).
    They add to those that the chart declares; where both declare one, its parameters are merged."""
    llms: dict[str, LLMConfig]
    """Model hosts by name; an agent without any is not configured yet."""
    tools: ToolsConfig | None = None
    """Tools; without this section the agent has none."""
    responses: list[Handler]
    """Handlers; the first that matches is used."""
    rag_services: dict[str, RagService] = Field(default_factory=dict)
    """Services whose collections are searched before a handler is chosen (`docs/existing-files.md`)."""
    embedding: ModelChoice | None = None
    """The model with which those services embed; accepted for existing files."""
    intent: IntentConfig | None = None
    """Detection of the intent, for `match` and `{{intent}}`."""
    topic: TopicConfig | None = None
    """Detection of the topic, for `{{topic}}` and for the search."""
    profile: dict[str, Any] | None = None
    """Values for `match` and prompts, as `{{profile.name}}`."""
    limits: LimitsConfig = Field(default_factory=LimitsConfig)
    """Limits of a turn."""
    retry: RetryConfig = Field(default_factory=RetryConfig)
    """Attempts of a model call and the waits between them."""
    approval: Any = None
    """Which calls a person must approve: rules over tools and arguments; the first that matches decides."""
    approvers: Any = None
    """Who may sign decisions: `{NAME: [{key, valid_from, valid_until, revoked_at}]}`. It is never logged."""
    prices: str | dict[str, Any] | None = None
    """Prices per million tokens, a file or inline: `{currency, models: {NAME: {input, output, cached}}}`."""
    message_trust: Literal["trusted", "untrusted"] = "trusted"
    """Who writes the user's messages: the one for whom the agent works, or strangers, such as the senders of
    mails. `check` follows the words of strangers."""
    policy: Literal["strict", "lenient"] = "lenient"
    """Whether a warning of a provider, a prompt or a tool list ends the turn, or is only recorded."""
    durability: Literal["full", "normal"] = "full"
    """What the log survives: a loss of power (`full`), or the end of the process only (`normal`)."""
    lease_s: float = Field(default=LEASE_S, gt=0)
    """Seconds after which another worker may take over a conversation from one that shows no sign of life."""
    log_deltas: bool = False
    """Whether the log keeps the deltas of streamed replies; not allowed together with `redact`."""
    log_answers: bool = False
    """Whether the log keeps the raw answers of model hosts, compressed, so that `replay` decodes them again;
    not allowed together with `redact`."""
    debug: DebugConfig | None = None
    """Switches for finding faults (`docs/howto/finding-faults.md`)."""
    redact: RedactConfig | None = None
    """What the log must not contain."""
    seal_keys: list[str] = Field(default_factory=list)
    """Ed25519 public keys (`ed25519:` and Base64) that may sign seals of the log; for `verify --spec`."""
    output: dict[str, Any] | None = None
    """Most characters of tool output that a model gets: `total`, `per_tool`, `listing`, `least`; `{}` chooses
    6000, 2000, 5000 and 300. `per_tool_after: {4: 1000}` leaves each call 1000 after 4 calls of the turn.
    Without this section the model gets each result whole."""

    _source: str | None = PrivateAttr(default=None)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _chart_lines: Mapping[SourcePosition, int] = PrivateAttr(default_factory=dict)
    _public_document: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def source(self) -> str | None:
        """The file that the spec was loaded from, if any."""
        return self._source

    @property
    def chart_lines(self) -> Mapping[SourcePosition, int]:
        """The lines of an inline chart in the spec's file, by their positions in the chart."""
        return self._chart_lines

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the loader about unknown keys."""
        return self._warnings

    def to_public_dict(self) -> dict[str, Any]:
        """Return the spec as it was written, without literal secrets: the form that goes into the log."""
        return self._public_document


def build_spec_schema() -> dict[str, Any]:
    """Build the published JSON Schema (2020-12) of the agent spec from the models."""
    schema = AgentSpec.model_json_schema(mode="validation")
    sections = schema["$defs"]
    registry = find_registry("toolchart.tool_sources")
    sources = [row.name for row in registry.builtin_rows if row.place == "entry"]
    sources += [point.name for point in registry.list_added()]  # whether one is a section, only its code says
    sections["Implementation"]["properties"]["type"]["enum"] = sources
    sections["ToolEntry"]["properties"]["type"]["enum"] = ["function", *sources, None]
    sections["LLMConfig"]["properties"]["provider"]["enum"] = find_registry("toolchart.hosts").names()
    sections["LLMConfig"]["properties"]["tool_format"]["enum"] = _list_tool_formats()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Toolchart agent spec",
    }
