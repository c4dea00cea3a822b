"""Ask a host over plain HTTP what it offers: its list of models, and embeddings.

Model calls go through the adapters. The lists are fetched without SDKs, which drop fields that they do not
know: a compatible host describes its models in more detail than OpenAI does. `client.py` in the folder of a
host reads its list and its vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.providers.entries import (
    check_offline_mode,
    find_api_key,
    refuse_remote_address,
    resolve_address,
    resolve_file_paths,
)
from toolchart.providers.hosts import HOSTS, find_host
from toolchart.providers.shared.failures import (
    build_bad_response_error,
    classify_exception,
    classify_http_error,
)
from toolchart.providers.transport.connections import build_client_options
from toolchart.providers.transport.reply_guard import ask_for_known_encodings_in_turn, guard_response_in_turn
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import guard_row, load_row_reference
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.json_bounds import ExcessError, parse_foreign_json

if TYPE_CHECKING:
    import httpx2


# -- requests --------------------------------------------------------------------------------------
# Lists of models and embeddings are fetched so; model calls go through the adapters.


def sign_by_headers(find_headers: Callable[[], Mapping[str, str]]) -> Callable[[Any], Any]:
    """What signs the requests of an HTTP client: it adds headers to each, found anew, since tokens expire."""

    def sign(request: Any) -> Any:
        request.headers.update(find_headers())
        return request

    return sign


class HostClient:
    """Fetches JSON from the host of an `llms` entry, with the entry's key or sign-in, headers and connection.

    The requests are made inside of `open_client`.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.
        beside: folder of the spec; certificates in the entry are relative to it.
    """

    client: httpx2.Client

    def __init__(self, config: LLMConfig, resolve: Callable[[str], str], beside: Path | None = None) -> None:
        host = find_host(config.provider)
        self.config, self.resolve = resolve_file_paths(config, beside or Path(), resolve), resolve
        self.address = resolve_address(config, resolve) or ""
        self.options = config.extra_options()
        """The keys of the entry that only its adapter knows."""
        self.auth: httpx2.Auth | Callable[[httpx2.Request], httpx2.Request] | None = None
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
        import httpx2

        options = {**build_client_options(self.config, self.resolve), "timeout": timeout_s}
        options["event_hooks"] = {
            "request": [ask_for_known_encodings_in_turn],
            "response": [guard_response_in_turn],
        }
        with httpx2.Client(headers=self.headers, auth=self.auth, **options) as client:
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
            is_error = answer.status_code >= 400
            data = (
                _decode_error_body(answer) if is_error else parse_foreign_json(answer.content, "reply_values")
            )
        except ExcessError as error:
            raise build_bad_response_error(f"the answer to {path} cannot be read: {error}") from None
        except ValueError:
            raise build_bad_response_error(f"the answer to {path} is not JSON") from None
        except Exception as error:
            raise classify_exception(error) from error
        if is_error:
            raise classify_http_error(answer.status_code, data, answer.headers)
        return data


def _decode_error_body(answer: httpx2.Response) -> Any:
    """The JSON of an error answer, or its text."""
    try:
        return parse_foreign_json(answer.content, "reply_values")
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


# -- models ----------------------------------------------------------------------------------------


_MAX_TIMEOUT_S = 20.0
"""Longest wait in seconds for one answer: a list takes less time than a reply may."""


class OfferedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a host. None means that the host does not say."""

    name: str
    tools: bool | None = None
    """Whether it calls tools natively."""
    vision: bool | None = None
    """Whether it accepts images."""
    thinking: bool | None = None
    """Whether it reasons before it answers."""
    context: int | None = None
    """Size of its context window in tokens."""


def list_models(
    config: LLMConfig, resolve: Callable[[str], str], beside: Path | None = None
) -> list[OfferedModel]:
    """The models of an entry's host, sorted by name.

    Args:
        resolve: replaces `${VARIABLE}` references by their values.
        beside: folder of the spec; certificates in the entry are relative to it.

    Raises:
        SpecError: the provider has no models to list, a variable is not set, or the host is remote in offline
            mode.
        ProviderError: the host could not be reached, refused the request, or sent no list.
    """
    row = find_host(config.provider)
    reference = row.list_models
    if not reference:
        raise SpecError(
            f"provider {config.provider!r} has no models to list",
            path="llms.*.provider",
            hint=suggest_name(config.provider, [row.name for row in HOSTS.known_rows if row.list_models]),
        )
    check_offline_mode(config, resolve)
    host = HostClient(config, resolve, beside)
    with host.open_client(min(config.timeout_s, _MAX_TIMEOUT_S)), guard_row(row):
        models: list[OfferedModel] = list(load_row_reference(row, reference)(host))
    return sorted(models, key=lambda model: model.name)


def find_model(name: str, models: list[OfferedModel]) -> OfferedModel | None:
    """The model of that name; Ollama's `:latest` and Gemini's `models/` may be left out of the name."""
    short_name = name.removeprefix("models/")
    models_by_name = {model.name: model for model in models}
    return models_by_name.get(short_name) or models_by_name.get(f"{short_name}:latest")


# -- embeddings ------------------------------------------------------------------------------------


BATCH_SIZE = 64
"""Texts per request. Source: the smallest of the hosts' own limits is Gemini's 100."""

Vector = list[float]


class HostEmbedder:
    """Fetches vectors from the host of an `llms` entry.

    Args:
        model: the host's embedding model.
        resolve: replaces `${VARIABLE}` references; called at the last moment.
        beside: folder of the spec; certificates in the entry are relative to it.

    Raises:
        SpecError: the provider has no embeddings.
    """

    def __init__(
        self, config: LLMConfig, model: str, resolve: Callable[[str], str], beside: Path | None = None
    ) -> None:
        row = find_host(config.provider)
        reference = row.fetch_embeddings
        if not reference:
            raise SpecError(
                f"provider {config.provider!r} makes no embeddings",
                path="embeddings.llm",
                hint=suggest_name(
                    config.provider, [other.name for other in HOSTS.known_rows if other.fetch_embeddings]
                ),
            )
        self._fetch_vectors: Callable[[HostClient, str, Sequence[str]], list[Vector]] = load_row_reference(
            row, reference
        )
        self._config = config
        self._model = model
        self._resolve = resolve
        self._beside = beside

    @property
    def name(self) -> str:
        """Provider and model. An index whose vectors come from another embedder must be built again."""
        return f"{self._config.provider}/{self._model}"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, all of the same length.

        Raises:
            SpecError: a variable is not set, or the host is remote in offline mode.
            ProviderError: the host could not be reached, refused the request, or sent no vectors.
        """
        check_offline_mode(self._config, self._resolve)
        host = HostClient(self._config, self._resolve, self._beside)
        with host.open_client(self._config.timeout_s):
            batches = _split_batches(texts)
            return [vector for batch in batches for vector in self._fetch_batch(host, batch)]

    def _fetch_batch(self, host: HostClient, texts: Sequence[str]) -> list[Vector]:
        vectors = self._fetch_vectors(host, self._model, texts)
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or len(lengths) != 1 or lengths == {0}:
            raise build_bad_response_error(f"{len(texts)} texts were not answered with as many vectors")
        return vectors


def _split_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), BATCH_SIZE):
        yield texts[start : start + BATCH_SIZE]
