"""Sign in to Azure by Entra ID: `azure-identity` finds the credential, and renews a token that will expire.

It is an extra, and is imported when the first token is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from toolchart.providers.catalogs import sign_by_headers
from toolchart.providers.entries import resolve_address
from toolchart.providers.shared.host_rows import AZURE_ROW, find_row
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError, SpecError, format_install
from toolchart.workers.error_text import describe_error

SCOPE = "https://cognitiveservices.azure.com/.default"
"""What a token is for. Source: learn.microsoft.com, Azure OpenAI API version lifecycle."""


def check_host(host: str) -> None:
    """Refuse a host that is not Azure: the token is for Azure alone.

    Args:
        host: the name of an address, or the word of a row.

    Raises:
        SpecError: it is another host.
    """
    if find_row(host) is not AZURE_ROW:
        raise SpecError(
            f"`auth: entra` signs in at Azure, and {host} is another host",
            path="llms.*.auth",
            hint=f"give `base_url: {AZURE_ROW.address_form}`; behind a gateway add `host_profile: azure`",
        )


def build_header_source(scope: str) -> Callable[[], Awaitable[dict[str, str]]]:
    """A function that returns the headers of a request, signed by a token for a scope.

    The token is found beside the event loop; see `build_token_reader`.
    """
    read_token = build_token_reader(scope)

    async def find_headers() -> dict[str, str]:
        return {"authorization": f"Bearer {await asyncio.to_thread(read_token)}"}

    return find_headers


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
            message = f"Entra ID gave no token: {describe_error(error)}"
            raise ProviderError(kind="auth", message=message) from error
        remember_secret(token)
        return token

    return read_token


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> Callable[[Any], Any] | None:
    """The sign-in of requests beside model calls (lists, embeddings); None for an entry with a key."""
    options = config.extra_options()
    if options.get("auth") != "entra":
        return None
    check_host(options.get("host_profile") or urlsplit(resolve_address(config, resolve) or "").netloc)
    read_token = build_token_reader(options.get("entra_scope") or SCOPE)
    return sign_by_headers(lambda: {"authorization": f"Bearer {read_token()}"})


def _find_token_provider(scope: str) -> Callable[[], str]:
    try:
        from azure.identity import DefaultAzureCredential, get_bearer_token_provider
    except ImportError:
        message = f"`auth: entra` needs azure-identity: {format_install('entra')}"
        raise ProviderError(kind="auth", message=message) from None
    return get_bearer_token_provider(DefaultAzureCredential(), scope)
