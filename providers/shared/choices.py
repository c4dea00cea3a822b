"""Replies that come in several choices or candidates, although one was asked for.

Nobody asks for several (`extra_body` must not set `n`), so a host that sends them has split one reply: its
text in one choice, its calls in others. Choices of one kind are alternatives, of which the first is the
reply: two texts, and calls in two choices without a text beside them, for running both would act twice.

Source: HKUDS/nanobot#1555 (text in the first choice, each call in one of its own).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from toolchart.states.errors import ProviderError
from toolchart.states.messages import CallArguments, CallStarted, Delta

MAX_CHOICES = 128
"""Most choices of a streamed reply: as many as can be asked for of OpenAI. A piece is compared with all."""

_Choice = TypeVar("_Choice", bound="StreamedChoice")


def is_one_reply(kinds: Sequence[tuple[bool, int]]) -> bool:
    """Whether choices are parts of one reply.

    Args:
        kinds: of each choice, whether it has text or other content, and how many calls.

    >>> is_one_reply([(True, 0), (False, 1), (False, 1)]), is_one_reply([(True, 0), (True, 0)])
    (True, False)
    """
    callers = [has_answer for has_answer, call_count in kinds if call_count]
    answer_count = sum(has_answer for has_answer, _ in kinds)
    return answer_count <= 1 and (len(callers) <= 1 or (answer_count == 1 and not any(callers)))


class StreamedChoice(Protocol):
    """A choice as it grows."""

    held_deltas: list[Delta]
    """Deltas that were not shown: those of a choice after the first."""

    def describe_kind(self) -> tuple[bool, int]:
        """Whether it has text or other content so far, and how many calls."""
        ...

    def is_over(self) -> bool:
        """Whether the host has said why it ended."""
        ...


def add_choice(choices: dict[Any, _Choice], index: Any, choice: _Choice) -> _Choice:
    """The choice, which is now one of the choices.

    Raises:
        ProviderError: there are `MAX_CHOICES` already.
    """
    if len(choices) >= MAX_CHOICES:
        message = f"the stream has more than {MAX_CHOICES} choices, and one was asked for"
        raise ProviderError(kind="bad_response", message=message, retryable=False)
    choices[index] = choice
    return choice


def select_deltas(
    choice: StreamedChoice, choices: Collection[StreamedChoice], deltas: list[Delta]
) -> list[Delta]:
    """The deltas that a reader is shown after a piece of a choice: those of the first one at once, those of
    another one when it is over, if it is a part of the same reply."""
    first, *others = choices
    if choice is first:
        return deltas
    choice.held_deltas += deltas
    if not choice.is_over() or not is_one_reply([item.describe_kind() for item in choices]):
        return []
    shown, choice.held_deltas = choice.held_deltas, []
    before = others[: others.index(choice)]
    offset = sum(item.describe_kind()[1] for item in (first, *before))
    return [
        replace(delta, index=delta.index + offset)
        if isinstance(delta, CallStarted | CallArguments)
        else delta
        for delta in shown
    ]
