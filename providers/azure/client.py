"""Call OpenAI models on Azure: same wire format; own address, key header and API version."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

from toolchart.providers.catalogs import HostClient, OfferedModel, read_rows, sign_by_headers
from toolchart.providers.entries import find_api_key, read_adapter_settings
from toolchart.providers.openai.client import (
    OpenAIProvider,
    OpenAISettings,
    ResponsesProvider,
    check_profile_name,
    watch_typed_calls,
)
from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.providers.shared.host_rows import find_profile
from toolchart.providers.transport.connections import HttpHooks, build_client_options, get_silence_timeout_s
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError, SpecError, format_install

API_VERSION = "2024-10-21"
"""The newest dated version without `preview`. Source: Azure's table of data plane versions, GA row."""

RULES_HOST = "openai.azure.com"
"""The host whose rules hold, whatever the address of the resource is."""

V1_PATH = "/openai/v1"
"""The undated interface, which Responses need. Source: learn.microsoft.com, Azure OpenAI Responses API."""


class AzureSettings(OpenAISettings):
    """Keys that only an `azure` entry has; `base_url` is the endpoint of the Azure resource."""

    api_version: str | None = None
    """Version of the REST interface; default: the newest dated one, and for Responses the v1 interface."""
    deployment: str | None = None
    """Name of the deployment; the default is the model's name."""
    resource: str | None = None
    """Id of the Azure resource, `/subscriptions/.../accounts/NAME`, for the list of its deployments."""
    management_url: str | None = None
    """Address of Azure's management interface, for other clouds than the public one."""
    auth: Literal["key", "entra"] = "key"
    """How to sign in: by a key, or by Entra ID through `azure-identity` (extra `entra`)."""
    entra_scope: str = "https://cognitiveservices.azure.com/.default"
    """What the token of Entra ID is for."""


class AzureProvider(OpenAIProvider):
    """Calls chat completions of one Azure resource."""

    rules_host = RULES_HOST

    def _get_path(self, body: dict[str, Any]) -> str:
        """The path with the deployment, where the address does not have it."""
        path = super()._get_path(body)
        has_deployment = "/deployments" in self._client.base_url.path
        return path if has_deployment else f"/deployments/{quote(body['model'], safe='')}{path}"

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> AzureProvider | ResponsesProvider:
        """The provider of an `llms` entry.

        Chat completions are the default here: a deployment has any name and any model, and the dated
        interface, which many entries name, has no Responses.

        Raises:
            SpecError: there is no endpoint or no key, or the entry has an unknown key or a wrong value.
        """
        import httpx2
        from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        settings = read_adapter_settings(
            AzureSettings, config, find_profile(check_profile_name(config) or RULES_HOST)
        )
        endpoint = resolve(config.base_url) if config.base_url else None
        is_entra = settings.auth == "entra"
        key = None if is_entra else find_api_key(config, resolve)
        fetch_token = build_token_source(settings.entra_scope) if is_entra else None
        http_client = DefaultAsyncHttpxClient(**build_client_options(config, resolve, httpx2, hooks))
        shared_options: dict[str, Any] = {
            "api_key": key,
            "timeout": get_silence_timeout_s(config),
            "max_retries": 0,
            "http_client": http_client,
            "default_headers": {k: resolve(v) for k, v in (settings.headers or {}).items()},
        }
        try:
            if (
                key is None and fetch_token is None
            ):  # the SDK itself would send the environment's key to any host
                raise ValueError
            client: AsyncOpenAI = AsyncAzureOpenAI(
                azure_endpoint=endpoint,  # type: ignore[arg-type]  # None: AZURE_OPENAI_ENDPOINT
                azure_deployment=settings.deployment,
                api_version=settings.api_version or API_VERSION,
                azure_ad_token_provider=fetch_token,
                **shared_options,
            )
            if settings.api == "responses" and settings.api_version is None:
                base_url = f"{str(client.base_url).partition('/openai/')[0]}{V1_PATH}"
                options: dict[str, Any] = {**shared_options, "api_key": fetch_token or client.api_key}
                client = AsyncOpenAI(base_url=base_url, **options)
        except (OpenAIError, ValueError):
            raise SpecError(
                "there is no endpoint or no key for Azure",
                path="llms.*",
                hint="give `base_url: https://NAME.openai.azure.com` and `api_key: ${VARIABLE}`, or export "
                "AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY",
            ) from None
        watch_typed_calls(client, http_client, settings)
        if settings.api == "responses":
            return ResponsesProvider(client, settings, renews_token=is_entra, rules_host=RULES_HOST)
        return cls(client, settings, renews_token=is_entra)


