"""The contract of the table of model hosts: every row is complete, and its parts do what the row promises."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pytest
from host_answers import ARGUMENTS, STREAMED_BODIES, WHOLE_BODIES
from msgspec.structs import replace
from web import WebAnswer, serve_web

from toolchart.providers.catalogs import HostClient, HostEmbedder, list_models
from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.providers.entries import resolve_address
from toolchart.providers.hosts import HOSTS, find_wire_format, iterate_wire_formats
from toolchart.providers.recording.cassettes import find_endpoint
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import FinishReason, Message, Request
from toolchart.states.schema_dialects import DIALECTS
from toolchart.tools.formats import convert_tools

ROWS = HOSTS.builtin_rows
NETWORK_ROWS = [row for row in ROWS if row.needs_network]
FORMATS = list(iterate_wire_formats())

for_rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
for_network_rows = pytest.mark.parametrize("row", NETWORK_ROWS, ids=lambda row: row.name)
for_formats = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda row: row.name)

URIS = {
    "chat": "https://host.test/openai/deployments/m/chat/completions?api-version=1",
    "responses": "https://host.test/v1/responses",
    "gemini": "<BASE>/v1beta/models/m:streamGenerateContent?alt=sse",
    "ollama": "http://127.0.0.1:11434/api/chat",
    "messages": "https://host.test/v1/messages",
    "converse": "https://host.test/model/m/converse-stream",
}

REQUEST_BODIES: dict[str, Any] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"model": "m", "input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "ollama": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "converse": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}


MODEL_LISTS: dict[str, dict[str, Any]] = {
    "openai": {"/models": {"data": [{"id": "first"}, {"id": "second"}]}},
    "ollama": {
        "/api/tags": {"models": [{"name": "first"}, {"name": "second"}]},
        "/api/show": {"capabilities": ["tools"]},
    },
    "gemini": {"/v1beta/models": {"models": [{"name": "models/first"}, {"name": "models/second"}]}},
    "anthropic": {
        "/v1/models": {
            "data": [
                {"type": "model", "id": "first", "display_name": "First"},
                {"type": "model", "id": "second", "display_name": "Second"},
            ],
            "has_more": False,
        }
    },
    "bedrock": {
        "/foundation-models": {"modelSummaries": [{"modelId": "first"}, {"modelId": "second"}]},
        "/inference-profiles": {"inferenceProfileSummaries": []},
    },
}
"""The answers of each host that lists its models, by path."""

VECTOR_ANSWERS: dict[str, dict[str, Any]] = {
    "openai": {"/embeddings": {"data": [{"index": 0, "embedding": [1, 2]}]}},
    "ollama": {"/api/embed": {"embeddings": [[1, 2]]}},
    "gemini": {"/v1beta/models/m:batchEmbedContents": {"embeddings": [{"values": [1, 2]}]}},
}
"""The answers of each host that makes embeddings, by path."""

ERRORS = [(401, "auth", False), (404, "not_found", False), (429, "rate_limited", True), (500, "server", True)]


def build_config(row: HostDescriptor, **keys: Any) -> LLMConfig:
    """An `llms` entry of a host."""
    return LLMConfig.model_validate({"provider": row.name, "api_key": "key-of-test", **keys})


def answer_from(answers: Mapping[str, Any]) -> Callable[[dict[str, Any]], WebAnswer]:
    """A function that answers each path with its JSON."""

    def answer_request(request: dict[str, Any]) -> WebAnswer:
        body = answers.get(request["path"].partition("?")[0])
        status = 404 if body is None else 200
        return status, {"content-type": "application/json"}, json.dumps(body).encode()

    return answer_request


# -- rows ----------------------------------------------------------------------------------------


@for_rows
def test_every_row_is_complete(row: HostDescriptor) -> None:
    """A row has no gaps, and each of its references leads to something."""
    assert row.find_gaps() == []
    for field, reference in row.list_references().items():
        assert load_reference(reference) is not None, field


@for_rows
def test_every_adapter_has_the_methods_of_a_provider(row: HostDescriptor) -> None:
    """An adapter is created from an entry and has the methods of a provider; `complete` is a coroutine."""
    adapter = load_reference(row.adapter)
    assert isinstance(adapter.name, str)
    assert inspect.iscoroutinefunction(adapter.complete)
    assert inspect.isasyncgenfunction(adapter.stream)
    assert inspect.iscoroutinefunction(adapter.aclose)
    parameters = inspect.signature(adapter.from_config).parameters
    assert list(parameters)[:2] == ["config", "resolve"]
    assert ("hooks" in parameters) == row.needs_network


@for_network_rows
def test_every_host_sends_the_key_in_its_header(row: HostDescriptor) -> None:
    """The headers of a request hold the key once, and the headers of the host."""
    config = build_config(row, base_url="https://host.test/v1/", headers={"X-Own": "yes"})
    headers = HostClient(config, str).headers
    assert [value for value in headers.values() if "key-of-test" in value]
    assert headers.items() >= {**row.headers, "x-own": "yes"}.items()
    assert not any("key-of-test" in value for value in row.build_headers(None).values())


@for_network_rows
def test_every_host_has_an_address(row: HostDescriptor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry's address counts before the variable's, and that before the host's own."""
    monkeypatch.delenv(row.address_variable, raising=False)
    config = build_config(row)
    assert resolve_address(config, str) == (row.default_address or None)
    monkeypatch.setenv(row.address_variable, "https://from-variable.test/")
    assert resolve_address(config, str) == "https://from-variable.test"
    entry_config = build_config(row, base_url="https://from-entry.test")
    assert resolve_address(entry_config, str) == "https://from-entry.test"


