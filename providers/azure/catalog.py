"""List the deployments of an Azure resource: the models that can be called by their own names.

The resource's own list names base models that may be deployed, and Azure retired its list of deployments, so
the management interface is asked. It takes no key of the resource, but a token of Entra ID.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.providers.shared.host_client import HostClient, read_rows
from toolchart.providers.transport.entra import build_token_reader
from toolchart.providers.transport.token_auth import TokenAuth
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

MANAGEMENT_URL = "https://management.azure.com"
_VERSION = "2024-10-01"
_RESOURCE = re.compile(
    r"/subscriptions/[\w.()-]+/resourceGroups/[\w.()-]+/providers/Microsoft\.CognitiveServices/accounts/[\w.-]+"
)


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> TokenAuth | None:
    """The sign-in to the management interface; None for an entry that does not name its resource."""
    options = config.extra_options()
    if not options.get("resource"):
        return None
    scope = f"{_find_address(options, resolve)}/.default"
    read_token = build_token_reader(scope)
    return TokenAuth(lambda: {"authorization": f"Bearer {read_token()}"})


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
