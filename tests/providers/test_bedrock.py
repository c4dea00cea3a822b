"""Bedrock: signed requests, the Converse wire, its binary streams, its lists, and what it cannot express."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aws import check_signature, encode_event, encode_events
from host_answers import ARGUMENTS, STREAMED_BODIES, WHOLE_BODIES, encode_stream
from web import WebAnswer, WebServer, serve_web
from wire_requests import CALLS, QUESTION, REQUESTS, RESULTS, TOOLS

import toolchart.providers.bedrock
from toolchart.providers.bedrock.stream import ConverseAccumulator, EventStreamReader
from toolchart.providers.bedrock.wire import decode_reply, encode_parts, encode_request
from toolchart.providers.catalogs import list_models
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import strike_secrets
from toolchart.states.content import AudioPart, CitationPart, FilePart, ImagePart, TextPart
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
)

ACCESS_KEY, SECRET_KEY = "ACCESSKEYOFTHETEST01", "secret-key-of-the-test-0123456789"
TOKEN = "session-token-of-the-test-0123456789"
MODEL = "eu.maker.model-v1:0"
REQUEST = Request(model=MODEL, messages=[QUESTION])
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def _keep_to_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine, and nobody is asked for some."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def _signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of a session, as a role gives them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)


signed_in = pytest.mark.usefixtures("_signed_in")


def answer_request(request: dict[str, Any]) -> WebAnswer:
    """The reply of `host_answers`, whole or as a stream of frames."""
    if request["path"].endswith("/converse-stream"):
        content_type, body = encode_stream("converse")
        return 200, {"content-type": content_type}, body
    return 200, JSON, json.dumps(WHOLE_BODIES["converse"]).encode()


@pytest.fixture
def host() -> Iterator[WebServer]:
    """A host that answers every call."""
    with serve_web(answer_request) as server:
        yield server


def make_entry(server: WebServer, **keys: Any) -> LLMConfig:
    """An entry for a server on loopback."""
    entry = {"provider": "bedrock", "base_url": server.url, "region": "eu-central-1", **keys}
    return LLMConfig.model_validate(entry)


async def complete(entry: LLMConfig, request: Request = REQUEST) -> Reply:
    """The whole reply of an entry's host."""
    provider = create_provider(entry, resolve=str)
    try:
        return await provider.complete(request)
    finally:
        await provider.aclose()


async def stream(entry: LLMConfig, request: Request = REQUEST) -> list[Any]:
    """The deltas of an entry's host, and the reply."""
    provider: Any = create_provider(entry, resolve=str)
    try:
        return [item async for item in provider.stream(request)]
    finally:
        await provider.aclose()


# -- sign-in -------------------------------------------------------------------------------------


@signed_in
@pytest.mark.parametrize("model", [MODEL, "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.maker.m"])
async def test_requests_are_signed(host: WebServer, model: str) -> None:
    """Issue 15, build 7: whole and streamed requests carry a signature that holds for what arrived: path,
    headers and body; the secrets of the sign-in are known as such."""
    request = Request(model=model, messages=[QUESTION])
    assert (await complete(make_entry(host), request)).content == "Hello there"
    assert (await stream(make_entry(host), request))[-1].content == "Hello there"
    for sent, method in zip(host.requests, ("converse", "converse-stream"), strict=True):
        scope = check_signature(sent, SECRET_KEY)
        assert (scope["access_key"], scope["region"], scope["service"]) == (
            ACCESS_KEY,
            "eu-central-1",
            "bedrock",
        )
        headers = {name.lower(): value for name, value in sent["headers"].items()}
        assert headers["x-amz-security-token"] == TOKEN
        assert unquote(sent["path"]) == f"/model/{model}/{method}"
        changed = {**sent, "body": sent["body"] + b" "}
        with pytest.raises(AssertionError):
            check_signature(changed, SECRET_KEY)
    assert TOKEN not in strike_secrets(f"{TOKEN} {SECRET_KEY}")
    assert SECRET_KEY not in strike_secrets(f"{TOKEN} {SECRET_KEY}")


