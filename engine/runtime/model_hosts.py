"""The provider of an `llms` entry, also of one that answers from a log, which only the engine can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from toolchart.engine.log.replay import replay_of, still_waiting
from toolchart.engine.log.stores import open_store
from toolchart.providers.embeddings import HostEmbedder
from toolchart.providers.recording.canonical_requests import asked_of
from toolchart.providers.recording.player import RecordedProvider, recorded_settings
from toolchart.providers.recording.recorded_calls import Take
from toolchart.providers.registry import create_provider
from toolchart.specs.models import AgentSpec, LLMConfig
from toolchart.specs.secrets import resolve
from toolchart.states.effects import CallModel, Effect
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.events import Failed, Replied
from toolchart.states.messages import Reply
from toolchart.states.ports import Provider, Store
from toolchart.states.suggestions import nearest


class Hosts:
    """The providers of one agent, each made when it is first asked for.

    Args:
        ready: providers by `llms` name that go before the spec's own entries.
        beside: folder of the spec.
    """

    def __init__(self, spec: AgentSpec, ready: Mapping[str, Provider], beside: Path | None) -> None:
        self._spec = spec
        self.made = dict(ready)
        """Those that were given or made so far, by `llms` name."""
        self._beside = beside

    def of(self, service: str) -> Provider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no such entry, or it cannot be used.
        """
        if service not in self.made:
            if service not in self._spec.llms:
                hint = nearest(service, self._spec.llms)
                raise SpecError(f"the agent has no llms entry {service!r}", path="llms", hint=hint)
            entry = self._spec.llms[service]
            self.made[service] = model_host(entry, f"llms.{service}", beside=self._beside)
        return self.made[service]

    async def aclose(self) -> None:
        """Give back every connection."""
        for provider in self.made.values():
            await provider.aclose()


def model_host(config: LLMConfig, where: str = "llms.*", *, beside: Path | None = None) -> Provider:
    """The provider of an entry, its `${VARIABLE}`s filled in from the environment.

    Args:
        where: key path of the entry, for errors.
        beside: folder of the spec, to which files in the entry are relative.

    Raises:
        SpecError: the entry cannot be used.
        LogUnavailable, LogDamaged: the log that it names cannot be opened, or is not what was written.
    """

    def resolved(text: str) -> str:
        return resolve(text, where)

    if config.provider != RecordedProvider.name or not config.extras().get("log"):
        return create_provider(config, resolve=resolved, beside=beside)
    settings = recorded_settings(config)
    address = resolved(str(settings.log))
    place = address if "://" in address else str((beside or Path()) / address)
    return RecordedProvider(log_takes(place, settings.conversation), match=settings.match)


def embedder_of(spec: AgentSpec) -> Callable[[str, str], HostEmbedder]:
    """From the name of an entry of this agent's `llms` and an embedding model to its embedder."""

    def made(llm: str, model: str) -> HostEmbedder:
        if llm not in spec.llms:
            raise SpecError(
                f"there is no llm {llm!r}",
                file=spec.source,
                path="embeddings.llm",
                hint=nearest(llm, spec.llms),
            )
        return HostEmbedder(spec.llms[llm], model, partial(resolve, where=f"llms.{llm}"))

    return made


def log_takes(address: str, conversation: str | None) -> list[Take]:
    """The model calls of a logged conversation, in order.

    Args:
        conversation: its name; None where the log holds one only.

    Raises:
        SpecError: there is no such conversation, or several and none was named.
        LogUnavailable, LogDamaged, ReplayMismatch: the log cannot be read, or not trusted.
    """
    store = open_store(address, create=False)
    try:
        name = _chosen(store, conversation)
        return list(_takes(store, name))
    finally:
        store.close()


def _chosen(store: Store, conversation: str | None) -> str:
    known = list(store.conversations())
    if conversation in known:
        return str(conversation)
    if conversation is None and len(known) == 1:
        return known[0]
    wanted = f"no conversation {conversation!r}" if conversation else f"{len(known)} conversations"
    raise SpecError(
        f"the log has {wanted}",
        path="llms.*.conversation",
        hint=nearest(conversation or "", known) if known else "the log is empty",
    )


def _takes(store: Store, name: str) -> Iterator[Take]:
    """Each request with the event that answered it. A fork's shared beginning is a part of it."""
    waiting: list[Effect] = []
    for one in replay_of(store, name, whole=True):
        event = one.record.decoded()
        if isinstance(event, (Replied, Failed)):
            for effect in waiting:
                if isinstance(effect, CallModel):
                    place = f"record {one.record.seq} of conversation {name}"
                    yield Take(place=place, asked=asked_of(effect.request), answer=_answer(event))
        waiting = still_waiting(waiting, event.TYPE, one.step)


def _answer(event: Replied | Failed) -> Callable[[], Reply]:
    def again() -> Reply:
        if isinstance(event, Replied):
            return event.reply
        raise ProviderError(
            kind=event.kind,
            message=event.message,
            status=event.status,
            retryable=event.retryable,
            retry_after_s=event.retry_after_s,
        )

    return again
