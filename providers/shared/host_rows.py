"""What is known of each model host, as data: one `HostRow` for each, with its rules about requests.

A row says where a host is, what its requests and answers look like, and what it refuses. The adapters read
it to send what is taken, `toolchart.testing.emulators` to refuse what is not; what only emulators read stands
in `testing/emulators/facts.py`.

A rule often belongs to a host, a family of models and whether the model thinks, and not to the host alone.
So a `RequestRule` names all three, its source, and what kind of source that is: what somebody only said is a
warning of an emulator, and no refusal. Where a line has no other date, it was read on 2026-11-23.

The table is Python and no YAML file: its types are checked, its compiled form loads in about a millisecond,
and a rule that holds for several hosts is a value with a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from toolchart.providers.shared.sent_messages import (
    ANTHROPIC_IDS,
    ANTHROPIC_NAMES,
    BEDROCK_IDS,
    CHAT_IDS,
    GEMINI_NAMES,
    MISTRAL_IDS,
    RESPONSES_IDS,
    TOOL_NAMES,
    IdentifierForm,
    MessageForm,
)
from toolchart.states.errors import SpecError
from toolchart.states.messages import FinishReason

Wire = Literal["chat", "responses", "messages", "converse", "gemini", "ollama"]
"""The wire formats, by the names of `providers/hosts.py`."""

ChoiceForm = Literal["none", "required", "named", "lists"]
"""The forms of a tool choice beside `auto`: a word, one tool that must be called, several tools that may be
called."""

Evidence = Literal["traffic", "types", "page", "code", "thread", "memory"]
"""Where a fact is from: seen in answers of the host, types of its SDK, its own page, another client's code;
or only told: a thread that nobody checked, general knowledge."""

CERTAIN: tuple[Evidence, ...] = ("traffic", "types", "page", "code")
"""The evidence by which an emulator refuses; for the others it warns."""

EchoReasoning = Literal["always", "tool_turns", "never"]
"""When reasoning is sent back: with every message, only with messages that have calls, or never."""

Modality = Literal["image", "audio", "file"]

ThoughtForm = Literal["never", "opened", "unopened"]
"""Whether the text of a reply may begin with thoughts between `<think>` and `</think>`; `unopened`: also
without the opening marker, which stands in the prompt then."""

# -- rules about requests ------------------------------------------------------------------------


class RefusedOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option that a model refuses."""

    name: str
    """One of `MODEL_OPTIONS`."""
    taken: tuple[float, float] | None = None
    """Least and greatest number that is taken all the same."""
    words: tuple[str, ...] = ()
    """The only values that are refused; empty: every value is."""

    def refuses(self, value: Any) -> bool:
        """Whether the model refuses a value of this option."""
        if value is None or value in ("", [], ()):
            return False
        if self.words:
            return value in self.words
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return not (self.taken is not None and is_number and self.taken[0] <= value <= self.taken[1])


class HostRule(msgspec.Struct, frozen=True, kw_only=True):
    """For what a rule of a host holds, and who says it."""

    source: str
    evidence: Evidence
    wires: tuple[Wire, ...] = ()
    """Wire formats in which it holds; empty: all."""
    models: str = ""
    """Regular expression that is searched in the model's name, in lower case and without `MAKER/`; empty:
    every model."""
    is_thinking: bool | None = None
    """Whether it holds while the model thinks, or while it does not; None: both."""
    has_budget: bool | None = None
    """Whether it holds while thinking has a budget of tokens; None: with and without."""

    @property
    def is_certain(self) -> bool:
        """Whether its source is more than hearsay."""
        return self.evidence in CERTAIN

    def holds_for(self, wire: Wire, name: str) -> bool:
        """Whether it holds for a model in a wire format, while it thinks or while it does not.

        Args:
            name: as `shorten_model_name` gives it.
        """
        return (not self.wires or wire in self.wires) and re.search(self.models, name) is not None


class RequestRule(HostRule, frozen=True, kw_only=True):
    """What a host refuses in requests, of all its models or of some."""

    refuses: tuple[RefusedOption, ...] = ()
    refused_choices: tuple[ChoiceForm, ...] = ()
    """The forms of a tool choice that are refused."""
    refused_keys: tuple[str, ...] = ()
    """Keys of the body that are refused, whatever their value."""
    refused_parts: tuple[Modality, ...] = ()
    """Parts of messages that are refused."""
    takes_closed_schemas: bool = True
    """Whether a tool's schema may say `additionalProperties: false`."""
    takes_tools: bool = True
    max_tools: int | None = None
    """Most functions of one request."""
    name_form: IdentifierForm | None = None
    """The form that names of functions, and of the functions in calls, must have."""
    id_form: IdentifierForm | None = None
    """The form that ids of calls must have."""
    takes_empty_replies: bool = True
    """Whether an assistant message with neither text nor calls is taken."""
    needs_reply_after_results: bool = False
    """Whether a message of the user right after a tool's result is refused."""
    refused_formats: tuple[str, ...] = ()
    """The types of `response_format` that are refused."""
    takes_budget: bool = True
    """Whether thinking can have a budget of tokens."""
    tools_need_effort_none: bool = False
    """Whether tools are refused unless the model is asked not to reason."""
    needs_call_signatures: bool = False
    """Whether a call without a thought signature is refused."""
    never_thinks: bool = False
    """Whether the models do not think, and refuse to be asked for their reasoning."""
    is_chat_only: bool = False
    """Whether only chat completions have the model."""


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """When the models of a family think."""

    source: str
    models: str
    """As in `RequestRule`."""
    default: Literal["always", "on", "off"]
    """Whether they think if nothing is said; `always`: whatever is said."""
    switches: tuple[str, ...] = ()
    """What says whether they think: `reasoning_effort`, `thinking`, `enable_thinking`."""


