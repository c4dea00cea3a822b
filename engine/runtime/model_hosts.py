"""Creates and keeps the providers of an agent's `llms` entries."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.engine.event_loops import begin_generator, find_running_loop, get_asyncio_loop
from toolchart.providers.hosts import find_host
from toolchart.providers.registry import create_provider
from toolchart.providers.text_calls.provider import accept_text_calls
from toolchart.specs.document_files import locate_errors
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.ports import Provider, can_stream

if TYPE_CHECKING:
    from toolchart.providers.catalogs import HostEmbedder


log = logging.getLogger("toolchart.engine")

_ANY_ENTRY = "llms.*"
"""How an adapter names the entry that it gets."""


class _LoopProviders:
    """The providers of one event loop. Connections belong to the loop that opened them: on another one a
    request is sent and its answer cannot be read."""

    def __init__(self) -> None:
        self.providers: dict[str, Provider] = {}
        """By `llms` name."""
        self.guard = _close_at_the_end(self.providers)
        """Closes them when the loop shuts its generators down, or when nobody refers to it any more."""
        begin_generator(self.guard)


class ModelHosts:
    """The providers of one agent, each created when it is first needed.

    A provider with a network is created once for each event loop, and closed with the loop.

    Args:
        ready: providers by `llms` name that replace the spec's own entries. Each is used on all event loops.
        spec_folder: folder of the spec, to which files in an entry are relative.
    """

    def __init__(self, spec: AgentSpec, ready: Mapping[str, Provider], spec_folder: Path | None) -> None:
        self._spec = spec
        self.providers = dict(ready)
        """The providers that all event loops share, by `llms` name: the ready ones, and those without a
        network that exist so far."""
        self._loops: dict[asyncio.AbstractEventLoop | None, _LoopProviders] = {}
        """The providers with a network that exist so far; under None those that no loop has used."""
        self._limiters: dict[str, Any] = {}
        """What keeps the calls of an entry below its limits, which hold for all event loops together."""
        self._lock = threading.Lock()
        self._spec_folder = spec_folder

    def get_provider(self, service: str) -> Provider:
        """The provider of an `llms` entry for the running event loop; one without a stream of its own streams
        whole replies word by word.

        Raises:
            SpecError: there is no such entry, or it cannot be used.
        """
        provider = self.get_plain_provider(service)
        if not can_stream(provider):
            provider = accept_text_calls(provider)
        return provider

    def get_plain_provider(self, service: str) -> Provider:
        """The provider of an `llms` entry for the running event loop, as the entry or the program gives it.

        Raises:
            SpecError: there is no such entry, or it cannot be used.
        """
        if service in self.providers:
            return self.providers[service]
        if service not in self._spec.llms:
            hint = suggest_name(service, self._spec.llms)
            raise SpecError(f"the agent has no llms entry {service!r}", path="llms", hint=hint)
        entry = self._spec.llms[service]
        with self._lock:
            providers = self._find_providers(needs_network=bool(find_host(entry.provider).needs_network))
            if service not in providers:
                with locate_errors(self._spec):
                    provider = create_model_provider(entry, f"llms.{service}", beside=self._spec_folder)
                self._limiters[service] = getattr(provider, "limiter", None)
                providers[service] = provider
            return providers[service]

    def _find_providers(self, *, needs_network: bool) -> dict[str, Provider]:
        """The providers of the running event loop, or those of all loops; those of dead loops are dropped."""
        if not needs_network:
            return self.providers
        loop = find_running_loop()
        if loop not in self._loops:
            for other in [other for other in self._loops if other is not None and other.is_closed()]:
                del self._loops[other]
            self._loops[loop] = _LoopProviders()
        return self._loops[loop].providers

    async def aclose(self) -> None:
        """Close the connections of all providers; one that cannot be closed does not stop the others.

        Those of other event loops are closed by their loops, as soon as they run; those of dead ones are
        dropped.
        """
        loop = get_asyncio_loop()
        with self._lock:
            loops, self._loops = self._loops, {}
        for key in (loop, None):
            if key in loops:
                await loops.pop(key).guard.aclose()
        loops.clear()
        await _close_providers(self.providers)


async def _close_at_the_end(providers: dict[str, Provider]) -> AsyncGenerator[None]:
    """Wait until the event loop ends, and close its providers then."""
    try:
        yield
    finally:
        await _close_providers(providers)
        providers.clear()


async def _close_providers(providers: Mapping[str, Provider]) -> None:
    for name, provider in list(providers.items()):
        try:
            await provider.aclose()
        except Exception as error:  # its event loop is dead, for instance: nothing is left to do
            log.debug("the connections of llms.%s were not closed: %s", name, error)


def create_model_provider(
    config: LLMConfig, where: str = _ANY_ENTRY, *, beside: Path | None = None
) -> Provider:
    """The provider of an `llms` entry, with each `${VARIABLE}` replaced from the environment.

    Args:
        where: key path of the entry, for errors.
        beside: folder of the spec, to which files in the entry are relative.

    Raises:
        SpecError: the entry cannot be used.
    """

    def resolve_variables(text: str) -> str:
        return resolve_environment(text, where)

    try:
        return create_provider(config, resolve=resolve_variables, beside=beside)
    except SpecError as error:
        if error.path is None or not error.path.startswith(_ANY_ENTRY):
            raise
        path = where + error.path.removeprefix(_ANY_ENTRY)
        raise SpecError(error.message, file=error.file, line=error.line, path=path, hint=error.hint) from None


def build_embedder_factory(spec: AgentSpec) -> Callable[[str, str], HostEmbedder]:
    """A function that creates the embedder of an `llms` entry and an embedding model."""

    def create_embedder(llm: str, model: str) -> HostEmbedder:
        from toolchart.providers.catalogs import HostEmbedder

        if llm not in spec.llms:
            raise SpecError(
                f"there is no llm {llm!r}",
                file=spec.source,
                path="embeddings.llm",
                hint=suggest_name(llm, spec.llms),
            )
        resolve = partial(resolve_environment, where=f"llms.{llm}")
        return HostEmbedder(spec.llms[llm], model, resolve, Path(spec.source).parent if spec.source else None)

    return create_embedder
