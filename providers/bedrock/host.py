"""Bedrock's row in the table of model hosts: variables, key header, wire format."""

from __future__ import annotations

from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.states.schema_dialects import ANTHROPIC

_FOLDER = "toolchart.providers.bedrock"

CONVERSE = WireFormat(
    name="converse",
    path_pattern=r"/model/[^/]+/converse(?:-stream)?$",
    dialect=ANTHROPIC,
    finish_words=f"{_FOLDER}.wire:FINISH_WORDS",
    decode_reply=f"{_FOLDER}.wire:decode_reply",
    accumulator=f"{_FOLDER}.stream:ConverseAccumulator",
    read_request=f"{_FOLDER}.recorded_requests:read_converse_request",
    classify_error="toolchart.providers.shared.failures:classify_http_error",
    stream_type="application/vnd.amazon.eventstream",
    frame_reader=f"{_FOLDER}.stream:EventStreamReader",
)
"""`Converse` and `ConverseStream`, which are alike for the models of all makers."""

BEDROCK_HOST = HostDescriptor(
    name="bedrock",
    summary="Amazon Bedrock: models of many makers through one API",
    adapter=f"{_FOLDER}.client:BedrockProvider",
    needs_network=True,
    list_starts="toolchart.providers.shared.starts:list_bedrock_starts",
    formats=(CONVERSE,),
    address_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
    key_header="authorization: Bearer {key}",
    sign_in=f"{_FOLDER}.signing:build_auth",
    list_models=f"{_FOLDER}.catalog:iterate_models",
    fetch_embeddings=None,
    telemetry_name="aws.bedrock",
)
"""Source of variables: botocore 1.44.5, `configprovider.py`, `utils.py`; without an address the region gives
one. Embeddings have another form for each maker."""
