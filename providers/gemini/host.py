"""Gemini's row in the table of model hosts: address, key variable, headers, error reader."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.states.schema_dialects import GEMINI

_FOLDER = "toolchart.providers.gemini"

API_VERSION = "v1beta"
"""Set explicitly: since 3.0 the SDK's default is `v1`, which lacks the `-latest` aliases."""

VERTEX_VERSION = "v1beta1"
"""The version of Vertex AI that has what `v1beta` has. Source: google-genai 3.4.0, `_api_client.py`."""

GENERATE_CONTENT = WireFormat(
    name="gemini",
    path_pattern=r"(?i):(?:stream)?generateContent$",
    dialect=GEMINI,
    finish_words=f"{_FOLDER}.wire:FINISH_WORDS",
    decode_reply=f"{_FOLDER}.wire:decode_reply",
    accumulator=f"{_FOLDER}.stream:GeminiAccumulator",
    read_request=f"{_FOLDER}.recorded_requests:read_gemini_request",
    classify_error="toolchart.providers.shared.failures:classify_http_error",
    unmarked_stream="json_array",
)
"""`generateContent` and `streamGenerateContent`."""

GEMINI_HOST = HostDescriptor(
    name="gemini",
    summary="Google's Gemini API",
    adapter=f"{_FOLDER}.client:GeminiProvider",
    needs_network=True,
    list_starts="toolchart.providers.shared.starts:list_gemini_starts",
    formats=(GENERATE_CONTENT,),
    default_address="https://generativelanguage.googleapis.com",
    address_variable="GOOGLE_GEMINI_BASE_URL",
    key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    key_header="x-goog-api-key: {key}",
    sign_in=f"{_FOLDER}.vertex_catalog:build_auth",
    list_models=f"{_FOLDER}.catalog:iterate_models",
    fetch_embeddings=f"{_FOLDER}.catalog:fetch_vectors",
    sdk_package="google-genai",
    telemetry_name="gcp.gemini",
)
"""Source of address and variables: google-genai 3.4.0."""