# -- the row of a host ---------------------------------------------------------------------------


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one host."""

    name: str
    """The word by which an entry names it: `host_profile: mistral`."""
    title: str
    """Its name for people."""
    source: str
    """Who says what no rule of the row says."""
    provider: str = "openai"
    """The `provider` word of its entries."""
    wires: tuple[Wire, ...] = ("chat",)
    """The wire formats that it speaks, the usual one first."""
    domains: tuple[str, ...] = ()
    """Ends of the names of its addresses, or name and port where only the port says what it is. Names of its
    own addresses need not stand here; see `list_domains`."""
    base_url: str = ""
    """Its address; empty where each user has one of their own."""
    chat_url: str = ""
    """The address of its chat completions, where it is another one."""
    address_form: str = ""
    """The address with the part of each user in capitals, where `base_url` is empty."""
    key_variables: tuple[str, ...] = ()
    """Environment variables of its key; the first one that is set counts. Empty: no key is read."""
    has_model_list: bool = True
    """Whether its list of models has the names that a call takes. Azure's has base models, a call names a
    deployment."""
    ended_on: str = ""
    """The day on which the host was switched off."""

    # what its requests look like
    api: Literal["chat", "responses"] = "chat"
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] | None = None
    seed_name: Literal["seed", "random_seed"] = "seed"
    sends_tool_names: bool = False
    """Whether a tool's result carries the tool's name."""
    echo_reasoning: EchoReasoning = "never"
    """Which reasoning goes back to it."""
    fill_reasoning: bool = False
    """Whether a message whose reasoning would go back gets an empty one where it has none."""
    stream_usage: bool = True
    """Whether `stream_options` may ask for token counts."""

    # what its answers look like
    thoughts_in_text: ThoughtForm | None = None
    """Whether the text of its replies may begin with thoughts. None: it may, as `opened` or `unopened` by the
    model's name."""
    finish_words: Mapping[str, FinishReason] = msgspec.field(default_factory=dict)
    """Finish words that mean something only at this host; all others stand in `openai/wire.py`."""

    rules: tuple[RequestRule, ...] = ()
    thinking: tuple[ThinkingRule, ...] = ()
    """The first row that fits a model counts. A model without a row thinks if the request says so."""

    def list_domains(self) -> tuple[str, ...]:
        """What an address of it ends in: `domains`, and the names of its own addresses."""
        # An address with a port is one of this machine. Whatever listens there may be another host: so only
        # `domains` says that a port means this one.
        own = [parts for parts in map(urlsplit, (self.base_url, self.chat_url)) if parts.port is None]
        return tuple(dict.fromkeys([*self.domains, *(parts.hostname for parts in own if parts.hostname)]))

    def list_settings(self) -> dict[str, Any]:
        """The settings of an `openai` entry that differ from those of a host that is not known."""
        settings = {
            name: value for name in _SETTINGS if (value := getattr(self, name)) != getattr(UNKNOWN_HOST, name)
        }
        refused_keys = [
            key
            for rule in self.rules
            if not rule.models and rule.is_thinking is None
            for key in rule.refused_keys
        ]
        return {**settings, **({"refuses": refused_keys} if refused_keys else {})}


_SETTINGS = (
    *("api", "max_tokens_name", "seed_name", "sends_tool_names", "echo_reasoning", "fill_reasoning"),
    *("finish_words", "stream_usage", "thoughts_in_text"),
)
"""The fields of a row that are settings of an entry too."""


# -- rules of several hosts ----------------------------------------------------------------------

_NEW_CLAUDE = r"claude-(opus|sonnet|haiku)-(4[.-][789]|[5-9])|claude-(fable|mythos)"
_GROK = r"^grok-(4|3-mini|code)(?!.*non-reasoning)"
MISTRAL_MODELS = r"mistral|mixtral|ministral|codestral|devstral|magistral|pixtral"

_FORCED: tuple[ChoiceForm, ...] = ("required", "named")
_SAMPLING = ("temperature", "top_p", "top_k")
_PENALTIES = ("presence_penalty", "frequency_penalty")


def _refuse(*names: str) -> tuple[RefusedOption, ...]:
    """Options that are refused at every value."""
    return tuple(RefusedOption(name=name) for name in names)


def _refuse_choices(*forms: ChoiceForm, source: str, evidence: Evidence, **scope: Any) -> RequestRule:
    """A rule that refuses forms of a tool choice."""
    return RequestRule(refused_choices=forms, source=source, evidence=evidence, **scope)


_NO_LISTS = _refuse_choices(
    "lists",
    wires=("chat", "responses"),
    source="openai 3.54.0, chat_completion_allowed_tool_choice_param.py; no page of another host has it",
    evidence="page",
)

_NO_STRICT = RequestRule(
    wires=("chat",),
    refuses=(RefusedOption(name="strict_tools"),),
    source="earendil-works/pi, openai-completions.ts; agentscope-java, openai/compat, 2026-08-22",
    evidence="code",
)

_THINKS_WITHOUT_FORCE = _refuse_choices(
    *_FORCED,
    is_thinking=True,
    source="deepseek-ai/DeepSeek-V3#1376 (2026-05-30), BerriAI/litellm#37470 (2026-08-19); Moonshot: "
    "simstudioai/sim#5716 (2026-07-16), oh-my-pi#1077; Qwen: cloudwego/eino#994 (2026-04-24), "
    "QwenLM/qwen-code#7659 (2026-07-24)",
    evidence="traffic",
)

