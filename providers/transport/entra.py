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
    """A function that returns a token for a scope; the first call finds the credential.

    It raises `ProviderError` of the kind `auth` where the library is missing, or where nobody is signed in.
    """
    find_token: Callable[[], str] | None = None

    def fetch_token() -> str:
        nonlocal find_token
        if find_token is None:
            find_token = _find_token_provider(scope)
        return find_token()

    async def fetch_in_thread() -> str:
        try:
            token = await asyncio.to_thread(fetch_token)
        except ProviderError:
            raise
        except Exception as error:  # whatever a credential of the library raises
            message = f"Entra ID gave no token: {type(error).__name__}: {error}"
            raise ProviderError(kind="auth", message=message) from error
        remember_secret(token)
        return token

    return fetch_in_thread


def _find_token_provider(scope: str) -> Callable[[], str]:
    try:
        from azure.identity import DefaultAzureCredential, get_bearer_token_provider
    except ImportError:
        message = f"`auth: entra` needs azure-identity: {format_install('entra')}"
        raise ProviderError(kind="auth", message=message) from None
    return get_bearer_token_provider(DefaultAzureCredential(), scope)