@for_network_rows
@pytest.mark.parametrize(("status", "kind", "is_retryable"), ERRORS)
def test_an_adapter_fails_as_its_error_reader_says(
    row: HostDescriptor, status: int, kind: str, is_retryable: bool
) -> None:
    """A host that answers with an error makes the call fail with the kind that the row's reader finds."""
    body = {"error": {"message": "no luck", "type": "error", "code": "none"}}
    answer: WebAnswer = status, {"content-type": "application/json"}, json.dumps(body).encode()

    async def call_host(address: str) -> None:
        provider = create_provider(build_config(row, base_url=address), resolve=str)
        try:
            await provider.complete(Request(model="m", messages=[Message(role="user", content="Hi")]))
        finally:
            await provider.aclose()

    with serve_web(lambda request: answer) as server, pytest.raises(ProviderError) as failure:
        asyncio.run(call_host(server.url))
    expected = row.formats[0].load_error_reader()(status, body, {})
    assert (expected.kind, expected.retryable, expected.status) == (kind, is_retryable, status)
    assert (failure.value.kind, failure.value.retryable) == (kind, is_retryable)


@for_network_rows
def test_every_host_lists_its_models_or_has_none(row: HostDescriptor) -> None:
    """A host with a lister reads an example of its list; another is refused with the reason."""
    assert (row.name in MODEL_LISTS) == (row.list_models is not None)
    with serve_web(answer_from(MODEL_LISTS.get(row.name, {}))) as server:
        config = build_config(row, base_url=server.url)
        if row.list_models is None:
            with pytest.raises(SpecError, match=f"provider '{row.name}' has no models to list"):
                list_models(config, str)
        else:
            assert [model.name for model in list_models(config, str)] == ["first", "second"]


@for_network_rows
def test_every_host_makes_embeddings_or_has_none(row: HostDescriptor) -> None:
    """A host with embeddings reads an example of its answer; another is refused with the reason."""
    assert (row.name in VECTOR_ANSWERS) == (row.fetch_embeddings is not None)
    with serve_web(answer_from(VECTOR_ANSWERS.get(row.name, {}))) as server:
        config = build_config(row, base_url=server.url)
        if row.fetch_embeddings is None:
            with pytest.raises(SpecError, match=f"provider '{row.name}' makes no embeddings"):
                HostEmbedder(config, "m", str)
        else:
            assert HostEmbedder(config, "m", str).embed(["x"]) == [[1.0, 2.0]]


# -- wire formats --------------------------------------------------------------------------------


def test_every_wire_format_has_examples() -> None:
    """A new wire format comes with an example of each kind; hosts share equal wire formats only."""
    names = {row.name for row in FORMATS}
    for examples in (WHOLE_BODIES, STREAMED_BODIES, URIS, REQUEST_BODIES):
        assert set(examples) == names
    for row in ROWS:
        for wire_format in row.formats:
            assert find_wire_format(wire_format.name) == wire_format


@for_formats
def test_finish_words_mean_known_reasons(wire_format: WireFormat) -> None:
    """Every finish word of a host means one of our finish reasons; some mean `stop` and `length`."""
    finish_words = wire_format.load_finish_words()
    assert set(finish_words.values()) <= set(get_args(FinishReason))
    assert {"stop", "length"} <= set(finish_words.values())


@for_formats
def test_a_whole_and_a_streamed_body_give_equal_replies(wire_format: WireFormat) -> None:
    """A reply is the same whether the host streams it or not, and so are its tokens before it is whole."""
    decode_reply = wire_format.load_reply_decoder()
    accumulator = wire_format.load_accumulator()()
    assert accumulator.read_usage() is None
    deltas = [delta for frame in STREAMED_BODIES[wire_format.name] for delta in accumulator.add_frame(frame)]
    counted = accumulator.read_usage()
    streamed_reply = decode_reply(accumulator.build_body(True))
    whole_reply = decode_reply(WHOLE_BODIES[wire_format.name])
    assert deltas
    assert streamed_reply == whole_reply
    assert counted == streamed_reply.usage
    assert (whole_reply.content, whole_reply.finish_reason) == ("Hello there", "tool_calls")
    assert [call.arguments for call in whole_reply.tool_calls] == [ARGUMENTS]
    assert (whole_reply.usage.input, whole_reply.usage.output) == (5, 7)  # type: ignore[union-attr]


