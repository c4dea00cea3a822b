"""Call OpenAI and compatible hosts over plain HTTP (httpx2): chat completions and Responses."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.catalogs import (
    HostClient,
    OfferedModel,
    read_list,
    read_rows,
    read_token_count,
    read_vector,
)
from toolchart.providers.entries import AdapterSettings, find_api_key, read_adapter_settings, resolve_address
from toolchart.providers.hosts import find_host
from toolchart.providers.openai import entra
from toolchart.providers.openai.batches import Endpoint, OpenAIBatches
from toolchart.providers.openai.responses_wire import NAME, ResponsesAccumulator
from toolchart.providers.openai.responses_wire import SUPPORTED_OPTIONS as RESPONSES_OPTIONS
from toolchart.providers.openai.responses_wire import decode_reply as decode_response
from toolchart.providers.openai.responses_wire import encode_request as encode_response_request
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.openai.wire import (
    SUPPORTED_OPTIONS,
    decode_reply,
    encode_request,
    find_bridge_warnings,
    find_schema_warnings,
    keep_thoughts,
)
from toolchart.providers.shared.adapted_requests import AdaptedRequest, adapt_request
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_rows import (
    EchoReasoning,
    ThoughtForm,
    find_message_form,
    find_profile,
    find_rules,
    find_thought_form,
    list_profile_names,
)
from toolchart.providers.shared.requests import find_foreign_data, find_unsupported_options
from toolchart.providers.shared.sent_messages import fit_messages
from toolchart.providers.transport.batches import build_no_batch_error
from toolchart.providers.transport.connections import HttpHooks, create_client
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.raw_answers import note_adaptations
from toolchart.providers.wire_adapter import HttpAdapter, decode_json
from toolchart.specs.models import LLMConfig
from toolchart.states.content import AudioPart
from toolchart.states.errors import SpecError
from toolchart.states.events import Adaptation
from toolchart.states.messages import Delta, FinishReason, Reply, Request

if TYPE_CHECKING:
    import httpx2


# -- settings of an entry --------------------------------------------------------------------------


class OpenAISettings(AdapterSettings):
    """Keys that only an `openai` entry has."""

    api: Literal["chat", "responses"] = "chat"
    """Which API to call: chat completions, or Responses, which are the default at OpenAI's own host."""
    store: bool | None = None
    """Responses: whether the host stores them; if not, encrypted reasoning is kept in the log. By default it
    does where the entry itself says `api: responses`, and does not where that is the host's default."""
    host_profile: str | None = None
    """The host whose rules hold, where the address does not say it: `lmstudio`, `api.mistral.ai`."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How the host spells the token limit; by default the new name at OpenAI and the old one elsewhere."""
    seed_name: Literal["seed", "random_seed"] = "seed"
    """How the host spells the seed."""
    sends_tool_names: bool = False
    """Whether a tool's result carries the tool's name."""
    echo_reasoning: EchoReasoning = "never"
    """Whether reasoning is sent back to the host that sent it; hosts that are not known may refuse it."""
    fill_reasoning: bool = False
    """Whether a message whose reasoning would be sent back gets an empty one where it has none."""
    thoughts_in_text: ThoughtForm | None = None
    """Whether the text of a reply may begin with thoughts between `<think>` and `</think>`, which are no part
    of the answer: `never`, `opened` (with both markers) or `unopened` (the opening one may be missing, so a
    stream waits for the closing one). By default the host and the model's name decide."""
    finish_words: dict[str, FinishReason] | None = None
    """Finish words that only this host sends, and their meaning."""
    refuses: tuple[str, ...] = ()
    """Options that the host refuses; they are left out, with a warning."""
    batches: bool | None = None
    """Whether the host has OpenAI's batch API (`batch: true` of a handler); by default only OpenAI has."""
    stream_usage: bool = True
    """Whether to request token counts at the end of a stream; false for hosts that refuse
    `stream_options`."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the host names them."""
    headers: dict[str, str] | None = None
    """More HTTP headers; `${VARIABLE}` is replaced."""
    auth: Literal["key", "entra"] = "key"
    """How to sign in: by a key, or at Azure by Entra ID through `azure-identity` (extra `entra`)."""
    entra_scope: str = entra.SCOPE
    """What the token of Entra ID is for, where it is another cloud than the public one."""