_MISTRAL_TEMPLATE = RequestRule(
    wires=("chat",),
    models=MISTRAL_MODELS,
    id_form=MISTRAL_IDS,
    needs_reply_after_results=True,
    source="opencode#1680, hermes-agent#20154: the models' templates refuse it at other hosts too",
    evidence="traffic",
)
"""Of Mistral's models, wherever they are served."""

WIRE_RULES: tuple[RequestRule, ...] = (
    RequestRule(
        wires=("messages",),
        id_form=ANTHROPIC_IDS,
        source="pydantic-ai, profiles/anthropic.py",
        evidence="code",
    ),
    RequestRule(
        wires=("converse",),
        id_form=BEDROCK_IDS,
        name_form=TOOL_NAMES,
        source="botocore 1.44.5, shapes ToolUseId and ToolName",
        evidence="types",
    ),
    RequestRule(
        wires=("messages",),
        name_form=ANTHROPIC_NAMES,
        source="platform.claude.com, Tool use, the form of `name`",
        evidence="page",
    ),
    RequestRule(
        wires=("chat", "responses", "ollama"),
        name_form=TOOL_NAMES,
        source="what every host takes; which of them refuse another one is not known",
        evidence="memory",
    ),
    RequestRule(
        wires=("messages", "converse"),
        models=_NEW_CLAUDE,
        refuses=_refuse(*_SAMPLING),
        source="modelparams.dev#282 (2026-08-18); API version 2026-10-21 refuses every value "
        "(platform.claude.com/docs/en/api/migration-2026-10-21)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("messages",),
        models=_NEW_CLAUDE,
        takes_budget=False,
        source="modelparams.dev#282 (2026-08-18)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("messages",),
        models=r"claude-opus-5",
        is_thinking=False,
        refuses=(RefusedOption(name="reasoning_effort", words=("xhigh", "max")),),
        source="pydantic-ai, profiles/anthropic.py, 2026-08-22",
        evidence="code",
    ),
    _refuse_choices(
        *_FORCED,
        wires=("messages", "converse"),
        models=r"claude-(fable|mythos)",
        source="pydantic-ai, profiles/anthropic.py, 2026-08-22",
        evidence="code",
    ),
    RequestRule(
        wires=("messages", "converse"),
        models=r"claude",
        is_thinking=True,
        refuses=(
            RefusedOption(name="temperature", taken=(1, 1)),
            RefusedOption(name="top_p", taken=(0.95, 1)),
            RefusedOption(name="top_k"),
        ),
        source="platform.claude.com, Extended thinking",
        evidence="page",
    ),
    _refuse_choices(
        *_FORCED,
        wires=("messages", "converse"),
        models=r"claude",
        has_budget=True,
        source="pydantic-ai, profiles/anthropic.py and models/bedrock.py, 2026-08-22",
        evidence="code",
    ),
    RequestRule(
        wires=("gemini",),
        models=r"gemini-([3-9]|pro-latest|flash-latest)",
        needs_call_signatures=True,
        source="ai.google.dev, Thought signatures; 0xsline/OpenChatCut#6 (2026-07)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("gemini",),
        name_form=GEMINI_NAMES,
        max_tools=512,
        source="google-genai 3.6.1, types.py",
        evidence="types",
    ),
    _MISTRAL_TEMPLATE,
    RequestRule(
        wires=("chat",),
        models=MISTRAL_MODELS,
        takes_empty_replies=False,
        source="mistral-common, validator.py, which vLLM runs for these models",
        evidence="memory",
    ),
)
"""What models refuse at every host that speaks a wire format."""

_CLAUDE_THINKS = ThinkingRule(
    models=r"claude", default="off", switches=("thinking",), source="platform.claude.com, Extended thinking"
)

# -- OpenAI and Azure ----------------------------------------------------------------------------

_OPENAI_RULES = (
    RequestRule(
        models=r"^(gpt-5|o1|o3|o4)",
        is_thinking=True,
        refuses=(
            RefusedOption(name="temperature", taken=(1, 1)),
            RefusedOption(name="top_p", taken=(1, 1)),
            *_refuse(*_PENALTIES, "logprobs"),
        ),
        source="openai/openai-openapi#541 (2026-05-18); a temperature of 1 is taken (recorded traffic)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("chat",),
        models=r"^(gpt-5|o3|o4)(?!\S*-chat)",
        refuses=_refuse("stop"),
        source="obot#6595, Flowise#5046; openai 3.54.0, completion_create_params.py (o3, o4-mini)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("chat",),
        models=r"^gpt-5\.[56](?!\S*-chat)",
        tools_need_effort_none=True,
        source="BerriAI/litellm#34569 (2026-07-24), livekit/agents#7169 (2026-09-08)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("chat",),
        models=r"^gpt-5\.4(?!\S*-chat)",
        is_thinking=True,
        tools_need_effort_none=True,
        source="openai/openai-openapi#541 (2026-05-18)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("responses",),
        models=r"gpt-3\.5|gpt-4|chatgpt-|gpt-5\S*-chat",
        never_thinks=True,
        source='the API\'s own refusal, "Encrypted content is not supported with this model": '
        "microsoft/agent-framework#7483 (gpt-4.1)",
        evidence="traffic",
    ),
    RequestRule(
        wires=("chat",), id_form=CHAT_IDS, source="earendil-works/pi, openai-completions.ts", evidence="code"
    ),
    RequestRule(
        wires=("responses",),
        id_form=RESPONSES_IDS,
        source="earendil-works/pi, openai-completions.ts",
        evidence="code",
    ),
    RequestRule(
        name_form=TOOL_NAMES,
        source="openai 3.54.0, shared_params/function_definition.py; mcp-use/mcp-use#94",
        evidence="traffic",
    ),
    RequestRule(
        max_tools=128,
        source="vishalmysore/Tools4AI#16 (400 array_above_max_length, threads of 2024 and 2025)",
        evidence="thread",
    ),
    RequestRule(
        refused_keys=("top_k",), source="openai 3.54.0, completion_create_params.py", evidence="types"
    ),
)

