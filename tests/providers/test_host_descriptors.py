"""The contract of the table of model hosts: every row is complete, and its parts do what the row promises."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest
from host_answers import ARGUMENTS, STREAMED_BODIES, WHOLE_BODIES
from msgspec.structs import replace
from recorded_exchanges import get_adapter
from web import WebAnswer, serve_web

from toolchart.providers import entries
from toolchart.providers.anthropic import wire as anthropic_wire
from toolchart.providers.bedrock import wire as bedrock_wire
from toolchart.providers.catalogs import HostClient, HostEmbedder, list_models
from toolchart.providers.descriptor import HostDescriptor, WireFormat
from toolchart.providers.entries import find_key_row, get_own_address, resolve_address
from toolchart.providers.gemini import wire as gemini_wire
from toolchart.providers.hosts import HOSTS
from toolchart.providers.ollama import wire as ollama_wire
from toolchart.providers.openai import responses_wire
from toolchart.providers.openai import wire as openai_wire
from toolchart.providers.shared.failures import classify_http_error
from toolchart.providers.shared.host_rows import HOST_ROWS, UNKNOWN_HOST, HostRow, find_row, index_rows
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import FinishReason
from toolchart.states.schema_dialects import DIALECTS
from toolchart.tools.formats import convert_tools

ROWS = HOSTS.builtin_rows
NETWORK_ROWS = [row for row in ROWS if row.needs_network]
FORMATS = list({form.name: form for row in ROWS for form in row.formats}.values())

for_rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
for_network_rows = pytest.mark.parametrize("row", NETWORK_ROWS, ids=lambda row: row.name)
for_formats = pytest.mark.parametrize("wire_format", FORMATS, ids=lambda row: row.name)

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
    config = build_config(row, base_url="https://host.test/", headers={"X-Own": "yes"})
    headers = HostClient(config, str).headers
    assert [value for value in headers.values() if "key-of-test" in value]
    assert headers.items() >= {**row.headers, "x-own": "yes"}.items()
    assert not any("key-of-test" in value for value in row.build_headers(None).values())


@for_network_rows
def test_every_host_has_an_address(row: HostDescriptor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry's address counts before the variable's, and that before the host's own."""
    monkeypatch.delenv(row.address_variable, raising=False)
    config = build_config(row)
    assert resolve_address(config, str) == (row.own_row.base_url or None)
    monkeypatch.setenv(row.address_variable, "https://from-variable.test/")
    assert resolve_address(config, str) == "https://from-variable.test"
    entry_config = build_config(row, base_url="https://from-entry.test")
    assert resolve_address(entry_config, str) == "https://from-entry.test"


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
    for examples in (WHOLE_BODIES, STREAMED_BODIES, FINISH_WORDS):
        assert set(examples) == {form.name for form in FORMATS}
    for row in ROWS:
        assert all(form in FORMATS for form in row.formats)


FINISH_WORDS = {
    "chat": openai_wire.FINISH_WORDS,
    "responses": responses_wire.FINISH_WORDS,
    "ollama": ollama_wire.FINISH_WORDS,
    "messages": anthropic_wire.FINISH_WORDS,
    "gemini": gemini_wire.FINISH_WORDS,
    "converse": bedrock_wire.FINISH_WORDS,
}


@pytest.mark.parametrize("name", FINISH_WORDS)
def test_finish_words_mean_known_reasons(name: str) -> None:
    """Every finish word of a host means one of our finish reasons; some mean `stop` and `length`."""
    assert set(FINISH_WORDS[name].values()) <= set(get_args(FinishReason))
    assert {"stop", "length"} <= set(FINISH_WORDS[name].values())


@for_formats
def test_a_whole_and_a_streamed_body_give_equal_replies(wire_format: WireFormat) -> None:
    """A reply is the same whether the host streams it or not, and so are its tokens before it is whole."""
    decode_reply = get_adapter(wire_format.name).decode_answer
    accumulator = get_adapter(wire_format.name).accumulator()
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
    accumulator = get_adapter(wire_format.name).accumulator()
    accumulator.add_frame(STREAMED_BODIES[wire_format.name][0])
    with pytest.raises(ProviderError) as failure:
        accumulator.build_body()
    assert (failure.value.kind, failure.value.retryable) == ("bad_response", True)


def test_further_finish_words_count() -> None:
    """Chat completions take further finish words of one host, and they go before the format's own."""
    body = WHOLE_BODIES["chat"]
    native_word = openai_wire.decode_reply(body).native_reason
    assert native_word is not None
    assert openai_wire.decode_reply(body, {native_word: "length"}).finish_reason == "length"