def check_profile_name(config: LLMConfig) -> str | None:
    """The `host_profile` of an entry; None where it has none.

    Raises:
        SpecError: no host of that name is known.
    """
    name = config.extra_options().get("host_profile")
    known_names = list_profile_names()
    if name is not None and name not in known_names:
        raise SpecError(
            f"there is no profile of a host {name!r}",
            path="llms.*.host_profile",
            hint=f"known are: {', '.join(known_names)}",
        )
    return name


def _find_batches(adapter: OpenAIProvider | ResponsesProvider, endpoint: Endpoint) -> OpenAIBatches:
    """The batch API of an adapter's client.

    Raises:
        ProviderError: the host has none that is known.
    """
    settings, host = adapter._settings, adapter._settings.host_profile or adapter.host
    has_batches = host.partition(":")[0] == OPENAI_DOMAIN if settings.batches is None else settings.batches
    if not has_batches:
        raise build_no_batch_error("openai", adapter.host)
    if adapter._batches is None:
        adapter._batches = OpenAIBatches(adapter, endpoint, adapter.batch_gather_s, adapter.batch_poll_s)
    return adapter._batches


def _list_refused(
    settings: OpenAISettings, request: Request, options: Collection[str]
) -> Iterator[Adaptation]:
    """The options of a request that the entry or its host's row refuses.

    Args:
        options: those that the API has.
    """
    for name in settings.refuses:
        if name in request.options and name in options:
            reason = "this host refuses it, so it was left out"
            yield Adaptation(field=f"/options/{name}", change="dropped", reason=reason)


# -- the Responses API -----------------------------------------------------------------------------


_COUNTED_KEYS = (
    "input",
    "instructions",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
)
"""The keys of a body that the counter takes."""