_OPENAI_THINKING = (
    ThinkingRule(models=r"^gpt-5\S*-chat", default="off", source="OpenAI's page of the model"),
    ThinkingRule(
        models=r"^gpt-5\.\d.*-(codex|pro)|^gpt-5\.[5-9]",
        default="on",
        switches=("reasoning_effort",),
        source="BerriAI/litellm#34569 (2026-07-24), jeffdafoe/llm-memory-api#178 (2026-04-29)",
    ),
    ThinkingRule(
        models=r"^gpt-5\.[1-4]",
        default="off",
        switches=("reasoning_effort",),
        source="openai/openai-openapi#541 (2026-05-18), livekit/agents#7169 (2026-09-08)",
    ),
    ThinkingRule(
        models=r"^(o1|o3|o4|gpt-5)\b",
        default="always",
        source="openai 3.54.0, types/shared/reasoning_effort.py (they have no `none`)",
    ),
    _CLAUDE_THINKS,
)

OPENAI_ROW = HostRow(
    name="openai",
    title="OpenAI",
    wires=("responses", "chat"),
    domains=("api.openai.com",),
    base_url="https://api.openai.com/v1",
    key_variables=("OPENAI_API_KEY",),
    api="responses",
    max_tokens_name="max_completion_tokens",
    sends_tool_names=True,
    thoughts_in_text="never",
    rules=(
        *_OPENAI_RULES,
        RequestRule(
            models=r"-audio|-search-preview|-search-api",
            is_chat_only=True,
            source="openai 3.54.0: the Responses API takes no sound (response_input_content_param.py); "
            "OpenAI's pages of the models",
            evidence="types",
        ),
    ),
    thinking=_OPENAI_THINKING,
    source="openai 3.54.0, completion_create_params.py (max_tokens is deprecated); chat refuses tools while "
    "gpt-5.5 and 5.6 reason (BerriAI/litellm#34569, 2026-07-24); recorded traffic (tool messages with names)",
)

AZURE_ROW = HostRow(
    name="azure",
    title="Azure OpenAI",
    wires=("chat", "responses"),
    domains=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
    address_form="https://RESOURCE.openai.azure.com/openai/v1",
    key_variables=("AZURE_OPENAI_API_KEY",),
    max_tokens_name="max_completion_tokens",
    has_model_list=False,
    rules=(
        *_OPENAI_RULES,
        RequestRule(
            wires=("chat",),
            refused_parts=("file",),
            source="pydantic-ai, profiles/openai.py, 2026-08-22",
            evidence="code",
        ),
    ),
    thinking=_OPENAI_THINKING,
    source="learn.microsoft.com, Azure OpenAI API version lifecycle: the undated interface has both wires; "
    "the models are OpenAI's, under the names of deployments",
)

# -- Anthropic, Gemini, Ollama -------------------------------------------------------------------

ANTHROPIC_ROW = HostRow(
    name="anthropic",
    title="Anthropic",
    provider="anthropic",
    wires=("messages",),
    domains=("api.anthropic.com",),
    base_url="https://api.anthropic.com",
    key_variables=("ANTHROPIC_API_KEY",),
    thoughts_in_text="never",
    thinking=(_CLAUDE_THINKS,),
    source="platform.claude.com, Messages and Errors",
)

GEMINI_ROW = HostRow(
    name="gemini",
    title="Google Gemini",
    provider="gemini",
    wires=("gemini", "chat"),
    domains=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    base_url="https://generativelanguage.googleapis.com",
    chat_url="https://generativelanguage.googleapis.com/v1beta/openai",
    key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    sends_tool_names=True,
    thoughts_in_text="never",
    rules=(
        _NO_LISTS,
        RequestRule(
            wires=("chat",),
            models=r"gemini-[3-9]",
            needs_call_signatures=True,
            source="0xsline/OpenChatCut#6 (2026-07), securo-finance/securo#884 (2026-09-10), ellmer#946",
            evidence="traffic",
        ),
    ),
    source="google-genai 3.4.0; its compatible endpoint (a functionResponse needs the name of its function)",
)

OLLAMA_ROW = HostRow(
    name="ollama",
    title="Ollama",
    provider="ollama",
    wires=("ollama", "chat"),
    domains=("ollama.com", "localhost:11434", "127.0.0.1:11434"),
    base_url="http://127.0.0.1:11434",
    chat_url="http://127.0.0.1:11434/v1",
    key_variables=("OLLAMA_API_KEY",),
    echo_reasoning="tool_turns",
    rules=(_NO_LISTS,),
    source="recorded traffic; docs.ollama.com/api/openai-compatibility (no tool_choice)",
)

BEDROCK_ROW = HostRow(
    name="bedrock",
    title="Amazon Bedrock",
    provider="bedrock",
    wires=("converse",),
    domains=("amazonaws.com",),
    address_form="https://bedrock-runtime.REGION.amazonaws.com",
    key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
    thinking=(_CLAUDE_THINKS,),
    source="botocore 1.44.5",
)

# -- hosts with OpenAI's forms -------------------------------------------------------------------

