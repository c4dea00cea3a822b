"""Sign in to Azure by Entra ID: as a managed identity, a service principal, or who signed in here.

`azure-identity` finds the credential and keeps the token until it is about to expire. It is an extra, and is
imported when the first token is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError, format_install


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