class ResponsesProvider(HttpAdapter):
    """Calls `/responses` of one host (`api: responses` of an `openai` entry).

    Where the host does not store responses, reasoning comes encrypted and is sent back with its call, so that
    the log alone holds the conversation.

    Args:
        stores_by_default: whether the host stores responses where the settings do not say it.
    """

    name = NAME
    has_counter = True
    accumulator = ResponsesAccumulator

    def __init__(
        self, client: httpx2.AsyncClient, settings: OpenAISettings, *, stores_by_default: bool
    ) -> None:
        super().__init__(client)
        self._settings = settings
        self._store = stores_by_default if settings.store is None else settings.store
        self._rules_host = settings.host_profile or self.host
        self._batches: OpenAIBatches | None = None

    def find_batch_api(self, body: Mapping[str, Any]) -> OpenAIBatches:
        """The batch API for Responses. Raises ProviderError."""
        return _find_batches(self, "/v1/responses")

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /responses`."""
        adapted = self._adapt_request(request)
        form = find_message_form("responses", self._rules_host, request.model)
        sent, changes = fit_messages(adapted.request, form)
        note_adaptations(
            (
                *adapted.list_adaptations(request),
                *changes,
                *_list_refused(self._settings, adapted.request, RESPONSES_OPTIONS),
            )
        )
        wire = encode_response_request(sent, self.get_origin(request))
        body = {key: value for key, value in wire.items() if key not in self._settings.refuses}
        if not self._store:
            body["store"] = False
            if adapted.may_think:
                body["include"] = [*body.get("include", ()), "reasoning.encrypted_content"]
        if stream:
            body["stream"] = True
        return body | (self._settings.extra_body or {})

    def _adapt_request(self, request: Request) -> AdaptedRequest:
        """The request as its model takes it at this host."""
        extra = self._settings.extra_body
        return adapt_request(request, wire="responses", host=self._rules_host, extra=extra)

    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of a call, whole or streamed."""
        return "/responses"

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer. Raises ProviderError."""
        return decode_response(answer)

    async def count_body(self, body: dict[str, Any]) -> int:
        """The tokens of a body as a prompt, by `POST /responses/input_tokens`.

        Source: openai 3.54.0, `types/responses/input_token_count_params.py`.

        Raises:
            ProviderError: the host did not count.
        """
        counted = {key: value for key, value in body.items() if key in _COUNTED_KEYS}
        with convert_exceptions(ValueError):
            response = await self.post("/responses/input_tokens", encode_body(counted))
            return read_token_count(decode_json(response.content), "input_tokens")

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that the Responses API cannot express."""
        adapted = self._adapt_request(request)
        refused_options = [
            f"{name}: this host refuses it, so it was left out"
            for name in self._settings.refuses
            if name in adapted.request.options and name in RESPONSES_OPTIONS
        ]
        return [
            *adapted.warnings,
            *refused_options,
            *find_unsupported_options(adapted.request, RESPONSES_OPTIONS, "the Responses API"),
            *find_foreign_data(request.messages, self.get_origin(request), "output"),
        ]


# -- chat completions ------------------------------------------------------------------------------


OPENAI_DOMAIN = "api.openai.com"

_HEADER_VARIABLES = {"OPENAI_ORG_ID": "openai-organization", "OPENAI_PROJECT_ID": "openai-project"}
"""Environment variables whose values are headers. Source: openai 3.54.0, `_client.py`."""


class OpenAIProvider(HttpAdapter):
    """Calls chat completions of one host. It never retries: the chart decides about retries."""

    name = "openai"

    accumulator = ChatAccumulator

    def __init__(self, client: httpx2.AsyncClient, settings: OpenAISettings) -> None:
        super().__init__(client)
        self._settings = settings
        self._batches: OpenAIBatches | None = None

    def find_batch_api(self, body: Mapping[str, Any]) -> OpenAIBatches:
        """The batch API for chat completions. Raises ProviderError."""
        return _find_batches(self, "/v1/chat/completions")

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> OpenAIProvider | ResponsesProvider | DefaultProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        address = resolve_address(config, resolve) or ""
        rules_host = check_profile_name(config) or urlsplit(address).netloc
        settings = read_adapter_settings(OpenAISettings, config, find_profile(rules_host))
        find_headers = None
        if settings.auth == "entra":
            entra.check_host(rules_host)
            find_headers = entra.build_header_source(settings.entra_scope)
        key = None if find_headers else find_api_key(config, resolve)
        if not key and not find_headers and urlsplit(address).hostname == OPENAI_DOMAIN:
            raise SpecError(
                "there is no API key for OpenAI",
                path="llms.*.api_key",
                hint="export OPENAI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            )
        headers = {
            **find_host(config.provider).build_headers(key),
            **{
                header: os.environ[name] for name, header in _HEADER_VARIABLES.items() if os.environ.get(name)
            },
            **{name.lower(): resolve(value) for name, value in (settings.headers or {}).items()},
        }
        # aiohttp takes 0.3 ms less of a call's 0.9 ms of CPU over loopback, but it is wrong where our
        # promises count (aiohttp 3.14.5 below openai 3.54.0, tried with all tests of this adapter): a host
        # that refuses the connection or breaks off is a timeout and no `connection`; so is a SOCKS proxy,
        # which it lacks; an address with a password cannot be asked beside an `authorization` header.
        client = create_client(
            config, resolve, hooks, address=address, headers=headers, follows_redirects=True
        )
        chat = cls(client, settings)
        is_chosen = "api" in config.extra_options()
        responses = ResponsesProvider(client, settings, stores_by_default=is_chosen)
        chat.find_headers = responses.find_headers = find_headers
        if settings.api == "chat":
            return chat
        return responses if is_chosen else DefaultProvider(chat, responses)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /chat/completions`."""
        adapted = self._adapt_request(request)
        form = find_message_form("chat", self._settings.host_profile or self.host, request.model)
        sent, changes = fit_messages(adapted.request, form)
        note_adaptations((*self._list_adaptations(request, adapted), *changes))
        wire = encode_request(
            sent,
            origin=self.get_origin(request),
            fill_reasoning=self._settings.fill_reasoning and adapted.is_thinking is not False,
            needs_reply_after_results=adapted.needs_reply_after_results,
            needs_call_signatures=adapted.needs_call_signatures,
            takes_closed_schemas=adapted.takes_closed_schemas,
            max_tokens_name=self._choose_max_tokens_name(),
            seed_name=self._settings.seed_name,
            sends_tool_names=self._settings.sends_tool_names,
            echo_reasoning=self._settings.echo_reasoning,
        )
        body = {key: value for key, value in wire.items() if key not in self._settings.refuses}
        if stream:
            body["stream"] = True
            if self._settings.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body | (self._settings.extra_body or {})

    def _list_adaptations(self, request: Request, adapted: AdaptedRequest) -> tuple[Adaptation, ...]:
        """What of a request is left out or changed for the host."""
        schemas = find_schema_warnings(adapted.request, adapted.takes_closed_schemas)
        bridges = find_bridge_warnings(request, adapted.needs_reply_after_results)
        return (
            *adapted.list_adaptations(request),
            *_list_refused(self._settings, adapted.request, SUPPORTED_OPTIONS),
            *(Adaptation(field="/tools", change="rewritten", reason=text) for text in schemas),
            *(Adaptation(field="/messages", change="rewritten", reason=text) for text in bridges),
        )

    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of a call, whole or streamed."""
        return "/chat/completions"

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer.

        Raises:
            ProviderError: the answer is an error or no reply.
        """
        return decode_reply(answer, self._settings.finish_words)

    def find_thought_form(self, request: Request) -> ThoughtForm:
        """By the entry, the host and the model; `opened` while the model is asked not to think."""
        form = self._settings.thoughts_in_text or find_thought_form(request.model)
        is_guessed = form == "unopened" and self._settings.thoughts_in_text is None
        return "opened" if is_guessed and self._adapt_request(request).is_thinking is False else form

    def keep_thoughts(self, reply: Reply, text: str) -> Reply:
        """They go back in front of the answer, as they came, where reasoning goes back to the host."""
        return reply if self._settings.echo_reasoning == "never" else keep_thoughts(reply, text)

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each option that this host refuses, and for data of another host."""
        adapted = self._adapt_request(request)
        refused_options = [
            f"{name}: this host refuses it, so it was left out"
            for name in self._settings.refuses
            if name in adapted.request.options
        ]
        unsupported_options = find_unsupported_options(adapted.request, SUPPORTED_OPTIONS, "the host")
        foreign_data = find_foreign_data(request.messages, self.get_origin(request), "message")
        bridges = find_bridge_warnings(request, adapted.needs_reply_after_results)
        schemas = find_schema_warnings(adapted.request, adapted.takes_closed_schemas)
        return [*adapted.warnings, *refused_options, *unsupported_options, *foreign_data, *bridges, *schemas]

    def _adapt_request(self, request: Request) -> AdaptedRequest:
        """The request as its model takes it at this host."""
        host = self._settings.host_profile or self.host
        return adapt_request(request, wire="chat", host=host, extra=self._settings.extra_body)

    def _choose_max_tokens_name(self) -> str:
        if self._settings.max_tokens_name:
            return self._settings.max_tokens_name
        is_openai = self._client.base_url.host == OPENAI_DOMAIN
        return "max_completion_tokens" if is_openai else "max_tokens"


