"""Compares the bodies that a log's model calls sent with those that the adapters build today.

The log holds a digest of each body as the adapter handed it over. Replay derives the request; here the
adapter builds the body of that request again, without a key and without a network. So a change in an adapter
is found, and not only one in the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from toolchart.engine.log.replay import ReplayedStep
from toolchart.providers.adapter import compute_wire_digest
from toolchart.providers.hosts import HOSTS
from toolchart.providers.registry import create_body_builder
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import resolve_environment
from toolchart.states.effects import CallModel
from toolchart.states.errors import ProviderError, ReplayMismatch, SpecError, suggest_name
from toolchart.states.events import Failed, Replied
from toolchart.states.messages import Request
from toolchart.states.ports import BodyBuilder


class WireComparison:
    """Compares the bodies of one conversation.

    Args:
        spec: the agent whose `llms` entries build the bodies; None takes the one of the log, with its secrets
            left out.
    """

    def __init__(self, spec: AgentSpec | None = None) -> None:
        self.bodies = 0
        """Bodies that were built again and are equal."""
        self._given_spec = spec
        self._builders: dict[str, BodyBuilder] = {}
        self._requests: dict[int, tuple[str, Request]] = {}
        """`llms` entry and request by the id of the effect."""

    def compare_steps(self, steps: Iterable[ReplayedStep]) -> Iterator[ReplayedStep]:
        """The same steps; each answer to a model call is compared on the way.

        Raises:
            ReplayMismatch: the adapter builds another body; the cause is `adapter`.
            SpecError: the `llms` entry of a call cannot be used.
        """
        for replayed_step in steps:
            event = replayed_step.record.decode_event()
            if isinstance(event, (Replied, Failed)):
                self._compare_body(replayed_step, event)
            settings = replayed_step.step.snapshot.settings
            for effect in replayed_step.step.effects:
                if isinstance(effect, CallModel) and settings is not None:
                    self._requests[effect.id] = (settings.service, effect.request)
            yield replayed_step

    def _compare_body(self, replayed_step: ReplayedStep, event: Replied | Failed) -> None:
        is_reply = isinstance(event, Replied)
        recorded_digest = event.reply.wire_digest if isinstance(event, Replied) else event.wire_digest
        if recorded_digest is None or event.effect not in self._requests:
            return
        service, request = self._requests[event.effect]
        builder = self._get_builder(service, replayed_step)
        digests = [_build_digest(builder, request, is_streamed) for is_streamed in (False, True)]
        if recorded_digest not in digests:
            raise ReplayMismatch(
                seq=replayed_step.record.seq,
                pointer="/event/reply/wire_digest" if is_reply else "/event/wire_digest",
                expected=recorded_digest,
                actual=digests[0],
                blame="adapter",
            )
        self.bodies += 1

    def _get_builder(self, service: str, replayed_step: ReplayedStep) -> BodyBuilder:
        if service not in self._builders:
            spec = self._given_spec or load_spec(replayed_step.configured.spec)
            if service not in spec.llms:
                hint = suggest_name(service, spec.llms)
                raise SpecError(f"the agent has no llms entry {service!r}", path="llms", hint=hint)
            if self._given_spec is None:
                _refuse_foreign_adapter(service, spec.llms[service].provider)
            # What a log says never resolves a variable; what the operator wrote may.
            where = f"llms.{service}"
            resolve = partial(resolve_environment, where=where) if self._given_spec else _keep_text
            self._builders[service] = create_body_builder(spec.llms[service], resolve=resolve)
        return self._builders[service]


def _refuse_foreign_adapter(service: str, provider: str) -> None:
    """Refuse to call the adapter of another package because a log names it.

    Raises:
        SpecError: the provider is none of this package.
    """
    if provider not in [row.name for row in HOSTS.builtin_rows]:
        raise SpecError(
            f"the adapter of {provider!r} is of another package, and a log alone does not call it",
            path=f"llms.{service}.provider",
            hint="name your own agent spec: --spec agent.yaml",
        )


def _keep_text(text: str) -> str:
    return text


def _build_digest(builder: BodyBuilder, request: Request, is_streamed: bool) -> str:
    try:
        return compute_wire_digest(builder, request, stream=is_streamed)
    except ProviderError as error:
        return f"no body: {error.message}"
