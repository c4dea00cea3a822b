"""The rows of OpenAI and of OpenAI models on Azure in the table of hosts, and their two wire formats.

Compatible hosts (DeepSeek, Mistral, OpenRouter, ...) are entries of `provider: openai` with a `base_url`;
what differs in them stands in `compatible_hosts.yaml`.
"""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.states.schema_dialects import OPENAI

_FOLDER = "toolchart.providers.openai"

CHAT = WireFormat(
    name="chat",
    path_pattern=r"/chat/completions$",
    dialect=OPENAI,
    finish_words=f"{_FOLDER}.wire:FINISH_WORDS",
    decode_reply=f"{_FOLDER}.wire:decode_reply",
    accumulator=f"{_FOLDER}.stream:ChatAccumulator",
    read_request=f"{_FOLDER}.recorded_requests:read_chat_request",
    classify_error="toolchart.providers.shared.failures:classify_http_error",
)
"""Chat completions."""

RESPONSES = WireFormat(
    name="responses",
    path_pattern=r"/responses$",
    dialect=OPENAI,
    finish_words=f"{_FOLDER}.responses_wire:FINISH_WORDS",
    decode_reply=f"{_FOLDER}.responses_wire:decode_reply",
    accumulator=f"{_FOLDER}.responses_stream:ResponsesAccumulator",
    read_request=f"{_FOLDER}.recorded_requests:read_responses_request",
    classify_error="toolchart.providers.shared.failures:classify_http_error",
)
"""The Responses API."""

OPENAI_HOST = HostDescriptor(
    name="openai",
    summary="OpenAI, and every host with an API like OpenAI's",
    adapter=f"{_FOLDER}.client:OpenAIProvider",
    needs_network=True,
    list_starts="toolchart.providers.shared.starts:list_host_starts",
    formats=(CHAT, RESPONSES),
    default_address="https://api.openai.com/v1",
    address_variable="OPENAI_BASE_URL",
    key_variables=("OPENAI_API_KEY",),
    key_header="authorization: Bearer {key}",
    list_models=f"{_FOLDER}.catalog:iterate_models",
    fetch_embeddings=f"{_FOLDER}.catalog:fetch_vectors",
    sdk_package="openai",
)
"""Source of address and variables: openai 3.52.0."""

AZURE_HOST = HostDescriptor(
    name="azure",
    summary="OpenAI models on Azure",
    adapter="toolchart.providers.azure.client:AzureProvider",
    needs_network=True,
    list_starts="toolchart.providers.shared.starts:list_azure_starts",
    formats=(CHAT, RESPONSES),
    address_variable="AZURE_OPENAI_ENDPOINT",
    key_variables=("AZURE_OPENAI_API_KEY",),
    key_domains=("openai.azure.com", "cognitiveservices.azure.com", "services.ai.azure.com"),
    key_header="api-key: {key}",
    sign_in="toolchart.providers.azure.catalog:build_auth",
    list_models="toolchart.providers.azure.catalog:iterate_deployments",
    list_needs="resource",
    fetch_embeddings=None,
    sdk_package="openai",
    telemetry_name="azure.ai.openai",
)
"""Source of address and variables: openai 3.52.0, `lib/azure.py`."""
