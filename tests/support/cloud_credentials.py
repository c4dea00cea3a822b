"""Credentials of the kinds that azure-identity and google-auth have, with tokens of the tests."""

from __future__ import annotations

import time
from typing import Any

import google.auth.credentials
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

TOKEN = "entra-token-of-the-test-0123456789"
GOOGLE_TOKEN = "vertex-token-of-the-test-0123456789"


class FakeCredential:
    """A credential of the kind of azure-identity: it answers with an `AccessToken`."""

    scopes: list[str] = []  # noqa: RUF012

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """A token for these scopes."""
        self.scopes.extend(scopes)
        return AccessToken(TOKEN, int(time.time()) + 3600)


class SignedOutCredential:
    """A credential that finds nobody who is signed in."""

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """No token."""
        raise ClientAuthenticationError("nobody is signed in")


class FakeGoogleCredential(google.auth.credentials.Credentials):
    """A credential of the kind of google-auth, with a token that is valid."""

    def __init__(self, payer: str | None = None) -> None:
        super().__init__()
        self.token = GOOGLE_TOKEN
        self._quota_project_id = payer

    def refresh(self, request: Any) -> None:
        """Nothing: the token is valid."""
