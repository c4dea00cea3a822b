"""List the models that Google publishes on Vertex AI, signed in by google-auth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import google.auth
from google.auth.transport.requests import Request

from toolchart.providers.gemini.host import VERTEX_VERSION
from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_rows
from toolchart.providers.transport.token_auth import TokenAuth
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError, SpecError

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PREFIX = "publishers/google/models"


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> TokenAuth | None:
    """The sign-in of an entry with `vertex`; None for one with a key."""
    return TokenAuth(_find_headers) if config.extra_options().get("vertex") else None


def _find_headers() -> Mapping[str, str]:
    """A token of the application default credentials, and the project that pays for the request.

    Source: google-genai 3.4.0, `_api_client.py`, `load_auth`, `_request_once`.

    Raises:
        ProviderError: `auth`; nobody is signed in.
    """
    try:
        credentials: Any = google.auth.default(scopes=[_SCOPE])[0]
        if not credentials.valid:
            credentials.refresh(Request())
    except Exception as error:  # whatever a credential of the library raises
        message = f"Google gave no token: {type(error).__name__}: {error}"
        raise ProviderError(kind="auth", message=message) from error
    remember_secret(credentials.token)
    payer = getattr(credentials, "quota_project_id", None)
    return {
        "authorization": f"Bearer {credentials.token}",
        **({"x-goog-user-project": payer} if payer else {}),
    }


def iterate_vertex_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models that Google publishes, by the names that a call takes. The list does not say what they can.

    Source: google-genai 3.4.0, `models.py`, `list` with `query_base`; `_transformers.py`, `t_models_url`,
    `t_extract_models`.
    """
    vertex = host.options["vertex"]
    host.move_to(host.address if host.config.base_url else _build_address(vertex.get("location", "global")))
    version = host.options.get("api_version") or VERTEX_VERSION
    page = ""
    while True:
        data = host.fetch_json(f"/{version}/{_PREFIX}{page}")
        for row in read_rows(data, "publisherModels"):
            yield OfferedModel(name=str(row.get("name")).removeprefix(f"{_PREFIX}/"))
        if not data.get("nextPageToken"):
            return
        page = f"?pageToken={data['nextPageToken']}"


def _build_address(location: str) -> str:
    """The address of a location. Source: google-genai 3.4.0, `_api_client.py`.

    Raises:
        SpecError: the location is no name of one.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", location):
        raise SpecError(
            f"{location!r} is no location of Vertex AI",
            path="llms.*.vertex.location",
            hint="write `global`, or a region such as `europe-west4`",
        )
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"
