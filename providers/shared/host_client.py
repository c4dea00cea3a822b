"""Fetch JSON from a model host over plain HTTP, with the key and headers of an `llms` entry.

Lists of models and embeddings are fetched so; model calls go through the adapters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolchart.providers.hosts import find_host
from toolchart.providers.shared.addresses import resolve_address
from toolchart.providers.shared.failures import (
    build_bad_response_error,
    classify_exception,
    classify_http_error,
)
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret

if TYPE_CHECKING:
    import httpx


def find_api_key(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The key that an entry's adapter sends: the entry's own, else the environment's.

    The environment's key goes to no host but its own: an entry with another `base_url` names its key itself.

    Raises:
        SpecError: a variable in `api_key` is not set.
    """
    host = find_host(config.provider)
    names = host.key_variables or ()
    if config.api_key:
        key: str | None = resolve(config.api_key)
    elif config.base_url and not host.owns_address(resolve(config.base_url)):
        key = None
    else:
        key = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if key:
        remember_secret(key)
    return key


class HostClient:
    """Fetches JSON from the host of an `llms` entry, with the entry's key and headers.

    The caller sets `client` before the first request, and closes it.
    """

    client: httpx.Client

    def __init__(self, config: LLMConfig, resolve: Callable[[str], str]) -> None:
        self.address = resolve_address(config, resolve) or ""
        self.options = config.extra_options()
        """The keys of the entry that only its adapter knows."""
        own_headers = find_host(config.provider).build_headers(find_api_key(config, resolve))
        headers = self.options.get("headers") or {}
        self.headers = own_headers | {str(k).lower(): resolve(str(v)) for k, v in headers.items()}

    def fetch_json(self, path: str, **body: Any) -> Any:
        """The JSON answer of a path. Sends POST if there is a body, else GET.

        Raises:
            ProviderError: the request failed, or the answer is not JSON.
        """
        try:
            url = self.address + path
            answer = self.client.post(url, json=body) if body else self.client.get(url)
            data = answer.json() if answer.status_code < 400 else _decode_error_body(answer)
        except ValueError:
            raise build_bad_response_error(f"the answer to {path} is not JSON") from None
        except Exception as error:
            raise classify_exception(error) from error
        if answer.status_code >= 400:
            raise classify_http_error(answer.status_code, data, answer.headers)
        return data


def _decode_error_body(answer: httpx.Response) -> Any:
    """The JSON of an error answer, or its text."""
    try:
        return answer.json()
    except ValueError:
        return answer.text


def read_rows(data: Any, key: str) -> list[Mapping[str, Any]]:
    """The objects in the list under a key; a list itself is accepted too.

    Raises:
        ProviderError: there is no list.
    """
    rows = data if isinstance(data, list) else read_list(data, key)
    return [row for row in rows if isinstance(row, Mapping)]


def read_list(data: Any, key: str) -> list[Any]:
    """The list under a key of an answer.

    Raises:
        ProviderError: there is no list.
    """
    rows = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(rows, list):
        raise build_bad_response_error(f"the host's answer has no {key!r}")
    return rows


def read_token_count(data: Any, key: str) -> int:
    """The number of tokens under a key of a counter's answer.

    Raises:
        ProviderError: there is none.
    """
    tokens = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        raise build_bad_response_error(f"the host's answer has no number of tokens under {key!r}")
    return tokens


def read_vector(row: Any, key: str) -> list[float]:
    """The vector under a key of a row.

    Raises:
        ProviderError: there are no numbers.
    """
    values = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) for v in values):
        raise build_bad_response_error(f"a row of the host's answer has no numbers under {key!r}")
    return [float(value) for value in values]
