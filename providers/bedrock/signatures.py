"""Sign requests by botocore (SigV4), whose credentials come from where every AWS tool finds them.

These are variables, profiles, single sign-on, and roles of machines and containers; botocore renews them. Its
import fails where the extra is not installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpx2
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError
from toolchart.workers.error_text import describe_error

_SERVICE = "bedrock"
"""The name of the service in signatures. Source: botocore 1.44.5, the service models, `signingName`."""

_SIGNED_HEADERS = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")


def _open_session(profile: Any) -> Any:
    return Session(profile=str(profile) if profile else None)


def find_profile_region(profile: Any) -> str | None:
    """The region of a profile in AWS's configuration file; None where there is none."""
    try:
        region = _open_session(profile).get_config_variable("region")
    except BotoCoreError:
        return None
    return str(region) if region else None


class SignatureAuth(httpx2.Auth):
    """Signs every request with the credentials of a profile, as they are at that moment.

    Args:
        profile: None for that of the environment.
        region: where the requests go.
    """

    requires_request_body = True

    def __init__(self, profile: Any, region: str) -> None:
        self._session = _open_session(profile)
        self._region = region

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """The request, signed."""
        self._sign(request, self._find_credentials())
        yield request

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The request, signed. Credentials are found beside the event loop: that may ask a server."""
        self._sign(request, await asyncio.to_thread(self._find_credentials))
        yield request

    def _find_credentials(self) -> Any:
        """Access key, secret key and token, renewed where they are about to expire.

        Raises:
            ProviderError: `auth`; nobody is signed in.
        """
        try:
            credentials = self._session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
        except Exception as error:  # whatever a source of credentials raises
            message = f"AWS gave no credentials: {describe_error(error)}"
            raise ProviderError(kind="auth", message=message) from error
        if frozen is None or not frozen.access_key:
            raise ProviderError(
                kind="auth",
                message="nobody is signed in to AWS: export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "name a `profile`, or give a Bedrock key as `api_key`",
            )
        for secret in (frozen.secret_key, frozen.token):
            if secret:
                remember_secret(secret)
        return frozen

    def _sign(self, request: httpx2.Request, credentials: Any) -> None:
        headers = {name: request.headers[name] for name in ("content-type",) if name in request.headers}
        signed = AWSRequest(
            method=request.method, url=str(request.url), data=request.content, headers=headers
        )
        SigV4Auth(credentials, _SERVICE, self._region).add_auth(signed)
        for name in _SIGNED_HEADERS:
            if name in signed.headers:
                request.headers[name] = signed.headers[name]