MISTRAL_ROW = HostRow(
    name="mistral",
    title="Mistral",
    domains=("api.mistral.ai",),
    base_url="https://api.mistral.ai/v1",
    key_variables=("MISTRAL_API_KEY",),
    max_tokens_name="max_tokens",
    seed_name="random_seed",
    sends_tool_names=True,
    rules=(
        _NO_LISTS,
        RequestRule(
            wires=("chat",),
            id_form=MISTRAL_IDS,
            needs_reply_after_results=True,
            source="errors 3280 and 3230: mistral-vibe#1075 (2026-09-10), nearai/ironclaw#1241, "
            "avante.nvim#2695",
            evidence="traffic",
        ),
        RequestRule(
            wires=("chat",),
            takes_empty_replies=False,
            source="OpenHands/OpenHands#8685 (2025-05-24), solbrowse/extension#16 (2025-06-30)",
            evidence="traffic",
        ),
    ),
    source="Mistral's API reference (random_seed, ToolMessage.name); recorded traffic (thinking comes as "
    "parts of the content)",
)

GROQ_ROW = HostRow(
    name="groq",
    title="Groq",
    domains=("api.groq.com",),
    base_url="https://api.groq.com/openai/v1",
    key_variables=("GROQ_API_KEY",),
    rules=(
        _NO_LISTS,
        RequestRule(
            refused_keys=("logprobs", "top_logprobs", "logit_bias"),
            refuses=(RefusedOption(name="n", taken=(1, 1)),),
            source="console.groq.com/docs/openai",
            evidence="page",
        ),
    ),
    source="console.groq.com/docs/openai; gptel#774 and jan#8136 (400 for reasoning and reasoning_content in "
    "messages)",
)

DEEPSEEK_ROW = HostRow(
    name="deepseek",
    title="DeepSeek",
    domains=("api.deepseek.com",),
    base_url="https://api.deepseek.com",
    key_variables=("DEEPSEEK_API_KEY",),
    max_tokens_name="max_tokens",
    echo_reasoning="always",
    fill_reasoning=True,
    rules=(
        _NO_LISTS,
        _THINKS_WITHOUT_FORCE,
        RequestRule(
            wires=("chat",),
            refused_formats=("json_schema",),
            source='llm-exe#662 (2026-07-10) and UKGovernmentBEIS/inspect_ai#4916 (2026-08-17): 400 "This '
            'response_format type is unavailable now"; api-docs.deepseek.com, JSON Output',
            evidence="traffic",
        ),
    ),
    thinking=(
        ThinkingRule(
            models=r"^deepseek-v[4-9]",
            default="on",
            switches=("thinking",),
            source="deepseek-ai/DeepSeek-V3#1376 (2026-05-30), BerriAI/litellm#37470 (2026-08-19)",
        ),
        _CLAUDE_THINKS,
    ),
    source="kimi-cli#2141, vercel/ai and earendil-works/pi (2026): V4 wants reasoning_content on every "
    "assistant message of a conversation with calls; elsewhere it is ignored (api-docs.deepseek.com, "
    "Thinking mode)",
)

OPENROUTER_ROW = HostRow(
    name="openrouter",
    title="OpenRouter",
    domains=("openrouter.ai",),
    base_url="https://openrouter.ai/api/v1",
    key_variables=("OPENROUTER_API_KEY",),
    max_tokens_name="max_tokens",
    echo_reasoning="always",
    rules=(_NO_LISTS,),
    thinking=(_CLAUDE_THINKS,),
    source="recorded traffic (reasoning_details are sent back with every message); openrouter.ai, Errors",
)

XAI_ROW = HostRow(
    name="xai",
    title="xAI",
    wires=("chat", "responses"),
    domains=("api.x.ai",),
    base_url="https://api.x.ai/v1",
    key_variables=("XAI_API_KEY",),
    max_tokens_name="max_completion_tokens",
    thoughts_in_text="never",
    rules=(
        _NO_LISTS,
        RequestRule(
            models=_GROK,
            refuses=_refuse(*_PENALTIES, "stop"),
            source="vercel/ai, packages/xai, 2026-08-22",
            evidence="code",
        ),
        RequestRule(
            models=r"^grok-4\.20",
            refuses=_refuse("reasoning_effort"),
            source="vercel/ai, packages/xai, 2026-08-22",
            evidence="code",
        ),
        RequestRule(
            wires=("chat",),
            takes_closed_schemas=False,
            source="vercel/ai, packages/xai, 2026-08-22",
            evidence="code",
        ),
    ),
    thinking=(
        ThinkingRule(models=_GROK, default="always", source="vercel/ai, packages/xai, 2026-08-22"),
        _CLAUDE_THINKS,
    ),
    source="vercel/ai, packages/xai, 2026-08-22; docs.x.ai",
)

VLLM_ROW = HostRow(
    name="vllm",
    title="vLLM",
    base_url="http://127.0.0.1:8000/v1",
    max_tokens_name="max_tokens",
    echo_reasoning="tool_turns",
    rules=(_NO_LISTS,),
    source="docs.vllm.ai, Reasoning outputs, page of v0.26",
)

LM_STUDIO_ROW = HostRow(
    name="lmstudio",
    title="LM Studio",
    domains=("localhost:1234", "127.0.0.1:1234"),
    base_url="http://127.0.0.1:1234/v1",
    max_tokens_name="max_tokens",
    rules=(
        _NO_LISTS,
        _refuse_choices(
            "named", source="lmstudio-bug-tracker#670, oh-my-pi#6925 (2026-07-28)", evidence="traffic"
        ),
        RequestRule(
            refused_formats=("json_object",), source="lmstudio-bug-tracker#189, rig#442", evidence="traffic"
        ),
    ),
    source="its own port, where nothing else says what is behind it; lmstudio-bug-tracker#189",
)

