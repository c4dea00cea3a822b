"""The table of adapters: one descriptor per `provider` word, with the wire formats that its adapter speaks.

Where hosts are, which keys they take and what they refuse stands in the one table of hosts,
`shared/host_rows.py`: a descriptor holds the row of its own host, and an entry of `openai` may name another
one by its `base_url` or its `host_profile` (DeepSeek, Mistral, OpenRouter, ...).

A descriptor names code by lazy references (`package.module:name`), so that the table loads without an adapter
and without an SDK. To add an adapter, make a folder for it and a descriptor here. Another package adds one by
an entry point of the group `toolchart.hosts`.
"""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.providers.shared.host_rows import (
    ANTHROPIC_ROW,
    BEDROCK_ROW,
    GEMINI_ROW,
    OLLAMA_ROW,
    OPENAI_ROW,
)
from toolchart.states.descriptors import Registry
from toolchart.states.schema_dialects import ANTHROPIC, GEMINI, OLLAMA, OPENAI

_OPENAI_CODE = "toolchart.providers.openai"

CHAT = WireFormat(name="chat", dialect=OPENAI)
"""Chat completions."""

RESPONSES = WireFormat(name="responses", dialect=OPENAI)
"""The Responses API."""

OPENAI_HOST = HostDescriptor(
    name="openai",
    summary="OpenAI, and every host with an API like OpenAI's",
    adapter=f"{_OPENAI_CODE}.client:OpenAIProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_openai_starts",
    formats=(CHAT, RESPONSES),
    own_row=OPENAI_ROW,
    address_variable="OPENAI_BASE_URL",
    endpoint_path=r"/(chat/completions|completions|responses|embeddings)",
    key_header="authorization: Bearer {key}",
    sign_in=f"{_OPENAI_CODE}.entra:build_auth",
    list_models=f"{_OPENAI_CODE}.client:iterate_models",
    fetch_embeddings=f"{_OPENAI_CODE}.client:fetch_vectors",
)
"""Source of address and variables: openai 3.52.0."""

_OLLAMA_CODE = "toolchart.providers.ollama"

OLLAMA_CHAT = WireFormat(name="ollama", dialect=OLLAMA)
"""Ollama's own `/api/chat`."""

OLLAMA_HOST = HostDescriptor(
    name="ollama",
    summary="an Ollama server",
    adapter=f"{_OLLAMA_CODE}.client:OllamaProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_host_starts",
    formats=(OLLAMA_CHAT,),
    own_row=OLLAMA_ROW,
    address_variable="OLLAMA_HOST",
    endpoint_path=r"/api/(chat|generate|embed|embeddings|tags|show)",
    added_path=r"/api|/v1(/(chat/completions|completions|responses|embeddings|models))?",
    complete_address=f"{_OLLAMA_CODE}.client:complete_address",
    key_header="authorization: Bearer {key}",
    list_models=f"{_OLLAMA_CODE}.client:iterate_models",
    fetch_embeddings=f"{_OLLAMA_CODE}.client:fetch_vectors",
    start_command="ollama serve",
    pull_command="ollama pull {model}",
)
"""Source of address and variables: ollama 0.6.3."""

_ANTHROPIC_CODE = "toolchart.providers.anthropic"

API_VERSION = "2023-06-01"
"""Version of the API, sent with every request as `anthropic-version`."""

MESSAGES = WireFormat(name="messages", dialect=ANTHROPIC)
"""The Messages API."""

ANTHROPIC_HOST = HostDescriptor(
    name="anthropic",
    summary="Anthropic's Messages API",
    adapter=f"{_ANTHROPIC_CODE}.client:AnthropicProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_host_starts",
    formats=(MESSAGES,),
    own_row=ANTHROPIC_ROW,
    address_variable="ANTHROPIC_BASE_URL",
    endpoint_path=r"/v1/(messages|complete)(/batches|/count_tokens)?",
    added_path=r"/v1(/models)?",
    key_header="x-api-key: {key}",
    headers={"anthropic-version": API_VERSION},
    list_models=f"{_ANTHROPIC_CODE}.client:iterate_models",
    fetch_embeddings=None,
)
"""Source: the API reference (platform.claude.com); it has no embeddings."""

