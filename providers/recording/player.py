"""The recorded provider: a model host that answers from what was recorded, with no network.

It holds takes, each a request and what came of it, from a cassette or from a log, and gives each of
them once. Which one answers is said by `match`:

- `strict`: the first that asked the same, up to the harmless differences listed in `asked.py`;
- `tail`: the first where the messages since the model's last one are the same, whatever model, prompt,
  tools and options were;
- `order`: the next, whatever was asked.

A miss is a failed model call that says how the nearest recorded request differs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from toolchart.providers.recording.canonical_requests import (
    Asked,
    Difference,
    asked_of,
    differences,
    distance,
)
from toolchart.providers.recording.recorded_calls import Take, cassette_takes
from toolchart.providers.shared.reply_deltas import in_pieces
from toolchart.providers.shared.settings import AdapterSettings, own_settings
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import FinishReason, Reply, Request
from toolchart.states.schema_dialects import Dialect

Match = Literal["strict", "order", "tail"]

_MOST_TOLD = 6
"""Differences told of a miss."""


class RecordedSettings(AdapterSettings):
    """Keys of a `recorded` entry beyond the common ones."""

    cassette: str | None = None
    """Cassette to answer from; relative to the spec."""
    log: str | None = None
    """Log to answer from, instead of a cassette; relative to the spec."""
    conversation: str | None = None
    """Conversation of the log; without it the only one."""
    match: Match = "strict"
    """How a request finds its recorded answer."""
    finish_words: dict[str, FinishReason] | None = None
    """The recorded host's own finish reasons, and what they mean."""


class _Sent:
    """A request in the shape of each dialect that recordings ask for, made once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._made: dict[Dialect | None, Asked] = {}

    def to(self, dialect: Dialect | None) -> Asked:
        """The request as a host of this dialect would be asked."""
        if dialect not in self._made:
            self._made[dialect] = asked_of(self._request, dialect)
        return self._made[dialect]


class RecordedProvider:
    """Answers from takes, each once, in their order."""

    name = "recorded"

    def __init__(self, takes: Sequence[Take], *, match: Match = "strict") -> None:
        self._takes = takes
        self._match: Match = match
        self._left = list(range(len(takes)))

    @classmethod
    def from_config(cls, config: LLMConfig, resolve: Callable[[str], str]) -> RecordedProvider:
        """The provider of an `llms` entry with a `cassette`.

        Raises:
            SpecError: no cassette, or one that cannot be read.
        """
        settings = recorded_settings(config)
        if settings.cassette is None:
            raise SpecError(
                "a recorded provider that answers from a log needs an engine, which reads the log",
                path="llms.*.log",
                hint="run it with toolchart.engine, or name a `cassette`",
            )
        takes = cassette_takes(Path(settings.cassette), settings.finish_words)
        return cls(takes, match=settings.match)

    async def complete(self, request: Request) -> Reply:
        """The recorded reply, or the recorded failure.

        Raises:
            ProviderError: the recorded failure; or `bad_request` where nothing recorded matches, with
                the differences to the nearest recorded request as JSON pointers.
        """
        return self._take(request).answer()

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The same reply, word by word."""
        async for piece in in_pieces(await self.complete(request)):
            yield piece

    async def aclose(self) -> None:
        """Nothing to give back."""

    @property
    def left(self) -> int:
        """Takes that were not given yet."""
        return len(self._left)

    # -- finding ---------------------------------------------------------------------------------

    def _take(self, request: Request) -> Take:
        if not self._left:
            raise _miss(f"the recording has {len(self._takes)} model calls and no more")
        sent = _Sent(request)
        for place in self._left:
            if self._match == "order" or not self._compared(place, sent):
                self._left.remove(place)
                return self._takes[place]
        raise self._told(sent)

    def _compared(self, place: int, sent: _Sent) -> list[Difference]:
        take = self._takes[place]
        if self._match == "tail":
            return differences(_tail(take.asked), _tail(sent.to(None)))
        found = differences(take.asked, sent.to(None))
        if not found or take.dialect is None:
            return found
        # Recorded from our own adapter, the tools stand there in the host's part of JSON Schema.
        return min(found, differences(take.asked, sent.to(take.dialect)), key=distance)

    def _told(self, sent: _Sent) -> ProviderError:
        """A miss, with how the nearest take differs."""
        found = [(self._compared(place, sent), self._takes[place]) for place in self._left]
        nearest, take = min(found, key=lambda one: distance(one[0]))
        lines = [f"  {difference}" for difference in nearest[:_MOST_TOLD]]
        if len(nearest) > _MOST_TOLD:
            lines.append(f"  and {len(nearest) - _MOST_TOLD} more differences")
        looser = "tail" if self._match == "strict" else "order"
        return _miss(
            "\n".join(
                [
                    f"no recorded request matches ({self._match}); the nearest is {take.place}:",
                    *lines,
                    f"record anew (`record: FILE`), or loosen it (`match: {looser}`)",
                ]
            )
        )


def recorded_settings(config: LLMConfig) -> RecordedSettings:
    """The settings of a `recorded` entry.

    Raises:
        SpecError: neither or both of `cassette` and `log`, or a key that there is not.
    """
    settings = own_settings(RecordedSettings, config)
    if (settings.cassette is None) == (settings.log is None):
        raise SpecError(
            "a recorded provider answers from a `cassette` or from a `log`",
            path="llms.*",
            hint="give one of the two: `cassette: FILE`, or `log: FILE` with `conversation: ID`",
        )
    return settings


def _miss(message: str) -> ProviderError:
    return ProviderError(kind="bad_request", message=message)


def _tail(asked: Asked) -> dict[str, Any]:
    """The messages since the model's last one; which call a result answers depends on earlier ones."""
    messages = asked["messages"]
    last = max((n for n, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
    return {"messages": [{**one, "call": None} for one in messages[last + 1 :]]}
