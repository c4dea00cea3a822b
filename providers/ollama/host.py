"""Ollama's row in the table of model hosts: address, key variable, headers, error reader."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.states.schema_dialects import OLLAMA

_FOLDER = "toolchart.providers.ollama"

OLLAMA_CHAT = WireFormat(
    name="ollama",
    path_pattern=r"/api/chat$",
    dialect=OLLAMA,
    finish_words=f"{_FOLDER}.wire:FINISH_WORDS",
    decode_reply=f"{_FOLDER}.wire:decode_reply",
    accumulator=f"{_FOLDER}.stream:OllamaAccumulator",
    read_request=f"{_FOLDER}.recorded_requests:read_ollama_request",
    classify_error="toolchart.providers.shared.failures:classify_http_error",
    unmarked_stream="json_lines",
)
"""Ollama's own `/api/chat`."""

OLLAMA_HOST = HostDescriptor(
    name="ollama",
    summary="an Ollama server",
    adapter=f"{_FOLDER}.client:OllamaProvider",
    needs_network=True,
    list_starts="toolchart.providers.shared.starts:list_host_starts",
    formats=(OLLAMA_CHAT,),
    default_address="http://127.0.0.1:11434",
    address_variable="OLLAMA_HOST",
    complete_address=f"{_FOLDER}.catalog:complete_address",
    key_variables=("OLLAMA_API_KEY",),
    key_domains=("ollama.com",),
    key_header="authorization: Bearer {key}",
    list_models=f"{_FOLDER}.catalog:iterate_models",
    fetch_embeddings=f"{_FOLDER}.catalog:fetch_vectors",
    sdk_package="ollama",
    start_command="ollama serve",
    pull_command="ollama pull {model}",
)
"""Source of address and variables: ollama 0.6.3."""
