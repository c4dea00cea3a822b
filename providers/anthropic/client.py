"""Call Anthropic's Messages API over plain HTTP (httpx2); the API is small, so its SDK is not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolchart.providers.anthropic.batches import AnthropicBatches
from toolchart.providers.anthropic.stream import AnthropicAccumulator
from toolchart.providers.anthropic.wire import (
    NAME,
    SUPPORTED_OPTIONS,
    choose_thinking,
    decode_reply,
    encode_request,
    reserve_thinking,
)
from toolchart.providers.catalogs import HostClient, OfferedModel, read_rows, read_token_count
from toolchart.providers.entries import AdapterSettings, find_api_key, read_adapter_settings, resolve_address
from toolchart.providers.hosts import find_host
from toolchart.providers.shared.adapted_requests import AdaptedRequest, adapt_request
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_rows import find_message_form
from toolchart.providers.shared.requests import (
    ToolChoice,
    find_foreign_data,
    find_unmet_tool_choice,
    find_unsupported_options,
    read_tool_choice,
)
from toolchart.providers.shared.sent_messages import fit_messages
from toolchart.providers.transport.connections import HttpHooks, create_client
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.raw_answers import note_adaptations
from toolchart.providers.wire_adapter import HttpAdapter, decode_json
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    import httpx2


_PATH = "/v1/messages"
_COUNTED_KEYS = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
"""The keys of a body that the counter takes, and that may change the number.

Source: anthropic 2.12.0, `types/message_count_tokens_params.py`.
"""


class AnthropicSettings(AdapterSettings):
    """Keys that only an `anthropic` entry has."""

    thinking: dict[str, Any] | None = None
    """The request's `thinking`: `{type: enabled, budget_tokens: 1024}`, `{type: adaptive}`, ..."""
    citations: bool = False
    """Whether answers name their places in the documents that they were given (`CitationPart`)."""
    headers: dict[str, str] | None = None
    """More HTTP headers, such as `anthropic-beta`; `${VARIABLE}` is replaced."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the API names them."""


class AnthropicProvider(HttpAdapter):
    """Calls `/v1/messages` of one host. It never retries: the chart decides about retries."""

    name = NAME
    has_counter = True

    accumulator = AnthropicAccumulator

    def __init__(self, client: httpx2.AsyncClient, settings: AnthropicSettings | None = None) -> None:
        super().__init__(client)
        self._settings = settings or AnthropicSettings()
        self._batches: AnthropicBatches | None = None

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> AnthropicProvider:
        """The provider of an `llms` entry.

        The address is the entry's `base_url`, else `ANTHROPIC_BASE_URL`, else Anthropic's own.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        settings = read_adapter_settings(AnthropicSettings, config)
        key = find_api_key(config, resolve)
        if not key:
            raise SpecError(
                "there is no API key for Anthropic",
                path="llms.*.api_key",
                hint="export ANTHROPIC_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            )
        headers = {name: resolve(value) for name, value in (settings.headers or {}).items()}
        client = create_client(
            config,
            resolve,
            hooks,
            address=resolve_address(config, resolve) or "",
            headers={**find_host(config.provider).build_headers(key), **headers},
        )
        return cls(client, settings)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /v1/messages`."""
        adapted = self._adapt_request(request)
        form = find_message_form("messages", self.host, request.model)
        sent, changes = fit_messages(adapted.request, form)
        note_adaptations((*adapted.list_adaptations(request), *changes))
        body = encode_request(
            sent,
            stream=stream,
            origin=self.get_origin(request),
            thinking=adapted.thinking,
            cites_documents=self._settings.citations,
        )
        return body | (self._settings.extra_body or {})

    def _adapt_request(self, request: Request) -> AdaptedRequest:
        """The request as its model takes it."""
        thinking = choose_thinking(request, self._settings.thinking)
        return adapt_request(
            reserve_thinking(request, thinking),
            wire="messages",
            host=self.host,
            extra=self._settings.extra_body,
            thinking=thinking,
        )

    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of a call, whole or streamed."""
        return _PATH

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer. Raises ProviderError."""
        return decode_reply(answer)

    def find_batch_api(self, body: Mapping[str, Any]) -> AnthropicBatches:
        """Message Batches."""
        if self._batches is None:
            self._batches = AnthropicBatches(self, self.batch_gather_s, self.batch_poll_s)
        return self._batches

    async def count_body(self, body: dict[str, Any]) -> int:
        """The tokens of a body as a prompt, by `POST /v1/messages/count_tokens`.

        It refuses what only the Messages API takes: tools that the host runs, and files by address or id.
        Source: anthropic 2.12.0, `types/message_tokens_count.py`; platform.claude.com, Token counting.

        Raises:
            ProviderError: the host did not count.
        """
        counted = {key: value for key, value in body.items() if key in _COUNTED_KEYS}
        with convert_exceptions(ValueError):
            answer = decode_json((await self.post(f"{_PATH}/count_tokens", encode_body(counted))).content)
        return read_token_count(answer, "input_tokens")

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that Anthropic's API cannot express."""
        choice = read_tool_choice(request) or ToolChoice()
        adapted = self._adapt_request(request)
        warnings = [*adapted.warnings]
        warnings += find_foreign_data(request.messages, self.get_origin(request), "content")
        warnings += find_unmet_tool_choice(choice, reply, "Anthropic")
        warnings += find_unsupported_options(adapted.request, SUPPORTED_OPTIONS, "Anthropic")
        response_format = request.options.get("response_format")
        if isinstance(response_format, Mapping) and response_format.get("type") == "json_object":
            warnings.append("response_format: Anthropic cannot be asked for JSON without a schema")
        return warnings


# -- the list of models ----------------------------------------------------------------------------


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models of a host, on one page of the largest size.

    It does not say whether a model calls tools.
    Source: anthropic 2.12.0, `types/model_info.py`, `types/model_capabilities.py`; the API reference, List
    Models: limit 1000.
    """
    for row in read_rows(host.fetch_json("/v1/models?limit=1000"), "data"):
        yield OfferedModel(
            name=str(row.get("id")),
            vision=_read_support(row, "image_input"),
            thinking=_read_support(row, "thinking"),
            context=row.get("max_input_tokens"),
        )


def _read_support(row: Mapping[str, Any], name: str) -> bool | None:
    """Whether a model has a capability; None where an older list does not say."""
    capabilities = row.get("capabilities")
    capability = capabilities.get(name) if isinstance(capabilities, Mapping) else None
    return capability.get("supported") if isinstance(capability, Mapping) else None