class DefaultProvider(HostAdapter):
    """Calls OpenAI's own host where the entry names no API.

    It calls Responses, because chat completions refuse tools while the newest models reason; and chat
    completions for what only they take.
    """

    name = "openai"
    has_counter = True

    def __init__(self, chat: OpenAIProvider, responses: ResponsesProvider) -> None:
        self._chat = chat
        self._responses = responses
        self._settings = responses._settings
        self._chat_options = set(SUPPORTED_OPTIONS) - set(RESPONSES_OPTIONS) - set(self._settings.refuses)
        """Options that Responses lack."""
        self.host = responses.host

    def _choose_adapter(self, request: Request) -> OpenAIProvider | ResponsesProvider:
        """Chat completions for models that only they have, and for what only they take: sound, and of models
        that do not reason the options that Responses lack."""
        host = self._settings.host_profile or self.host
        has_sound = any(isinstance(part, AudioPart) for message in request.messages for part in message.parts)
        has_options = any(request.options.get(name) is not None for name in self._chat_options)
        rules = find_rules("responses", host, request.model)
        never_thinks = any(rule.never_thinks for rule in rules)
        is_chat_only = any(rule.is_chat_only for rule in rules)
        uses_chat = is_chat_only or has_sound or (never_thinks and has_options)
        return self._chat if uses_chat else self._responses

    def _find_adapter(self, body: dict[str, Any]) -> OpenAIProvider | ResponsesProvider:
        """The API that a body is for."""
        return self._chat if "messages" in body else self._responses

    def find_batch_api(self, body: Mapping[str, Any]) -> OpenAIBatches:
        """The batch API for the path of a body. Raises ProviderError."""
        adapter = self._find_adapter(dict(body))
        adapter.batch_gather_s, adapter.batch_poll_s = self.batch_gather_s, self.batch_poll_s
        return adapter.find_batch_api(body)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body for the API that has the model."""
        return self._choose_adapter(request).build_body(request, stream=stream)

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        return await self._find_adapter(body).send_body(body)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        async with aclosing(self._find_adapter(body).stream_body(body)) as items:
            async for item in items:
                yield item

    def decode_raw(self, body: dict[str, Any], content: bytes, *, is_streamed: bool) -> Reply:
        """The reply of a raw answer that was kept.

        Raises:
            ProviderError: as when the answer came.
        """
        return self._find_adapter(body).decode_raw(body, content, is_streamed=is_streamed)

    async def count_body(self, body: dict[str, Any]) -> int | None:
        """The tokens of a body as a prompt; None for a model that only chat completions have.

        Raises:
            ProviderError: the host did not count.
        """
        return await self._find_adapter(body).count_body(body)

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that the API cannot express."""
        return self._choose_adapter(request).list_warnings(request, reply)

    async def aclose(self) -> None:
        """Close the connections, which both APIs share."""
        await self._responses.aclose()