# -- the list of deployments -----------------------------------------------------------------------
# The resource's own list names base models that may be deployed, and Azure retired its list of deployments,
# so the management interface is asked. It takes no key of the resource, but a token of Entra ID.


MANAGEMENT_URL = "https://management.azure.com"
_VERSION = "2024-10-01"
_RESOURCE = re.compile(
    r"/subscriptions/[\w.()-]+/resourceGroups/[\w.()-]+/providers/Microsoft\.CognitiveServices/accounts/[\w.-]+"
)


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> Callable[[Any], Any] | None:
    """The sign-in to the management interface; None for an entry that does not name its resource."""
    options = config.extra_options()
    if not options.get("resource"):
        return None
    scope = f"{_find_address(options, resolve)}/.default"
    read_token = build_token_reader(scope)
    return sign_by_headers(lambda: {"authorization": f"Bearer {read_token()}"})


def _find_address(options: Mapping[str, Any], resolve: Callable[[str], str]) -> str:
    """The address of the management interface."""
    return resolve(str(options.get("management_url") or MANAGEMENT_URL)).rstrip("/")


def iterate_deployments(host: HostClient) -> Iterator[OfferedModel]:
    """The deployments that answer in chats, by the names that a call takes.

    Sources: learn.microsoft.com, Account management REST, Deployments - List, 2024-10-01; the capabilities
    (`chatCompletion`, `responses`, `maxContextToken`) as published answers show them. It does not say whether
    a model calls tools.
    """
    resource = host.resolve(str(host.options["resource"])).rstrip("/")
    if not _RESOURCE.fullmatch(resource):
        raise SpecError(
            "`resource` is no id of an Azure resource",
            path="llms.*.resource",
            hint="it begins with /subscriptions/ and ends with "
            "/providers/Microsoft.CognitiveServices/accounts/NAME",
        )
    host.move_to(_find_address(host.options, host.resolve))
    path = f"{resource}/deployments?api-version={_VERSION}"
    while path:
        data = host.fetch_json(path)
        for row in read_rows(data, "value"):
            yield from _read_deployment(row)
        path = _find_next_path(data, host.address)


def _read_deployment(row: Mapping[str, Any]) -> Iterator[OfferedModel]:
    properties = row.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    capabilities = properties.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, Mapping) else {}
    answers = [capabilities.get(name) for name in ("chatCompletion", "responses")]
    is_ready = properties.get("provisioningState") in (None, "Succeeded")
    if is_ready and (not capabilities or "true" in answers):
        window = str(capabilities.get("maxContextToken") or "")
        yield OfferedModel(name=str(row.get("name")), context=int(window) if window.isdecimal() else None)


def _find_next_path(data: Mapping[str, Any], address: str) -> str:
    """The path of the next page; empty where there is none.

    Raises:
        ProviderError: the next page is at another address, which must not get the token.
    """
    link = data.get("nextLink")
    if not link:
        return ""
    if not str(link).startswith(f"{address}/"):
        raise build_bad_response_error("the next page of the list is at another address")
    return str(link).removeprefix(address)


# -- sign-in by Entra ID ---------------------------------------------------------------------------
# `azure-identity` finds the credential and keeps the token until it is about to expire. It is an extra, and
# is imported when the first token is needed.


def build_token_source(scope: str) -> Callable[[], Awaitable[str]]:
    """A function that returns a token for a scope, found beside the event loop; see `build_token_reader`."""
    read_token = build_token_reader(scope)

    async def fetch_in_thread() -> str:
        return await asyncio.to_thread(read_token)

    return fetch_in_thread


def build_token_reader(scope: str) -> Callable[[], str]:
    """A function that returns a token for a scope; the first call finds the credential, which may take long.

    It raises `ProviderError` of the kind `auth` where the library is missing, or where nobody is signed in.
    """
    find_token: Callable[[], str] | None = None

    def read_token() -> str:
        nonlocal find_token
        try:
            if find_token is None:
                find_token = _find_token_provider(scope)
            token = find_token()
        except ProviderError:
            raise
        except Exception as error:  # whatever a credential of the library raises
            message = f"Entra ID gave no token: {type(error).__name__}: {error}"
            raise ProviderError(kind="auth", message=message) from error
        remember_secret(token)
        return token

    return read_token


def _find_token_provider(scope: str) -> Callable[[], str]:
    try:
        from azure.identity import DefaultAzureCredential, get_bearer_token_provider
    except ImportError:
        message = f"`auth: entra` needs azure-identity: {format_install('entra')}"
        raise ProviderError(kind="auth", message=message) from None
    return get_bearer_token_provider(DefaultAzureCredential(), scope)