_GEMINI_CODE = "toolchart.providers.gemini"

GEMINI_VERSION = "v1beta"
"""Set explicitly: since 3.0 the SDK's default is `v1`, which lacks the `-latest` aliases."""

VERTEX_VERSION = "v1beta1"
"""The version of Vertex AI that has what `v1beta` has. Source: google-genai 3.4.0, `_api_client.py`."""

GENERATE_CONTENT = WireFormat(name="gemini", dialect=GEMINI)
"""`generateContent` and `streamGenerateContent`."""

GEMINI_HOST = HostDescriptor(
    name="gemini",
    summary="Google's Gemini API",
    adapter=f"{_GEMINI_CODE}.client:GeminiProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_gemini_starts",
    formats=(GENERATE_CONTENT,),
    own_row=GEMINI_ROW,
    address_variable="GOOGLE_GEMINI_BASE_URL",
    endpoint_path=r"/models/[^/]+:[a-z]+",
    api_version=GEMINI_VERSION,
    key_header="x-goog-api-key: {key}",
    sign_in=f"{_GEMINI_CODE}.client:build_auth",
    list_models=f"{_GEMINI_CODE}.client:iterate_models",
    fetch_embeddings=f"{_GEMINI_CODE}.client:fetch_vectors",
    telemetry_name="gcp.gemini",
)
"""Source of address and variables: google-genai 3.4.0."""

_BEDROCK_CODE = "toolchart.providers.bedrock"

CONVERSE = WireFormat(name="converse", dialect=ANTHROPIC)
"""`Converse` and `ConverseStream`, which are alike for the models of all makers."""

BEDROCK_HOST = HostDescriptor(
    name="bedrock",
    summary="Amazon Bedrock: models of many makers through one API",
    adapter=f"{_BEDROCK_CODE}.client:BedrockProvider",
    needs_network=True,
    list_starts="toolchart.providers.entries:list_bedrock_starts",
    formats=(CONVERSE,),
    own_row=BEDROCK_ROW,
    address_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    endpoint_path=r"/model/[^/]+/(converse|converse-stream|invoke|invoke-with-response-stream)",
    added_path=r"/model",
    key_header="authorization: Bearer {key}",
    sign_in=f"{_BEDROCK_CODE}.client:build_auth",
    list_models=f"{_BEDROCK_CODE}.client:iterate_models",
    fetch_embeddings=None,
    telemetry_name="aws.bedrock",
)
"""Source of variables: botocore 1.44.5, `configprovider.py`, `utils.py`; without an address the region gives
one. Embeddings have another form for each maker."""

SCRIPTED_HOST = HostDescriptor(
    name="scripted",
    summary="replies that stand in the entry itself",
    adapter="toolchart.providers.scripted.provider:ScriptedProvider",
    needs_network=False,
    list_starts="toolchart.states.starts:list_no_starts",
)


# -- the table ---------------------------------------------------------------------------------------


def list_builtin_hosts() -> tuple[HostDescriptor, ...]:
    """The rows of Toolchart itself."""
    return (OPENAI_HOST, OLLAMA_HOST, ANTHROPIC_HOST, GEMINI_HOST, BEDROCK_HOST, SCRIPTED_HOST)


HOSTS: Registry[HostDescriptor] = Registry("provider", "toolchart.hosts", HostDescriptor, list_builtin_hosts)
"""The hosts by the `provider` word of an `llms` entry."""


def find_host(provider: str, place: str = "llms.*.provider") -> HostDescriptor:
    """The row of a `provider` word.

    Args:
        place: where the word stands, for the error.

    Raises:
        SpecError: there is no such host, or its row is incomplete.
    """
    return HOSTS.find(provider, place)


def get_telemetry_name(provider: str) -> str:
    """OpenTelemetry's `gen_ai.provider.name` of a provider; for an unknown one its own name."""
    host = HOSTS.find_known(provider)
    return (host.telemetry_name if host else "") or provider
