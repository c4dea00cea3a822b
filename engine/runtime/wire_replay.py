"""Compares what a log's model calls sent, and what they got, with what the adapters make of it today.

The log holds a digest of each body as the adapter handed it over, and one of each answer as the host sent it.
Replay derives the request; here the adapter builds the body of that request again, without a key and without
a network. Where the log keeps the raw answers (`log_answers`), the adapter decodes each of them again, by the
code that decodes live ones, and the whole reply is compared. So a change in an adapter is found, in either
direction, and not only one in the core.

What cannot be compared is counted by its reason and never ends the replay: the log may be of a host whose
adapter is not installed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.replay import ReplayedStep
from toolchart.providers.adapter import compute_plain_digest, compute_wire_digest
from toolchart.providers.hosts import HOSTS
from toolchart.providers.prices import UNKNOWN_COST
from toolchart.providers.registry import create_body_builder
from toolchart.providers.transport.raw_answers import AnswerCapture, compute_answer_digest, read_raw_answer
from toolchart.specs.loader import load_spec
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import resolve_environment
from toolchart.states.call_arguments import bound_calls, get_call_limit
from toolchart.states.canonical_json import find_first_difference
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.effects import CallModel
from toolchart.states.errors import ProviderError, ReplayMismatch, SpecError, ToolchartError, suggest_name
from toolchart.states.events import Configured, Failed, Replied
from toolchart.states.messages import RawAnswer, Reply, Request, Usage
from toolchart.states.plugins import describe_failure
from toolchart.states.ports import AnswerDecoder, BodyBuilder


class WireComparison:
    """Compares the bodies and the raw answers of conversations.

    Args:
        spec: the agent whose `llms` entries build the bodies; None takes the one of the log, with its secrets
            left out.
    """

    def __init__(self, spec: AgentSpec | None = None) -> None:
        self.bodies = 0
        """Bodies that were built again and are equal."""
        self.answers = 0
        """Raw answers that were decoded again to equal replies."""
        self.uncompared_bodies: Counter[str] = Counter()
        """By reason: how many bodies could not be built again."""
        self.uncompared_answers: Counter[str] = Counter()
        """By reason: how many answers could not be decoded again."""
        self._given_spec = spec

    def compare_steps(self, steps: Iterable[ReplayedStep]) -> Iterator[ReplayedStep]:
        """The same steps of one conversation; each answer to a model call is compared on the way.

        Raises:
            ReplayMismatch: the adapter builds another body, or reads another reply; the cause is `adapter`.
        """
        calls: dict[int, _Call] = {}
        adapters = _Adapters(self._given_spec)
        for replayed_step in steps:
            event = replayed_step.record.decode_event()
            if isinstance(event, (Replied, Failed)) and event.effect in calls:
                self._compare_call(replayed_step, event, calls.pop(event.effect), adapters)
            settings = replayed_step.step.snapshot.settings
            asks = {ask.id: ask for ask in replayed_step.record.asks}
            for effect in replayed_step.step.effects:
                if isinstance(effect, CallModel) and settings is not None:
                    calls[effect.id] = _Call(
                        service=effect.host or settings.service,
                        request=effect.request,
                        is_redacted=effect.id in asks and bool(asks[effect.id].sent),
                        call_limit=get_call_limit(settings.limits.max_calls_per_reply),
                    )
            yield replayed_step
        if calls:
            self.uncompared_bodies["their calls have no answer"] += len(calls)

    def _compare_call(
        self, replayed_step: ReplayedStep, event: Replied | Failed, call: _Call, adapters: _Adapters
    ) -> None:
        """Compare the body of a call with the recorded digest, and its raw answer with the event."""
        wire_digest = event.reply.wire_digest if isinstance(event, Replied) else event.wire_digest
        if wire_digest is None:
            self.uncompared_bodies["the log has no digest of them"] += 1
            if event.answer_digest is None:
                return
        seq = replayed_step.record.seq
        adapter, problem = adapters.find(call, replayed_step, event.reply)
        if wire_digest is not None:
            problem = problem or _find_body_problem(seq, event, wire_digest, call, adapter)
            if problem:
                self.uncompared_bodies[problem] += 1
            else:
                self.bodies += 1
        if event.answer_digest is None:
            return
        if not problem and event.raw_answer is None:
            is_redacted = bool(replayed_step.configured.spec.get("redact"))
            problem = "the log is redacted" if is_redacted else "the log does not keep them"
        if not problem and adapter is not None and event.raw_answer is not None:
            problem = _find_answer_problem(seq, event, event.raw_answer, call, adapter)
        if problem:
            self.uncompared_answers[problem] += 1
        else:
            self.answers += 1


class _Call(msgspec.Struct, kw_only=True):
    """A model call that has no answer yet."""

    service: str
    """The `llms` entry."""
    request: Request
    is_redacted: bool
    """Whether another request was sent than the derived one."""
    call_limit: int
    """The most calls of the reply that were kept."""
    host: str = ""
    """The `provider` of the entry."""
    has_unknown_address: bool = False
    """Whether the address of the host is a variable, which a log does not resolve."""


def _build_mismatch(seq: int, call: _Call, pointer: str, old_value: Any, new_value: Any) -> ReplayMismatch:
    return ReplayMismatch(
        seq=seq, pointer=pointer, expected=old_value, actual=new_value, blame="adapter", host=call.host
    )


def _find_body_problem(
    seq: int, event: Replied | Failed, wire_digest: str, call: _Call, adapter: BodyBuilder | None
) -> str:
    """Build the body of a call again and compare its digest; why that cannot be done, else empty.

    Raises:
        ReplayMismatch: the adapter builds another body.
    """
    assert adapter is not None, "there is no problem"
    first_digest = ""
    for digest in _iterate_digests(adapter, call.request):
        first_digest = first_digest or digest
        if digest == wire_digest:
            return ""
    if call.has_unknown_address:
        return "the log does not have the address of their host"
    pointer = "/event/reply/wire_digest" if isinstance(event, Replied) else "/event/wire_digest"
    raise _build_mismatch(seq, call, pointer, wire_digest, first_digest)


# -- answers -----------------------------------------------------------------------------------------


def _find_answer_problem(
    seq: int, event: Replied | Failed, raw: RawAnswer, call: _Call, adapter: BodyBuilder
) -> str:
    """Compare a kept answer with what the event says of it; why that cannot be done, else empty.

    Raises:
        ReplayMismatch: the adapter reads another reply, or another failure.
    """
    try:
        content = read_raw_answer(raw)
    except ValueError as error:
        return str(error)
    digest = compute_answer_digest(content)
    if digest != event.answer_digest:
        raise _build_mismatch(seq, call, "/event/answer_digest", event.answer_digest, digest)
    capture = None
    try:
        if not isinstance(adapter, AnswerDecoder):
            raise NotImplementedError
        status = raw.status or 200
        with AnswerCapture() as capture:
            decoded: Reply | ProviderError = adapter.decode_again(
                call.request, content, status=status, is_streamed=raw.is_streamed
            )
    except NotImplementedError:
        return "their adapter does not decode kept answers"
    except ProviderError as error:
        decoded = error
    except Exception as error:  # a bug in an adapter is a failed call when the answer comes, and here too
        decoded = ProviderError(kind="bad_response", message=describe_failure(error))
    if isinstance(event, Failed) and event.reply is None and (raw.is_cut or event.kind == "timeout"):
        return "the call was given up before the answer was whole"
    if isinstance(decoded, Reply):
        decoded, usage = bound_calls(decoded, call.call_limit), decoded.usage
    else:
        usage = capture.read_usage() if capture is not None else None
    expected_answer = _describe_recorded_answer(event, usage)
    actual_answer = _describe_decoded_answer(decoded, usage)
    if expected_answer != actual_answer:
        raise _build_mismatch(seq, call, *find_first_difference("/event", expected_answer, actual_answer))
    return ""


_OUTSIDE_BYTES = ("wire_digest", "rate_limits")
"""Keys of a reply that do not come from the bytes of the answer: the digest of the body, and headers."""


def _describe_recorded_answer(event: Replied | Failed, decoded_usage: Usage | None) -> dict[str, Any]:
    """What an event says of the answer, as far as the bytes of the answer decide it."""
    usage = event.paid_usage
    if usage is not None and decoded_usage is not None and decoded_usage.cost is None:
        usage = replace(usage, cost=None)  # it is of the spec's price table
    if event.reply is None:
        assert isinstance(event, Failed), "`replied` has a reply"
        return _describe_failure(event, event.retryable, usage)
    reply = event.reply
    kept_warnings = [text for text in reply.warnings if not text.endswith(UNKNOWN_COST)]
    return {"reply": _describe_reply(replace(reply, warnings=tuple(kept_warnings), usage=usage))}


def _describe_decoded_answer(decoded: Reply | ProviderError, usage: Usage | None) -> dict[str, Any]:
    """What the adapter makes of the answer, in the same form."""
    if isinstance(decoded, ProviderError):
        return _describe_failure(decoded, decoded.retryable, usage)
    plain, _ = make_plain_event(Replied(at="", effect=0, reply=decoded))
    assert isinstance(plain, Replied), "it stays what it is"
    return {"reply": _describe_reply(plain.reply)}


def _describe_reply(reply: Reply) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(reply)
    data = {key: value for key, value in data.items() if key not in _OUTSIDE_BYTES}
    if "provider_data" in data:  # the host is an address, which the log may not have
        data["provider_data"] = {key: value for key, value in data["provider_data"].items() if key != "host"}
    return data


def _describe_failure(
    failure: Failed | ProviderError, is_retryable: bool, usage: Usage | None
) -> dict[str, Any]:
    # Whether a call without money may be tried again stands in the headers of its answer.
    is_retryable = is_retryable and failure.status != 402
    counts = {} if usage is None else {"usage": msgspec.to_builtins(usage)}
    return {"kind": failure.kind, "status": failure.status, "retryable": is_retryable, **counts}


# -- adapters --------------------------------------------------------------------------------------


_NO_HOST = "address.invalid"
"""Stands for a host whose address is a variable. Source: RFC 2606, 2: nobody has it."""


class _Adapters:
    """The adapters of the `llms` entries of one conversation, without keys.

    Args:
        given_spec: the operator's own agent; None takes that of the log.
    """

    def __init__(self, given_spec: AgentSpec | None) -> None:
        self._given_spec = given_spec
        self._configured: Configured | None = None
        self._spec = given_spec
        self._adapters: dict[tuple[str, str], BodyBuilder] = {}
        """By `llms` entry, and name and port of its host."""
        self._problems: dict[str, str] = {}
        """By `llms` entry: why there is no adapter."""
        self._host_names: dict[str, str] = {}
        """By `llms` entry: name and port of the host that answered, where a reply says it."""

    def find(
        self, call: _Call, replayed_step: ReplayedStep, reply: Reply | None
    ) -> tuple[BodyBuilder | None, str]:
        """The adapter of a call, or why there is none.

        Args:
            reply: of the call. Its private data names the host. The address may have come from the
                environment, which the log does not have.
        """
        if call.is_redacted:
            return None, "the log is redacted"
        if self._given_spec is None and replayed_step.configured is not self._configured:
            self._configured, self._spec = replayed_step.configured, None
            self._adapters, self._problems = {}, {}
        service = call.service
        if reply is not None and reply.provider_data is not None and reply.provider_data.get("host"):
            self._host_names[service] = str(reply.provider_data["host"])
        host_name = self._host_names.get(service, "")
        if (service, host_name) not in self._adapters and service not in self._problems:
            try:
                self._adapters[service, host_name] = self._create_adapter(service, host_name)
            except Exception as error:  # the entry of a log may be anything, and a package may be missing
                text = str(error) if isinstance(error, ToolchartError) else describe_failure(error)
                self._problems[service] = " ".join(text.split())
        if service in self._problems:
            return None, self._problems[service]
        call.host = self._find_provider(service)
        call.has_unknown_address = not host_name and self._has_variable_address(service)
        return self._adapters[service, host_name], ""

    def _create_adapter(self, service: str, host_name: str) -> BodyBuilder:
        """An adapter without its key.

        Raises:
            SpecError: the entry cannot be used here.
        """
        if self._spec is None:
            assert self._configured is not None, "`find` has set it"
            self._spec = load_spec(self._configured.spec)
        if service not in self._spec.llms:
            hint = suggest_name(service, self._spec.llms)
            raise SpecError(f"the agent has no llms entry {service!r}", path="llms", hint=hint)
        config = self._spec.llms[service]
        if self._given_spec is not None:
            # What a log says never resolves a variable; what the operator wrote may.
            return create_body_builder(config, resolve=partial(resolve_environment, where=f"llms.{service}"))
        _refuse_foreign_adapter(service, config.provider)
        if config.base_url and "${" in config.base_url:
            config = config.model_copy(update={"base_url": f"https://{host_name or _NO_HOST}"})
        elif host_name and not config.base_url:
            config = config.model_copy(update={"base_url": f"https://{host_name}"})
        return create_body_builder(config, resolve=_keep_text)

    def _find_provider(self, service: str) -> str:
        assert self._spec is not None, "the adapter was made of it"
        return self._spec.llms[service].provider

    def _has_variable_address(self, service: str) -> bool:
        assert self._spec is not None, "the adapter was made of it"
        return self._given_spec is None and "${" in (self._spec.llms[service].base_url or "")


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


def _iterate_digests(adapter: BodyBuilder, request: Request) -> Iterator[str]:
    """The digests of the bodies that the request can have: whole, streamed, and of no host at all.

    A script or a log that answered in place of the host has the request itself as its body.
    """
    for is_streamed in (False, True):
        try:
            yield compute_wire_digest(adapter, request, stream=is_streamed)
        except Exception as error:  # what was built once is not built any more: a difference like another
            yield f"no body: {error}"
    yield compute_plain_digest(request)
