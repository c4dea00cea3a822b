"""Create the provider of an `llms` entry: find its host in the table, and load the adapter.

Adapters are imported only when they are needed, so that no library is loaded in vain.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.entries import check_offline_mode, resolve_address, resolve_file_paths
from toolchart.providers.hosts import find_host
from toolchart.providers.text_calls.provider import TextCallProvider, accept_text_calls
from toolchart.providers.text_calls.scanner import find_text_call_warnings
from toolchart.providers.transport.batches import build_no_batch_error
from toolchart.providers.transport.limits import find_limiter, keep_rate_limits
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_environment, remember_spec_secrets
from toolchart.states.descriptors import load_row_reference
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.ports import BodyBuilder, Provider

if TYPE_CHECKING:
    from toolchart.providers.transport.connections import HttpHooks

_CONNECTION_KEYS = ("proxy", "ca_file", "client_certificate")
"""Keys of an entry that only a provider with a network needs."""


def create_provider(
    config: LLMConfig, *, resolve: Callable[[str], str], beside: Path | None = None
) -> Provider:
    """The provider of an `llms` entry.

    Args:
        resolve: replaces `${VARIABLE}` references; called here for key and address, as late as possible.
        beside: folder of the spec; files in the entry are relative to it.

    Raises:
        SpecError: an unknown provider, an unset variable, a setting that the adapter refuses, or a remote
            host in offline mode.
    """
    host = find_host(config.provider)
    check_offline_mode(config, resolve)
    remember_environment()
    remember_spec_secrets(config.model_dump(exclude_unset=True))
    config = resolve_file_paths(config, beside or Path(), resolve)
    adapter = load_row_reference(host, host.adapter)
    limiter = find_limiter(config, resolve_address(config, resolve))
    hooks: list[HttpHooks] = [{"request": [], "response": [keep_rate_limits]}]
    if limiter is not None:
        hooks.append(limiter.build_hooks())
    provider = _create_adapter(adapter, config, resolve, hooks)
    if isinstance(provider, HostAdapter):
        provider.timeout_s, provider.limiter = config.timeout_s, limiter
        provider.counts_tokens = config.count_tokens == "host"
        if config.tool_format == "native":
            provider.find_text_calls = find_text_call_warnings
        provider.batch_gather_s, provider.batch_poll_s = config.batch_gather_s, config.batch_poll_s
    if config.count_tokens == "host" and not getattr(provider, "has_counter", False):
        raise SpecError(
            f"the host of provider {config.provider!r} has no counter of tokens",
            path="llms.*.count_tokens",
            hint="write `count_tokens: estimate`, or nothing",
        )
    return _wrap_text_calls(provider, config)


def _create_adapter(
    adapter: Any, config: LLMConfig, resolve: Callable[[str], str], hooks: list[HttpHooks]
) -> Provider:
    """The adapter of an entry, with the hooks where it has an HTTP client."""
    if not hooks or "hooks" not in inspect.signature(adapter.from_config).parameters:
        return cast(Provider, adapter.from_config(config, resolve))
    merged_hooks = {
        kind: [hook for one in hooks for hook in one.get(kind, ())] for kind in ("request", "response")
    }
    return cast(Provider, adapter.from_config(config, resolve, merged_hooks))


def create_body_builder(config: LLMConfig, *, resolve: Callable[[str], str]) -> BodyBuilder:
    """Builds the bodies that the provider of an entry sends, without its key, its files and a network.

    The address is resolved, because it decides how some hosts spell an option. Other variables stay as they
    are written: they lead to keys and headers, which are no part of a body.

    Args:
        resolve: replaces `${VARIABLE}` references in the address.

    Raises:
        SpecError: an unknown provider, an unset variable in the address, or a setting that the adapter
            refuses.
    """
    return accept_text_calls(_wrap_text_calls(_create_keyless_adapter(config, resolve), config))


def _create_keyless_adapter(config: LLMConfig, resolve: Callable[[str], str]) -> Provider:
    """The adapter of an entry for work that calls no host. Raises SpecError."""
    host = find_host(config.provider)
    placeholders: dict[str, Any] = {"api_key": "none", **dict.fromkeys(_CONNECTION_KEYS)}
    if host.needs_network and resolve_address(config, resolve) is None:
        placeholders["base_url"] = "http://none.invalid"

    def resolve_address_only(text: str) -> str:
        return resolve(text) if text == config.base_url else text

    adapter = load_row_reference(host, host.adapter)
    return cast(Provider, adapter.from_config(config.model_copy(update=placeholders), resolve_address_only))


def check_batch(config: LLMConfig, path: str) -> None:
    """Refuse `batch: true` for a host that has no batch API, before any conversation.

    An address that is a variable is not looked up here: then the call says it.

    Args:
        path: where `batch` stands in the spec.

    Raises:
        SpecError: no batch API is known of the host.
    """
    if not find_host(config.provider).needs_network or "${" in (config.base_url or ""):
        return
    adapter = _create_keyless_adapter(config, str)
    try:
        if not isinstance(adapter, HostAdapter):
            raise build_no_batch_error(config.provider, "")
        adapter.find_batch_api({})
    except ProviderError as error:
        message, _, hint = error.message.partition(". ")
        raise SpecError(message, path=path, hint=hint) from None


def _wrap_text_calls(provider: Provider, config: LLMConfig) -> Provider:
    """The provider, wrapped if the entry wants calls as text."""
    if config.tool_format == "native":
        return provider
    return TextCallProvider(provider, config.tool_format)