async def test_a_profile_signs_and_names_the_region(host: WebServer, tmp_path: Path) -> None:
    """`profile` names the credentials in AWS's own files, and the region where the entry has none."""
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    (tmp_path / "config").write_text("[profile work]\nregion = ap-southeast-2\n")
    await complete(make_entry(host, profile="work", region=None))
    assert check_signature(host.requests[0], SECRET_KEY)["region"] == "ap-southeast-2"


@signed_in
async def test_a_bedrock_key_goes_without_a_signature(host: WebServer) -> None:
    """A key of the entry is sent as bearer token, also where somebody is signed in; no region is needed."""
    entry = LLMConfig(provider="bedrock", base_url=host.url, api_key="bedrock-key-of-the-test")
    await complete(entry)
    assert host.requests[0]["headers"]["authorization"] == "Bearer bedrock-key-of-the-test"


@signed_in
async def test_the_key_of_the_environment_stays_with_aws(
    host: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry with an address of its own does not get the environment's key; its requests are signed."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key-of-the-environment-0123456789")
    await complete(make_entry(host))
    check_signature(host.requests[0], SECRET_KEY)


async def test_nobody_is_signed_in(host: WebServer, tmp_path: Path) -> None:
    """Without credentials the call fails with the kind `auth`, and nothing is sent; the same for a profile
    that does not exist."""
    for keys, said in ({}, "nobody is signed in to AWS"), ({"profile": "absent"}, "absent"):
        with pytest.raises(ProviderError, match=said) as raised:
            await complete(make_entry(host, **keys))
        assert raised.value.kind == "auth"
    assert not host.requests


@pytest.mark.parametrize("region", [None, "eu-west-1.example.org/"])
def test_a_region_is_required_and_checked(region: str | None) -> None:
    """Without a region, or with a text that is none, the entry is refused with what to write."""
    entry = LLMConfig.model_validate({"provider": "bedrock", "region": region, "api_key": "k"})
    with pytest.raises(SpecError, match="region") as raised:
        create_provider(entry, resolve=str)
    assert "eu-central-1" in (raised.value.hint or "")


@signed_in
async def test_a_plain_install_says_what_to_install(host: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without botocore an entry with a key still answers, whole; signing and streams name the package."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "botocore" or name.endswith("bedrock.signatures"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(toolchart.providers.bedrock, "signatures", raising=False)
    monkeypatch.setitem(sys.modules, "botocore", None)
    assert (await complete(make_entry(host, api_key="k"))).content == "Hello there"
    with pytest.raises(ProviderError, match="pip install 'botocore"):
        await stream(make_entry(host, api_key="k"))
    with pytest.raises(SpecError, match="needs botocore") as raised:
        create_provider(make_entry(host), resolve=str)
    assert "pip install 'botocore" in (raised.value.hint or "")


# -- the wire, beside botocore's own -------------------------------------------------------------


@pytest.fixture(scope="module")
def service() -> Any:
    """botocore's model of the service."""
    from botocore.session import Session

    return Session().get_service_model("bedrock-runtime")


PARTS = [
    TextPart(text="Look."),
    ImagePart(data="iVBORw==", media_type="image/png"),
    ImagePart(url="s3://bucket/a.png", media_type="image/png"),
    FilePart(data="JVBERg==", media_type="application/pdf", name="The plan, v1_2.pdf"),
    FilePart(data="YSxi", media_type="text/csv", name="t.csv"),
    AudioPart(data="UklGRg==", media_type="audio/wav"),
]
OPTIONS: dict[str, Any] = {
    "max_tokens": 9,
    "temperature": 0.5,
    "stop": "#",
    "reasoning_effort": "high",
    "service_tier": "flex",
    "metadata": {"team": "a"},
    "cache_ttl": "1h",
    "strict_tools": True,
    "response_format": REQUESTS["schema"].options["response_format"],
    "extra_body": {"additionalModelRequestFields": {"top_k": 3}},
}
VALID_REQUESTS = {
    **REQUESTS,
    "parts": Request(model="m", messages=[Message(role="user", content="Look.", parts=tuple(PARTS))]),
    "options": Request(model="m", messages=[QUESTION], tools=TOOLS, options=OPTIONS),
}


@pytest.mark.parametrize("name", VALID_REQUESTS)
def test_bodies_are_valid_for_botocore(service: Any, name: str) -> None:
    """Every body has the form that botocore's model of the service demands, with no key that it lacks."""
    from botocore.validate import ParamValidator

    body = encode_request(VALID_REQUESTS[name])
    parameters = {"modelId": body.pop("model"), **json.loads(json.dumps(body))}
    shape = service.operation_model("Converse").input_shape
    assert ParamValidator().validate(parameters, shape).generate_report() == ""
    assert not list(find_unknown_keys(parameters, shape))


def find_unknown_keys(value: Any, shape: Any) -> Iterator[str]:
    """The keys of a value that a shape of botocore does not have, which its validator lets pass in unions."""
    if shape.type_name == "list":
        for item in value:
            yield from find_unknown_keys(item, shape.member)
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        for key, item in value.items():
            if key not in shape.members:
                yield key
            else:
                yield from find_unknown_keys(item, shape.members[key])


@signed_in
def test_botocore_sends_and_reads_the_same(host: WebServer) -> None:
    """botocore's own client sends the same path and body to the same host, is signed in the same way, and
    reads the frames that the tests write as the events that they are."""
    from botocore.session import Session

    body = encode_request(Request(model=MODEL, messages=REQUESTS["results"].messages, tools=TOOLS))
    client = Session().create_client("bedrock-runtime", region_name="eu-central-1", endpoint_url=host.url)
    client.converse(modelId=body["model"], **{key: body[key] for key in ("messages", "system", "toolConfig")})
    sent = host.requests[0]
    assert sent["path"] == "/model/eu.maker.model-v1%3A0/converse"
    assert json.loads(sent["body"]) == {key: value for key, value in body.items() if key != "model"}
    check_signature(sent, SECRET_KEY)
    answer = client.converse_stream(modelId=body["model"], messages=body["messages"])
    events = [
        {name: {key: item for key, item in value.items() if key != "p"} for name, value in event.items()}
        for event in STREAMED_BODIES["converse"]
    ]
    assert list(answer["stream"]) == events
    client.close()


def test_a_conversation_with_calls_names_its_tools() -> None:
    """The API demands definitions as soon as there are calls: without offered tools the called ones stand in
    by name; `none` keeps the definitions of a conversation with calls, and sends none otherwise."""
    history = REQUESTS["results"].messages
    bare = encode_request(Request(model="m", messages=history))["toolConfig"]["tools"]
    assert [tool["toolSpec"]["name"] for tool in bare] == sorted(call.name for call in CALLS)
    none = {"tool_choice": "none"}
    kept = encode_request(Request(model="m", messages=history, tools=TOOLS, options=none))
    assert len(kept["toolConfig"]["tools"]) == len(TOOLS)
    assert "toolConfig" not in encode_request(
        Request(model="m", messages=[QUESTION], tools=TOOLS, options=none)
    )


def test_results_share_a_message_with_what_the_user_says() -> None:
    """Results and the user's next text are one message, results first; a failed tool is marked."""
    body = encode_request(
        Request(model="m", messages=[QUESTION, *REQUESTS["results"].messages[2:], QUESTION])
    )
    last = body["messages"][-1]
    assert [next(iter(block)) for block in last["content"]] == ["toolResult", "toolResult", "text"]
    assert [block["toolResult"].get("status") for block in last["content"][:2]] == [None, "error"]
    assert len(RESULTS) == 2


@pytest.mark.parametrize(
    "part",
    [
        ImagePart(url="https://example.org/a.png"),
        ImagePart(data="AAAA", media_type="image/tiff"),
        FilePart(data="UEs=", media_type="application/zip"),
    ],
)
def test_a_part_without_a_form_is_refused(part: ImagePart | FilePart) -> None:
    """Addresses other than S3's and unknown media types are refused before anything is sent."""
    with pytest.raises(ProviderError, match="Bedrock takes no part") as raised:
        encode_parts([part])
    assert raised.value.kind == "bad_request"


def test_a_document_has_a_text_beside_it() -> None:
    """The API demands a text in a message with a document, and a name of plain characters."""
    blocks = encode_parts([PARTS[3]])
    assert blocks[0]["document"]["name"] == "The plan v1 2"
    assert "text" in blocks[1]


# -- replies and streams -------------------------------------------------------------------------

EVENTS: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Hm"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "m."}}}},
    {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "c2ln"}}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "It rains "}}},
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "\U0001f327."}}},
    {
        "contentBlockDelta": {
            "contentBlockIndex": 1,
            "delta": {
                "citation": {
                    "title": "Weather",
                    "sourceContent": [{"text": "rain"}],
                    "location": {"web": {"url": "https://example.org"}},
                }
            },
        }
    },
    *STREAMED_BODIES["converse"][4:5],
    {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"unknown": {"x": 1}}}},
    {"surprise": {"x": 1}},
    {
        "contentBlockDelta": {
            "contentBlockIndex": 2,
            "delta": {"reasoningContent": {"redactedContent": "AA=="}},
        }
    },
    *STREAMED_BODIES["converse"][7:],
]


