"""What a stream must be to keep a log, and what it may hold: it is created, checked, and verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart import ForeignLog, LogDamaged, LogUnavailable, NewerLog
from toolchart.engine.log.stores.base import DERIVED_KINDS
from toolchart_nats.connection import NatsAddress, Stream
from toolchart_nats.messages import Subjects, decode_token

_FORMAT = "1"
_FORMAT_KEY = "toolchart_format"
_NOT_FOUND, _IN_USE, _OVERLAP = 10059, 10058, 10065


async def create_stream(stream: Stream, address: NatsAddress, subjects: Subjects) -> Mapping[str, Any]:
    """Create the stream of a log; the answer of the server, or that to whoever was faster."""
    config = {
        "name": address.name,
        "subjects": [subjects.everything],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
        "metadata": {_FORMAT_KEY: _FORMAT},
    }
    answer = await stream.ask(f"STREAM.CREATE.{address.name}", config)
    if answer.get("error", {}).get("err_code") == _IN_USE:
        return await stream.ask(f"STREAM.INFO.{address.name}")
    return answer


def check_stream(answer: Mapping[str, Any], address: NatsAddress, subjects: Subjects) -> None:
    """Check that a stream is that of a log, and keeps it.

    Raises:
        ForeignLog: it is none.
        NewerLog: a later release made it.
        LogUnavailable: there is no stream, or its configuration would lose records.
    """
    error = answer.get("error")
    if error is not None:
        _refuse_answer(error, address)
    config = answer["config"]
    if config.get("subjects") != [subjects.everything]:
        raise ForeignLog(f"{address.place}: the stream {address.name!r} is no log of Toolchart")
    written = config.get("metadata", {}).get(_FORMAT_KEY, _FORMAT)
    if written != _FORMAT:
        raise NewerLog(f"{address.place} has format {written!r}; this release reads {_FORMAT!r}")
    needs = list(_iterate_limits(config))
    if needs:
        raise LogUnavailable(
            f"{address.place}: this stream cannot keep a log\n  configure it so that {', '.join(needs)}"
        )


def _refuse_answer(error: Mapping[str, Any], address: NatsAddress) -> None:
    """Raise what an answer says.

    Raises:
        LogUnavailable: always.
    """
    code = error.get("err_code")
    if code == _NOT_FOUND:
        raise LogUnavailable(f"there is no log at {address.place}")
    if code == _OVERLAP:
        raise ForeignLog(f"{address.place}: another stream has the subjects of this log")
    raise LogUnavailable(f"{address.place}: {error.get('description', error)}")


def _iterate_limits(config: Mapping[str, Any]) -> Iterator[str]:
    """What in the configuration of a stream would lose records, or mislead or refuse this store."""
    if config.get("storage") != "file":
        yield "`storage` is `file`"
    if config.get("retention") != "limits":
        yield "`retention` is `limits`"
    if config.get("num_replicas", 1) > 1:  # any of them answers a read, and one may be behind the others
        yield "`num_replicas` is 1"
    if config.get("max_age"):
        yield "`max_age` is 0"
    if config.get("max_msgs_per_subject", -1) > 0:
        yield "`max_msgs_per_subject` is -1"
    has_limits = config.get("max_msgs", -1) > 0 or config.get("max_bytes", -1) > 0
    if has_limits and config.get("discard") != "new":
        yield "`discard` is `new`"
    for name in ("allow_direct", "allow_rollup_hdrs", "allow_atomic"):
        if not config.get(name):
            yield f"`{name}` is true"
    for name in ("deny_delete", "deny_purge"):
        if config.get(name):
            yield f"`{name}` is false"


# -- what it may hold --------------------------------------------------------------------------------

_VALUE_STATES = {"open", "done"}


async def find_damage(stream: Stream, subjects: Subjects) -> list[LogDamaged]:
    """Everything in the stream that is not as a store of Toolchart leaves it."""
    counts = await stream.count_subjects(subjects.everything)
    return [*_check_places(subjects, counts), *_check_belongings(subjects, counts)]


def _check_places(subjects: Subjects, counts: dict[str, int]) -> Iterator[LogDamaged]:
    """Messages under subjects that no log has."""
    for subject in counts:
        if not _is_known(subjects.split(subject)):
            yield LogDamaged(f"it has messages of the subject {subject}, which no log has")


def _is_known(tokens: list[str]) -> bool:
    match tokens:
        case ["f", _, _, "b" | "r" | "e" | "d"] | ["k", _] | ["x", _, _]:
            return True
        case ["f", _, _, "v", _, state, _]:
            return state in _VALUE_STATES
    return False


def _check_belongings(subjects: Subjects, counts: dict[str, int]) -> Iterator[LogDamaged]:
    """Records without a beginning, and what is made from records of conversations that are not there."""
    begun = {
        (tokens[1], tokens[2])
        for tokens in map(subjects.split, counts)
        if tokens[0] == "f" and tokens[3:] == ["b"]
    }
    derived: dict[str, int] = {}
    for subject, count in counts.items():
        match subjects.split(subject):
            case ["f", family, conversation, "r" | "e"] if (family, conversation) not in begun:
                problem = f"it has {count} messages with records, and no first record"
                yield LogDamaged(problem, conversation=decode_token(conversation), seq=0)
            case ["f", family, conversation, "v", kind, _, _] if (
                kind in DERIVED_KINDS and (family, conversation) not in begun
            ):
                derived[conversation] = derived.get(conversation, 0) + count
    for count in derived.values():
        yield LogDamaged(f"it has {count} checkpoints or totals of a conversation that it does not have")
