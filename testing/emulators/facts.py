"""What only emulators know of hosts: what they refuse in messages, and what their answers look like.

No adapter reads them: what it writes keeps these rules for every host. An emulator does, because its caller
may be another program, or an adapter that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from toolchart.providers.shared.host_rows import (
    MISTRAL_MODELS,
    EchoReasoning,
    HostRule,
    Wire,
    shorten_model_name,
)

ErrorForm = Literal[
    "object", "text", "flat", "list", "code_text", "base_resp", "choice", "google", "anthropic"
]
"""The form of an error's body:

- `object`: `{"error": {"message", "type", "code"}}`
- `text`: `{"error": "words"}`
- `flat`: `{"object": "error", "message", "type", "code"}`, or `{"message"}` alone
- `list`: `[{"error": {...}}]`
- `code_text`: `{"code", "error": "words"}`
- `base_resp`: status 200 and `{"base_resp": {"status_code", "status_msg"}}`
- `choice`: status 200, and `error` beside `choices` or in one
- `google`: `{"error": {"code", "message", "status"}}`
- `anthropic`: `{"type": "error", "error": {"type", "message"}}`
"""


class MessageRule(HostRule, frozen=True, kw_only=True):
    """What a host refuses in messages that no adapter of ours writes."""

    refused_message_keys: tuple[str, ...] = ()
    """Keys of messages that are refused."""
    refused_roles: tuple[str, ...] = ()
    parses_arguments: bool = False
    """Whether a call is refused whose arguments are not the text of a JSON object."""
    needs_user_message: bool = False
    """Whether a request without a message of the user is refused."""
    matches_results: bool = False
    """Whether each call must have its result before the next message, and each result its call."""
    single_system: bool = False
    """Whether a message of the system that is not the first message is refused."""
    has_closed_keys: bool = False
    """Whether keys of the body are refused that the wire format does not have."""
    needs_reasoning: EchoReasoning = "never"
    """The assistant's messages that are refused without `reasoning_content`."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an emulator knows of one host beside its row."""

    rules: tuple[MessageRule, ...] = ()
    reasoning_field: str = ""
    """Key of a message that holds its reasoning; empty: none is known."""
    has_separate_reasoning: bool = False
    """Whether its output count leaves reasoning out."""
    error_form: ErrorForm = "object"
    chat_error_form: ErrorForm | None = None
    """The form of errors in chat completions, where it is another one."""


_NO_DEVELOPER = MessageRule(
    wires=("chat",),
    refused_roles=("developer",),
    source="earendil-works/pi, openai-completions.ts, 2026",
    evidence="code",
)

_OPENAI_RULES = (
    MessageRule(
        matches_results=True,
        source="OpenAI's refusals: each `tool_calls` must be followed by messages that answer each id; "
        "no tool call found for an output",
        evidence="traffic",
    ),
    MessageRule(
        has_closed_keys=True, source="OpenAI's refusal of unknown parameters, told", evidence="memory"
    ),
)

WIRE_MESSAGE_RULES: tuple[MessageRule, ...] = (
    MessageRule(
        wires=("messages",),
        matches_results=True,
        source="platform.claude.com, Tool use: results are the first blocks after their calls",
        evidence="page",
    ),
    MessageRule(
        wires=("gemini",),
        matches_results=True,
        source="google-gemini/gemini-cli#16543 (2026-01-13), microsoft/vscode#299295 (2026-03-04)",
        evidence="traffic",
    ),
    MessageRule(
        wires=("converse",),
        matches_results=True,
        source="docs.aws.amazon.com, Converse, tool use: each toolUse has its toolResult in the next message",
        evidence="page",
    ),
)
"""What every host refuses that speaks a wire format."""

