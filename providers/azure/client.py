"""Call OpenAI models on Azure: same wire format; own address, key header and API version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote

from toolchart.providers.openai.client import OpenAIProvider
from toolchart.providers.openai.compatible_hosts import check_profile_name, find_profile
from toolchart.providers.openai.responses_client import ResponsesProvider
from toolchart.providers.openai.settings import OpenAISettings
from toolchart.providers.shared.host_client import find_api_key
from toolchart.providers.shared.settings import read_adapter_settings
from toolchart.providers.transport.connections import HttpHooks, build_client_options, get_silence_timeout_s
from toolchart.providers.transport.entra import build_token_source
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

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
        shared_options: dict[str, Any] = {
            "api_key": key,
            "timeout": get_silence_timeout_s(config),
            "max_retries": 0,
            "http_client": DefaultAsyncHttpxClient(**build_client_options(config, resolve, httpx2, hooks)),
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
        if settings.api == "responses":
            return ResponsesProvider(client, settings, renews_token=is_entra, rules_host=RULES_HOST)
        return cls(client, settings, renews_token=is_entra)