_MOONSHOT_ROW = HostRow(
    name="moonshot",
    title="Moonshot",
    domains=("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
    base_url="https://api.moonshot.ai/v1",
    key_variables=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
    max_tokens_name="max_completion_tokens",
    echo_reasoning="tool_turns",
    fill_reasoning=True,
    rules=(
        _NO_LISTS,
        _NO_STRICT,
        _THINKS_WITHOUT_FORCE,
        _refuse_choices(
            "required",
            models=r"^kimi-k2",
            source="vercel/ai, packages/moonshotai, 2026-08-22",
            evidence="code",
        ),
        RequestRule(
            models=r"^kimi-k(2\.[5-9]|[3-9])",
            is_thinking=True,
            refuses=(RefusedOption(name="temperature", taken=(1, 1)),),
            source="odysseus#3959, nanobot#4962",
            evidence="traffic",
        ),
        RequestRule(
            models=r"^kimi-k2\.[5-9]",
            is_thinking=False,
            refuses=(RefusedOption(name="temperature", taken=(0.6, 0.6)),),
            source="odysseus#3959, nanobot#4962",
            evidence="traffic",
        ),
        RequestRule(refused_keys=("seed",), source="platform.moonshot.ai", evidence="page"),
    ),
    thinking=(
        ThinkingRule(
            models=r"^kimi-(k2\.[7-9]-code|k[3-9]|k2-thinking)",
            default="always",
            source="simstudioai/sim#5716 (2026-07-16)",
        ),
        ThinkingRule(
            models=r"^kimi-k2\.[5-9]",
            default="on",
            switches=("thinking",),
            source="simstudioai/sim#5716 (2026-07-16), oh-my-pi#1077",
        ),
        _CLAUDE_THINKS,
    ),
    source="continue#11600, n8n#29142; platform.moonshot.ai",
)

_QWEN_ROW = HostRow(
    name="qwen",
    title="Qwen (Model Studio)",
    domains=("dashscope-intl.aliyuncs.com", "dashscope.aliyuncs.com", "dashscope-us.aliyuncs.com"),
    base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    key_variables=("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
    rules=(
        _NO_LISTS,
        _THINKS_WITHOUT_FORCE,
        _refuse_choices(
            "required",
            models=r"^qwen-?3-coder",
            source="pydantic-ai, profiles/qwen.py, 2026-08-22",
            evidence="code",
        ),
        RequestRule(
            models=r"^qwen-?3-coder",
            refuses=_refuse("strict_tools"),
            source="pydantic-ai, profiles/qwen.py, 2026-08-22",
            evidence="code",
        ),
    ),
    thinking=(
        ThinkingRule(models=r"^qwq|-thinking", default="always", source="pydantic-ai, profiles/qwen.py"),
        ThinkingRule(
            models=r"^qwen3\.[5-9]",
            default="on",
            switches=("enable_thinking", "thinking"),
            source="agentscope-ai/agentscope#1608 (2026-09-07), cloudwego/eino#994 (2026-04-24)",
        ),
        ThinkingRule(
            models=r"",
            default="off",
            switches=("enable_thinking", "thinking"),
            source="QwenLM/qwen-code#7659 (2026-07-24)",
        ),
    ),
    source="pydantic-ai and vercel/ai, packages/alibaba, 2026-08-22",
)

_ZAI_ROW = HostRow(
    name="zai",
    title="Z.AI",
    domains=("api.z.ai", "open.bigmodel.cn"),
    base_url="https://api.z.ai/api/paas/v4",
    key_variables=("ZAI_API_KEY",),
    max_tokens_name="max_tokens",
    echo_reasoning="always",
    rules=(
        _NO_LISTS,
        _NO_STRICT,
        _refuse_choices(
            "none",
            *_FORCED,
            source="agentscope-java, GLMFormatter, 2026-08-22; docs.z.ai, Chat completion",
            evidence="page",
        ),
        RequestRule(max_tools=128, source="docs.z.ai, Chat completion, and error 1214", evidence="page"),
        RequestRule(
            refuses=(
                RefusedOption(name="temperature", taken=(0, 1)),
                RefusedOption(name="top_p", taken=(0.01, 1)),
            ),
            source="docs.z.ai, Chat completion",
            evidence="page",
        ),
    ),
    source="docs.z.ai, Thinking mode (complete and unchanged, or dropped by the host), and "
    "docs.z.ai/api-reference/api-code",
)

_MINIMAX_ROW = HostRow(
    name="minimax",
    title="MiniMax",
    domains=("api.minimax.io", "api.minimaxi.com"),
    base_url="https://api.minimax.io/v1",
    key_variables=("MINIMAX_API_KEY",),
    max_tokens_name="max_completion_tokens",
    echo_reasoning="always",
    rules=(_NO_LISTS, _NO_STRICT),
    source="platform.minimax.io (the whole message goes back; error codes)",
)

_CEREBRAS_ROW = HostRow(
    name="cerebras",
    title="Cerebras",
    domains=("api.cerebras.ai",),
    base_url="https://api.cerebras.ai/v1",
    key_variables=("CEREBRAS_API_KEY",),
    max_tokens_name="max_completion_tokens",
    echo_reasoning="tool_turns",
    rules=(
        _NO_LISTS,
        RequestRule(
            refused_keys=("parallel_tool_calls", *reversed(_PENALTIES), "logit_bias", "service_tier"),
            source="pydantic-ai, providers/cerebras.py, 2026-08-22, citing inference-docs.cerebras.ai (400)",
            evidence="code",
        ),
    ),
    source="pydantic-ai, providers/cerebras.py, 2026-08-22 (reasoning goes back as reasoning)",
)

_SNOWFLAKE_ROW = HostRow(
    name="snowflake",
    title="Snowflake Cortex",
    domains=("snowflakecomputing.com",),
    address_form="https://ACCOUNT.snowflakecomputing.com/api/v2/cortex/v1",
    key_variables=("SNOWFLAKE_TOKEN",),
    echo_reasoning="tool_turns",
    finish_words={"": "stop"},
    rules=(
        _NO_LISTS,
        RequestRule(
            models=r"^(?!claude|openai-)",
            takes_tools=False,
            source="pydantic-ai, providers/snowflake.py, 2026-08-22",
            evidence="code",
        ),
    ),
    thinking=(_CLAUDE_THINKS,),
    source="recorded traffic (answers end with an empty word, beside an empty call; reasoning_details go "
    "back with calls)",
)

_DATABRICKS_ROW = HostRow(
    name="databricks",
    title="Databricks",
    domains=("databricks.com", "azuredatabricks.net"),
    address_form="https://WORKSPACE/serving-endpoints",
    key_variables=("DATABRICKS_TOKEN",),
    echo_reasoning="tool_turns",
    rules=(
        _NO_LISTS,
        RequestRule(
            models=r"claude",
            refuses=_refuse("reasoning_effort"),
            source="BerriAI/litellm#36931 (2026-08-14), maximhq/bifrost#6958 (2026-09-07)",
            evidence="traffic",
        ),
        RequestRule(max_tools=32, source="told in threads", evidence="thread"),
    ),
    thinking=(_CLAUDE_THINKS,),
    source="BerriAI/litellm#36931 (2026-08-14); docs.databricks.com, Query reasoning models (reasoning parts "
    "of the content go back as they came)",
)

_NVIDIA_ROW = HostRow(
    name="nvidia",
    title="NVIDIA NIM",
    domains=("integrate.api.nvidia.com",),
    base_url="https://integrate.api.nvidia.com/v1",
    key_variables=("NVIDIA_API_KEY",),
    rules=(_NO_LISTS, _NO_STRICT),
    source="hermes-agent#30662, NVIDIA/nim-deploy#182",
)


def _describe_plain_host(name: str, title: str, address: str, *variables: str, **fields: Any) -> HostRow:
    """The row of a host with OpenAI's forms, of which little else is known."""
    fields.setdefault("source", "pydantic-ai, providers/, and vercel/ai, packages/, 2026-08-22")
    rules = (_NO_LISTS, *fields.pop("rules", ()))
    return HostRow(name=name, title=title, base_url=address, key_variables=variables, rules=rules, **fields)


HOST_ROWS: tuple[HostRow, ...] = (
    *(OPENAI_ROW, AZURE_ROW, ANTHROPIC_ROW, GEMINI_ROW, OLLAMA_ROW, BEDROCK_ROW),
    *(MISTRAL_ROW, GROQ_ROW, DEEPSEEK_ROW, OPENROUTER_ROW, XAI_ROW, VLLM_ROW, LM_STUDIO_ROW),
    *(_MOONSHOT_ROW, _QWEN_ROW, _ZAI_ROW, _MINIMAX_ROW, _CEREBRAS_ROW, _SNOWFLAKE_ROW, _DATABRICKS_ROW),
    _NVIDIA_ROW,
    _describe_plain_host(
        *("together", "Together", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
        domains=("api.together.ai", "api.together.xyz"),
        rules=(_NO_STRICT,),
    ),
    _describe_plain_host(
        *("fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        domains=("api.fireworks.ai",),
    ),
    _describe_plain_host(
        *("cohere", "Cohere", "https://api.cohere.ai/compatibility/v1", "CO_API_KEY", "COHERE_API_KEY"),
        domains=("api.cohere.ai", "api.cohere.com"),
    ),
    _describe_plain_host(
        *("perplexity", "Perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
        domains=("api.perplexity.ai",),
        rules=(
            RequestRule(
                models=r"sonar",
                takes_tools=False,
                source="perplexityai/api-discussion#265",
                evidence="traffic",
            ),
        ),
    ),
    _describe_plain_host(
        *("huggingface", "Hugging Face", "https://router.huggingface.co/v1", "HF_TOKEN"),
        domains=("router.huggingface.co",),
    ),
    _describe_plain_host(*("sglang", "SGLang", "http://127.0.0.1:30000/v1")),
    _describe_plain_host(
        *("llamacpp", "llama.cpp", "http://127.0.0.1:8080/v1"),
        rules=(),
        source="llama.cpp, docs/function-calling.md; tools/server",
    ),
    _describe_plain_host(
        *("litellm", "LiteLLM", "http://127.0.0.1:4000/v1"),
        echo_reasoning="tool_turns",
        source="BerriAI/litellm#15601, opencode#3077 (thinking_blocks go back before calls)",
    ),
    _describe_plain_host(
        *("github", "GitHub Models", ""),
        domains=("models.github.ai", "models.inference.ai.azure.com"),
        ended_on="2026-07-30",
        source="github, orgs/community, discussion 203602",
    ),
)
"""Every host that is known, the twelve with an emulator among them."""

UNKNOWN_HOST = HostRow(
    name="",
    title="a host that is not known",
    rules=(_NO_LISTS,),
    thinking=(_CLAUDE_THINKS,),
    source="what every compatible host takes",
)
"""What holds for a host without a row: nothing goes to it that some hosts refuse."""


# -- finding rows --------------------------------------------------------------------------------


def index_rows(rows: Iterable[HostRow]) -> dict[str, HostRow]:
    """Each row by its word and by its domains.

    Raises:
        SpecError: two rows have a word or a domain in common.
    """
    index: dict[str, HostRow] = {}
    for row in rows:
        for name in (row.name, *row.list_domains()):
            if name in index:
                raise SpecError(
                    f"host rows {index[name].name!r} and {row.name!r}: both are known by {name!r}"
                )
            index[name] = row
    return index


_ROWS_BY_NAME = index_rows(HOST_ROWS)


@lru_cache(maxsize=1024)
def find_row(host: str | None) -> HostRow:
    """The row of a host; `UNKNOWN_HOST` for one that nobody described.

    Args:
        host: name, name and port, or the word of a row.

    >>> find_row("api.mistral.ai:443").name, find_row("mistral").name, find_row("notapi.mistral.ai").name
    ('mistral', 'mistral', '')
    """
    whole = (host or "").lower()
    name = whole.partition(":")[0].rstrip(".")
    row = _ROWS_BY_NAME.get(whole) or _ROWS_BY_NAME.get(name)
    while row is None and "." in (name := name.partition(".")[2]):
        row = _ROWS_BY_NAME.get(name)
    return row or UNKNOWN_HOST


def find_changing_rules(wire: Wire, host: str, model: str | None) -> tuple[RequestRule, ...]:
    """The rules by which a request is changed or refused before it is sent: `find_rules` without those that
    are about messages alone."""
    return _find_changing_rules(wire, host.lower(), shorten_model_name(model))


@lru_cache(maxsize=1024)
def _find_changing_rules(wire: Wire, host: str, name: str) -> tuple[RequestRule, ...]:
    return tuple(rule for rule in _find_rules(wire, host, name) if _changes_requests(rule))


_ABOUT_MESSAGES = ("id_form", "takes_empty_replies")
"""What the door for messages reads, and nothing that changes a request."""


def _changes_requests(rule: RequestRule) -> bool:
    empty = RequestRule(source="", evidence="memory")
    names = {
        name for name in RequestRule.__struct_fields__ if getattr(rule, name) != getattr(empty, name)
    } - {*HostRule.__struct_fields__, *_ABOUT_MESSAGES}
    # Only a certain rule refuses the name of a tool.
    return bool(names - {"name_form"}) or ("name_form" in names and rule.is_certain)


@lru_cache(maxsize=1024)
def find_message_form(wire: Wire, host: str, model: str) -> MessageForm:
    """What a model at a host demands of messages.

    Args:
        host: as in `find_row`.
    """
    rules = find_rules(wire, host, model)
    return MessageForm(
        id_form=next((rule.id_form for rule in rules if rule.id_form is not None), None),
        name_form=next((rule.name_form for rule in rules if rule.name_form is not None), None),
        takes_empty_replies=all(rule.takes_empty_replies for rule in rules),
    )


def list_profile_names() -> list[str]:
    """The words and names by which an entry can name the host whose rules hold."""
    return sorted({name for row in HOST_ROWS for name in (row.name, *row.list_domains()) if ":" not in name})


def find_rules(wire: Wire, host: str, model: str | None) -> tuple[RequestRule, ...]:
    """The rules for a model at a host, whether it thinks or not.

    Args:
        host: as in `find_row`.
    """
    return _find_rules(wire, host.lower(), shorten_model_name(model))


@lru_cache(maxsize=1024)
def _find_rules(wire: Wire, host: str, name: str) -> tuple[RequestRule, ...]:
    return tuple(rule for rule in (*find_row(host).rules, *WIRE_RULES) if rule.holds_for(wire, name))


@lru_cache(maxsize=1024)
def find_thinking(host: str, name: str) -> ThinkingRule | None:
    """When a model thinks at a host; None where no row knows it.

    Args:
        name: as `shorten_model_name` gives it.
    """
    return next((rule for rule in find_row(host).thinking if re.search(rule.models, name)), None)


_UNOPENED_MODELS = re.compile(r"deepseek-r1|^qwq|thinking|^qwen-?3\.[5-9]|^minimax-m[2-9]")
"""Models whose template puts the opening marker into the prompt.

Sources: Cerebras/cerebras-cloud-sdk-python#10 (Qwen3 Thinking), VincentGourbin/flux-2-swift-mlx#70 (Qwen3.5),
sigoden/aichat#1528 (Qwen3.6); the templates of DeepSeek-R1, QwQ and MiniMax-M2."""


@lru_cache(maxsize=1024)
def find_thought_form(model: str | None) -> ThoughtForm:
    """How the thoughts of a model begin where a host leaves them in the text.

    >>> find_thought_form("Qwen/Qwen3-4B-Thinking-2507"), find_thought_form("qwen3:8b")
    ('unopened', 'opened')
    """
    return "unopened" if _UNOPENED_MODELS.search(shorten_model_name(model)) else "opened"


def shorten_model_name(model: str | None) -> str:
    """The model's name in lower case, without `MAKER/`; empty where a stored prompt of the host names it."""
    return (model or "").lower().rpartition("/")[2]


_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


@lru_cache(maxsize=1024)
def find_profile(host: str | None) -> Mapping[str, Any]:
    """The default settings of a host's entries; empty for an unknown host.

    >>> find_profile("api.mistral.ai:443")["seed_name"]
    'random_seed'
    """
    row = find_row(host)
    return MappingProxyType(row.list_settings()) if row is not UNKNOWN_HOST else _NO_SETTINGS
