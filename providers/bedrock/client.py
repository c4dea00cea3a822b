"""Call Bedrock's Converse API over plain HTTP (httpx2); botocore signs, and cuts streams into frames.

Converse and not the makers' own bodies (`InvokeModel`): it is one form for the models of all makers, while
`InvokeModel` would take one wire map for each maker, and reuse an existing one for Anthropic alone.

botocore is an extra, and imported when a client is made without a key, or the region is in a profile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from toolchart.providers.bedrock.stream import ConverseAccumulator, EventStreamReader
from toolchart.providers.bedrock.wire import (
    NAME,
    SUPPORTED_OPTIONS,
    decode_reply,
    encode_request,
    find_unmet_none,
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
    find_parallel_calls,
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
from toolchart.states.errors import SpecError, format_install
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    import httpx2


_COUNTED_KEYS = ("messages", "system", "toolConfig", "additionalModelRequestFields")
"""The keys of a body that the counter takes. Source: botocore 1.44.5, shape `ConverseTokensRequest`."""


class BedrockSettings(AdapterSettings):
    """Keys that only a `bedrock` entry has."""

    region: str | None = None
    """Region, such as `eu-central-1`; default: that of the environment or of the profile."""
    profile: str | None = None
    """Profile in AWS's configuration whose credentials sign; default: the environment's."""
    headers: dict[str, str] | None = None
    """More HTTP headers; `${VARIABLE}` is replaced. They are not signed."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the API names them: `additionalModelRequestFields`,
    `guardrailConfig`, `performanceConfig`, ..."""


class BedrockProvider(HttpAdapter):
    """Calls `/model/MODEL/converse` in one region. It never retries: the chart decides about retries."""

    name = NAME
    has_counter = True

    accumulator = ConverseAccumulator
    frame_reader = EventStreamReader

    def __init__(self, client: httpx2.AsyncClient, settings: BedrockSettings | None = None) -> None:
        super().__init__(client)
        self._settings = settings or BedrockSettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> BedrockProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no region, botocore is missing, or the entry has an unknown key or a wrong
                value.
        """
        settings = read_adapter_settings(BedrockSettings, config)
        key = find_api_key(config, resolve)
        headers = {name: resolve(value) for name, value in (settings.headers or {}).items()}
        client = create_client(
            config,
            resolve,
            hooks,
            address=find_address(config, resolve),
            headers={**find_host(config.provider).build_headers(key), **headers},
            auth=build_auth(config, resolve),
        )
        return cls(client, settings)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `Converse` with the `model` beside it, which is sent in the path.

        A streamed call differs in its path alone, so it has the same digest.
        """
        adapted = self._adapt_request(request)
        form = find_message_form("converse", self.host, request.model)
        sent, changes = fit_messages(adapted.request, form)
        note_adaptations((*adapted.list_adaptations(request), *changes))
        body = encode_request(sent, origin=self.get_origin(request))
        return body | (self._settings.extra_body or {})

    def _adapt_request(self, request: Request) -> AdaptedRequest:
        """The request as its model takes it."""
        return adapt_request(request, wire="converse", host=self.host, extra=self._settings.extra_body)

    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of a call; the model stands in it."""
        return _build_path(body["model"], "converse-stream" if stream else "converse")

    def encode_content(self, body: dict[str, Any]) -> bytes:
        """The bytes that are sent for a body: all but its model."""
        return encode_body({key: value for key, value in body.items() if key != "model"})

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer. Raises ProviderError."""
        return decode_reply(answer)

    async def count_body(self, body: dict[str, Any]) -> int:
        """The tokens of a body as a prompt, by `CountTokens`.

        Raises:
            ProviderError: the host did not count.
        """
        counted = {key: value for key, value in body.items() if key in _COUNTED_KEYS}
        data = encode_body({"input": {"converse": counted}})
        with convert_exceptions(ValueError):
            answer = decode_json((await self.post(_build_path(body["model"], "count-tokens"), data)).content)
        return read_token_count(answer, "inputTokens")

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that Bedrock could not follow."""
        choice = read_tool_choice(request) or ToolChoice()
        adapted = self._adapt_request(request)
        return [
            *adapted.warnings,
            *find_foreign_data(request.messages, self.get_origin(request), "content"),
            *find_unmet_tool_choice(choice, reply, "Bedrock"),
            *find_unmet_none(choice, reply),
            *find_parallel_calls(request, reply, "Bedrock"),
            *find_unsupported_options(adapted.request, SUPPORTED_OPTIONS, "Bedrock"),
        ]