def read_stream(data: bytes, size: int) -> tuple[list[Any], Reply]:
    """The deltas and the reply of a stream that arrives in pieces of so many bytes."""
    reader, accumulator = EventStreamReader(), ConverseAccumulator()
    deltas = []
    for start in range(0, len(data), size):
        for event in reader.add_bytes(data[start : start + size]):
            deltas += accumulator.add_frame(event)
    return deltas, decode_reply(accumulator.build_body())


def test_a_stream_is_read_in_any_pieces() -> None:
    """Reasoning, text with its sources, and a call: the reply and the joined deltas are the same, however the
    bytes arrive, and unknown events do no harm."""
    calls = [
        {
            "contentBlockStart": {
                "contentBlockIndex": 3,
                "start": {"toolUse": {"toolUseId": "c", "name": "f"}},
            }
        },
        {"contentBlockDelta": {"contentBlockIndex": 3, "delta": {"toolUse": {"input": '{"a"'}}}},
        {"contentBlockDelta": {"contentBlockIndex": 3, "delta": {"toolUse": {"input": ": 1}"}}}},
    ]
    events = [event for event in EVENTS if event not in STREAMED_BODIES["converse"][4:5]]
    data = encode_events([*events[:-2], *calls, *events[-2:]])
    deltas, whole = read_stream(data, len(data))
    assert whole.reasoning == "Hmm."
    assert whole.content == "It rains \U0001f327."
    assert whole.parts[1] == CitationPart(
        url="https://example.org", title="Weather", text="rain", start=0, end=11
    )
    assert [(call.id, call.name, call.arguments) for call in whole.tool_calls] == [("c", "f", {"a": 1})]
    assert whole.usage is not None
    assert (whole.usage.input, whole.usage.output) == (5, 7)
    assert whole.finish_reason == "tool_calls"
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == whole.content
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == "Hmm."
    assert "".join(d.text for d in deltas if isinstance(d, CallArguments)) == '{"a": 1}'
    assert [d.name for d in deltas if isinstance(d, CallStarted)] == ["f"]
    for size in (1, 7, 64, 1000):
        assert read_stream(data, size) == (deltas, whole)