HOST_FACTS: Mapping[str, HostFacts] = {
    "openai": HostFacts(rules=_OPENAI_RULES),
    "azure": HostFacts(rules=_OPENAI_RULES),
    "anthropic": HostFacts(error_form="anthropic"),
    "gemini": HostFacts(error_form="google", chat_error_form="list", has_separate_reasoning=True),
    "ollama": HostFacts(
        reasoning_field="reasoning",
        error_form="text",
        chat_error_form="object",
        rules=(
            MessageRule(
                wires=("chat",),
                parses_arguments=True,
                source="the server's openai/openai.go",
                evidence="memory",
            ),
        ),
    ),
    "mistral": HostFacts(
        error_form="flat",
        rules=(MessageRule(matches_results=True, source="error 3230, told", evidence="memory"),),
    ),
    "groq": HostFacts(
        reasoning_field="reasoning",
        rules=(
            MessageRule(
                refused_message_keys=("name",), source="console.groq.com/docs/openai", evidence="page"
            ),
            MessageRule(
                refused_message_keys=("reasoning_content",),
                source="gptel#774, jan#8136 (400: property 'reasoning_content' is unsupported)",
                evidence="traffic",
            ),
        ),
    ),
    "deepseek": HostFacts(
        reasoning_field="reasoning_content",
        rules=(
            _NO_DEVELOPER,
            MessageRule(
                wires=("chat",),
                models=r"^deepseek-v[4-9]",
                is_thinking=True,
                needs_reasoning="always",
                source="kimi-cli#2141; vercel/ai, 2026-08-22; earendil-works/pi, 2026",
                evidence="traffic",
            ),
        ),
    ),
    "openrouter": HostFacts(reasoning_field="reasoning"),
    "xai": HostFacts(
        reasoning_field="reasoning_content",
        has_separate_reasoning=True,
        error_form="code_text",
        rules=(_NO_DEVELOPER,),
    ),
    "vllm": HostFacts(
        reasoning_field="reasoning",
        error_form="flat",
        rules=(
            MessageRule(
                models=r"^qwen3\.[5-9]",
                single_system=True,
                source="vllm-project/vllm#49496 (2026-07-23), #41114, BerriAI/litellm#26879",
                evidence="traffic",
            ),
            MessageRule(
                parses_arguments=True,
                source="vllm-project/vllm#43995, #47761 (0.23 to 0.25); guarded by #48922 (2026-07-17)",
                evidence="traffic",
            ),
        ),
    ),
    "lmstudio": HostFacts(error_form="text"),
    "moonshot": HostFacts(
        reasoning_field="reasoning_content",
        rules=(
            _NO_DEVELOPER,
            MessageRule(
                models=r"^kimi-k(2\.[5-9]|[3-9])",
                is_thinking=True,
                needs_reasoning="tool_turns",
                source="continue#11600, n8n#29142 (400 for a message with calls without reasoning_content)",
                evidence="traffic",
            ),
        ),
    ),
    "qwen": HostFacts(reasoning_field="reasoning_content"),
    "zai": HostFacts(
        reasoning_field="reasoning_content",
        rules=(
            _NO_DEVELOPER,
            MessageRule(
                refused_message_keys=("name",),
                source="agentscope-java, GLMFormatter, 2026-08-22",
                evidence="code",
            ),
            MessageRule(
                needs_user_message=True, source="docs.z.ai, Chat completion, and error 1214", evidence="page"
            ),
        ),
    ),
    "minimax": HostFacts(reasoning_field="reasoning_details", error_form="base_resp"),
    "cerebras": HostFacts(
        reasoning_field="reasoning",
        rules=(
            _NO_DEVELOPER,
            MessageRule(
                refused_message_keys=("reasoning_content",),
                source="pydantic-ai, providers/cerebras.py, 2026-08-22, citing inference-docs.cerebras.ai "
                "(400)",
                evidence="code",
            ),
        ),
    ),
    "snowflake": HostFacts(reasoning_field="reasoning_details"),
    "databricks": HostFacts(error_form="flat"),
    "nvidia": HostFacts(
        rules=(
            _NO_DEVELOPER,
            MessageRule(
                models=MISTRAL_MODELS,
                refused_message_keys=("name",),
                source="hermes-agent#30662, #12233",
                evidence="traffic",
            ),
        )
    ),
    "together": HostFacts(rules=(_NO_DEVELOPER,)),
    "fireworks": HostFacts(reasoning_field="reasoning_content"),
    "cohere": HostFacts(error_form="flat"),
    "llamacpp": HostFacts(
        rules=(
            MessageRule(
                parses_arguments=True,
                source="vxcontrol/pentagi#313 (2026-05-13): Failed to parse tool call arguments as JSON",
                evidence="traffic",
            ),
        )
    ),
    "litellm": HostFacts(reasoning_field="reasoning_content"),
}
"""What is known of hosts, by the name of their row."""

KNOWN_KEYS: Mapping[Wire, frozenset[str]] = {
    "chat": frozenset(
        (
            *("audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs"),
            *("max_completion_tokens", "max_tokens", "messages", "metadata", "modalities", "model"),
            *("moderation", "n", "parallel_tool_calls", "prediction", "presence_penalty"),
            *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort"),
            *("response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream"),
            *("stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user"),
            *("verbosity", "web_search_options"),
        )
    ),
    "responses": frozenset(
        (
            *("access_programs", "background", "background_options", "context_management", "conversation"),
            *("image", "include", "input", "instructions", "max_output_tokens", "max_tool_calls"),
            *("metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt"),
            *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning"),
            *("safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature"),
            *("text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
        )
    ),
}
"""The keys of a body that OpenAI knows. Source: openai 3.57.0, the types of both methods."""

_NO_FACTS = HostFacts()


def get_facts(host: str) -> HostFacts:
    """What an emulator knows of a host.

    Args:
        host: the name of its row.
    """
    return HOST_FACTS.get(host, _NO_FACTS)


def find_message_rules(wire: Wire, host: str, model: str) -> list[MessageRule]:
    """The rules about messages for a model at a host, whether it thinks or not."""
    name = shorten_model_name(model)
    return [rule for rule in (*get_facts(host).rules, *WIRE_MESSAGE_RULES) if rule.holds_for(wire, name)]
