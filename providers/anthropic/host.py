"""Anthropic's row in the table of model hosts: address, key variable, headers, error reader."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.states.schema_dialects import ANTHROPIC

_FOLDER = "toolchart.providers.anthropic"

API_VERSION = "2023-06-01"
"""Version of the API, sent with every request as `anthropic-version`."""

MESSAGES = WireFormat(
    name="messages",
    path_pattern=r"/messages$",
    dialect=ANTHROPIC,
    finish_words=f"{_FOLDER}.wire:FINISH_WORDS",
    decode_reply=f"{_FOLDER}.wire:decode_reply",
    accumulator=f"{_FOLDER}.stream:AnthropicAccumulator",
    read_request=f"{_FOLDER}.recorded_requests:read_messages_request",
    classify_error="toolchart.providers.shared.failures:classify_http_error",
)
"""The Messages API."""

ANTHROPIC_HOST = HostDescriptor(
    name="anthropic",
    summary="Anthropic's Messages API",
    adapter=f"{_FOLDER}.client:AnthropicProvider",
    needs_network=True,
    list_starts="toolchart.providers.shared.starts:list_host_starts",
    formats=(MESSAGES,),
    default_address="https://api.anthropic.com",
    address_variable="ANTHROPIC_BASE_URL",
    key_variables=("ANTHROPIC_API_KEY",),
    key_header="x-api-key: {key}",
    headers={"anthropic-version": API_VERSION},
    list_models=f"{_FOLDER}.catalog:iterate_models",
    fetch_embeddings=None,
)
"""Source: the API reference (platform.claude.com); it has no embeddings."""
