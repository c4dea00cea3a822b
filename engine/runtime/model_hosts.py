"""Creates the providers of an agent's `llms` entries, also those that answer from a log.

Most entries are created by `providers/registry.py`. An entry with `provider: recorded` and `log` is
created here, because only the engine can read a log.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.engine.event_loops import begin_generator, find_running_loop
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import find_store, open_store
from toolchart.providers.hosts import find_host
from toolchart.providers.registry import create_provider
from toolchart.providers.text_calls.provider import accept_text_calls
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.states.effects import CallModel
from toolchart.states.errors import ProviderError, SpecError, suggest_name
from toolchart.states.events import Failed, Replied
from toolchart.states.messages import Reply, Request
from toolchart.states.ports import Provider, Store, can_stream

if TYPE_CHECKING:
    from toolchart.engine.telemetry.debug_files import DebugFiles
    from toolchart.providers.catalogs import HostEmbedder
    from toolchart.providers.recording.player import RecordedCall


log = logging.getLogger("toolchart.engine")


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
        debug_files: names the cassettes of raw responses.
    """

    def __init__(
        self,
        spec: AgentSpec,
        ready: Mapping[str, Provider],
        spec_folder: Path | None,
        debug_files: DebugFiles | None = None,
    ) -> None:
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
        self._debug_files = debug_files

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
                entry = self._add_cassette(service, entry)
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

    def _add_cassette(self, service: str, entry: LLMConfig) -> LLMConfig:
        """The entry, which keeps its raw responses where the section `debug` asks for it."""
        if self._debug_files is None or entry.record or not find_host(entry.provider).needs_network:
            return entry
        cassette = self._debug_files.name_cassette(service, date.today().isoformat())
        return entry.model_copy(update={"record": str(cassette.resolve())}) if cassette else entry

    async def aclose(self) -> None:
        """Close the connections of all providers; one that cannot be closed does not stop the others.

        Those of other event loops are closed by their loops, as soon as they run; those of dead ones are
        dropped.
        """
        loop = asyncio.get_running_loop()
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
    config: LLMConfig, where: str = "llms.*", *, beside: Path | None = None
) -> Provider:
    """The provider of an `llms` entry, with each `${VARIABLE}` replaced from the environment.

    Args:
        where: key path of the entry, for errors.
        beside: folder of the spec, to which files in the entry are relative.

    Raises:
        SpecError: the entry cannot be used.
        LogUnavailable, LogDamaged: the log that the entry names cannot be opened, or is damaged.
    """

    def resolve_variables(text: str) -> str:
        return resolve_environment(text, where)

    if find_host(config.provider).answers_from_log and config.extra_options().get("log"):
        return _create_log_player(config, resolve_variables, beside or Path())
    return create_provider(config, resolve=resolve_variables, beside=beside)


def _create_log_player(config: LLMConfig, resolve: Callable[[str], str], folder: Path) -> Provider:
    """The provider of an entry that answers from a log."""
    from toolchart.providers.recording.player import RecordedProvider, read_recorded_settings

    settings = read_recorded_settings(config)
    address = resolve(str(settings.log))
    if find_store(address).is_path:
        address = str(folder / address)
    calls = read_recorded_calls(address, settings.conversation)
    return RecordedProvider(calls, match=settings.match)


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


def read_recorded_calls(address: str, conversation: str | None) -> list[RecordedCall]:
    """The model calls of a logged conversation, in order.

    Args:
        address: of the log, as for `open_store`.
        conversation: its name; None where the log holds only one.

    Raises:
        SpecError: there is no such conversation, or there are several and none was named.
        LogUnavailable, LogDamaged, ReplayMismatch: the log cannot be read, or is damaged.
    """
    store = open_store(address, create=False)
    try:
        name = _select_conversation(store, conversation)
        return list(_iterate_recorded_calls(store, name))
    finally:
        store.close()


def _select_conversation(store: Store, conversation: str | None) -> str:
    """The name of the requested conversation, or of the only one."""
    names = list(store.list_conversations())
    if conversation in names:
        return str(conversation)
    if conversation is None and len(names) == 1:
        return names[0]
    count = f"no conversation {conversation!r}" if conversation else f"{len(names)} conversations"
    raise SpecError(
        f"the log has {count}",
        path="llms.*.conversation",
        hint=suggest_name(conversation or "", names) if names else "the log is empty",
    )


def _iterate_recorded_calls(store: Store, name: str) -> Iterator[RecordedCall]:
    """Each request with the event that answered it, including what a fork shares with its parent."""
    from toolchart.providers.recording.player import RecordedCall
    from toolchart.providers.recording.request_readers import canonicalize_request

    requests: dict[int, Request] = {}
    for replay_step in replay_conversation(store, name, include_shared=True):
        event = replay_step.record.decode_event()
        if isinstance(event, (Replied, Failed)) and event.effect in requests:
            yield RecordedCall(
                location=f"record {replay_step.record.seq} of conversation {name}",
                request=canonicalize_request(requests[event.effect]),
                get_reply=_build_answer(event),
            )
        for effect in replay_step.step.effects:
            if isinstance(effect, CallModel):
                requests[effect.id] = effect.request


def _build_answer(event: Replied | Failed) -> Callable[[], Reply]:
    """A function that returns the recorded reply or raises the recorded failure again."""

    def replay_answer() -> Reply:
        if isinstance(event, Replied):
            return event.reply
        raise ProviderError(
            kind=event.kind,
            message=event.message,
            status=event.status,
            retryable=event.retryable,
            retry_after_s=event.retry_after_s,
        )

    return replay_answer