@for_formats
def test_a_cut_stream_fails(wire_format: WireFormat) -> None:
    """A stream without its end is a failure that may be tried again."""
    accumulator = wire_format.load_accumulator()()
    accumulator.add_frame(STREAMED_BODIES[wire_format.name][0])
    with pytest.raises(ProviderError) as failure:
        accumulator.build_body()
    assert (failure.value.kind, failure.value.retryable) == ("bad_response", True)


@for_formats
def test_further_finish_words_count(wire_format: WireFormat) -> None:
    """A decoder takes further finish words of one host, and they go before the format's own."""
    decode_reply = wire_format.load_reply_decoder()
    native_word = decode_reply(WHOLE_BODIES[wire_format.name]).native_reason
    reply = decode_reply(WHOLE_BODIES[wire_format.name], {native_word: "length"})
    assert reply.finish_reason == "length"


@for_formats
def test_a_recorded_exchange_is_read(wire_format: WireFormat) -> None:
    """The wire format is found by the URI, and the request becomes a canonical one."""
    assert find_endpoint(URIS[wire_format.name]) == wire_format.name
    request = wire_format.load_request_reader()(REQUEST_BODIES[wire_format.name], URIS[wire_format.name])
    assert (request["model"], request["messages"]) == ("m", [{"role": "user", "content": "Hi"}])


@for_formats
@pytest.mark.parametrize(("status", "kind", "is_retryable"), ERRORS)
def test_the_error_reader_classifies(
    wire_format: WireFormat, status: int, kind: str, is_retryable: bool
) -> None:
    """An error answer is classified by its status, whether its body is JSON, text or empty."""
    classify_error = wire_format.load_error_reader()
    for body in ({"error": {"message": "no luck"}}, "no luck", None):
        error = classify_error(status, body, {"retry-after": "3"})
        assert (error.kind, error.retryable, error.status) == (kind, is_retryable, status)
        assert error.retry_after_s == (3.0 if is_retryable else None)


@for_formats
def test_tools_can_be_printed_in_its_dialect(wire_format: WireFormat) -> None:
    """The dialect of a wire format is one that `toolchart tools list --provider` can print."""
    dialect = wire_format.dialect
    assert dialect is not None
    assert DIALECTS[dialect.name] is dialect
    assert convert_tools([], dialect.name).rewrites == ()


# -- incomplete rows -----------------------------------------------------------------------------

COMPLETE = replace(HOSTS.find("openai"), name="acme")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"summary": ""}, "`summary` is missing"),
        ({"adapter": ""}, "`adapter` is missing: the class that calls the host"),
        ({"adapter": "acme.client"}, "`adapter` is 'acme.client', and not a reference"),
        ({"list_starts": ""}, "`list_starts` is missing: the function that lists what an entry starts"),
        ({"needs_network": None}, "`needs_network` is missing"),
        ({"formats": ()}, "`formats` is empty"),
        ({"default_address": "", "address_variable": ""}, "`default_address` is missing"),
        ({"complete_address": "x"}, "`complete_address` is 'x', and not a reference"),
        ({"key_variables": None}, "`key_variables` is missing"),
        ({"key_header": "x-api-key"}, "`key_header` is missing"),
        ({"list_models": ""}, "`list_models` is missing"),
        ({"fetch_embeddings": ""}, "`fetch_embeddings` is missing"),
    ],
)
def test_an_incomplete_row_says_what_is_missing(changes: dict[str, Any], message: str) -> None:
    """Each part that a row lacks is one gap that names it."""
    assert COMPLETE.find_gaps() == []
    (gap,) = replace(COMPLETE, **changes).find_gaps()
    assert gap.startswith(message)


@pytest.mark.parametrize(
    "field",
    [
        "name",
        "path_pattern",
        "dialect",
        "finish_words",
        "decode_reply",
        "accumulator",
        "read_request",
        "classify_error",
    ],
)
def test_an_incomplete_wire_format_says_what_is_missing(field: str) -> None:
    """Each part that a wire format lacks is one gap of the row, and names it."""
    empty = None if field == "dialect" else ""
    wire_format = replace(COMPLETE.formats[0], **{field: empty})
    (gap,) = replace(COMPLETE, formats=(wire_format,)).find_gaps()
    assert gap.startswith(f"wire format {wire_format.name!r}: `{field}` is missing")


def test_a_pattern_that_is_no_regular_expression_is_a_gap() -> None:
    """A pattern that cannot be compiled is named, instead of failing when a cassette is read."""
    wire_format = replace(COMPLETE.formats[0], path_pattern="(")
    assert "`path_pattern`" in wire_format.find_gaps()[0]


def test_a_row_without_network_needs_only_its_adapter() -> None:
    """A host that answers without a network has neither address nor wire formats."""
    starts = "toolchart.states.starts:list_no_starts"
    row = HostDescriptor(
        name="parrot", summary="x", adapter="parrot:Provider", needs_network=False, list_starts=starts
    )
    assert row.find_gaps() == []