def test_reasoning_goes_back_unchanged() -> None:
    """What the model thought, with its signature and redacted pieces, goes back in its place."""
    data = encode_events([event for event in EVENTS if "contentBlockStart" not in event])
    _, reply = read_stream(data, 100)
    said = Message(role="assistant", content=reply.content, provider_data=reply.provider_data)
    blocks = encode_request(Request(model="m", messages=[QUESTION, said]))["messages"][1]["content"]
    assert blocks[0] == {"reasoningContent": {"reasoningText": {"text": "Hmm.", "signature": "c2ln"}}}
    assert blocks[2] == {"reasoningContent": {"redactedContent": "AA=="}}


DATA = encode_events(STREAMED_BODIES["converse"])


@pytest.mark.parametrize(
    "data",
    [
        DATA[:-200],
        DATA[:40] + b"\x00" + DATA[41:],
        DATA[:-1] + bytes([DATA[-1] ^ 1]),
        encode_event("messageStop", "text"),
        b"<html>this is no event stream</html>",
        b"",
    ],
    ids=["cut", "damaged", "checksum", "no object", "other", "empty"],
)
async def test_a_broken_stream_is_a_failed_call(data: bytes) -> None:
    """A stream that was cut or changed on its way is `bad_response`, and may be tried again."""

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "application/vnd.amazon.eventstream"}, data

    with serve_web(answer) as server, pytest.raises(ProviderError) as raised:
        await stream(make_entry(server, api_key="k"))
    assert (raised.value.kind, raised.value.retryable) == ("bad_response", True)


