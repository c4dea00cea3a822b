"""Versions: what derives the records of a conversation, and what changed since they were written."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from toolchart.states.canonical_json import find_first_difference
from toolchart.states.core.encoding import encode
from toolchart.states.core.step import SEMANTICS
from toolchart.states.errors import ReplayMismatch, UnknownSemantics
from toolchart.states.events import Configured, Texts, Versions
from toolchart.states.messages import ToolDefinition

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def build_versions(
    definitions: Iterable[ToolDefinition],
    sources: Mapping[str, str],
    digests: Mapping[str, str] | None = None,
) -> Versions:
    """The versions of this release with these tools, as record 0 and `continued` hold them.

    Args:
        sources: by name of a tool that is a Python function: digest of its source.
        digests: by name of a tool: digest of its whole definition, with what running it does. None where
            nothing is known but what a model reads: then the digests of that.
    """
    return Versions(
        toolchart=read_release(),
        semantics=SEMANTICS,
        tools=(
            {tool.name: digest_model_definition(tool) for tool in definitions}
            if digests is None
            else dict(digests)
        ),
        sources=dict(sources),
    )


def read_release() -> str:
    """The version of this release of Toolchart."""
    # Not by an import: the package's root imports this room, for those who check types.
    root = sys.modules[__name__.partition(".")[0]]
    return str(root.__version__)


def digest_model_definition(tool: ToolDefinition) -> str:
    """The digest of a tool's definition as a model reads it: 32 hexadecimal digits."""
    return hashlib.sha256(_encode_sorted(tool)).hexdigest()[:32]


def encode_texts(texts: Texts | None = None) -> dict[str, str]:
    """Every text of the core by its field, as record 0 holds them.

    Args:
        texts: None is the texts of this release.
    """
    return dict(msgspec.structs.asdict(texts if texts is not None else Texts()))


def check_semantics(versions: Versions, seq: int) -> None:
    """Check that this release derives records of these versions.

    Raises:
        UnknownSemantics: names the release that does.
    """
    # 0: written without versions, by a tool that builds logs; deriving decides.
    if versions.semantics not in (0, SEMANTICS):
        raise UnknownSemantics(
            seq=seq, recorded=versions.semantics, known=SEMANTICS, release=versions.toolchart or "(not named)"
        )


class SettingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between what a log was written with and what would write it now."""

    cause: str
    """`chart`, `spec`, `tool schema`, `tool source`, `texts` or `release`."""
    pointer: str
    """JSON pointer into the record."""
    expected: Any
    """The value in the log."""
    actual: Any
    """The value now."""


def find_setting_differences(recorded: Configured, current: Configured) -> Iterator[SettingDifference]:
    """The first difference of each part of two `configured` events, the most telling part first.

    A log that does not name a version is not compared in that part.
    """
    before, now = recorded.versions, current.versions
    parts: list[tuple[str, str, Any, Any]] = [
        ("chart", "chart", recorded.chart, current.chart),
        ("effects", "chart", recorded.effects, current.effects),
        ("tools", "tool schema", recorded.tools, current.tools),
        ("spec", "spec", recorded.spec, current.spec),
        ("versions/sources", "tool source", before.sources, now.sources if before.sources else {}),
        ("texts", "texts", recorded.texts, current.texts if recorded.texts else {}),
        ("versions/semantics", "release", before.semantics, now.semantics if before.semantics else 0),
        ("versions/toolchart", "release", before.toolchart, now.toolchart if before.toolchart else ""),
    ]
    for name, cause, recorded_part, current_part in parts:
        old_value, new_value = encode(recorded_part), encode(current_part)
        if old_value != new_value:
            pointer, old_value, new_value = find_first_difference(f"/event/{name}", old_value, new_value)
            yield SettingDifference(cause=cause, pointer=pointer, expected=old_value, actual=new_value)


def compare_configuration(recorded: Configured, current: Configured, seq: int) -> None:
    """Check that an agent has the chart, tools, spec, texts and versions that a log was written with.

    Raises:
        ReplayMismatch: names the first difference and the kind of its cause.
    """
    for difference in find_setting_differences(recorded, current):
        raise ReplayMismatch(
            seq=seq,
            pointer=difference.pointer,
            expected=difference.expected,
            actual=difference.actual,
            blame=difference.cause,
        )