def _build_path(model: str, method: str) -> str:
    """The path of a method; names of models may be whole ARNs."""
    return f"/model/{quote(model, safe='')}/{method}"


# -- the list of models ----------------------------------------------------------------------------


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """Models that answer with text, by the names that a call takes.

    Many models are called only through a profile (`eu.anthropic...`); those are listed by the profile's name.
    The lists stand at the address `bedrock` beside `bedrock-runtime`. They do not say whether a model calls
    tools or how large its window is.
    Source: botocore 1.44.5, the service model of `bedrock`, `ListFoundationModels`, `ListInferenceProfiles`.
    """
    address = find_address(host.config, host.resolve)
    host.move_to(address.replace("://bedrock-runtime", "://bedrock", 1))
    visions: dict[str, bool] = {}
    for row in read_rows(host.fetch_json("/foundation-models?byOutputModality=TEXT"), "modelSummaries"):
        name = str(row.get("modelId"))
        visions[name] = "IMAGE" in (row.get("inputModalities") or ())
        if "ON_DEMAND" in (row.get("inferenceTypesSupported") or ["ON_DEMAND"]):
            yield OfferedModel(name=name, vision=visions[name])
    for row in _iterate_profiles(host):
        models = [str(model.get("modelArn")).rpartition("/")[2] for model in read_rows(row, "models")]
        model_visions = [visions[model] for model in models if model in visions]
        if model_visions:
            yield OfferedModel(name=str(row.get("inferenceProfileId")), vision=all(model_visions))


def _iterate_profiles(host: HostClient) -> Iterator[Mapping[str, Any]]:
    """The profiles of the region, page by page."""
    page = ""
    while True:
        data = host.fetch_json(f"/inference-profiles?maxResults=1000{page}")
        yield from read_rows(data, "inferenceProfileSummaries")
        if not data.get("nextToken"):
            return
        page = f"&nextToken={quote(str(data['nextToken']), safe='')}"


# -- region, address and sign-in -------------------------------------------------------------------


_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d")


def find_address(config: LLMConfig, resolve: Callable[[str], str]) -> str:
    """The address of the models: of the entry, of the environment, or that of the region.

    Raises:
        SpecError: there is neither an address nor a region.
    """
    address = resolve_address(config, resolve)
    return address or f"https://bedrock-runtime.{find_region(config, resolve)}.amazonaws.com"


def find_region(config: LLMConfig, resolve: Callable[[str], str]) -> str:
    """The region of an entry: its `region`, that in its address, the environment's, or the profile's.

    Raises:
        SpecError: there is none, or it is no name of a region.
    """
    options = config.extra_options()
    address = urlsplit(resolve_address(config, resolve) or "").hostname or ""
    region_match = re.search(r"bedrock[\w-]*\.([a-z0-9-]+)\.amazonaws\.com", address)
    region = resolve(str(options["region"])) if options.get("region") else None
    region = region or (region_match.group(1) if region_match else None)
    region = region or next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    region = region or _find_profile_region(options.get("profile"))
    if not region or not _REGION.fullmatch(region):
        problem = f"{region!r} is no region of AWS" if region else "there is no region for Bedrock"
        raise SpecError(
            problem,
            path="llms.*.region",
            hint="give `region: eu-central-1` in the llms entry, or export AWS_REGION",
        )
    return region


def _find_profile_region(profile: Any) -> str | None:
    """The region of a profile in AWS's configuration file; None where botocore is missing."""
    signatures = _load_signatures()
    region: str | None = signatures.find_profile_region(profile) if signatures else None
    return region


def _load_signatures() -> Any:
    """The module that signs; None where botocore is missing."""
    try:
        from toolchart.providers.bedrock import signatures
    except ImportError:
        return None
    return signatures


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> httpx2.Auth | None:
    """What signs the requests of an entry; None for an entry with a key.

    Raises:
        SpecError: there is no region, or botocore is not installed.
    """
    if find_api_key(config, resolve):
        return None
    signatures = _load_signatures()
    if signatures is None:
        raise SpecError(
            "Bedrock without a key needs botocore, which signs requests",
            path="llms.*.provider",
            hint=f"{format_install('bedrock')}; or give a Bedrock key: `api_key: ${{VARIABLE}}`",
        )
    profile, region = config.extra_options().get("profile"), find_region(config, resolve)
    auth: httpx2.Auth = signatures.SignatureAuth(profile, region)
    return auth
