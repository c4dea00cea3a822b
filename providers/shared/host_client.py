"""Fetch JSON from a model host over plain HTTP, with the key and headers of an `llms` entry.

Lists of models and embeddings are fetched so; model calls go through the adapters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.providers.hosts import find_host
from toolchart.providers.shared.addresses import refuse_remote_address, resolve_address, resolve_file_paths
from toolchart.providers.shared.failures import (
    build_bad_response_error,
    classify_exception,
    classify_http_error,
)
from toolchart.providers.transport.connections import build_client_options
from toolchart.providers.transport.reply_guard import ask_for_known_encodings_in_turn, guard_response_in_turn
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.descriptors import load_row_reference

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
    """Fetches JSON from the host of an `llms` entry, with the entry's key or sign-in, headers and connection.

    The requests are made inside of `open_client`.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.
        beside: folder of the spec; certificates in the entry are relative to it.
    """

    client: httpx.Client

    def __init__(self, config: LLMConfig, resolve: Callable[[str], str], beside: Path | None = None) -> None:
        host = find_host(config.provider)
        self.config, self.resolve = resolve_file_paths(config, beside or Path(), resolve), resolve
        self.address = resolve_address(config, resolve) or ""
        self.options = config.extra_options()
        """The keys of the entry that only its adapter knows."""
        self.auth: httpx.Auth | None = None
        """What signs the requests of an entry that signs in otherwise than by a key."""
        if host.sign_in:
            self.auth = load_row_reference(host, host.sign_in)(config, resolve)
        own_headers = host.build_headers(None if self.auth else find_api_key(config, resolve))
        headers = self.options.get("headers") or {}
        self.headers = own_headers | {str(k).lower(): resolve(str(v)) for k, v in headers.items()}

    @contextmanager
    def open_client(self, timeout_s: float) -> Iterator[None]:
        """A block with a connection: with the proxy and the certificates of the entry.

        Args:
            timeout_s: seconds for one answer.

        Raises:
            SpecError: a certificate cannot be read, or the proxy is no address.
        """
        import httpx

        options = {**build_client_options(self.config, self.resolve, httpx), "timeout": timeout_s}
        options["event_hooks"] = {
            "request": [ask_for_known_encodings_in_turn],
            "response": [guard_response_in_turn],
        }
        with httpx.Client(headers=self.headers, auth=self.auth, **options) as client:
            self.client = client
            yield

    def move_to(self, address: str) -> None:
        """Send later requests to another address of the same host.

        Raises:
            SpecError: it is remote in offline mode.
        """
        refuse_remote_address(address, self.config.provider)
        self.address = address.rstrip("/")

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