def test_cached_tokens_are_part_of_the_input() -> None:
    """`input` means the same for every host: what was read from the cache and written to it is in it."""
    usage = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 112, "cacheReadInputTokens": 80}
    usage["cacheWriteInputTokens"] = 20
    reply = decode_reply({**WHOLE_BODIES["converse"], "usage": usage})
    assert reply.usage is not None
    assert (reply.usage.input, reply.usage.cached, reply.usage.cache_write, reply.usage.total) == (
        105,
        80,
        20,
        112,
    )
    assert reply.details == {"metrics": {"latencyMs": 3}}


async def test_what_bedrock_cannot_express_is_a_warning(host: WebServer) -> None:
    """A seed, one call at most, and `none`: the reply says what was not followed."""
    options = {"seed": 3, "parallel_tool_calls": False, "tool_choice": "none"}
    request = Request(model=MODEL, messages=REQUESTS["results"].messages, tools=TOOLS, options=options)
    reply = await complete(make_entry(host, api_key="k"), request)
    assert any("seed" in warning for warning in reply.warnings)
    assert any("cannot be kept from calling tools" in warning for warning in reply.warnings)
    assert reply.tool_calls[0].arguments == ARGUMENTS


async def test_the_host_counts_tokens() -> None:
    """`count_tokens: host` asks `CountTokens` with what the counter takes."""

    def count(_: dict[str, Any]) -> WebAnswer:
        return 200, JSON, b'{"inputTokens": 77}'

    with serve_web(count) as server:
        provider: Any = create_provider(make_entry(server, api_key="k", count_tokens="host"), resolve=str)
        request = Request(model=MODEL, messages=[QUESTION], tools=TOOLS, options={"max_tokens": 3})
        assert await provider.count_tokens(request) == 77
        await provider.aclose()
        sent = server.requests[0]
    assert sent["path"] == "/model/eu.maker.model-v1%3A0/count-tokens"
    assert json.loads(sent["body"])["input"]["converse"].keys() == {"messages", "toolConfig"}


# -- lists and recordings ------------------------------------------------------------------------


@signed_in
def test_models_and_profiles_are_listed() -> None:
    """Models that can be called on demand, and the profiles of the others, over all pages, signed."""
    summaries = [
        {
            "modelId": "maker.seeing",
            "inputModalities": ["TEXT", "IMAGE"],
            "inferenceTypesSupported": ["ON_DEMAND"],
        },
        {
            "modelId": "maker.far",
            "inputModalities": ["TEXT"],
            "inferenceTypesSupported": ["INFERENCE_PROFILE"],
        },
    ]

    def make_profile(name: str, model: str) -> dict[str, Any]:
        arn = f"arn:aws:bedrock:eu-central-1::foundation-model/{model}"
        return {"inferenceProfileId": name, "models": [{"modelArn": arn}]}

    def answer(request: dict[str, Any]) -> WebAnswer:
        if request["path"].startswith("/foundation-models"):
            return 200, JSON, json.dumps({"modelSummaries": summaries}).encode()
        page: dict[str, Any] = {"inferenceProfileSummaries": [make_profile("eu.maker.far", "maker.far")]}
        if "nextToken" not in request["path"]:
            pictures = make_profile(
                "eu.maker.pictures", "maker.pictures"
            )  # a model that answers with pictures
            page = {"inferenceProfileSummaries": [pictures], "nextToken": "a+b/="}
        return 200, JSON, json.dumps(page).encode()

    with serve_web(answer) as server:
        models = list_models(make_entry(server), str)
        assert [(model.name, model.vision) for model in models] == [
            ("eu.maker.far", False),
            ("maker.seeing", True),
        ]
        assert len(server.requests) == 3
        for sent in server.requests:
            assert check_signature(sent, SECRET_KEY)["service"] == "bedrock"