@pytest.mark.parametrize(("status", "kind", "is_retryable"), ERRORS)
def test_the_error_reader_classifies(status: int, kind: str, is_retryable: bool) -> None:
    """An error answer is classified by its status, whether its body is JSON, text or empty."""
    for body in ({"error": {"message": "no luck"}}, "no luck", None):
        error = classify_http_error(status, body, {"retry-after": "3"})
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

COMPLETE = replace(
    HOSTS.find("openai"),
    name="acme",
    own_row=HostRow(
        name="acme",
        title="Acme",
        source="a test",
        provider="acme",
        base_url="https://api.acme.test/v1",
        key_variables=("ACME_KEY",),
    ),
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"summary": ""}, "`summary` is missing"),
        ({"adapter": ""}, "`adapter` is missing: the class that calls the host"),
        ({"adapter": "acme.client"}, "`adapter` is 'acme.client', and not a reference"),
        ({"list_starts": ""}, "`list_starts` is missing: the function that lists what an entry starts"),
        ({"needs_network": None}, "`needs_network` is missing"),
        ({"formats": ()}, "`formats` is empty"),
        ({"own_row": UNKNOWN_HOST, "address_variable": ""}, "`own_row.base_url` is missing"),
        ({"own_row": replace(COMPLETE.own_row, provider="openai")}, "`own_row.provider` is 'openai'"),
        ({"complete_address": "x"}, "`complete_address` is 'x', and not a reference"),
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


@pytest.mark.parametrize("field", ["name", "dialect"])
def test_an_incomplete_wire_format_says_what_is_missing(field: str) -> None:
    """Each part that a wire format lacks is one gap of the row, and names it."""
    empty = None if field == "dialect" else ""
    wire_format = replace(COMPLETE.formats[0], **{field: empty})
    (gap,) = replace(COMPLETE, formats=(wire_format,)).find_gaps()
    assert gap.startswith(f"wire format {wire_format.name!r}: `{field}` is missing")


@pytest.mark.parametrize("row", HOST_ROWS, ids=lambda row: str(row.name))
def test_every_host_row_knows_its_own_address(row: HostRow) -> None:
    """The address of a row leads back to it: by itself, or with its word where it is one of this machine."""
    for address in filter(None, (row.base_url, row.chat_url)):
        parts = urlsplit(address)
        if row.domains or parts.port is None:
            assert find_row(parts.netloc) is row
        options = {"host_profile": row.name} if row.provider == "openai" else {}
        config = LLMConfig.model_validate({"provider": row.provider, "model": "m", **options})
        if get_own_address(row, row.provider) == address:
            assert find_key_row(config, address) is row


def test_a_host_row_without_domains_knows_its_own_addresses() -> None:
    """The names of a row's addresses need not be written twice; a port of this machine says nothing."""
    row = COMPLETE.own_row
    assert row.list_domains() == ("api.acme.test",)
    assert index_rows([row]) == {"acme": row, "api.acme.test": row}
    assert replace(row, base_url="http://127.0.0.1:8000/v1").list_domains() == ()
    assert replace(row, chat_url="https://chat.acme.test").list_domains() == (
        "api.acme.test",
        "chat.acme.test",
    )


def test_two_host_rows_with_one_domain_are_refused() -> None:
    """Neither of two rows that are known by one name wins silently."""
    twin = replace(COMPLETE.own_row, name="twin")
    with pytest.raises(SpecError, match=r"'acme' and 'twin': both are known by 'api\.acme\.test'"):
        index_rows([COMPLETE.own_row, twin])


def test_a_row_of_another_package_knows_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address gets its key, and what it says of its list of models counts; a stranger gets none."""
    row = replace(COMPLETE, own_row=replace(COMPLETE.own_row, has_model_list=False))
    monkeypatch.setattr(entries, "find_host", lambda provider: row)
    config = LLMConfig.model_construct(provider="acme", model="m")
    assert find_key_row(config, "https://api.acme.test/v1") is row.own_row
    assert find_key_row(config, "https://other.test/v1") is UNKNOWN_HOST
    assert not entries.can_list_models(config)


def test_a_row_without_network_needs_only_its_adapter() -> None:
    """A host that answers without a network has neither address nor wire formats."""
    starts = "toolchart.states.starts:list_no_starts"
    row = HostDescriptor(
        name="parrot", summary="x", adapter="parrot:Provider", needs_network=False, list_starts=starts
    )
    assert row.find_gaps() == []