# -- models and embeddings -------------------------------------------------------------------------


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models of a host, with the capabilities that it reports. Source: OpenAI API, `GET /models`."""
    for row in read_rows(host.fetch_json("/models"), "data"):
        yield OfferedModel(name=str(row.get("id")), **_read_capabilities(row))


def _read_capabilities(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `OfferedModel` from the keys that compatible hosts add to a model.

    Source: OpenRouter `supported_parameters`, `architecture` and `context_length`; Mistral `capabilities`
    and `max_context_length`; vLLM `max_model_len`; Groq `context_window` (their API references).
    """
    fields: dict[str, Any] = {}
    parameters = row.get("supported_parameters")
    if isinstance(parameters, list):
        fields |= {"tools": "tools" in parameters, "thinking": "reasoning" in parameters}
    capabilities = row.get("capabilities")
    if isinstance(capabilities, Mapping):
        fields["tools"] = capabilities.get("function_calling")
        fields["vision"] = capabilities.get("vision")
    architecture = row.get("architecture")
    modalities = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    if isinstance(modalities, list):
        fields["vision"] = "image" in modalities
    window_keys = ("context_length", "max_context_length", "max_model_len", "context_window")
    windows = (row[key] for key in window_keys if isinstance(row.get(key), int))
    fields["context"] = next(windows, None)
    return fields


def fetch_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[list[float]]:
    """Source: OpenAI API reference, `POST /embeddings`; rows have an `index`, their order is not promised."""
    rows = read_list(host.fetch_json("/embeddings", model=model, input=list(texts)), "data")
    rows.sort(key=lambda row: row.get("index", 0) if isinstance(row, Mapping) else 0)
    return [read_vector(row, "embedding") for row in rows]
